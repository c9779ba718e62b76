"""Records vLLM's lookup of a length by batch size, from random tables, good and bad.

    python vllm_table.py vllm-table.jsonl 400
"""

import json
import sys
from itertools import groupby
from pathlib import Path

from chance import draw
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup


def table(seed: int) -> list[list[int]]:
    """Ranges of batch sizes. Two in five are unsorted, overlap, start late or end before they start, perhaps."""

    def number(part, below):
        return draw(seed, 1, part, 0) % below

    ranges, at = [], 1
    for part in range(1 + number(0, 6)):
        last = at + number(10 + part, 12)
        ranges.append([at, last, number(20 + part, 7)])
        at = last + 1 + number(30 + part, 3) * number(40 + part, 4)
    if seed % 5 < 2:
        at = number(1, len(ranges))
        ranges[at][number(2, 2)] = number(3, 14)
        if number(4, 3) == 0:
            ranges.reverse()
    return ranges


def main() -> None:
    out, count = Path(sys.argv[1]), int(sys.argv[2])
    refused = 0
    with out.open("w") as file:
        for seed in range(count):
            ranges, most = table(seed), 1 + draw(seed, 2, 0, 0) % 80
            longest = max(max(k for *_, k in ranges), 1)
            try:
                dense = build_dynamic_sd_schedule_lookup(ranges, most, longest)[1:]
                lookup = [[k, len(list(run))] for k, run in groupby(dense)]
            except ValueError:
                lookup, refused = None, refused + 1
            file.write(json.dumps({"table": ranges, "most": most, "lookup": lookup}, separators=(",", ":")) + "\n")
    print(f"{count} tables, {refused} refused")


if __name__ == "__main__":
    main()
