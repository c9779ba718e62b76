"""Records a fixture from the installed vLLM: a number of workloads from seed 0 on, and some that exercise the budgets.

    python record.py vllm-0.33.0.txt 756 --rush 50
    python record.py core-0.33.0.txt 504 --core
"""

import argparse
from collections import Counter
from pathlib import Path

import core
import core_lines
import driver
import engine
import lines
import workloads
from core_rules import CoreRules
from rules import Rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--rush", type=int, default=0, help="how many of `draw_rush` to add")
    parser.add_argument("--core", action="store_true", help="by the engine core, not by its scheduler alone")
    options = parser.parse_args()
    if options.core:
        rules, name, draw, run, encode = CoreRules(), "foretoken-vllm-core", workloads.draw_core, core.run, core_lines.encode
    else:
        rules, name, draw, run, encode = Rules(), "foretoken-vllm", workloads.draw, driver.run, lines.encode
    ends: Counter[str] = Counter()
    with options.file.open("w") as file:
        file.write(f"{name} 1 {engine.VERSION}\n")
        drawn = [draw(seed) for seed in range(options.count)]
        drawn += [workloads.draw_rush(seed) for seed in range(options.rush)]
        for work in drawn:
            ran = run(work, rules.watch)
            ends[ran.error or "done"] += 1
            rules.count["prompt refused"] += len(ran.refused)
            file.write(encode(ran))
        for name, count in sorted(rules.count.items()):
            file.write(f"C {count} {name}\n")
    for name, count in [*sorted(ends.items()), *sorted(rules.count.items())]:
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
