#!/usr/bin/env python3
"""Runs `observe` against `serve` while the wall clock of both jumps an hour forth and back at every other call.

    tests/kills/clocks.py

No latency may be near an hour, every request must be answered, and the server's step log must go forward in time.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from kills import shim  # noqa: E402
from kinds import REPOSITORY, Observation  # noqa: E402

JUMP_S = 3600


class Jumping(Observation):
    preloaded = None

    def spawn(self, args, **more):
        env = {"LD_PRELOAD": str(self.preloaded), "SHIM_JUMP_S": str(JUMP_S)}
        if args[0] == "serve":
            args = [*args, "--step-log", "steps.log"]
        return super().spawn(args, env=env, **more)

    def commands(self, out):
        return [args + ["--step-log", "steps.log"] for args in super().commands(out)]


def latencies(value):
    """Every time in a report: numbers whose key ends in `_s`, rates apart."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("_s") and not key.endswith(("tok_s", "req_s")) and isinstance(inner, (int, float)):
                yield key, inner
            yield from latencies(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from latencies(inner)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foretoken-clocks-") as place:
        Jumping.preloaded = shim(place)
        kind = Jumping(args.program.resolve(), Path(place) / "observation")
        try:
            code, said = kind.whole(kind.commands("out")[0])
        finally:
            kind.close()
        print(said)
        seen = json.loads((kind.place / "out/observed.json").read_text())
        report = json.loads((kind.place / "out/report.json").read_text())
        far = [(key, s) for key, s in latencies([seen, report]) if not -1e-9 <= s < JUMP_S / 10]
        log = [float(re.match(r"[0-9.]+", line)[0]) for line in (kind.place / "steps.log").read_text().splitlines()]
        cells = [(cell["ended"], cell["answered"], cell["steps"]) for cell in seen["cells"]]
        print(f"exit code {code}; runs (how they ended, answers, steps): {cells}; {len(log)} lines of the step log")
        wrong = [what for what, bad in [
            ("the command failed", code != 0),
            (f"times are off: {far}", far),
            ("the step log goes back", log != sorted(log)),
            ("not all is answered", any(cell[:2] != ("done", 10) for cell in cells)),
        ] if bad]
        print("; ".join(wrong) or "no time is off")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
