"""Records random workloads that SGLang's own scheduler runs, one line of JSON for each.

    python record.py sglang-0.5.23.jsonl --count 100
    python record.py new.jsonl --count 500 --first 1000000 --families eagle,eagle-overlap --workers 2

Some workloads run one after another in a process, a fork after the imports. Each makes its own scheduler.
"""

import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import stand_ins

TOGETHER = 10  # workloads of a process


def record(family: str, seed: int, file) -> None:
    """Runs a workload in this process and writes its line."""
    import engine
    import families
    from driver import Driver

    work = families.draw(family, seed)
    line, scheduler = work.encode(), None
    try:
        scheduler = engine.make(work.settings)
        line["derived"] = engine.derived(scheduler)
        line["events"] = Driver(scheduler, work).run()
    finally:
        engine.close(scheduler)
    file.write(json.dumps(line, separators=(",", ":")) + "\n")


def child(jobs: list[tuple[str, int]], path: Path, log: Path) -> int:
    """Starts a process that records workloads into `path`."""
    process = os.fork()
    if process:
        return process
    code = 0
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    tempfile.tempdir = str(path.parent)  # SGLang leaves files there; the parent removes them
    try:
        with path.open("w") as file:
            for job in jobs:
                try:
                    record(*job, file)
                except Exception:
                    print(*job, flush=True)
                    traceback.print_exc()
                    code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def load() -> None:
    """Imports all that a workload needs, so that no process does it again."""
    stand_ins.install()
    import sglang.srt.managers.scheduler  # noqa: F401
    import sglang.srt.models.registry  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names"
        process = os.fork()
        if not process:
            tempfile.tempdir = folder
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                before = set(sys.modules)
                with (Path(folder) / "line").open("w") as file:
                    record("adaptive", 0, file)
                names.write_text("\n".join(sorted(set(sys.modules) - before)))
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        for name in names.read_text().split() if names.exists() else ():
            try:
                importlib.import_module(name)
            except Exception:
                pass  # a module that only its own package can import
    gc.collect()
    gc.freeze()  # SGLang collects garbage at every start; what stands here is no garbage


def record_all(jobs: list[tuple[str, int]], file, workers: int) -> Counter:
    """Records the jobs, several at a time, and writes their lines in order."""
    counts: Counter = Counter()
    groups = [jobs[at : at + TOGETHER] for at in range(0, len(jobs), TOGETHER)]
    start, running, done = time.monotonic(), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        upcoming, written = iter(enumerate(groups)), 0
        while written < len(groups):
            while len(running) < workers and (group := next(upcoming, None)):
                number = group[0]
                process = child(group[1], place / f"{number}", place / f"{number}.log")
                running[process] = number
            process, status = os.waitpid(-1, 0)
            number = running.pop(process)
            done[number] = status
            while written in done:
                lines, log = place / f"{written}", place / f"{written}.log"
                if done.pop(written):
                    counts["processes in which a workload failed"] += 1
                    print(log.read_text()[-3000:], file=sys.stderr)
                for text in lines.read_text().splitlines(keepends=True) if lines.exists() else ():
                    file.write(text)
                    count(counts, json.loads(text))
                file.flush()
                lines.unlink(missing_ok=True)
                log.unlink(missing_ok=True)
                written += 1
                print(f"{counts['workloads']} workloads, {counts['workloads'] / (time.monotonic() - start):.2f} a second", file=sys.stderr)
    return counts


def count(counts: Counter, line: dict) -> None:
    """How often each thing happened."""
    counts["workloads"] += 1
    for event in line["events"]:
        counts[event["is"]] += 1
        if event["is"] == "run":
            counts["run " + event["mode"]] += 1
        elif event["is"] == "end":
            counts.update("end by " + why for _, _, why in event["requests"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=100, help="workloads of each family")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--families", default="all", help="names with commas between them, or all")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    from families import FAMILIES

    names = list(FAMILIES) if options.families == "all" else options.families.split(",")
    jobs = [(family, options.first + at) for at in range(options.count) for family in names]
    load()
    import engine

    with options.file.open("w") as file:
        file.write(json.dumps({"format": "foretoken-sglang 1", "sglang": engine.VERSION}) + "\n")
        counts = record_all(jobs, file, options.workers)
    for name, number in sorted(counts.items()):
        print(f"{number:8} {name}")


if __name__ == "__main__":
    main()
