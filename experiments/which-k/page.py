"""Makes docs/which-k.md: the best draft length by model, GPU, load and lengths.

foretoken run experiments/which-k/MODEL.toml --format csv > MODEL.csv, for each MODEL; then
python experiments/which-k/page.py *.csv > docs/which-k.md

`--price h200=2.5` adds, for a GPU whose hour costs this (`fleet.price_gpu_hour` of an experiment), the price of a
million output tokens at the best length.
"""

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

HEAD = """# Which K for which model on which GPU

A cell has the fixed draft length K with the most output tokens a second (of those within 1 % the shortest), and by how
many percent the mean request is faster than with plain decoding, with the 95 % interval over three seeds. "none": no
length gains. Eight GPUs serve one copy of the model, experts in parallel, with its own drafter: an MTP module, EAGLE-3
(Kimi-K2.5, MiniMax-M3) or DSpark (Kimi-K3).

**Prompts decide more than the load does.** With prompts of 1,000 tokens speculation gains 15 to 66 % at 256 clients,
with 8,000 tokens at most 21 %, and DeepSeek-V4-Pro should not speculate there.

**What happens at 256 clients.** With prompts of 1,000 tokens nearly all requests decode at once, so a pass verifies 256
times K + 1 tokens. Their arithmetic takes time, so shorter drafts are best. With prompts of 8,000 tokens one of two
things limits the server first:

- *The KV cache.* On eight H200 GLM-5.2 has room for 47 of the 256 requests, and the others wait. So K and the gain are
  as with 64 clients.
- *The prompts.* On eight H200 DeepSeek-V4-Pro has room for nearly all requests, and each step is full of prompts. With
  K = 1 a request decodes faster (0.24 s a token instead of 0.35 s), but its prompt is not computed faster: it waits 40
  s for its first token instead of 7 s, 160 requests decode at once instead of 238, and the mean request takes 1 %
  longer.

- Drafts are accepted as in the [golden curve](acceptance.md) of the pair: SPEED-Bench's coding prompts, thinking on.
  Other content accepts more or less.
- Costs are rooflines with [floors of kernels](silicon.md), and no host time. A host whose time of a step is the same
  with and without drafts makes gains at few clients larger.
- The schedule is vLLM 0.33's with its defaults on these GPUs: steps of at most 8,192 tokens, at most 1,024 requests.
- Lengths spread by a log-normal law with sigma 0.3. Clients are in closed loops and send 2,560 requests, ten for each
  of 256 clients. With 300 requests, as on this page before, 256 clients ask at once and end one by one, and the gain is
  that of a batch that empties.
- "no gain from" is the least number of clients from which on plain decoding is best.
- `page.py --price h200=PRICE` adds the price of a million output tokens, if a GPU's hour costs PRICE dollars.

`experiments/which-k/` has the experiments, and `page.py`, which makes this page.
"""


COLUMNS = [1, 8, 64, 256]


def number(row, key):
    return float(row[key] or "nan")


def best(rows):
    """The shortest length within 1 % of the best one, by output tokens a second."""
    top = max(number(r, "token_goodput_tok_s") for r in rows)
    near = [r for r in rows if number(r, "token_goodput_tok_s") >= 0.99 * top]
    return min(near, key=lambda r: 0 if r["policy"] == "autoregressive" else int(r["policy"].removeprefix("fixed-")))


def cell(rows, price_second):
    r = best(rows)
    price = f", {1e6 * price_second / number(r, 'token_goodput_tok_s'):.2f} $/M" if price_second else ""
    if r["policy"] == "autoregressive":
        return "none" + price
    gain, low, high = (100 * (number(r, k) - 1) for k in ("speedup", "speedup_low", "speedup_high"))
    return f"{r['policy'].removeprefix('fixed-')}: +{gain:.0f} [{low:.0f}, {high:.0f}]{price}"


def stops(by_load):
    """The least number of clients from which on no length gains."""
    pays = [n for n in by_load if best(by_load[n])["policy"] != "autoregressive"]
    loads = [n for n in sorted(by_load) if n > max(pays, default=0)]
    return f"{loads[0]:,}" if loads else f"not up to {max(by_load):,}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("csv", nargs="+", type=Path)
    arguments.add_argument("--price", action="append", default=[], metavar="GPU=PRICE")
    given = arguments.parse_args()
    price_hour = {gpu: float(price) for gpu, price in (p.split("=") for p in given.price)}
    cells = defaultdict(lambda: defaultdict(list))
    for file in given.csv:
        for row in csv.DictReader(file.open()):
            gpu, gpus = re.search(r'target = .*gpu = "(\w+)".*tensor_parallel = (\d+)', row["hardware"]).groups()
            prompt = re.search(r"prompt = .*?mean = (\d+)", row["workload.lengths"])[1]
            n = int(row["workload.arrivals.closed-loop"])
            cells[file.name.removesuffix(".csv"), gpu, int(gpus), int(prompt)][n].append(row)
    print(HEAD)
    heads = [f"{n} client{'s' * (n > 1)}" for n in COLUMNS]
    print("| model | GPU | prompt + output | " + " | ".join(heads) + " | no gain from |")
    print("|---|---|---|" + "---|" * (len(COLUMNS) + 1))
    for (model, gpu, gpus, prompt), by_load in cells.items():
        price_second = gpus * price_hour.get(gpu, 0) / 3600
        found = " | ".join(cell(by_load[n], price_second) for n in COLUMNS)
        print(f"| {model} | {gpus} x {gpu} | {prompt:,} + 300 | {found} | {stops(by_load)} |")


main()
