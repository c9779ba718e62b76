#!/usr/bin/env python3
"""Answers the questions again with summed kernels: `questions.py --binary foretoken`, with the package installed.

Each question of experiments/questions whose GPU has measured kernels runs twice: as it stands, and with `kernels` in the
place of its rooflines. What a roofline assumes (efficiencies, reuse of experts, the time of a collective) is then left
out. A question stays as it is if a claim asks about such an assumption, or if a kernel was not measured. questions.csv
has both verdicts of each claim, and the counts are printed.
"""

import argparse
import collections
import csv
import json
import pathlib
import subprocess
import tempfile
import tomllib

HERE = pathlib.Path(__file__).parent
QUESTIONS = HERE.parents[1] / "questions"
KEPT = ["gpu", "model", "tensor_parallel", "expert_parallel", "kv_bits", "weight_only", "memory_utilization", "activation_bytes"]
# Their checkpoints have a scale for each block of 128 x 128 weights.
BLOCKS = ("deepseek-v3", "minimax-m2.7", "qwen3-32b-fp8")
ORDER = ["agrees", "same-sign", "differs", "cannot-say"]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(x)}" for key, x in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def kernels(roofline, engine):
    """The setting `kernels` of the same machine."""
    kept = {"engine": engine} | {key: roofline[key] for key in KEPT if key in roofline}
    if str(kept["model"]).startswith(BLOCKS):
        kept["fp8_blocks"] = True
    return toml({"kernels": kept})


def run(binary, path, changes):
    """The question of the results as a dictionary, or the error's words."""
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "run", path, "-o", pathlib.Path(folder) / "out", "--no-figures", "--format", "json"]
        command += [part for change in changes for part in ("--set", change)]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout)["question"] if done.returncode == 0 else " ".join(done.stderr.split())


def on_kernels(binary, path):
    """(the question by kernels, which sides have them), or (`None`, why not)."""
    experiment = tomllib.loads(path.read_text())
    hardware = experiment["hardware"]
    engine = "sglang" if "sglang" in experiment["question"]["thread"] else "vllm"
    rooflines = {side: hardware[side]["roofline"] for side in ("target", "draft") if "roofline" in hardware[side]}
    # A claim may ask what an assumption of the target decides. A drafter's launches are a host time and stay.
    if any(f"hardware.{side}.roofline" in json.dumps(experiment["question"]["claims"]) for side in rooflines):
        return None, "a claim asks about an assumption of the roofline"
    if "target" not in rooflines:
        return None, "no roofline"
    if "layer_overhead_s" in rooflines["target"]:
        return None, "its roofline has a host time"
    changes = {
        side: f"hardware.{side}={kernels(roofline, engine)}"
        for side, roofline in rooflines.items() if "layer_overhead_s" not in roofline
    }
    # A drafter whose kernels were not measured stays a roofline.
    why = None
    for sides in (["target", "draft"], ["target"]):
        if all(side in changes for side in sides):
            # Costs of kernels bring the front end of their engine; only the passes are to differ.
            front_end = [] if "frontend_s" in experiment["engine"] else ["engine.frontend_s=0.0"]
            found = run(binary, path, [*(changes[side] for side in sides), *front_end])
            if isinstance(found, dict):
                return found, " and ".join(sides)
            why = why or found
            if "hardware.draft" not in found:
                break
    return None, why


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="foretoken")
    args = parser.parse_args()
    counts = {"rooflines": collections.Counter(), "kernels": collections.Counter()}
    lines, decided = [], []
    for path in sorted(QUESTIONS.glob("*.toml")):
        before = run(args.binary, path, [])
        after, how = on_kernels(args.binary, path)
        print(f"{path.stem}: {how}")
        now = after or before
        for old, new in zip(before["claims"], now["claims"]):
            if old["reported"] is None:
                continue
            counts["rooflines"][old["verdict"]] += 1
            counts["kernels"][new["verdict"]] += 1
            if after:
                ours = [" to ".join(f"{x:.4g}" for x in c["ours"]["numbers"]) if "numbers" in c["ours"] else
                        " or ".join(map(str, *c["ours"].values())) for c in (old, new)]
                lines.append([path.stem, how, old["says"], *ours, old["verdict"], new["verdict"]])
        if after and before["decided"] != after["decided"]:
            decided.append(f"{path.stem}: {before['decided']}, by kernels {after['decided']}")
    with open(HERE / "questions.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["question", "on kernels", "claim", "by rooflines", "by kernels", "verdict by rooflines", "verdict by kernels"])
        writer.writerows(lines)
    for name, of in counts.items():
        print(f"{name}: " + ", ".join(f"{of[word]} {word}" for word in sorted(of, key=str)))
    print("\n".join(decided))


if __name__ == "__main__":
    main()
