#!/usr/bin/env python3
"""AIConfigurator's own estimate of the rows of board.csv, as a column beside ours.

    pip install aiconfigurator==0.12.0
    peer.py [--lengths mean]            # some minutes

It asks `cli_estimate` (mode agg, measured kernels) once a row, with the row's own parallel sizes, batch and nominal
lengths; `--lengths mean` asks with the mean lengths that the benchmark drew. Only some versions of engines can be asked:
vLLM 0.24.0, SGLang 0.5.14, TensorRT-LLM 1.3.0rc20. If the tables lack the row's quantisation, the tries are: experts in
blocks of fp8, all in blocks of fp8, the quantisation of the package's checkpoint, then the same with its formulas for
what was not measured. The counts of answers by try are printed.
"""

import argparse
import contextlib
import logging
import os

import pandas as pd
from aiconfigurator.cli.api import cli_estimate

import board
import rows as table

# The package holds the configuration of a checkpoint under another name.
NAMES = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}


def tries(row):
    """(name, quantisation, database) of each try, in order."""
    said = {key: row[key] for key in ("gemm_quant_mode", "moe_quant_mode") if isinstance(row[key], str)}
    if row["model_path"] == "openai/gpt-oss-120b":
        said = {}  # the rows say nvfp4, the checkpoint is MXFP4 beside bf16
    yield "the row's quantisation", said, "SILICON"
    if "fp8" in said.values():
        yield "experts in blocks of fp8", said | {"moe_quant_mode": "fp8_block"}, "SILICON"
        yield "blocks of fp8", dict.fromkeys(said, "fp8_block"), "SILICON"
    yield "the checkpoint's quantisation", {}, "SILICON"
    yield "formulas beside kernels", said, "HYBRID"
    yield "formulas beside kernels", {}, "HYBRID"


def estimate(row, mean):
    """(TPOT, TTFT in ms, the name of the try that answered), or `None` and the first error's words."""
    tp, spread = table.parallel(row)
    isl, osl = int(row["isl"]), int(row["osl"])
    if mean and table.benchmark(row) == "InferenceX":
        isl, osl = round(0.9 * isl), round(0.9 * osl)
    call = {
        "model_path": NAMES.get(row["model_path"], row["model_path"]), "system_name": row["system"],
        "mode": "agg", "backend_name": row["backend"], "isl": isl, "osl": osl,
        "batch_size": table.clients_of(row), "tp_size": tp,
    }
    if not pd.isna(row["moe_tp_size"]):
        call |= {"moe_tp_size": 1 if spread else tp, "moe_ep_size": tp if spread else 1}
    first = None
    for name, bits, database in tries(row):
        try:
            with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
                said = cli_estimate(**call, **bits, database_mode=database)
            return said.tpot, said.ttft, name
        except Exception as why:  # a missing table, memory, or a width that no table has
            first = first or f"{type(why).__name__}: {' '.join(str(why).split())[:120]}"
    return None, None, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", help="the folder aiconfigurator_core; default: the installed package")
    parser.add_argument("--lengths", choices=["nominal", "mean"], default="nominal")
    parser.add_argument("--column", default="aiconfigurator")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = table.read(table.package_of(args.package))
    rows = rows[rows["id"].isin(pd.read_csv(board.BOARD)["id"])]
    # Rows of a system and engine share the tables that are read.
    rows = rows.sort_values(["system", "backend", "model_path", "id"])
    rows[["tpot", "ttft", "how"]] = [estimate(row, args.lengths == "mean") for _, row in rows.iterrows()]
    for answered, part in rows.groupby(rows["tpot"].notna()):
        for how, count in part["how"].value_counts().items():
            print("answered:" if answered else "refused:", count, how)
    rows["half"], rows["suspect"] = rows.apply(table.half, axis=1), table.suspect(rows)
    board.add(rows[rows["tpot"].notna()], args.column)


if __name__ == "__main__":
    main()
