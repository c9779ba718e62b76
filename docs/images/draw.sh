#!/usr/bin/env bash
# Draws the pictures of the documents again, for light and for dark pages: the answer to the README's question, and, if
# FORETOKEN_TRACES names real traces, a ladder.
set -euo pipefail
cd "$(dirname "$0")/../.."
answer="$(mktemp -d)/answer.json"
foretoken() { cargo run --release -- "$@" --format json; }
source <(awk '$0 == "```sh" { on = 1; next } on && $0 == "```" { exit } on' README.md) >"$answer"
python3 docs/images/ask.py "$answer" docs/images
ladder="$(mktemp -d)/ladder"
if [ -n "${FORETOKEN_TRACES:-}" ]; then
  policies="[{ foresight = {} }, { gated-budget = {} }, { adaspec = {} }, { tetris = {} }, { smartspec = {} }"
  policies="$policies, { fixed = { k = 3 } }, { oracle-goodput = {} }]"
  cargo run --release -- ladder experiments/arena/held-out-conv-70b-eagle.toml -o "$ladder" \
    --set "policies=$policies" --set 'seeds=[201, 202, 203]' >/dev/null
fi
python3 - "$ladder" docs/images <<'PY'
import pathlib, re, sys
ladder, images = map(pathlib.Path, sys.argv[1:])

def draw(name, svg, page):
    (images / f"{name}.svg").write_text(svg)
    for kind, colour, dark in re.findall(r'\.fig \[(fill|stroke|color)="(#\w+)"\][^{}]*\{\1:(#\w+)\}', page):
        svg = svg.replace(f'{kind}="{colour}"', f'{kind}="{dark.lower()}"')
    (images / f"{name}-dark.svg").write_text(svg)

if ladder.exists():
    page = (ladder / "ladder.html").read_text()
    draw("ladder", re.search(r"<svg.*?</svg>", page, re.S).group(0) + "\n", page)
PY
