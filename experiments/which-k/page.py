"""Makes docs/which-k.md: the best draft length by model, GPU, load and lengths.

foretoken run experiments/which-k/MODEL.toml --format csv > MODEL.csv, for each MODEL; then
python experiments/which-k/page.py MODEL.csv ... > docs/which-k.md
"""

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

HEAD = """# Which K for which model on which GPU

Each cell has the fixed draft length with the most output tokens a second, and by how much the mean request is
faster than with plain decoding, with a 95 % interval over three seeds. "none" means that no length gains. Where
shorter lengths are within 1 % of the best one, the shortest of them stands. Eight GPUs serve one copy of the model,
experts in parallel, with its own MTP module.

**Prompts decide more than the load does:** with prompts of 1,000 tokens speculation pays up to 256 clients
everywhere; with 8,000 tokens, 64 clients leave about a tenth of the gain, and DeepSeek-V4-Pro should not speculate
at 256.

- Drafts are accepted as in the [golden curve](acceptance.md) of the pair: SPEED-Bench's coding prompts, thinking on.
  Each K has its own published mean. Other content accepts more or less.
- Costs are rooflines with the measured floors of kernels ([how true they are](silicon.md)), vLLM 0.33's schedule, and
  no host time. A host whose time of a step is the same with and without drafts makes gains at few clients larger.
- Lengths spread by a log-normal law with sigma 0.3 around the given means. Clients are in closed loops and send 300
  requests, so with 256 clients most of a run is one batch.
- MiniMax-M3, Kimi-K2.5 and Kimi-K3 have curves and presets of drafters too, and are not in the table yet.

`experiments/which-k/` has the experiments, and `page.py`, which makes this page.
"""


def number(row, key):
    return float(row[key] or "nan")


def best(rows):
    """The shortest length within 1 % of the best one, by output tokens a second."""
    top = max(number(r, "token_goodput_tok_s") for r in rows)
    near = [r for r in rows if number(r, "token_goodput_tok_s") >= 0.99 * top]
    return min(near, key=lambda r: 0 if r["policy"] == "autoregressive" else int(r["policy"].removeprefix("fixed-")))


def cell(rows):
    r = best(rows)
    if r["policy"] == "autoregressive":
        return "none"
    gain, low, high = (100 * (number(r, k) - 1) for k in ("speedup", "speedup_low", "speedup_high"))
    return f"K = {r['policy'].removeprefix('fixed-')}: +{gain:.0f} % [{low:.0f}, {high:.0f}]"


def main():
    cells, clients = defaultdict(lambda: defaultdict(list)), []
    for file in sys.argv[1:]:
        for row in csv.DictReader(Path(file).open()):
            gpu = re.search(r'target = .*?gpu = "(\w+)"', row["hardware"])[1]
            prompt = re.search(r"prompt = .*?mean = (\d+)", row["workload.lengths"])[1]
            n = int(row["workload.arrivals.closed-loop"])
            clients.append(n)
            cells[Path(file).stem, gpu, int(prompt)][n].append(row)
    clients = sorted(set(clients))
    print(HEAD)
    print("| model | GPU | prompt + output | " + " | ".join(f"{n} client{'s' * (n > 1)}" for n in clients) + " |")
    print("|---|---|---|" + "---|" * len(clients))
    for (model, gpu, prompt), by_load in cells.items():
        found = " | ".join(cell(by_load[n]) for n in clients)
        print(f"| {model} | 8 x {gpu} | {prompt:,} + 300 | {found} |")


main()
