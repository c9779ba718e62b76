"""Records a fixture: so many workloads from seed 0 on, and some for the rules of the budgets, of the vLLM that is installed.

    python record.py vllm-0.33.0.txt 756 --rush 50
"""

import argparse
from collections import Counter
from pathlib import Path

import driver
import engine
import lines
import workloads
from rules import Rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--rush", type=int, default=0, help="how many of `draw_rush` to add")
    options = parser.parse_args()
    rules, ends = Rules(), Counter()
    with options.file.open("w") as file:
        file.write(f"foretoken-vllm 1 {engine.VERSION}\n")
        drawn = [workloads.draw(seed) for seed in range(options.count)]
        drawn += [workloads.draw_rush(seed) for seed in range(options.rush)]
        for work in drawn:
            run = driver.run(work, rules.watch)
            ends[run.error or "done"] += 1
            rules.count["prompt refused"] += len(run.refused)
            file.write(lines.encode(run))
        for name, count in sorted(rules.count.items()):
            file.write(f"C {count} {name}\n")
    for name, count in [*sorted(ends.items()), *sorted(rules.count.items())]:
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
