"""Runs random workloads through vLLM's own scheduler with and without a policy in its seat, and compares every step.

    PYTHONPATH=..:TREE python check.py shadow 1000 [FIRST SEED]    # TREE: sources of vLLM 0.33; left out, 0.32
    PYTHONPATH=..:TREE python check.py theirs 1000 [FIRST]
    PYTHONPATH=..:TREE python check.py act 1000 [FIRST]

`shadow`: the policy is asked and logged, and no step may differ. `theirs`: the seat acts and chooses what vLLM would
choose; no step may differ where vLLM has a table (without one, vLLM pads the first decode of a new request, and a
seat with a table of its own does not). `act`: `fixed-1` chooses; every request must end with as many tokens as without
the seat, and each step must be given what the policy chose. A workload that is cut after its last allowed step
(`endless`, with or without the seat) has no ends to compare. Even seeds run vLLM's scheduler alone, odd seeds its engine
core with it, asynchronous or not.
"""

import functools
import json
import os
import pathlib
import sys
import tempfile

import engine  # before any of vLLM's
import core
import driver
import workloads
from vllm import __version__

import foretoken.vllm
from foretoken.seated.chooser import Chooser

PLAIN, SEATED, CHOOSE = engine.SchedulerConfig, foretoken.vllm.Scheduler, Chooser.choose
POLICY = {"foresight": {"stop": False, "trim": False, "confidences": False}}
# These workloads are too short to learn costs from.
COSTS = pathlib.Path(__file__).resolve().parents[3] / "experiments/profiles/tiny-cpu.toml"
# Why no policy can be asked in some of the workloads.
UNFIT = ("this server does not speculate", "makes all its drafts whatever a step asks for")
seats = []


def taken(*args, **kwargs):
    """The scheduler with a seat; remembered, to see what its seat did."""
    made = SEATED(*args, **kwargs)
    seats.append(made)
    return made


def theirs(self, view, choice):
    """In place of a policy: vLLM's own choice, after the view of it was made."""
    view()
    found = CHOOSE(self, view, choice)
    found.would = found.used = choice
    return found


def ran(work, seat: bool):
    """The workload's run, with or without a seat."""
    cls = {"scheduler_cls": "foretoken.vllm.Scheduler"} if seat else {}
    engine.SchedulerConfig = functools.partial(PLAIN, **cls)
    over = core.run if isinstance(work, tuple) else driver.run
    result = over(work[0] if isinstance(work, tuple) else work)
    if result.error is None or result.derived:
        result.derived["table"] = 0  # whether there is a table
    return result


def events(result):
    return result.steps if hasattr(result, "steps") else result.events


def ended(result):
    """The requests that ended, and whether anything else stopped the run."""
    return sorted(id for step in events(result) for id in getattr(step, "finished", getattr(step, "ended", ()))), result.error


def main() -> None:
    mode, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    log = os.path.join(tempfile.mkdtemp(), "seat.jsonl")
    policy = {"fixed": {"k": 1}} if mode == "act" else POLICY
    os.environ |= {"FORETOKEN_POLICY": json.dumps(policy), "FORETOKEN_MODE": "shadow" if mode == "shadow" else "act"}
    os.environ |= {"FORETOKEN_COSTS": str(COSTS), "FORETOKEN_LOG": log, "FORETOKEN_SLOW_S": "1"}
    foretoken.vllm.Scheduler = taken
    if mode == "theirs":
        Chooser.choose = theirs
    counts = {"same": 0, "padding": 0, "refused": 0, "unfit": 0, "asked": 0, "steps": 0}
    counts |= {"endless without": 0, "endless with": 0} if mode == "act" else {}
    foretoken.vllm.plugin()
    for seed in range(first, first + count):
        work = (workloads.draw_core(seed),) if seed % 2 else workloads.draw(seed)
        plain, seated = ran(work, False), ran(work, True)
        of = work[0] if isinstance(work, tuple) else work
        for made in seats:
            if made.desk is None:
                sys.exit(f"workload {seed}: the seat is empty")
            chooser = made.desk.chooser
            if chooser.off is not None and not any(why in chooser.off for why in UNFIT):
                sys.exit(f"workload {seed}: {chooser.off}")
            counts["unfit"] += chooser.off is not None
            counts["asked"] += any(chooser.metrics.decisions.counts)
            chooser.close()
        seats.clear()
        counts["refused"] += plain.error is not None
        counts["steps"] += len(events(plain))
        if mode == "act":
            if "endless" in (plain.error, seated.error):
                counts["endless without"] += plain.error == "endless"
                counts["endless with"] += seated.error == "endless"
            elif ended(plain)[0] != ended(seated)[0]:
                sys.exit(f"workload {seed} ends otherwise: {work}")
            else:
                counts["same"] += 1
        elif repr(plain) == repr(seated):
            counts["same"] += 1
        elif mode == "shadow" or of.table or not of.k:
            sys.exit(f"workload {seed} differs: {work}")
        else:
            counts["padding"] += 1
        if seed % 100 == 99:
            print(__version__, mode, seed + 1 - first, counts, flush=True)
    print(__version__, mode, count, counts)


if __name__ == "__main__":
    main()
