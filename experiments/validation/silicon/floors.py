#!/usr/bin/env python3
"""Fits profiler/floors.json to the kernel times of aiconfigurator-core: floors.py [--data FOLDER] [--out FILE]

A kernel's time is a floor, and the times of moving and of computing, joined as the root of the sum of their squares or
as their sum (the better fit of both). The fit minimises relative errors over the package's kernel tables. Servers'
measurements are not read. Needs scipy and pandas:

    pip install aiconfigurator-core==0.12.0 scipy pandas pyarrow
"""

import argparse
import importlib.metadata
import json
import pathlib

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
from scipy.optimize import least_squares

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = "0.12.0"

# System of the package -> preset whose datasheet the shares refer to.
SYSTEMS = {
    "a100_sxm": "a100-80g", "l40s": "l40s", "h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200",
    "b300_sxm": "b300", "gb200": "gb200", "rtx_pro_6000_server": "rtx-pro-6000",
}
ENGINES = ("vllm", "sglang", "trtllm")

# Tables that are left out: they hold more than the kernel's own time.
LEFT_OUT = {
    ("vllm", "fp8_block"): "58 to 400 us for any small product: the host prepares the scales",
    ("trtllm", "fp8"): "14 us for any small product where the others take 6: a quantisation is inside",
    ("trtllm", "nvfp4"): "10 us for any small product where the others take 6: a quantisation is inside",
    ("sglang", "moe w4a16_mxfp4"): "on Hopper two to three times the time of the others, whose kernels replaced it",
    ("trtllm", "moe w4a16_mxfp4"): "on Blackwell four times the time of the others",
    ("trtllm", "moe fp8_block"): "100 us for one token where the others take 37: an older kernel",
}

