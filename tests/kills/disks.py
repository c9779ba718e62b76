#!/usr/bin/env python3
"""Runs commands on a full disk and on one that may only be read. Needs root: it mounts a file system in memory.

    tests/kills/disks.py --sizes 5 --seed 1

The disk is as large as a random part of what the command writes. The command must say what it cannot write and leave
with an error; with more space it must go on to the uninterrupted result.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from kills import check  # noqa: E402
from kinds import KINDS, REPOSITORY, Failure, Observation  # noqa: E402

FULL = ("No space left on device", "free some space")
READ_ONLY = ("Read-only file system",)


def mounted(folder, options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "foretoken-disk", folder], check=True)


def again(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def said_so(said, words):
    # Messages are wrapped.
    flat = " ".join(said.replace("│", " ").split())
    return "panicked" not in flat and any(word in flat for word in words)


def refused(kind, commands, words):
    """Runs commands at once; each that fails must say why. Returns how many failed, and the messages."""
    failed, last = 0, ""
    for args in commands:
        code, said = kind.whole(args)
        if code in kind.fine:
            continue
        failed += 1
        if not said_so(said, words):
            raise Failure(f"`foretoken {' '.join(args)}` exits with {code} and does not say why: {said}")
        last = " ".join(said.split())
    return failed, last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    parser.add_argument("--sizes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="foretoken-disks-") as place:
        for make in KINDS:
            if args.only and make.name not in args.only.split(","):
                continue
            rng, begun = random.Random(f"{args.seed} {make.name}"), time.monotonic()
            kind = make(args.program.resolve(), Path(place) / make.__name__)
            disk = kind.place / "disk"
            disk.mkdir()
            full, example = 0, ""
            try:
                kind.uninterrupted("deep/whole")
                expected = kind.result("deep/whole")
                kind.begin("deep/begun")
                begun_with, size = [sum(f.stat().st_size for f in (kind.place / "deep" / name).rglob("*") if f.is_file())
                                    for name in ("begun", "whole")]
                for n in range(args.sizes):
                    # A file takes whole pages.
                    mounted(disk, f"size={int(1.5 * begun_with + max(4096, rng.random() * size))}")
                    try:
                        kind.begin("disk/out")
                        failed, said = refused(kind, kind.commands("disk/out"), FULL)
                        full, example = full + (failed > 0), said or example
                        again(disk, "size=1g")
                        kind.go_on("disk/out")
                        check(kind, "disk/out", expected)
                    except Failure as failure:
                        bad += 1
                        print(f"FAILED {kind.name}, full disk: {failure}", flush=True)
                    finally:
                        subprocess.run(["umount", "-l", disk], check=True)
                mounted(disk, "size=1g")
                try:
                    kind.begin("disk/out")
                    again(disk, "ro")
                    failed, said = refused(kind, kind.commands("disk/out"), READ_ONLY)
                    if not failed:
                        raise Failure("nothing is refused")
                except Failure as failure:
                    bad += 1
                    print(f"FAILED {kind.name}, read-only disk: {failure}", flush=True)
                finally:
                    subprocess.run(["umount", "-l", disk], check=True)
            finally:
                kind.close()
            print(f"{kind.name:<16} {full} of {args.sizes} disks were too small; {time.monotonic() - begun:.0f} s\n"
                  f"    {example[:240]}\n    {said[:240]}", flush=True)
    print(f"{bad} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
