"""Rows of measured servers, said as experiments.

The table is systems/silicon_sample.csv of PyPI aiconfigurator-core 0.12.0 (Apache-2.0), the checkpoints' files are in its
model_configs. Both stay in the package. A row that no experiment can say is counted with its reason.
"""

import collections
import hashlib
import json
import math
import pathlib
import random

import pandas as pd

import servers

ROOT = pathlib.Path(__file__).resolve().parents[3]
SYSTEMS = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300", "gb200": "gb200"}
KEY = [
    "backend", "model_path", "system", "precision", "isl", "osl", "batch_size", "tp_size", "attention_dp_size",
    "moe_tp_size", "moe_ep_size",
]
Checkpoint = collections.namedtuple("Checkpoint", "file bits", defaults=(None,))

# The file of a (model, precision). `bits`: the quantisation_config that the file lacks, or "beside" if it stands in the
# file beside it.
FP8 = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
FP8_BLOCKS = FP8 | {"weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
LLAMA_8B, LLAMA_70B = "meta-llama--Meta-Llama-3.1-8B", "meta-llama--Meta-Llama-3.1-70B"
DEEPSEEK_FP4 = Checkpoint("nvidia--DeepSeek-V3.1-NVFP4", "beside")
CHECKPOINTS = {
    ("meta-llama/Llama-3.1-8B-Instruct", ""): Checkpoint(LLAMA_8B),
    ("meta-llama/Llama-3.1-8B-Instruct", "fp8"): Checkpoint(LLAMA_8B, FP8),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"): Checkpoint(LLAMA_8B, FP8),
    ("meta-llama/Llama-3.1-70B", "fp8"): Checkpoint(LLAMA_70B, FP8),
    ("meta-llama/Llama-3.1-70B", "fp4"): Checkpoint(LLAMA_70B, NVFP4),
    ("Qwen/Qwen3-32B", ""): Checkpoint("Qwen--Qwen3-32B"),
    ("Qwen/Qwen3-32B", "fp8"): Checkpoint("Qwen--Qwen3-32B-FP8"),
    ("Qwen/Qwen3-32B", "fp4"): Checkpoint("Qwen--Qwen3-32B", NVFP4),
    ("nvidia/Qwen3-32B-NVFP4", "fp4"): Checkpoint("Qwen--Qwen3-32B", NVFP4),
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8"): Checkpoint("Qwen--Qwen3-235B-A22B-FP8"),
    ("openai/gpt-oss-120b", "fp4"): Checkpoint("openai--gpt-oss-120b"),
    ("deepseek-ai/DeepSeek-R1", "fp8"): Checkpoint("deepseek-ai--DeepSeek-R1"),
    ("deepseek-ai/DeepSeek-V3", "fp8"): Checkpoint("deepseek-ai--DeepSeek-V3"),
    ("deepseek-ai/DeepSeek-R1", "fp4"): DEEPSEEK_FP4,
    ("deepseek-ai/DeepSeek-V3", "fp4"): DEEPSEEK_FP4,
    ("nvidia/DeepSeek-R1-NVFP4", "fp4"): DEEPSEEK_FP4,
    ("nvidia/DeepSeek-V3.1-NVFP4", "fp4"): DEEPSEEK_FP4,
    ("MiniMaxAI/MiniMax-M2.5", "fp8"): Checkpoint("MiniMaxAI--MiniMax-M2.5"),
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): Checkpoint("nvidia--MiniMax-M2.5-NVFP4"),
    ("Qwen/Qwen3.5-397B-A17B", "bf16"): Checkpoint("Qwen--Qwen3.5-397B-A17B"),
    ("Qwen/Qwen3.5-397B-A17B", "fp8"): Checkpoint("Qwen--Qwen3.5-397B-A17B", FP8_BLOCKS),
    ("Qwen/Qwen3.5-397B-A17B", "fp4"): Checkpoint("nvidia--Qwen3.5-397B-A17B-NVFP4"),
    ("moonshotai/Kimi-K2.5", "int4"): Checkpoint("moonshotai--Kimi-K2.5"),
    ("moonshotai/Kimi-K2.5", "fp4"): Checkpoint("nvidia--Kimi-K2.5-NVFP4"),
    ("zhipuai/GLM-5", "fp8"): Checkpoint("zai-org--GLM-5-FP8"),
    ("zhipuai/GLM-5", "fp4"): Checkpoint("nvidia--GLM-5-NVFP4", "beside"),
}


class Unsaid(Exception):
    """Why no experiment can say a row."""


def number(value, otherwise=1):
    return otherwise if pd.isna(value) else int(value)


def word(value):
    return "" if pd.isna(value) else str(value)


