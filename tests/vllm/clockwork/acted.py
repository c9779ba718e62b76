#!/usr/bin/env python3
"""Simulates the servers of a recording (`record.py`) on a calibration, and prints measured and simulated mean E2E in one
table, in Markdown.

    foretoken calibrate R/r0/k0/* R/r0/k3/* -o CALIBRATED
    acted.py R CALIBRATED --foretoken target/release/foretoken --policies policies.json

The calibration has seen K = 0 and 3 alone. `policies.json` is a table of the policies in the scheduler, with their
settings. A fixed length is simulated as vLLM runs it, a policy with `engine.seated`.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from policies import LOADS, cells, mean


def toml(value) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(of)}" for key, of in value.items() if of is not None) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def simulated(args, workload: dict, policies: list[dict], seated: bool) -> list[float]:
    """Mean E2E of each policy at a load, seconds, over the experiment's seeds."""
    sets = {"policies": toml(policies), "workload": toml(workload), "engine.max_draft_len": str(args.longest), "engine.seated": toml(seated)}
    with tempfile.TemporaryDirectory() as out:
        command = [args.foretoken, "run", str(args.calibrated / "experiment.toml"), "-o", f"{out}/results", "--no-figures", "--format", "json"]
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [of["e2e_mean_s"]["mean"] for of in found["variants"][0]["policies"] if not of["implied"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=pathlib.Path)
    parser.add_argument("calibrated", type=pathlib.Path)
    parser.add_argument("--foretoken", required=True)
    parser.add_argument("--policies", required=True, type=pathlib.Path)
    args = parser.parse_args()
    policies = json.loads(args.policies.read_text())
    lengths = sorted(int(path.name[1:]) for path in args.recorded.glob("r0/k*") if path.is_dir())
    # The servers of the policies drafted no longer than the longest fixed length.
    args.longest = max(lengths)
    found = json.loads((args.calibrated / "calibration.json").read_text())["loads"]
    open_loads = iter([load for load in LOADS if load.startswith("open")])
    print(f"| load | {' | '.join([f'K = {k}' for k in lengths] + list(policies))} | best K | policies against it, measured (simulated) |")
    print("|---|" + "--:|" * (len(lengths) + len(policies)) + "---|---|")
    errors = []
    for load in found:
        arrivals = load["workload"]["arrivals"]
        name = f"closed-{arrivals['closed-loop']}" if "closed-loop" in arrivals else next(open_loads)
        fixed = [{"fixed": {"k": k}} if k else {"autoregressive": {}} for k in lengths]
        ours = simulated(args, load["workload"], fixed, False)
        ours += simulated(args, load["workload"], [{"autoregressive": {}}] + [{of: policies[of]} for of in policies], True)[1:]
        theirs = [mean(cells(args.recorded, server, name), "e2e_mean_s") for server in [f"k{k}" for k in lengths] + list(policies)]
        best = min(range(len(lengths)), key=lambda at: theirs[at])
        gain = lambda times, at: "%+.1f %%" % (100 * (times[at] / times[best] - 1))
        row = [f"{1e3 * measured:.0f} ({1e3 * said:.0f})" for measured, said in zip(theirs, ours, strict=True)]
        against = [f"{of} {gain(theirs, len(lengths) + i)} ({gain(ours, len(lengths) + i)})" for i, of in enumerate(policies)]
        print(f"| {name} | {' | '.join(row)} | {lengths[best]} | {'; '.join(against)} |")
        errors += [(abs(said / measured - 1), i >= len(lengths)) for i, (measured, said) in enumerate(zip(theirs, ours, strict=True))]
    for what, policy in (("fixed lengths", False), ("policies in the scheduler", True)):
        of = [error for error, is_policy in errors if is_policy == policy]
        print(f"\n{what}: {len(of)} means of E2E, error {100 * sum(of) / len(of):.1f} % on average, at most {100 * max(of):.1f} %")


if __name__ == "__main__":
    main()
