"""Compares a sweep on one Ray node with `foretoken.run` with the same number of threads: 10,000 cells of some 0.05 s,
merging included.

    python python/benches/ray_sweep.py [CELLS] [PROCESSORS]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import ray  # noqa: E402
from conftest import EXPERIMENT, digests  # noqa: E402

import foretoken  # noqa: E402
import foretoken.ray  # noqa: E402

CELLS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
PROCESSORS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
EXPERIMENT = {
    **EXPERIMENT,
    "seeds": list(range(1, CELLS // 2 + 1)),
    "policies": [{"autoregressive": {}}, {"adaspec": {}}],
    "engine": {"max_num_seqs": 64},
    "workload": {"arrivals": {"poisson": {"rate": 8.0}}, "lengths": {"fixed": {"prompt": 128, "output": 720}}, "requests": 200},
    "output": {"steps": False},
}


def timed(what, run):
    started = time.perf_counter()
    results = run()
    wall_s = time.perf_counter() - started
    print(f"{what:28} {wall_s:7.1f} s  {CELLS / wall_s:6.1f} cells/s", flush=True)
    return results, wall_s


def main():
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"figures": False, "progress": False}
        alone = lambda: foretoken.run(EXPERIMENT, output=Path(folder) / "run", threads=PROCESSORS, **quiet)  # noqa: E731
        whole, alone_s = timed(f"run, {PROCESSORS} threads", alone)
        print(f"a cell takes {whole.manifest['timing']['engine_s'] / CELLS:.3f} s in the engine")
        ray.init(num_cpus=PROCESSORS, log_to_driver=False, include_dashboard=False)
        on_ray = lambda: foretoken.ray.sweep(EXPERIMENT, output=Path(folder) / "swept", **quiet)  # noqa: E731
        swept, swept_s = timed(f"Ray, {PROCESSORS} processors", on_ray)
        assert digests(whole.path) == digests(swept.path)
        print(f"{100 * alone_s / swept_s:.0f} % of the speed, the same bytes")


main()
