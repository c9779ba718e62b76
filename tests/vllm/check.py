"""Writes new random workloads in the format of a fixture, on all cores, for a replay to check.

    python check.py --first 1000000 --count 10000 --workers 2 | replay

Each worker writes to its own temporary file, in chunks; the parent passes on whole chunks in the order of the seeds.
"""

import argparse
import multiprocessing
import sys
import time

CHUNK = 50


def chunk(by_core: bool, first: int, count: int) -> str:
    """The lines of `count` workloads from seed `first` on."""
    import core
    import core_lines
    import driver
    import lines
    import workloads

    if by_core:
        return "".join(core_lines.encode(core.run(workloads.draw_core(seed))) for seed in range(first, first + count))
    return "".join(lines.encode(driver.run(workloads.draw(seed))) for seed in range(first, first + count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--core", action="store_true", help="by the engine core, not by its scheduler alone")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    import engine

    name = "foretoken-vllm-core" if options.core else "foretoken-vllm"
    print(f"{name} 1 {engine.VERSION}", flush=True)
    last = options.first + options.count
    jobs = [(options.core, first, min(CHUNK, last - first)) for first in range(options.first, last, CHUNK)]
    start, done = time.monotonic(), 0
    # Forked after the imports, which take longer than thousands of workloads.
    with multiprocessing.get_context("fork").Pool(options.workers, maxtasksperchild=None) as pool:
        for (_, _, count), text in zip(jobs, pool.imap(chunk_of, jobs)):
            sys.stdout.write(text)
            sys.stdout.flush()
            done += count
            print(f"{done} workloads, {done / (time.monotonic() - start):.1f} a second", file=sys.stderr)


def chunk_of(job: tuple[bool, int, int]) -> str:
    return chunk(*job)


if __name__ == "__main__":
    main()