def read(package):
    """The rows of one aggregated engine, without rows that repeat an earlier one in every measured digit."""
    rows = pd.read_csv(package / "systems" / "silicon_sample.csv")
    rows = rows[rows["mode"] == "agg"]
    return rows[~rows.duplicated([*KEY, "silicon_ttft_ms", "silicon_tpot_ms"])].reset_index(drop=True)


def half(row):
    """"tune" or "judge". All measurements of a configuration are in one half."""
    text = "|".join(word(row[key]) for key in KEY)
    return "judge" if hashlib.sha256(text.encode()).digest()[0] % 2 else "tune"


def suspect(rows):
    """For each row: the rule by which its measurement is suspect, or "". The rules do not look at predictions."""
    found = pd.Series("", index=rows.index)
    spread = rows.groupby(KEY, dropna=False)["silicon_tpot_ms"].transform(lambda t: t.max() / t.min())
    found[spread > 1.5] = "measured again, its TPOT differs by more than half"
    found[rows["silicon_ttft_ms"] > 20_000] = "TTFT above 20 s: more clients than slots"
    return found


def checkpoint(row, package, folder):
    """The setting `model` of a roofline."""
    key = (row["model_path"], word(row["precision"]))
    if key not in CHECKPOINTS:
        raise Unsaid(f"no checkpoint of {key[0]} in {key[1] or 'bf16'} is known")
    named = CHECKPOINTS[key]
    configs = package / "model_configs"
    config = json.loads((configs / f"{named.file}_config.json").read_text())
    if named.bits == "beside":
        beside = json.loads((configs / f"{named.file}_hf_quant_config.json").read_text())["quantization"]
        config["quantization_config"] = {"quant_method": "modelopt"} | beside
    elif named.bits:
        config["quantization_config"] = named.bits
    path = folder / f"{named.file}-{key[1]}" / "config.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))
    return {"config": str(path)}


def parallel(row):
    """(GPUs of the tensor-parallel group, whether experts are spread whole, data-parallel ranks), or Unsaid."""
    tp, dp = number(row["tp_size"]), number(row["attention_dp_size"])
    inner, spread = number(row["moe_tp_size"]), number(row["moe_ep_size"])
    if number(row["pp_size"]) > 1:
        raise Unsaid("pipeline parallelism")
    if dp > 1:
        return ranks(tp, dp, inner, spread)
    # InferenceX's "tp: 4, ep: 4" are 4 GPUs that hold whole experts. Its dump has TP times EP in tp_size, TP in
    # moe_tp_size, and EP in moe_ep_size.
    if benchmark(row) == "InferenceX" and inner == spread > 1 and tp == inner * spread:
        return inner, True, 1
    if inner > 1 and spread > 1:
        raise Unsaid("experts both split and spread")
    return tp, spread > 1, 1


def ranks(tp, dp, inner, spread):
    """What `parallel` says of a row whose attention is data-parallel. Each rank has one GPU.

    InferenceX's "tp: 4, ep: 4, dp-attn: true" are 4 GPUs with a rank each, which hold whole experts. Its dump has 4 in
    tp_size and attention_dp_size and their product in moe_ep_size (vLLM), or TP times EP in attention_dp_size, and TP
    and EP in the experts' columns (TensorRT-LLM). With EP 1 each expert is split over the GPUs.
    """
    if tp == dp and inner == 1 and spread == tp * dp:
        return 1, True, dp
    if tp == 1 and inner == spread > 1 and dp == inner * spread:
        return 1, True, inner
    if tp == 1 and dp == inner * spread and min(inner, spread) == 1:
        return 1, spread > 1, dp
    raise Unsaid("attention is data-parallel, and the experts' GPUs are not the ranks'")


def benchmark(row):
    return "other" if "auto-gap-analysis" in word(row["silicon_data_source"]) else "InferenceX"


def clients_of(row):
    """Clients of one worker, or Unsaid."""
    said = [part for part in word(row["silicon_data_source"]).split("; ") if part.startswith("silicon_concurrency=")]
    if not said:
        raise Unsaid("no concurrency is named")
    clients, each = int(said[0].partition("=")[2]), int(row["batch_size"])
    # The ranks of one server share its clients.
    if number(row["attention_dp_size"]) > 1:
        return clients
    # W workers behind one front end that sends requests to them in turn: each has its share of the clients.
    if clients % each:
        raise Unsaid("several workers behind one front end, with unequal shares of the clients")
    return each


