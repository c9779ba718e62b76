#!/usr/bin/env python3
"""Draws held-out scenarios of the arena, with the hash of the commit that froze `foresight` as the seed.

    FORETOKEN_TRACES=TRACES draw.py HASH --foretoken target/release/foretoken [--only 3]

One scenario of each kind in `KINDS`. Pair, GPU, window, load, order, costs of decisions, misfit of confidences and
staleness are drawn from the lists below; windows are parts of the traces that no other file has, and no pair stands on
a GPU on which another file has it. The rate of the plain engine and the TPOT bound are measured with the program, as
README.md says. What is drawn stays, also if a policy does badly on it; a file that exists is not written again.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = [401, 402, 403, 404, 405]
# The number of the first scenario. 17 to 24 were drawn by this script as it was in the commits that they name.
FIRST = 25
# Target, drafter, method, GPUs with their number, and a range of the chance that the first draft is right.
PAIRS = [
    ("llama-3.3-70b", "llama-3.2-3b", "draft-model", ["2 h200", "4 a100-80g", "2 b200", "2 mi300x"], (0.70, 0.82)),
    ("qwen3-32b", "qwen3-1.7b", "draft-model", ["2 a100-80g", "4 l40s", "1 h200", "1 mi300x"], (0.66, 0.80)),
    ("qwen2.5-72b", "qwen2.5-0.5b", "draft-model", ["4 h100", "8 a100-40g", "2 h200", "1 b300"], (0.60, 0.75)),
    ("gemma-3-27b", "gemma-3-1b", "draft-model", ["1 h100", "2 l40s", "1 gh200"], (0.62, 0.78)),
    ("llama-3.1-8b", "llama-3.2-1b", "draft-model", ["1 a10", "1 rtx-4090", "1 l40s", "1 rtx-5090"], (0.68, 0.80)),
    ("qwen3-14b", "qwen3-0.6b", "draft-model", ["1 l40s", "1 a100-40g", "1 rtx-pro-6000"], (0.64, 0.76)),
    ("llama-3.1-8b", "eagle3-llama-3.1-8b", "eagle3", ["1 h200", "1 gh200", "1 a10", "1 mi300x"], (0.74, 0.86)),
    ("qwen3-8b", "eagle3-qwen3-8b", "eagle3", ["1 a100-80g", "1 rtx-4090", "1 h20"], (0.70, 0.84)),
    ("llama-3.3-70b", "eagle3-llama-3.3-70b", "eagle3", ["4 a100-80g", "2 b200", "8 l40s"], (0.72, 0.85)),
    ("gpt-oss-120b", "eagle3-gpt-oss-120b", "eagle3", ["1 h200", "1 b200", "1 mi300x"], (0.60, 0.80)),
    ("qwen3-30b-a3b", "eagle3-qwen3-30b-a3b", "eagle3", ["1 h100", "1 h200", "2 l40s"], (0.66, 0.80)),
    ("deepseek-v3.2", "deepseek-v3.2-mtp", "mtp", ["8 h200", "8 b200", "8 mi300x"], (0.78, 0.90)),
    ("glm-4.6", "glm-4.6-mtp", "mtp", ["8 h100", "8 h200", "4 b200"], (0.76, 0.88)),
    ("qwen3.5-27b", "qwen3.5-27b-mtp", "mtp", ["1 h100", "2 a100-80g", "1 gh200"], (0.76, 0.88)),
    ("mimo-7b", "mimo-7b-mtp", "mtp", ["1 l40s", "1 a100-40g", "1 rtx-4090"], (0.74, 0.86)),
    ("qwen3-8b", "dflash-qwen3-8b", "dflash", ["1 a100-80g", "1 l40s", "1 rtx-5090"], (0.74, 0.88)),
    ("qwen3.6-27b", "dspark-qwen3.6-27b", "dspark", ["1 h100", "2 l40s", "1 gh200"], (0.76, 0.88)),
]
EXPERTS = {"gpt-oss-120b", "qwen3-30b-a3b", "deepseek-v3.2", "glm-4.6"}
# Parts of the traces that no other file of the arena has, seconds.
FREE = {
    "azure/AzureLLMInferenceTrace_conv.csv": [(1677, 1800), (1993, 2100), (3301, 3500)],
    "azure/AzureLLMInferenceTrace_code.csv": [(3000, 3435)],
    "mooncake/conversation_trace.jsonl": [(1354, 2099), (3190, 3537)],
    "mooncake/synthetic_trace.jsonl": [(0, 344), (624, 1022)],
}
SHORT = {"azure/AzureLLMInferenceTrace_conv.csv": "Azure's conversations", "azure/AzureLLMInferenceTrace_code.csv": "Azure's code trace"}
SHORT |= {"mooncake/conversation_trace.jsonl": "Mooncake's conversations", "mooncake/synthetic_trace.jsonl": "Mooncake's synthetic trace"}
# What the requests of each scenario are: a window of a trace, a file of arrivals, or a law.
KINDS = [*FREE, "bursts", "steady", "clients", "batch"]
LENGTHS = [
    "{ spec-bench = {} }",
    '{ table = "sharegpt" }',
    "{ log-normal = { prompt = { mean = 900, sigma = 0.8, max = 6000 }, output = { mean = 250, sigma = 0.7, max = 2000 } } }",
    "{ log-normal = { prompt = { mean = 150, sigma = 0.6, max = 1000 }, output = { mean = 600, sigma = 0.8, max = 4000 } } }",
]
DECISIONS = [(0.0, 2), (1e-4, 5), (3e-4, 2)]
ORDERS = [({}, "step-end, asynchronous", 4), ({"async_scheduling": False}, "step-end, synchronous", 2), ({"draft_at": "step-start"}, "step-start", 3)]
MISFITS = [(None, 4), ((0.6, 0.5), 1), ((1.0, 1.2), 1), ((1.0, 0.0), 2), ((0.0, 0.0), 1)]


def weighted(draw: random.Random, of: list):
    return draw.choices(of, [weight for *_, weight in of])[0]


def toml(value) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(of)}" for key, of in value.items()) + " }"
    return str(value).lower() if isinstance(value, bool) else json.dumps(value) if isinstance(value, str) else f"{value:.4g}"


def taken() -> set:
    """The pairs on GPUs that other files have: (target, drafter, GPU)."""
    found = set()
    for path in HERE.glob("*.toml"):
        text = path.read_text()
        names = [part.split('"')[1] for part in text.split("model = ")[1:]]
        gpus = [part.split('"')[1] for part in text.split("gpu = ")[1:]]
        if len(names) > 1 and gpus:
            found.add((names[0], names[1], gpus[0]))
    return found


def measured(args, text: str) -> dict:
    """The plain engine's numbers on an experiment: the load and the policy's row."""
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        path = pathlib.Path(folder) / "plain.toml"
        path.write_text(text)
        command = [args.foretoken, "run", str(path), "-o", f"{folder}/results", "--no-figures", "--format", "json"]
        sets = {"policies": "[{ autoregressive = {} }]", "seeds": "[301]"}
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(text)["variants"][0]
        return found["policies"][0] | {"load": found.get("load")}


def drawn(args, number: int, kind: str) -> None:
    draw = random.Random(f"{args.hash} {number}")
    pairs = [(pair, gpu) for pair in PAIRS for gpu in pair[3] if (pair[0], pair[1], gpu.split()[1]) not in taken()]
    (target, drafter, method, _, chances), gpu = draw.choice(pairs)
    count, gpu = gpu.split()
    first, fall = draw.uniform(*chances), draw.uniform(0.01, 0.05)
    rates = [round(max(first - fall * depth / (1 + 0.4 * depth), 0.3), 2) for depth in range(8)]
    settings, order, _ = weighted(draw, ORDERS)
    decision_s, _ = weighted(draw, DECISIONS)
    misfit, _ = weighted(draw, MISFITS)
    load, staleness = round(draw.uniform(0.25, 1.3), 2), draw.choice([0, 0, 0, 1, 2])
    roofline = {"gpu": gpu, "model": target} | ({"tensor_parallel": int(count)} if count != "1" else {})
    experts = {"expert_reuse": 0.3} if target in EXPERTS else {}
    engine = dict(settings)
    if method != "draft-model":
        engine["method"] = method
    if method == "mtp":
        engine["max_draft_len"] = draw.choice([3, 5, 6])
    if method in ("dflash", "dspark"):
        engine["max_draft_len"] = draw.choice([7, 9, 15])
    if decision_s:
        engine["decision_s"] = {"propose": decision_s / 5, "keep_drafting": decision_s, "select": decision_s}
    requests, workload, window = 1100, [], None
    if kind in FREE:
        start, end = draw.choice(FREE[kind])
        start = round(draw.uniform(start, max(start, end - 320.0)))
        workload.append('arrivals = { trace = { path = "${FORETOKEN_TRACES}/%s" } }' % kind)
        window = "{ window = { start_s = %.1f, end_s = %.1f } }, { max-requests = %d }" % (start, end, requests)
        about = f"{SHORT[kind]} from {start} s on"
    else:
        lengths = draw.choice(LENGTHS)
        workload += [f"lengths = {lengths}", f"requests = {requests}"]
        cv = round(draw.uniform(1.5, 4.0), 1)
        about = {"bursts": f"bursts (coefficient of variation {cv})", "steady": "Poisson arrivals", "clients": "clients in a closed loop", "batch": "an offline batch"}[kind]
        clients = draw.choice([8, 24, 48, 96])
    about += f", {drafter} for {target} on {count if count != '1' else 'one'} {gpu}"
    head = "[hardware]\ntarget = %s\ndraft = %s\n" % (toml({"roofline": roofline | experts}), toml({"roofline": roofline | {"model": drafter}}))
    head += 'drafting = "parallel"\n' if method in ("dflash", "dspark") else ""
    if engine:
        head += "\n[engine]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in engine.items())
    tail = "[acceptance.source]\n" + f"by-depth = {{ rates = {rates} }}\n"
    if misfit is not None:
        tail += "\n[acceptance.confidence]\nmisfit = { scale = %.1f, shift = %.1f }\n" % misfit
    if staleness:
        tail += f"\n[belief]\nstaleness_steps = {staleness}\n"

    def text(arrivals: list, bound: str, about: str = about) -> str:
        name = f"held-out-{number}"
        top = f'name = "arena-{name}"\nseeds = {SEEDS}\n\n'
        top += f'[arena]\nset = "held-out"\nabout = "{about}"\n\n' if bound else ""
        return top + head + "\n[workload]\n" + "".join(line + "\n" for line in arrivals) + "\n" + tail + bound + "\n[output]\nfigures = false\n"

    def at(rate_of_window: float | None, rate: float) -> list:
        """The workload at a rate of arrivals: of a window, its scale; else requests a second."""
        if rate_of_window is not None:
            return workload + [f"transform = [{window}, {{ rate-scale = {rate / rate_of_window:.3g} }}]"]
        if kind in ("clients", "batch"):
            return workload + ["arrivals = { batch = {} }" if kind == "batch" else f"arrivals = {{ closed-loop = {clients} }}"]
        return workload + ["arrivals = { gamma = { rate = %.3g, cv = %.1f } }" % (rate, cv) if kind == "bursts" else "arrivals = { poisson = { rate = %.3g } }" % rate]

    # The plain engine without a drafter: its rate if all requests are there at once, and its TPOT at 0.3 of this rate.
    slow = measured(args, text(at(1.0, 1.0) if window else workload + ["arrivals = { poisson = { rate = 1.0 } }"], ""))["load"]
    native = slow["req_s"] if window else None
    at_once = measured(args, text(at(1.0, 1e6) if window else workload + ["arrivals = { batch = {} }"], ""))
    rate = at_once["token_goodput_tok_s"]["mean"] * slow["req_s"] / slow["output_tok_s"]
    light = at(native, 0.3 * rate) if kind not in ("clients", "batch") else workload + ["arrivals = { poisson = { rate = %.3g } }" % (0.3 * rate)]
    bound = 1.5 * measured(args, text(light, ""))["tpot_p90_s"]["mean"]
    loaded = "" if kind in ("clients", "batch") else f", at {load} of what the plain engine serves"
    comment = f"Drawn by draw.py from {args.hash}. {about[0].upper() + about[1:]}; {order}{loaded}. "
    comment += f"The plain engine finishes {rate:.2f} of these requests a second when all are there at once."
    comment = textwrap.fill(comment, 120, initial_indent="# ", subsequent_indent="# ") + "\n"
    whole = "#:schema ../experiment.schema.json\n" + comment + text(at(native, load * rate), f"\n[slo]\ntpot_s = {bound:.3g}\n")
    path = HERE / f"held-out-{number}.toml"
    if not path.exists():
        path.write_text(whole)
    print(path.name, about, order, f"load {load}", f"decisions {decision_s}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hash")
    parser.add_argument("--foretoken", required=True)
    parser.add_argument("--only", type=int, action="append")
    args = parser.parse_args()
    if "FORETOKEN_TRACES" not in os.environ:
        parser.error("FORETOKEN_TRACES names no folder of traces")
    for number, kind in enumerate(KINDS, FIRST):
        if not args.only or number in args.only:
            drawn(args, number, kind)


if __name__ == "__main__":
    main()
