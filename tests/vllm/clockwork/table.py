#!/usr/bin/env python3
"""Prints the table of a validation on a clockwork device, in Markdown, and how many of its numbers are within the
project's own bounds.

    foretoken calibrate R/r*/k0/closed-* R/r*/k3/closed-* -o CALIBRATED
    foretoken validate --calibrated CALIBRATED --observed R/r*/k*/* -o COMPARED --format json > compared.json
    table.py compared.json
"""

import json
import sys

QUANTITIES = ["throughput", "TPOT, mean", "E2E, mean", "TTFT, mean"]
LOADS = [("closed", "1"), ("closed", "4"), ("closed", "12"), ("open", "0.3"), ("open", "0.7"), ("open", "0.9")]
# The seed of a load tells its rate (record.py).
RATES = {"203": "0.3", "207": "0.7", "209": "0.9"}


PARTS = ["error", "of_acceptance", "of_cost", "of_schedule"]


def load(cell: dict) -> tuple[str, str]:
    words = cell["load"].split()
    return (words[0], words[1] if words[0] == "closed" else RATES[words[-1][-3:]])


def mean(rows: list[dict]) -> dict:
    """The mean errors of a number over open loads that differ only in their seed."""
    return {part: sum(row[part] for row in rows) / len(rows) for part in PARTS}


def main() -> None:
    repeats = {}
    compared = json.load(open(sys.argv[1]))
    for cell in compared["cells"]:
        rows = {row["quantity"]: row for row in cell["rows"]}
        repeats.setdefault((load(cell), cell["k"]), []).append(rows)
    cells = {at: {q: mean([rows[q] for rows in all]) for q in QUANTITIES} for at, all in repeats.items()}
    percent = lambda value: "%+.1f" % (100 * value)
    print("| load | K | tok/s | TPOT | E2E | TTFT | E2E, of acceptance / costs / schedule |")
    print("|---|--:|--:|--:|--:|--:|---|")
    fitted = lambda at: at[0][0] == "closed" and at[1] in (0, 3)
    for at in sorted(cells, key=lambda at: (LOADS.index(at[0]), at[1])):
        (kind, amount), k = at
        errors = " | ".join(percent(cells[at][quantity]["error"]) for quantity in QUANTITIES)
        e2e = cells[at]["E2E, mean"]
        parts = " / ".join(percent(e2e[part]) for part in ("of_acceptance", "of_cost", "of_schedule"))
        print(f"| {kind} {amount}{' *' if fitted(at) else ''} | {k} | {errors} | {parts} |")

    def count(what: str, chosen, quantities: list[str], within: float) -> None:
        errors = [abs(cells[at][q]["error"]) for at in cells if chosen(at) and not fitted(at) for q in quantities]
        kept = sum(error <= within for error in errors)
        print(f"- {what} within {100 * within:.0f} %: {kept} of {len(errors)}, the largest {100 * max(errors):.1f} %")

    steady = lambda at: at[0] != ("open", "0.9")
    print()
    count("K <= 3, throughput, TPOT and E2E", lambda at: at[1] <= 3 and steady(at), QUANTITIES[:3], 0.03)
    count("K <= 3, TTFT", lambda at: at[1] <= 3 and steady(at), QUANTITIES[3:], 0.05)
    count("K = 5, all four", lambda at: at[1] == 5 and steady(at), QUANTITIES, 0.05)
    count("K = 8, all four", lambda at: at[1] == 8 and steady(at), QUANTITIES, 0.08)
    count("0.9 of the service rate, all four", lambda at: not steady(at), QUANTITIES, 0.05)
    for part in ("of_cost", "of_schedule"):
        worst = max(abs(cells[at]["E2E, mean"][part]) for at in cells)
        print(f"- E2E, {part.replace('_', ' ')}: at most {100 * worst:.1f} % in any cell")
    held_out = compared["held_out"]
    within, numbers, half = held_out["within_interval"], held_out["numbers"], held_out["median_half_width"]
    print(f"- within the 95 % interval: {within} of {numbers}, half a width is {100 * half:.1f} % in the median")


main()