def say(row, package, folder, with_servers):
    """The row as (roofline, clients, fleet or None, engine settings, lengths file, number of requests), or Unsaid.

    `with_servers`: with the settings and times of `servers.py`.
    """
    if row["system"] not in SYSTEMS:
        raise Unsaid(f"no preset is {row['system']}")
    tp, spread, dp = parallel(row)
    clients = clients_of(row)
    gpu = SYSTEMS[row["system"]]
    server = servers.settings(row, tp, gpu, clients) if with_servers else servers.unknown(row)
    model = checkpoint(row, package, folder)
    roofline = {"gpu": gpu, "model": model, "tensor_parallel": tp, "expert_parallel": spread}
    if dp > 1:
        roofline["data_parallel"] = dp
    if server["kv"]:
        roofline["kv_bits"] = server["kv"]
    if word(row["precision"]) == "fp4" and gpu in servers.HOPPER:
        roofline["weight_only"] = True
    fleet = servers.fleet(row, dp) if dp > 1 else None
    return roofline, clients, fleet, *schedule(row, server, gpu, clients, folder)


def schedule(row, server, gpu, clients, folder):
    """Engine settings, and a file of lengths as the benchmark drew them."""
    isl, osl = int(row["isl"]), int(row["osl"])
    # InferenceX draws prompts and outputs from 0.8 of the length to the length. The others fix them. Clients of vLLM
    # and TensorRT-LLM do not stay in step as clients of a simulation would, so outputs are spread by a tenth. SGLang
    # runs all waiting prompts before it decodes, which brings clients of equal lengths into step.
    other = benchmark(row) == "other"
    drawn, low, high = (1, 0.9, 1.1) if other else (0, 0.8, 1.0)
    if other and row["backend"] == "sglang":
        drawn, low, high = "fixed", 1.0, 1.0
    longest = isl + math.ceil(1.1 * osl)
    engine = {
        "max_model_len": longest, "max_num_seqs": server["slots"] or max(1024, clients), "prefix_caching": False,
    }
    if row["backend"] == "sglang":
        # SGLang's own defaults of a GPU of this size.
        chunk = server["budget"] or (8192 if gpu in servers.HOPPER else 16384)
        # SGLang wants room for a few tokens behind the longest request.
        engine |= {"version": "sglang-0.5.23", "max_model_len": longest + 20, "sglang": {
            "chunked_prefill_size": chunk, "max_prefill_tokens": server["prompts"] or max(16384, chunk),
            "scheduler_recv_interval": server["looks"],
        }}
        # InferenceX's scripts turn the radix tree off; no prompt is like another one.
        engine["prefix_caching"] = other
        # Its scheduler has no recurrent states here, so they take no memory.
        engine["state_blocks"] = 0
    else:
        engine |= {"version": "vllm-0.32", "max_num_batched_tokens": server["budget"] or 8192}
    engine["frontend_s"] = server["frontend_s"]
    count = max(10 * clients, 2)
    path = folder / f"lengths-{isl}-{osl}-{count}-{drawn}.csv"
    if not path.exists():
        dice = random.Random(path.name)
        prompt = lambda: isl if other else dice.randint(round(low * isl), isl)
        lines = [f"{prompt()},{max(1, dice.randint(round(low * osl), round(high * osl)))}" for _ in range(count)]
        path.write_text("\n".join(["num_prefill_tokens,num_decode_tokens", *lines]) + "\n")
    return engine, path, count


def kernels(roofline, row):
    """The setting `kernels` of a row: the same machine, with the engine whose kernels are summed."""
    config = json.loads(pathlib.Path(roofline["model"]["config"]).read_text())
    config = config.get("text_config", config) | config
    quantised = config.get("quantization_config") or {}
    blocks = "weight_block_size" in quantised or row["gemm_quant_mode"] == "fp8_block"
    said = roofline | {"engine": row["backend"], "fp8_blocks": blocks}
    # Nightly builds and the oldest rows name no release.
    version = word(row["backend_version"])
    return said | ({"version": version} if version[:1].isdigit() else {})


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(x)}" for key, x in value.items()) + " }"
    return json.dumps(value)


def table(name, settings):
    return "\n".join([f"[{name}]", *(f"{key} = {toml(value)}" for key, value in settings.items())]) + "\n"


def experiment(roofline, clients, fleet, engine, lengths, count, kind="roofline"):
    """The text of an experiment: a closed loop of the row's clients, without speculation."""
    engine = engine | {"method": "ngram", "draft_prefill": False}
    return f"""name = "row"
seeds = [1]
policies = [{{ autoregressive = {{}} }}]

[hardware]
target = {{ {kind} = {toml(roofline)} }}
draft = {{ linear = {{ alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 }} }}

{table("engine", engine)}
{table("fleet", fleet) if fleet else ""}
[workload]
arrivals = {{ closed-loop = {clients} }}
lengths = {{ trace = {{ path = {json.dumps(str(lengths))}, format = "lengths" }} }}
requests = {count}

[acceptance.source]
constant = {{ rate = 0.5 }}
"""


def package_of(path):
    if path:
        return pathlib.Path(path)
    import aiconfigurator_core

    return pathlib.Path(aiconfigurator_core.__file__).parent
