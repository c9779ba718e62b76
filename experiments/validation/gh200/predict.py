#!/usr/bin/env python3
"""Predicts the grid a priori: `predict.py --binary foretoken [--kind kernels|roofline] [--set KEY=VALUE]`.

Each cell runs twice: without host time, and with the host time of `run/src/host_band.rs`. These are the ends of the band
that every answer shows. That host time was fitted to this server's K = 0 and K = 3, so the end with it is a priori in
the kernels only; its errors at the other lengths are printed apart.
"""

import argparse
import pathlib
import subprocess
import tempfile

import pandas as pd

HERE = pathlib.Path(__file__).parent
HOST = (
    "engine.host={ speculating = { step_s = 0.96e-3, request_s = 230e-6, token_s = 0.0 }, "
    "without_graph = { above = 8, step_s = 0.0, speculating_s = 10.4e-3 } }"
)


def rates(grid, k):
    """The share of rounds with a draft accepted at each place, among rounds with the place before accepted.

    The grid has mean lengths of K = 1, 2, 3, 4, 6 and 8; places 5 and 6, and 7 and 8, share their increase evenly.
    """
    lengths = {0: 0.0} | grid[grid["k"] > 0].groupby("k")["accepted"].first().to_dict()
    known = sorted(lengths)
    shares = []
    for below, above in zip(known, known[1:]):
        shares += [(lengths[above] - lengths[below]) / (above - below)] * (above - below)
    return [round(share / before, 4) for share, before in zip(shares[:k], [1.0, *shares])] or [0.5]


def experiment(kind, row, accepted):
    """The text of a cell's experiment."""
    engine = ', engine = "sglang"' if kind == "kernels" else ""
    policy = f"fixed = {{ k = {row.k} }}" if row.k else "autoregressive = {}"
    lengths = f"prompt = {{ mean = {row.input}, sigma = 1.0, max = 1200 }}, output = {{ mean = {row.output}, sigma = 1.0, max = 1200 }}"
    return f"""name = "cell"
seeds = [1]
policies = [{{ {policy} }}]

[hardware]
target = {{ {kind} = {{ gpu = "gh200", model = "llama-3.1-8b"{engine} }} }}
draft = {{ {kind} = {{ gpu = "gh200", model = "eagle3-llama-3.1-8b"{engine} }} }}

[engine]
version = "sglang-0.5.23"
async_scheduling = false
method = "eagle3"
max_num_seqs = 512
max_model_len = 8192
num_gpu_blocks = 576000
prefix_caching = false
max_draft_len = {max(row.k, 1)}
frontend_s = 0.0

[workload]
arrivals = {{ closed-loop = {row.clients} }}
lengths = {{ log-normal = {{ {lengths} }} }}
requests = {row.requests}

[acceptance.source]
by-depth = {{ rates = {accepted} }}
"""


def predict(args, row, accepted, changes, folder):
    """Output tokens per second of a cell."""
    file, out = folder / "cell.toml", folder / f"{row.Index}-{len(changes)}"
    file.write_text(experiment(args.kind, row, accepted))
    command = [args.binary, "run", file, "-o", out, "--no-figures", "--format", "csv", "--threads", "1"]
    command += [part for change in [*changes, *args.set] for part in ("--set", change)]
    subprocess.run(command, check=True, capture_output=True)
    requests = pd.read_parquet(out / "requests.parquet")
    requests = requests[requests["policy"].ne("autoregressive") if row.k else requests["policy"].eq("autoregressive")]
    return requests["emitted"].sum() / (requests["finish_s"].max() - requests["arrival_s"].min())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="foretoken")
    parser.add_argument("--kind", choices=["kernels", "roofline"], default="kernels")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    grid = pd.read_csv(HERE / "grid.csv", comment="#")
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in (("without", []), ("with", [HOST])):
            grid[name] = [
                predict(args, row, rates(grid, row.k), changes, pathlib.Path(folder)) for row in grid.itertuples()
            ]
    for name in ("without", "with"):
        grid[f"{name} %"] = 100 * (grid[name] / grid["tok_s"] - 1)
    ks = sorted(grid["k"].unique())
    print("| clients | " + " | ".join(f"K = {k}" for k in ks) + " |\n|--:|" + "--:|" * len(ks))
    for clients, cells in grid.groupby("clients"):
        cells = cells.set_index("k")
        print(f"| {clients} | " + " | ".join(f"{cells['with %'][k]:+.0f} / {cells['without %'][k]:+.0f}" for k in ks) + " |")
    low, high = grid[["with", "without"]].min(axis=1), grid[["with", "without"]].max(axis=1)
    inside = grid["tok_s"].between(0.99 * low, 1.01 * high)
    middle = (100 * ((low * high) ** 0.5 / grid["tok_s"] - 1)).abs()
    held = ~grid["k"].isin([0, 3])
    print(f"mean error without host time {grid['without %'].abs().mean():.1f} %, plain decoding alone "
          f"{grid['without %'][grid['k'] == 0].abs().mean():.1f} %")
    print(f"with it {grid['with %'].abs().mean():.1f} %, on the {held.sum()} cells of other K {grid['with %'][held].abs().mean():.1f} %")
    print(f"inside the band, 1 % at each end: {inside.sum()} of {len(grid)}; its ends within a factor of 1.5: "
          f"{(high <= 1.5 * low).sum()}, largest factor {(high / low).max():.1f}; its centre is off by {middle.mean():.0f} % in the mean")


if __name__ == "__main__":
    main()
