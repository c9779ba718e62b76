#!/usr/bin/env python3
"""Kills commands with SIGKILL at random moments, lets them go on, and compares with the uninterrupted result.

    cargo build --release -p foretoken --features live,observe
    tests/kills/kills.py                       # 200 kills, seed 1
    tests/kills/kills.py --kills 16 --only sweep,merge --seed 7
    tests/kills/kills.py --sample              # what .ci/run does

A moment is a random time within the command, or the time just before a random one of its file operations (made,
written, renamed, removed, synced). tests/README.md says what is compared.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from kinds import HERE, KINDS, REPOSITORY, Failure, Kind  # noqa: E402


def shim(place):
    """The library that ends a program at a file operation; None without a C compiler."""
    library = Path(place) / "shim.so"
    command = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", library, HERE / "shim.c", "-ldl", "-lpthread"]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        return None
    return library


def differing(found, expected):
    """The names of files or facts that differ."""
    names = sorted(set(found) | set(expected))
    return [name for name in names if found.get(name) != expected.get(name)]


def check(kind, out, expected):
    found = kind.result(out)
    names = differing(found, expected)
    if names:
        first = names[0]
        raise Failure(f"{', '.join(names)} differ: {str(found.get(first))[:600]} is not {str(expected.get(first))[:600]}")
    halves = [path.name for path in (kind.place / out).rglob("*.partial")]
    if halves:
        raise Failure(f"half-written files are left: {halves}")


class Killer:
    def __init__(self, kind, library, rng):
        self.kind, self.preloaded, self.rng = kind, library, rng
        kind.uninterrupted("whole")
        self.expected = kind.result("whole")
        begun = time.monotonic()
        kind.begin("timed")
        log = kind.place / "operations"
        env = {"LD_PRELOAD": str(library), "SHIM_LOG": str(log), "SHIM_ROOT": str(kind.place / "timed")} if library else {}
        processes = [kind.spawn(args, env=env) for args in kind.commands("timed")]
        for process in processes:
            process.communicate(timeout=120)
        self.seconds = time.monotonic() - begun
        self.operations = operations(log) // len(processes) if library else 0

    def once(self, n):
        """One kill. Returns what was killed, in words."""
        kind, out = self.kind, f"killed{n}"
        kind.begin(out)
        at_operation = self.operations and n % 2 == 1
        env, moment = {}, self.rng.uniform(0.0, self.seconds)
        if at_operation:
            moment = self.rng.randint(1, self.operations)
            env = {"LD_PRELOAD": str(self.preloaded), "SHIM_KILL_AT": str(moment), "SHIM_ROOT": str(kind.place / out)}
        processes = [kind.spawn(args, env=env) for args in kind.commands(out)]
        if not at_operation:
            time.sleep(moment)
            for process in processes:
                process.kill()
        for process in processes:
            process.communicate(timeout=120)
        killed = all(process.returncode == -9 for process in processes)
        where = f"operation {moment} of {self.operations}" if at_operation else f"{moment:.3f} s of {self.seconds:.3f} s"
        try:
            kind.go_on(out)
            check(kind, out, self.expected)
        except Failure as failure:
            kept = Path(tempfile.mkdtemp(prefix="foretoken-kill-"))
            shutil.copytree(kind.place, kept / "place")
            raise Failure(f"{kind.name}, killed at {where} (kept in {kept}): {failure}") from None
        shutil.rmtree(kind.place / out)
        return killed


def operations(log):
    """Number of operations in a log of the shim that a kill may precede."""
    import power
    return sum(1 for operation in power.read(log) if operation.counts())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    parser.add_argument("--kills", type=int, default=200, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="kinds, comma-separated")
    parser.add_argument("--sample", action="store_true", help="two kills of most kinds, and a power cut each where results are exact")
    args = parser.parse_args()
    kinds = [k for k in KINDS if not args.only or k.name in args.only.split(",")]
    if args.sample:
        # Live runs and validations take seconds each.
        kinds = [k for k in kinds if k.name not in ("live run", "validation")]
        args.kills = 2 * len(kinds)
    failures, total = [], 0
    with tempfile.TemporaryDirectory(prefix="foretoken-kills-") as place:
        library = shim(place)
        for i, make in enumerate(kinds):
            count = args.kills // len(kinds) + (i < args.kills % len(kinds))
            begun, killed = time.monotonic(), 0
            kind = make(args.program.resolve(), Path(place) / make.__name__)
            try:
                killer = Killer(kind, library, random.Random(f"{args.seed} {kind.name}"))
                for n in range(count):
                    try:
                        killed += killer.once(n)
                    except Failure as failure:
                        failures.append(str(failure))
                        print(f"FAILED {failure}", flush=True)
            finally:
                kind.close()
            total += count
            print(f"{kind.name:<16} {count:>4} kills, {killed} before its end, of {killer.operations} file operations and "
                  f"{killer.seconds:.2f} s; {time.monotonic() - begun:.0f} s", flush=True)
            if args.sample and kind.exact:
                import power
                place_of_cuts = Path(place) / f"{make.__name__}-cut"
                rng = random.Random(f"{args.seed} {kind.name}")
                failures += power.cuts(make, args.program.resolve(), place_of_cuts, library, 1, rng)[0]
    print(f"{total} kills, seed {args.seed}: {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
