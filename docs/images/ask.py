"""Draws an answer of `foretoken ask --format json` for the README: python ask.py answer.json FOLDER"""

import json
import math
import pathlib
import sys

answer = json.loads(pathlib.Path(sys.argv[1]).read_text())
NAMES = ["paper", "ink", "grey", "rule", "best", "now"]
LIGHT = dict(zip(NAMES, ["#ffffff", "#1d2126", "#5b636b", "#d4d8dc", "#0b5cad", "#c04000"]))
DARK = dict(zip(NAMES, ["#16191d", "#e6e8ea", "#a6acb3", "#3a4047", "#7db7f0", "#f0a070"]))


def times(gain):
    """How many times as fast, with the ends of its interval: a gain is the share of time that is saved."""
    if gain is None:
        return 1.0, 1.0, 1.0
    ends = [gain["mean"] if end is None else end for end in (gain["low"], gain["high"])]
    return tuple(1 / (1 - x) for x in (gain["mean"], *ends))


def draw(c):
    out = []

    def text(x, y, words, size=15, colour="ink", anchor="start", weight="normal"):
        look = f'font-size="{size}" fill="{c[colour]}" text-anchor="{anchor}" font-weight="{weight}"'
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" {look}>{words}</text>')

    def line(points, colour="rule", width=1.0):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{c[colour]}" stroke-width="{width}"/>')

    # Left: each length at the asked load, over what runs now.
    rows = [r for r in answer["at_load"] if r["name"].startswith(("K = ", "plain"))]
    low, high = 0.9, 1.2
    x = lambda t: 150 + 230 * (t - low) / (high - low)
    text(20, 30, f"At {answer['load'].split()[-1]} clients: as fast as {answer['now']} now", 16, weight="bold")
    for t in (0.9, 1.0, 1.1, 1.2):
        line([(x(t), 48), (x(t), 56 + 26 * len(rows))])
        text(x(t), 74 + 26 * len(rows), f"{t:.1f}x", 13, "grey", "middle")
    for i, row in enumerate(rows):
        y = 66 + 26 * i
        mean, a, b = times(row["over_now"])
        colour = "best" if row["advised"] else "now" if row["now"] else "grey"
        weight = "bold" if row["advised"] else "normal"
        text(20, y + 5, row["name"] + (", now" if row["now"] else ""), 14, colour, weight=weight)
        line([(x(a), y), (x(b), y)], colour, 3)
        out.append(f'<circle cx="{x(mean):.1f}" cy="{y}" r="5" fill="{c[colour]}"/>')
        if row["advised"]:
            text(x(mean) + 9, y + 5, f"{mean:.2f}x", 14, colour, weight="bold")
    # Right: the best length by number of clients, over plain decoding and over what runs now.
    loads = answer["by_clients"]
    most = math.log2(loads[-1]["clients"]) or 1.0
    u = lambda n: 470 + 260 * math.log2(n) / most
    v = lambda t: 56 + 26 * len(rows) - 26 * len(rows) * (t - 1.0) / 0.5
    text(440, 30, "As fast, with the best length, by clients", 16, weight="bold")
    for t in (1.0, 1.25, 1.5):
        line([(u(1), v(t)), (u(loads[-1]["clients"]), v(t))])
        text(u(1) - 10, v(t) + 5, f"{t:.2f}x", 13, "grey", "end")
    for key, colour, words in (("over_plain", "best", "as none"), ("over_now", "now", f"as {answer['now']}")):
        points = [(u(r["clients"]), v(times(r[key])[0])) for r in loads]
        line(points, colour, 2.5)
        text(points[-1][0] + 6, points[-1][1] + 5, words, 13, colour)
    for r in loads:
        text(u(r["clients"]), 74 + 26 * len(rows), r["clients"], 13, "grey", "middle")
        text(u(r["clients"]), 92 + 26 * len(rows), f"K={r['k']}", 13, "ink", "middle")
    height = 104 + 26 * len(rows)
    style = 'font-family="Helvetica,Arial,sans-serif"'
    page = f'<rect width="820" height="{height}" fill="{c["paper"]}"/>'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" {style}>'
    return begin + page + "".join(out) + "</svg>\n"


folder = pathlib.Path(sys.argv[2])
(folder / "ask.svg").write_text(draw(LIGHT))
(folder / "ask-dark.svg").write_text(draw(DARK))
