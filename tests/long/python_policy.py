#!/usr/bin/env python3
"""Runs a policy in Python for many steps and prints its memory on the way. Needs the package (`pip install ./python`).

    tests/long/python_policy.py --steps 1000000

The memory at the end must not be above that after a tenth of the steps by more than a tenth.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import foretoken

EXPERIMENT = {
    "name": "long-python",
    "seeds": [1],
    "hardware": {
        "target": {"linear": {"alpha_s": 1e-8, "gamma_s": 2e-6, "delta_s": 0.002}},
        "draft": {"linear": {"alpha_s": 1e-9, "gamma_s": 1e-7, "delta_s": 0.0002}},
    },
    "engine": {"num_gpu_blocks": 4000, "max_num_seqs": 16},
    "workload": {
        "arrivals": {"closed-loop": 8},
        "lengths": {"fixed": {"prompt": 16, "output": 512}},
    },
    "acceptance": {"source": {"constant": {"rate": 0.7}}},
}


def rss_mib():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10**6)
    args = parser.parse_args()
    seen = {}

    class Watched(foretoken.Policy):
        """Looks at all it is shown, remembers unfinished requests, and notes the memory."""

        def __init__(self, context):
            self.steps, self.accepted = 0, {}

        def limit(self):
            return 4

        def propose(self, batch):
            return [1 + self.accepted.get(int(i), 0) % 4 for i in batch.ids]

        def observe(self, outcome):
            self.steps += 1
            for i, accepted in zip(outcome.ids, outcome.accepted, strict=True):
                self.accepted[int(i)] = int(accepted)
            if self.steps in (args.steps // 10, args.steps):
                seen[self.steps] = rss_mib()
                print(f"{self.steps} steps: {seen[self.steps]:.1f} MiB", flush=True)

        def request_finished(self, request):
            self.accepted.pop(request, None)

    # A request of 512 tokens takes some 240 steps, and 8 run at a time.
    requests = args.steps // 20
    with tempfile.TemporaryDirectory(prefix="foretoken-long-") as folder:
        quick = {"figures": False, "progress": False}
        output = Path(folder) / "out"
        foretoken.run(EXPERIMENT, policies=[Watched], output=output, workload__requests=requests, **quick)
    if args.steps not in seen:
        sys.exit(f"the run ended before {args.steps} steps")
    grown = seen[args.steps] / seen[args.steps // 10] - 1
    print(f"memory changed by {100 * grown:+.1f} %")
    sys.exit(1 if grown > 0.1 else 0)


if __name__ == "__main__":
    main()
