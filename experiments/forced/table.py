"""Makes the tables of docs/acceptance.md, "Forced against drawn".

foretoken run experiments/forced/MODEL.toml --format csv > MODEL.csv, for each MODEL; then
python experiments/forced/table.py MODEL.csv ...
"""

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

WAYS = ("forced", "round", "request")
OWN = ("smartspec", "smartspec-request")


def main():
    cells = defaultdict(dict)
    for file in sys.argv[1:]:
        for row in csv.DictReader(Path(file).open()):
            gpu = re.search(r'target = .*?gpu = "(\w+)"', row["hardware"])[1]
            source = row["acceptance.source"]
            way = "forced" if "forced" in source else "round" if "golden" in source else "request"
            cells[Path(file).stem, gpu, int(row["workload.arrivals.closed-loop"])][way, row["policy"]] = row
    print("| model, GPU, clients | best K | P99 / median time per token, K = 3 | "
          + " | ".join(OWN) + " |")
    print("|---|---|---|" + "---|" * len(OWN))
    apart = 0.0
    for (model, gpu, clients), of in cells.items():
        rate = lambda way, policy: float(of[way, policy]["token_goodput_tok_s"])
        fixed = sorted({p for _, p in of if p.startswith("fixed-")})
        best = {way: max(fixed, key=lambda p: rate(way, p)) for way in WAYS}
        apart = max([apart] + [abs(rate("round", p) / rate("forced", p) - 1) for p in fixed])
        spread = {w: float(of[w, "fixed-3"]["tpot_p99_s"]) / float(of[w, "fixed-3"]["tpot_p50_s"]) for w in WAYS}
        gains = [", ".join(f"{100 * (rate(w, p) / rate(w, best[w]) - 1):+.0f}".replace("-0", "+0") for w in WAYS) for p in OWN]
        lengths = ", ".join(best[w].removeprefix("fixed-") for w in WAYS)
        spreads = ", ".join(f"{spread[w]:.2f}" for w in WAYS)
        print(f"| {model}, 8 x {gpu}, {clients} | {lengths} | {spreads} | " + " | ".join(gains) + " |")
    print(f"\nFixed lengths, forced against drawn by round: at most {100 * apart:.1f} % apart in tokens a second.")


main()
