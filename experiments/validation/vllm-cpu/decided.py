#!/usr/bin/env python3
"""Which cells of the recording are decided: whose repeats lie within 5 % of each other. The rule was set before anything was recorded.

    decided.py RECORDED [RUNS.csv]

Three repeats must all lie within 5 %, in throughput, mean TPOT and mean E2E. Of more, two thirds (at least three) must: the neighbours of a
shared machine make some runs slower and none faster. RUNS.csv gets every run with the digest of its recording and what it was used for.
"""
import json, math, pathlib, sys

WITHIN = 0.05


def numbers(folder):
    """Throughput, mean TPOT and mean E2E of a run."""
    cell = json.loads((folder / "observed.json").read_text())["cells"][0]
    return cell["answered_tok_s"], cell["tpot_mean_s"], cell["e2e_mean_s"]


def spread(values):
    """The least distance within which two thirds of the values lie, relative to their median."""
    v = sorted(values)
    n = max(3, math.ceil(2 * len(v) / 3))
    if len(v) < n:
        return math.inf
    first = min(range(len(v) - n + 1), key=lambda i: v[i + n - 1] - v[i])
    return (v[first + n - 1] - v[first]) / v[first + n // 2]


def decided(runs):
    return len(runs) >= 3 and all(spread(values) <= WITHIN for values in zip(*runs))


def role(cell):
    """What a run is for: the calibration reads closed loops of K = 0 and 3, and nothing else."""
    server, load = cell.split("/")
    return "fitted" if server in ("k0", "k3") and load.startswith("closed") else "held out"


def main():
    cells, lines = {}, ["repeat,cell,role,blake3,tok_s,tpot_mean_s,e2e_mean_s"]
    for folder in sorted(pathlib.Path(sys.argv[1]).glob("r*/*/*")):
        manifest = folder / "manifest.json"
        if not manifest.exists() or not json.loads(manifest.read_text())["complete"]:
            continue
        cell = f"{folder.parent.name}/{folder.name}"
        run = numbers(folder)
        cells.setdefault(cell, []).append(run)
        digest = json.loads(manifest.read_text())["files"]["recordings/v0-s0.obs"]
        lines.append(",".join([folder.parents[1].name, cell, role(cell), digest] + ["%.6g" % x for x in run]))
    for cell, runs in sorted(cells.items()):
        verdict = "decided" if decided(runs) else "undecided"
        print(f"{cell:14} {len(runs)} repeats, apart", *("%.1f %%" % (100 * spread(v)) for v in zip(*runs)), verdict)
    print(sum(decided(runs) for runs in cells.values()), "of", len(cells), "decided")
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
