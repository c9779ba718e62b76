#!/usr/bin/env python3
"""Changes the code at random places and counts the changes that a test notices.

    cargo install cargo-mutants cargo-nextest --locked
    tests/mutants/mutants.py engine             # or policies, comparisons, fits
    tests/mutants/mutants.py engine --seed 38 --count 20 --in-place

A changed place is a mutant: an operator is another one, a function returns a constant, an arm of a match is gone.
cargo-mutants lists all mutants of a part of the code. This script draws some with a seed, and lets the tests of the
mutant's own crate run on each. A mutant that does not compile is not counted; the next one is drawn in its place. A
mutant with which a test never ends counts as caught.

The code is changed in a copy of the repository, which is built from nothing. With `--in-place` it is changed in the
repository itself and its builds are used; so do this in a clone.

The output lists the mutants that were missed, then the share that was caught and its 95 % interval (Wilson's).
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

FITS = ["fit", "linear", "nnls", "table", "assess", "modelled"]
# The default number of mutants, and what cargo-mutants is asked for.
PARTS = {
    "engine": (80, ["-p", "foretoken-sim"]),
    "policies": (60, ["-p", "foretoken-policies"]),
    "comparisons": (40, ["-p", "foretoken-calibrate", "-p", "foretoken-compare"]),
    "fits": (20, ["-p", "foretoken-profiler", *(f"--file=profiler/src/{name}.rs" for name in FITS)]),
}
# About every tenth mutant does not compile.
MORE = 1.25
# Compiles fast, and runs fast enough.
BUILD = {"CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_PROFILE_DEV_DEBUG": "none", "CARGO_INCREMENTAL": "1"}
# A profile in .config/nextest.toml: the tests end with the first failure.
TESTS = {"NEXTEST_PROFILE": "mutants"}


def mutants(part):
    """The file and the first line of each mutant, by the mutant's name."""
    command = ["cargo", "mutants", "--list", "--json", *PARTS[part][1]]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return {mutant["name"]: (mutant["file"], mutant["span"]["start"]["line"]) for mutant in json.loads(listed)}


def diff(places):
    """A diff that adds the lines at `places`."""
    text = []
    for file in sorted({file for file, _ in places}):
        lines = (REPOSITORY / file).read_text().splitlines()
        text += [f"--- a/{file}", f"+++ b/{file}"]
        for added, line in enumerate(sorted({line for name, line in places if name == file})):
            text += [f"@@ -{line - 1 - added},0 +{line},1 @@", "+" + lines[line - 1]]
    return "".join(line + "\n" for line in text)


def outcomes(part, places, out, in_place):
    """What happened to each mutant: CaughtMutant, MissedMutant, Timeout or Unviable."""
    patterns = [f"--re=^{re.escape(name)}$" for name in places]
    # cargo-mutants 27.1.0 does not apply the patterns to mutants that delete a field, but it does apply a diff.
    lines = Path(out) / "lines.diff"
    lines.write_text(diff(places.values()))
    how = ["--test-tool=nextest", "--output", out, *(["--in-place"] if in_place else [])]
    command = ["cargo", "mutants", *PARTS[part][1], "--in-diff", lines, *patterns, *how]
    # Exit codes of 2 and 3 mean that mutants were missed or ran out of time.
    code = subprocess.run(command, cwd=REPOSITORY, env=os.environ | BUILD | TESTS, check=False).returncode
    if code not in (0, 2, 3):
        sys.exit(f"cargo mutants ended with {code}")
    found = json.loads((Path(out) / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    return {o["scenario"]["Mutant"]["name"]: o["summary"] for o in found if isinstance(o["scenario"], dict)}


def wilson(caught, tried):
    """The 95 % interval of a share."""
    z = 1.959964
    share, z2 = caught / tried, z * z
    middle = (share + z2 / (2 * tried)) / (1 + z2 / tried)
    half = z * (share * (1 - share) / tried + z2 / (4 * tried * tried)) ** 0.5 / (1 + z2 / tried)
    return middle - half, middle + half


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seed", type=int, default=37)
    parser.add_argument("--count", type=int)
    parser.add_argument("--in-place", action="store_true")
    args = parser.parse_args()
    count = args.count or PARTS[args.part][0]
    every = mutants(args.part)
    drawn = random.Random(args.seed).sample(sorted(every), min(len(every), round(count * MORE)))
    with tempfile.TemporaryDirectory() as out:
        found = outcomes(args.part, {name: every[name] for name in drawn}, out, args.in_place)
    viable = [name for name in drawn if found[name] != "Unviable"][:count]
    missed = [name for name in viable if found[name] == "MissedMutant"]
    for name in missed:
        print("missed:", name)
    caught = len(viable) - len(missed)
    low, high = wilson(caught, len(viable))
    print(
        f"{args.part}, seed {args.seed}: {len(every)} mutants, {len(viable)} tried, {caught} caught, "
        f"{caught / len(viable):.0%}, 95 % interval {low:.0%} to {high:.0%}"
    )


if __name__ == "__main__":
    main()
