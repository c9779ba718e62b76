#!/usr/bin/env bash
# Draws the README's picture again: the speedup figure of the quickstart's page, in the page's light and dark colours.
set -euo pipefail
cd "$(dirname "$0")/../.."
results="$(mktemp -d)/quickstart"
cargo run --release -- run experiments/quickstart.toml -o "$results" >/dev/null
python3 - "$results" docs/images <<'PY'
import pathlib, re, sys
results, images = map(pathlib.Path, sys.argv[1:])
svg = (results / "figures/speedup.svg").read_text()
(images / "quickstart.svg").write_text(svg)
page = (results / "report/index.html").read_text()
for name, colour, dark in re.findall(r'\.fig \[(fill|stroke)="(#\w+)"\][^{}]*\{\1:(#\w+)\}', page):
    svg = svg.replace(f'{name}="{colour}"', f'{name}="{dark.lower()}"')
(images / "quickstart-dark.svg").write_text(svg)
PY
