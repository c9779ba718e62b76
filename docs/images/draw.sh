#!/usr/bin/env bash
# Draws the pictures of the documents again, for light and for dark pages: the speedup figure of the quickstart, and, if
# FORETOKEN_TRACES names real traces, a ladder.
set -euo pipefail
cd "$(dirname "$0")/../.."
results="$(mktemp -d)/quickstart"
cargo run --release -- run experiments/quickstart.toml -o "$results" >/dev/null
ladder="$(mktemp -d)/ladder"
if [ -n "${FORETOKEN_TRACES:-}" ]; then
  policies="[{ foresight = {} }, { gated-budget = {} }, { adaspec = {} }, { tetris = {} }, { smartspec = {} }"
  policies="$policies, { fixed = { k = 3 } }, { oracle-goodput = {} }]"
  cargo run --release -- ladder experiments/arena/held-out-conv-70b-eagle.toml -o "$ladder" \
    --set "policies=$policies" --set 'seeds=[201, 202, 203]' >/dev/null
fi
python3 - "$results" "$ladder" docs/images <<'PY'
import pathlib, re, sys
results, ladder, images = map(pathlib.Path, sys.argv[1:])

def draw(name, svg, page):
    (images / f"{name}.svg").write_text(svg)
    for kind, colour, dark in re.findall(r'\.fig \[(fill|stroke|color)="(#\w+)"\][^{}]*\{\1:(#\w+)\}', page):
        svg = svg.replace(f'{kind}="{colour}"', f'{kind}="{dark.lower()}"')
    (images / f"{name}-dark.svg").write_text(svg)

draw("quickstart", (results / "figures/speedup.svg").read_text(), (results / "report/index.html").read_text())
if ladder.exists():
    page = (ladder / "ladder.html").read_text()
    draw("ladder", re.search(r"<svg.*?</svg>", page, re.S).group(0) + "\n", page)
PY