# Our words for the package's types: product, then experts.
PRODUCTS = {"bf16": ["bfloat16"], "fp8": ["fp8", "fp8_block"], "fp4": ["nvfp4"]}
EXPERTS = {
    "bf16": ["bfloat16"], "fp8": ["fp8_block", "fp8"], "fp4": ["nvfp4"],
    "weight_only": ["w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "int4_wo"],
}
BYTES = {
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4_wo": 0.515625, "w4a16_mxfp4": 0.53125,
    "w4a8_mxfp4_mxfp8": 0.53125,
}
SAMPLE = 6000

# Presets whose kernels the package has not -> the measured GPU that is most like them.
RELATIVES = {
    "a100-80g": ["a100-40g", "a10", "a30", "rtx-3090", "v100-32g", "t4", "mi250x-gcd", "strix-halo", "m2-ultra",
                 "m3-ultra", "m4-max", "tpu-v5e", "tpu-v6e"],
    "l40s": ["l40", "l4", "rtx-4090", "rtx-6000-ada"],
    "h100": ["h100-pcie", "h100-nvl", "gh200"],
    "h200": ["h20", "mi300x", "mi325x"],
    "b200": ["mi355x"],
    "rtx-pro-6000": ["rtx-5090", "gb10"],
}


def complete(rows):
    """Fills in the parts that a GPU's tables lack, and says from where: experts and small kernels from the GPU that is
    most like it, weight-only products from its own bf16."""
    of = {row["gpu"]: row for row in rows}
    for row in rows:
        row["products"]["weight_only"] = row["products"]["bf16"] | {"from": f"bf16 on {row['gpu']}"}
        for kind, source in (("fp8", "h100"), ("fp4", "b200"), ("weight_only", "h100")):
            for part in ("products", "experts"):
                row[part].setdefault(kind, of[source][part].get(kind, {}) | {"from": source})
        for part in ("attention", "recurrent", "all_reduce", "small"):
            row.setdefault(part, of["h100"][part] | {"from": "h100"})


def fullest(data, system, family, engine, table):
    """The release's table with the most rows: some newer folders hold a few models only."""
    rows = lambda path: parquet.read_metadata(path).num_rows
    found = sorted((data / system / family / engine).glob(f"*/{table}_perf.parquet"), key=rows)
    read = pd.read_parquet(found[-1]) if found else None
    # Older tables have no windows.
    return read if read is None or "window_size" in read else read.assign(window_size=0)


def peak(gpu, kind):
    return {"fp8": gpu.get("fp8_flops"), "fp4": gpu.get("fp4_flops")}.get(kind, gpu["bf16_flops"])


def fit(model, start, seconds):
    """Parameters (positive) that minimise the relative error, and the median of its absolute."""
    # Shares end at 1.2: experts are chosen unevenly, so that a pass reads fewer than the formula says, and caches hold
    # the smallest inputs.
    residual = lambda x: np.log(model(np.exp(x)) / seconds)
    bounds = (-np.inf, np.log(1.2))
    found = least_squares(residual, np.log(start), bounds=bounds, loss="soft_l1", f_scale=0.1)
    return np.exp(found.x), float(np.median(np.abs(np.exp(residual(found.x)) - 1)))


def better(forms, start, seconds):
    """(parameters, misfit, name) of the form that fits better."""
    fits = [(*fit(form, start, seconds), name) for name, form in forms.items()]
    return min(fits, key=lambda f: f[1])


JOINS = {"root": np.hypot, "sum": np.add}


def thin(table):
    return table.sample(SAMPLE, random_state=1) if len(table) > SAMPLE else table


def show(**values):
    return {key: float(f"{value:.3g}") for key, value in values.items()}


def products(data, system, gpu, kind):
    parts = []
    for engine in ENGINES:
        table = fullest(data, system, "gemm", engine, "gemm")
        if table is None:
            continue
        for name in PRODUCTS[kind]:
            part = table[(table["gemm_dtype"] == name) & (table["n"] >= 256) & (table["k"] >= 256)]
            if (engine, name) in LEFT_OUT or part.empty:
                continue
            parts.append(thin(part.groupby(["n", "k", "m"], as_index=False)["latency"].min()).assign(size=BYTES[name]))
    if not parts or peak(gpu, kind) is None:
        return None
    table = pd.concat(parts)
    moved = table["n"] * table["k"] * table["size"] / gpu["bandwidth_bytes_s"]
    computed = 2.0 * table["m"] * table["n"] * table["k"] / peak(gpu, kind)
    form = lambda join: lambda x: x[0] + join(moved / x[1], computed / x[2])
    forms = {name: form(join) for name, join in JOINS.items()}
    (floor, bandwidth, flops), misfit, join = better(forms, [4e-6, 0.8, 0.6], 1e-3 * table["latency"])
    return show(floor_s=floor, bandwidth=bandwidth, flops=flops, misfit=misfit) | {"join": join}


def experts(data, system, gpu, kind):
    parts = []
    for engine in ENGINES:
        table = fullest(data, system, "moe", engine, "moe")
        if table is None:
            continue
        for name in EXPERTS[kind]:
            part = table[(table["moe_dtype"] == name) & (table["distribution"] == "power_law_1.2") & (table["topk"] > 1)]
            if (engine, f"moe {name}") in LEFT_OUT or part.empty:
                continue
            key = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
            parts.append(thin(part.groupby(key, as_index=False)["latency"].min()).assign(size=BYTES[name]))
    if not parts or peak(gpu, kind) is None:
        return None
    t = pd.concat(parts)
    share = 1.0 / (t["moe_tp_size"] * t["moe_ep_size"])
    one = 3.0 * t["hidden_size"] * t["inter_size"]
    read = t["num_experts"] * (1 - (1 - t["topk"] / t["num_experts"]) ** t["num_tokens"])
    moved = read * one * share * t["size"] / gpu["bandwidth_bytes_s"]
    computed = 2.0 * t["num_tokens"] * t["topk"] * one * share / peak(gpu, kind)
    # Each expert of a token reads and writes the token's numbers.
    numbers = 4.0 * t["num_tokens"] * t["topk"] * t["hidden_size"] / t["moe_ep_size"] / gpu["bandwidth_bytes_s"]
    form = lambda join: lambda x: x[0] + join(moved / x[1], computed / x[2]) + numbers / x[3]
    forms = {name: form(join) for name, join in JOINS.items()}
    (floor, bandwidth, flops, token), misfit, join = better(forms, [3e-5, 0.7, 0.4, 0.5], 1e-3 * t["latency"])
    return show(
        floor_s=floor, bandwidth=bandwidth, flops=flops, token_bandwidth=token, misfit=misfit
    ) | {"join": join}


def attention(data, system, gpu):
    """Grouped attention of one layer: a floor, a time a request, the KV at a share of bandwidth; prompts: a time for
    the queries and outputs of a token, and pairs at a share of bf16's peak."""
    key = ["num_heads", "num_key_value_heads", "head_dim", "batch_size"]
    decodes, prompts = [], []
    for engine in ENGINES:
        table = fullest(data, system, "attention", engine, "generation_attention")
        if table is not None:
            part = table[(table["window_size"] == 0) & (table["kv_cache_dtype"] == "bfloat16") & (table["head_dim"] == 128)]
            decodes.append(thin(part.groupby([*key, "step"], as_index=False)["latency"].min()))
        table = fullest(data, system, "attention", engine, "context_attention")
        if table is not None:
            part = table[(table["window_size"] == 0) & (table["kv_cache_dtype"] == "bfloat16") & (table["head_dim"] == 128)]
            part = part[(part["step"] == 0) & (part["isl"] >= 64)]
            prompts.append(thin(part.groupby([*key, "isl"], as_index=False)["latency"].min()))
    if not decodes or not prompts:
        return None
    d, p = pd.concat(decodes), pd.concat(prompts)
    moved = d["batch_size"] * (d["step"] + 1) * d["num_key_value_heads"] * d["head_dim"] * 4.0 / gpu["bandwidth_bytes_s"]
    model = lambda x: x[0] + x[1] * d["batch_size"] + moved / x[2]
    (floor, request, bandwidth), misfit = fit(model, [1e-5, 2e-7, 0.9], 1e-3 * d["latency"])
    tokens = p["batch_size"] * p["isl"]
    numbers = tokens * 2.0 * (p["num_heads"] + p["num_key_value_heads"]) * p["head_dim"] * 2.0 / gpu["bandwidth_bytes_s"]
    pairs = p["batch_size"] * p["isl"] * (p["isl"] + 1) / 2.0
    computed = 4.0 * pairs * p["num_heads"] * p["head_dim"] / gpu["bf16_flops"]
    model = lambda x: floor + request * p["batch_size"] + numbers / x[0] + computed / x[1]
    (token, flops), prompt_misfit = fit(model, [0.5, 0.6], 1e-3 * p["latency"])
    return show(
        floor_s=floor, request_s=request, bandwidth=bandwidth, token_bandwidth=token,
        flops=flops, misfit=misfit, prompt_misfit=prompt_misfit,
    )


def recurrent(data, system, gpu):
    """Both kernels of a step of gated delta nets: a floor of one layer, and the state at a share of bandwidth."""
    parts = []
    for engine in ENGINES:
        table = fullest(data, system, "linear_attention", engine, "gdn")
        if table is None:
            continue
        t = table[table["phase"] == "generation"]
        key = ["batch_size", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim", "d_model"]
        t = t.groupby([*key, "kernel_source"])["latency"].min().groupby(key).agg(["sum", "count"]).reset_index()
        parts.append(t[t["count"] == 2])
    if not parts:
        return None
    t = pd.concat(parts)
    moved = 2.0 * t["batch_size"] * t["num_v_heads"] * t["head_k_dim"] * t["head_v_dim"] * 4.0 / gpu["bandwidth_bytes_s"]
    model = lambda x: x[0] + moved / x[1]
    (floor, bandwidth), misfit = fit(model, [7e-6, 0.7], 1e-3 * t["sum"])
    return show(floor_s=floor, bandwidth=bandwidth, misfit=misfit)


def all_reduces(data, system, gpu):
    """An all-reduce in a CUDA graph, messages to 16 MiB elements: a floor, and the ring's bytes at a share of the link."""
    parts = []
    for engine in ENGINES:
        t = fullest(data, system, "comm", engine, "custom_allreduce")
        if t is None:
            continue
        column = next((c for c in ("backend", "implementation") if c in t), "kernel_source")
        graph = t[t[column].astype(str).str.contains("graph")]
        t = (graph if len(graph) else t).groupby(["num_gpus", "message_size"], as_index=False)["latency"].min()
        for _, part in t.sort_values("message_size", ascending=False).groupby("num_gpus"):
            # A smaller message takes no longer than a larger one: this removes single bad measurements.
            parts.append(part.assign(latency=part["latency"].cummin()))
    if not parts:
        return None
    t = pd.concat(parts)
    t = t[t["message_size"] <= 2**24]
    moved = 2.0 * (t["num_gpus"] - 1) / t["num_gpus"] * t["message_size"] * 2.0 / gpu["link_bytes_s"]
    model = lambda x: x[0] + moved / x[1]
    (floor, link), misfit = fit(model, [5e-6, 0.7], 1e-3 * t["latency"])
    return show(floor_s=floor, bandwidth=link, misfit=misfit)


def small(data, system, gpu):
    """A kernel that works on each number of the activations once, such as a norm: measured is a scaling to fp8."""
    parts = [fullest(data, system, "quantize", engine, "scale_matrix") for engine in ENGINES]
    parts = [part for part in parts if part is not None]
    if not parts:
        return None
    t = pd.concat(parts)
    t = t[t["quant_dtype"] == "fp8"]
    moved = 3.0 * t["m"] * t["k"] / gpu["bandwidth_bytes_s"]
    (floor, bandwidth), misfit = fit(lambda x: x[0] + moved / x[1], [2e-6, 0.7], 1e-3 * t["latency"])
    return show(floor_s=floor, bandwidth=bandwidth, misfit=misfit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="the package's systems/data; default: the installed package")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "hardware" / "floors.json")
    args = parser.parse_args()
    if args.data is None:
        installed = importlib.metadata.version("aiconfigurator-core")
        if installed != VERSION:
            raise SystemExit(f"aiconfigurator-core {installed} is installed; the fits are of {VERSION}")
        import aiconfigurator_core
        args.data = pathlib.Path(aiconfigurator_core.__file__).parent / "systems" / "data"
    presets = {g["name"]: g["gpu"] for g in json.loads((ROOT / "hardware" / "gpus.json").read_text())}
    rows = []
    for system, name in SYSTEMS.items():
        gpu = presets[name]
        kinds = lambda names, of: {kind: found for kind in names if (found := of(args.data, system, gpu, kind))}
        row = {"gpu": name, "products": kinds(PRODUCTS, products), "experts": kinds(EXPERTS, experts)}
        for key, of in [("attention", attention), ("recurrent", recurrent), ("all_reduce", all_reduces), ("small", small)]:
            if found := of(args.data, system, gpu):
                row[key] = found
        rows.append(row)
        print(json.dumps(row), flush=True)
    complete(rows)
    relatives = {name: measured for measured, names in RELATIVES.items() for name in names}
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    source = (
        f"Fitted to the kernel times of PyPI aiconfigurator-core {VERSION} by experiments/validation/silicon/floors.py. "
        "The package is licensed under Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. "
        "None of its files is part of this repository."
    )
    args.out.write_text(f'{{\n  "source": {json.dumps(source)},\n  "measured": [\n{lines}\n  ],\n'
                        f'  "relatives": {json.dumps(relatives)}\n}}\n')


if __name__ == "__main__":
    main()
