"""Records a fixture: so many workloads from seed 0 on, of the vLLM that is installed.

    python record.py vllm-0.33.0.txt 504
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
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    rules, ends = Rules(), Counter()
    with options.file.open("w") as file:
        file.write(f"foretoken-vllm 1 {engine.VERSION}\n")
        for seed in range(options.first, options.first + options.count):
            run = driver.run(workloads.draw(seed), rules.watch)
            ends[run.error or "done"] += 1
            rules.count["prompt refused"] += len(run.refused)
            file.write(lines.encode(run))
        for name, count in sorted(rules.count.items()):
            file.write(f"C {count} {name}\n")
    for name, count in [*sorted(ends.items()), *sorted(rules.count.items())]:
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
