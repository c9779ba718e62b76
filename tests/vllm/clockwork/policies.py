#!/usr/bin/env python3
"""Prints, in Markdown, what vLLM servers of fixed draft lengths and servers on which a policy decides (`record.py
--policy`) did at the same loads, and how the policies compare with the best fixed draft length of each load.

    policies.py R
"""

import json
import math
import pathlib
import sys

LOADS = ["closed-1", "closed-4", "closed-12", "open-0.3", "open-0.7", "open-0.9"]


def cells(folder: pathlib.Path, server: str, load: str) -> list[dict]:
    """The observed runs of a server at a load, one a repeat."""
    found = sorted(folder.glob(f"r*/{server}/{load}/observed.json"))
    return [json.loads(path.read_text())["cells"][0] for path in found]


def mean(runs: list[dict], key: str) -> float:
    return sum(run[key] for run in runs) / len(runs)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    servers = sorted({path.name for path in folder.glob("r*/*") if path.is_dir()})
    fixed = [name for name in servers if name[0] == "k" and name[1:].isdigit()]
    policies = [name for name in servers if name not in fixed]
    for title, key, form in (
        ("Mean E2E, ms", "e2e_mean_s", lambda s: "%.0f" % (1000 * s)),
        ("Tokens a second", "answered_tok_s", lambda rate: "%.0f" % rate),
        ("Mean TTFT, ms", "ttft_mean_s", lambda s: "%.0f" % (1000 * s)),
        ("Mean TPOT, ms", "tpot_mean_s", lambda s: "%.2f" % (1000 * s)),
    ):
        print(f"\n| {title} | {' | '.join(fixed + policies)} |")
        print("|---|" + "--:|" * (len(fixed) + len(policies)))
        for load in LOADS:
            runs = [cells(folder, name, load) for name in fixed + policies]
            print(f"| {load} | {' | '.join(form(mean(of, key)) if of else '–' for of in runs)} |")
    print(f"\n| E2E against the best fixed length of the load, by repeat | {' | '.join(policies)} |")
    print("|---|" + "---|" * len(policies))
    for load in LOADS:
        measured = {name: cells(folder, name, load) for name in fixed}
        best = min((name for name in fixed if measured[name]), key=lambda name: mean(measured[name], "e2e_mean_s"))
        row = []
        for policy in policies:
            pairs = zip(cells(folder, policy, load), measured[best])
            row.append(", ".join("%+.1f %%" % (100 * math.log(ours["e2e_mean_s"] / theirs["e2e_mean_s"])) for ours, theirs in pairs))
        print(f"| {load}, {best} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
