#!/usr/bin/env python3
"""Changes the code at random places and counts the changes that a test notices.

    cargo install cargo-mutants cargo-nextest --locked
    pip install tree-sitter==0.26.1 tree-sitter-rust==0.24.2
    tests/mutants/mutants.py engine             # or policies, comparisons, fits
    tests/mutants/mutants.py engine --seed 38 --count 20 --then foretoken-run --then foretoken-tests

A changed place is a mutant: an operator is another one, a function returns a constant, an arm of a match is gone.
cargo-mutants lists all mutants of a part of the code. This script draws some with a seed. It copies the repository to
target/mutants, writes all drawn mutants into the copy as branches (switches.py), and compiles it once. Then the tests
of the mutant's own crate run for each mutant; with `--then`, the tests of further crates run for the mutants that
these miss. `--only` limits these further tests, and `--missed FILE` reads from the output of an earlier run which
mutants the own tests missed:

    tests/mutants/mutants.py comparisons | tee first
    tests/mutants/mutants.py comparisons --missed first --then foretoken --only 'test(/calibrate|validate|recommend/)'

A mutant that cannot be a branch or does not compile is not tried; the next one is drawn in its place. A mutant with
which a test lasts over ten minutes counts as caught.

The output lists the mutants that were missed, then the share that was caught and its 95 % interval (Wilson's).
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import switches  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
PLACE = REPOSITORY / "target" / "mutants"
TREE = PLACE / "tree"

FITS = ["fit", "linear", "nnls", "table", "assess", "modelled"]
# The default number of mutants, the crates, and the files; all files of the crates if there are none.
PARTS = {
    "engine": (80, ["foretoken-sim"], []),
    "policies": (60, ["foretoken-policies"], []),
    "comparisons": (40, ["foretoken-servers"], []),
    "fits": (20, ["foretoken-profiler"], [f"profiler/src/{name}.rs" for name in FITS]),
}
# Some mutants cannot be tried.
MORE = 1.25
# Compiles fast, and runs fast enough. A branch may look wrong to a lint.
BUILD = {
    "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
    "CARGO_PROFILE_DEV_DEBUG": "none",
    "CARGO_INCREMENTAL": "1",
    "CARGO_TARGET_DIR": str(PLACE / "build"),
    "RUSTFLAGS": "--cap-lints=allow",
    # A profile in .config/nextest.toml: the tests end with the first failure, and no test lasts for ever.
    "NEXTEST_PROFILE": "mutants",
}


def listed(crates, files):
    """All mutants by name, with the name's crate."""
    wanted = [f"--package={crate}" for crate in crates] + [f"--file={file}" for file in files]
    command = ["cargo", "mutants", "--list", "--json", *wanted]
    out = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return {mutant["name"]: mutant for mutant in json.loads(out)}


def write(path, text):
    """Writes a file of the copy if it is another one, so that only changed crates are compiled."""
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def copy(numbered):
    """Copies the repository with the branches of the mutants. Returns the numbers that cannot be branches."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    roots = {f"{mutant['file'].split('/')[0]}/src/lib.rs" for mutant in numbered.values()}
    refused = []
    for file in filter(None, tracked.stdout.split("\0")):
        text = (REPOSITORY / file).read_bytes()
        own = {number: mutant for number, mutant in numbered.items() if mutant["file"] == file}
        if own:
            source, more = switches.switched(text.decode(), own)
            text, refused = source.encode(), refused + more
        write(TREE / file, text + (switches.FUNCTION.encode() if file in roots else b""))
    return refused


def cargo(*arguments, **variables):
    command = ["cargo", "nextest", "run", *arguments]
    return subprocess.run(command, cwd=TREE, env=os.environ | BUILD | variables, capture_output=True, text=True)


def beside_errors(said):
    """The numbers of the mutants whose branches are within three lines of a compiler's error."""
    numbers = set()
    for file, line in re.findall(r"^\s*--> (\S+?):(\d+):", said, re.MULTILINE):
        # Errors also show places in the standard library and in crates of others.
        if not (TREE / file).resolve().is_relative_to(TREE):
            continue
        lines = (TREE / file).read_text().splitlines()[max(0, int(line) - 4) : int(line) + 3]
        numbers |= {int(n) for n in re.findall(r"crate::mutant\((\d+)\)", "\n".join(lines))}
    return numbers


