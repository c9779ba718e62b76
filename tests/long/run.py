#!/usr/bin/env python3
"""Prints the largest memory of `foretoken run` by number of requests, and for 24 simulated days.

    tests/long/run.py                        # 100,000, 1,000,000 and 10,000,000 requests, and 24 days
    tests/long/run.py --requests 100000      # a single number of requests

A run has two cells (plain decoding and drafts of three tokens) on one thread. `serve.py` has the memory of a server.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

EXPERIMENT = """name = "long"
policies = [{ fixed = { k = 3 } }]
seeds = [1]
[hardware]
target = { linear = { alpha_s = 1e-8, gamma_s = 2e-6, delta_s = 0.002 } }
draft = { linear = { alpha_s = 1e-9, gamma_s = 1e-7, delta_s = 0.0002 } }
[engine]
num_gpu_blocks = 4000
max_num_seqs = 64
[workload]
arrivals = { poisson = { rate = 100.0 } }
lengths = { log-normal = { prompt = { mean = 30.0, sigma = 0.5, max = 100 }, output = { mean = 10.0, sigma = 0.5, max = 40 } } }
[acceptance.source]
constant = { rate = 0.7 }
"""

DAYS = 24


def run(program, place, name, sets):
    """Runs the experiment. Returns its largest resident memory in MiB and its wall time in seconds."""
    settings = [part for text in sets for part in ("--set", text)]
    out = place / name
    begun = time.monotonic()
    command = [program, "run", "x.toml", "-o", out, "--threads", "1", "--no-figures"]
    child = subprocess.Popen([*command, *settings], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # `wait4` gives the use of this child alone, `getrusage` the largest of all children so far.
    _, status, use = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{name}: exit status {os.waitstatus_to_exitcode(status)}")
    return use.ru_maxrss / 1024, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    parser.add_argument("--requests", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--days", type=float, default=None, help=f"simulated days; {DAYS} if --requests is left out")
    args = parser.parse_args()
    program = args.program.resolve()
    days = args.days if args.days is not None else (0 if "--requests" in sys.argv else DAYS)
    with tempfile.TemporaryDirectory(prefix="foretoken-long-") as folder:
        place = Path(folder)
        (place / "x.toml").write_text(EXPERIMENT)
        for requests in args.requests:
            memory, took = run(program, place, str(requests), [f"workload.requests={requests}"])
            print(f"{requests} requests: {memory:.0f} MiB, {took:.0f} s", flush=True)
        if days:
            sets = [f"workload.duration_s={86400 * days}", "workload.arrivals={ poisson = { rate = 0.1 } }"]
            memory, took = run(program, place, "days", sets)
            print(f"{days:g} simulated days: {memory:.0f} MiB, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