def compiled(numbered, packages):
    """Compiles the tests with all mutants that compile. Returns these."""
    while True:
        for number in copy(numbered):
            print(f"no branch: {numbered.pop(number)['name']}", flush=True)
        built = cargo("--no-run", *packages)
        if built.returncode == 0:
            return numbered
        wrong = beside_errors(built.stderr) & set(numbered)
        if not wrong:
            sys.exit(built.stderr[-4000:])
        for number in wrong:
            print(f"does not compile: {numbered.pop(number)['name']}", flush=True)


def missed(number, packages):
    """Do all tests pass with this mutant?"""
    return cargo(*packages, FORETOKEN_MUTANT=str(number)).returncode == 0


def wilson(caught, tried):
    """The 95 % interval of a share."""
    z = 1.959964
    share, z2 = caught / tried, z * z
    middle = (share + z2 / (2 * tried)) / (1 + z2 / tried)
    half = z * (share * (1 - share) / tried + z2 / (4 * tried * tried)) ** 0.5 / (1 + z2 / tried)
    return middle - half, middle + half


def tell(what, every, tried, survivors):
    caught = tried - len(survivors)
    low, high = wilson(caught, tried)
    share = f"{caught} caught, {caught / tried:.0%}, 95 % interval {low:.0%} to {high:.0%}"
    print(f"{what}: of {every} mutants {tried} were tried, {share}", flush=True)


def programs():
    """The compiled programs, with the times at which they were written."""
    files = [file for file in (PLACE / "build" / "debug" / "deps").iterdir() if not file.suffix]
    return {file: file.stat().st_mtime_ns for file in files}


def by_own_tests(tried, crates):
    """The numbers of the mutants that the tests of their own crate miss."""
    for crate in crates:
        if not missed(0, [f"-p={crate}"]):
            sys.exit(f"the tests of {crate} fail without a mutant")
    before = programs()
    survivors = []
    for number, mutant in tried.items():
        if missed(number, [f"-p={mutant['package']}"]):
            survivors.append(number)
            print(f"missed: {mutant['name']}", flush=True)
    # Cargo takes a program that was built from the same crate elsewhere for the mutants'. It has no mutants.
    if programs() != before:
        sys.exit(f"{PLACE / 'build'}: something else was compiled there meanwhile, so the sample is not valid")
    return survivors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seed", type=int, default=37)
    parser.add_argument("--count", type=int)
    parser.add_argument("--then", action="append", default=[], metavar="PACKAGE")
    parser.add_argument("--only", metavar="FILTERSET", help="nextest's, for the packages of --then")
    parser.add_argument("--missed", type=Path, metavar="FILE", help="the output of an earlier run of the own tests")
    args = parser.parse_args()
    usual, crates, files = PARTS[args.part]
    count = args.count or usual
    every = listed(crates, files)
    drawn = random.Random(args.seed).sample(sorted(every), min(len(every), round(count * MORE)))
    numbered = compiled({n: every[name] for n, name in enumerate(drawn, 1)}, [f"-p={crate}" for crate in crates])
    tried = dict(list(numbered.items())[:count])
    if args.missed:
        known = re.findall(r"^missed: (.*)", args.missed.read_text(), re.MULTILINE)
        survivors = [number for number, mutant in tried.items() if mutant["name"] in known]
        if len(survivors) < len(known):
            sys.exit(f"{args.missed}: a mutant is not of this sample, or was drawn from other code")
    else:
        survivors = by_own_tests(tried, crates)
    tell(f"{args.part}, seed {args.seed}, own tests", len(every), len(tried), survivors)
    if args.then:
        further = [f"-p={package}" for package in args.then] + (["-E", args.only] if args.only else [])
        if not missed(0, further):
            sys.exit(f"the tests of {', '.join(args.then)} fail without a mutant")
        survivors = [number for number in survivors if missed(number, further)]
        for number in survivors:
            print(f"missed by all: {tried[number]['name']}", flush=True)
        tell(f"{args.part}, seed {args.seed}, all tests", len(every), len(tried), survivors)


if __name__ == "__main__":
    main()
