"""Injects faults into the seat of vLLM's real scheduler. In each case every step must be the step without a seat.

    PYTHONPATH=..:TREE python faults.py [WORKLOADS]          # TREE: sources of vLLM 0.33; left out, 0.32

The policy raises, panics, sleeps, or answers with nonsense; its log cannot be written, its port is in use; settings are
broken; the release is unknown, ranks are many; the seat's own books raise inside `schedule`, `update_from_output`,
`add_request` and `_free_request`. `foretoken` acts in all cases, so that a fault that came through would show.
"""

import contextlib
import json
import os
import socket
import sys
import time
from unittest import mock

import check
import vllm
from workloads import draw, draw_core

from foretoken.seat import Seat
from foretoken.vllm import desk, fit, table

PROFILE = str(check.COSTS)


class Panic(BaseException):
    """As PyO3's `PanicException`, which is no `Exception`."""


def answers(answer):
    """The policy answers so."""

    def choose(self, view):
        return answer(view) if callable(answer) else answer

    return mock.patch.object(Seat, "choose", choose)


def raises(error):
    def answer(*_, **__):
        raise error

    return answer


def sleeps(view):
    time.sleep(0.01)
    return [0] * len(view.ids)


@contextlib.contextmanager
def environment(**values):
    with mock.patch.dict(os.environ, {f"FORETOKEN_{name}": value for name, value in values.items()}):
        yield


@contextlib.contextmanager
def port_in_use():
    with socket.create_server(("", 0)) as server, environment(METRICS_PORT=str(server.getsockname()[1])):
        yield


@contextlib.contextmanager
def ranks():
    def many(version, config):
        config.parallel_config.data_parallel_size = 2
        why = plain(version, config)
        config.parallel_config.data_parallel_size = 1
        return why

    plain = fit.closed
    with mock.patch.object(fit, "closed", many):
        yield


def books(name, first=1):
    """A method of the seat's books raises, from its `first` call on."""

    def broken(self, *args):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls >= first:
            raise KeyError("books")
        return plain(self, *args)

    plain = getattr(desk.Desk, name)
    return mock.patch.object(desk.Desk, name, broken)


NO = ValueError("no")
BOOKS = ("_view", "_read", "scheduled", "gave", "updated", "began", "ended")
FAULTS = {
    "the policy raises": answers(raises(NO)),
    "the policy panics": answers(raises(Panic("index out of bounds"))),
    "the policy sleeps": answers(sleeps),
    "the policy answers with a negative length": answers(lambda view: [-1] * len(view.ids)),
    "the policy answers with a length that is too long": answers(lambda view: [99] * len(view.ids)),
    "the policy answers with text": answers(lambda view: ["1"] * len(view.ids)),
    "the policy answers with fractions": answers(lambda view: [1.0] * len(view.ids)),
    "the policy answers with too few lengths": answers(lambda view: [0] * (len(view.ids) - 1)),
    "the policy answers with too many lengths": answers(lambda view: [0] * (len(view.ids) + 1)),
    "the policy answers with nothing": answers(None),
    "the policy cannot be built": mock.patch.object(Seat, "__init__", raises(NO)),
    "the policy is unknown": environment(POLICY='{"foresigth": {}}'),
    "the policy is broken": environment(POLICY='{"foresight": {'),
    "the policy is missing": environment(POLICY=""),
    "the mode is unknown": environment(MODE="on"),
    "the profile is broken": environment(COSTS="/dev/null"),
    "the profile is missing": environment(COSTS="nowhere.toml"),
    "the release is unknown": mock.patch.object(vllm, "__version__", "0.34.0"),
    "there are two ranks": ranks(),
    "a method has no support": mock.patch.object(fit, "unfit", lambda *_: "the drafter has no support"),
    "books: _view": books("_view"),
    "books: _read": books("_read"),
    "books: scheduled": books("scheduled"),
    "the seat cannot be taken": mock.patch.object(desk, "_engine", raises(NO)),
    "the table cannot be read": mock.patch.object(table, "restore", raises(NO)),
}
# The policy is asked all the same, so vLLM's own length must be its answer.
BESIDE = {
    "the policy fails to learn": mock.patch.object(Seat, "observe", raises(NO)),
    "the policy fails to forget": mock.patch.object(Seat, "finished", raises(NO)),
    "the disk is full": environment(LOG="/dev/full"),
    "the log's folder is missing": environment(LOG="nowhere/seat.jsonl"),
    "the port is in use": port_in_use(),
    **{f"books: {name}, from the third time on": books(name, 3) for name in BOOKS},
}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    os.environ |= {"FORETOKEN_POLICY": json.dumps(check.POLICY), "FORETOKEN_MODE": "act", "FORETOKEN_COSTS": PROFILE}
    check.foretoken.vllm.Scheduler = check.taken
    # Workloads with a drafter that a policy can serve, with and without a table, synchronous and asynchronous.
    works = []
    for seed in range(1000):
        work = (draw_core(seed),) if seed % 2 else draw(seed)
        of = work[0] if seed % 2 else work
        if of.k > 1 and of.drafter in fit.OF_V1 and (plain := check.ran(work, False)).error is None:
            works.append((seed, work, plain))
        if len(works) == count:
            break
    for name, fault in {**FAULTS, **BESIDE}.items():
        with contextlib.ExitStack() as stack:
            if name in BESIDE:
                stack.enter_context(mock.patch.object(check.Chooser, "choose", check.theirs))
                stack.enter_context(answers(lambda view: [0] * len(view.ids)))
            stack.enter_context(fault)
            seats = 0
            for seed, work, plain in works:
                seated = check.ran(work, True)
                if repr(seated) != repr(plain):
                    sys.exit(f"{name}: workload {seed} differs")
                for made in check.seats:
                    if made.desk is not None:
                        seats += 1
                        made.desk.chooser.close()
                check.seats.clear()
        print(f"{vllm.__version__} {name}: {len(works)} workloads, {sum(len(check.events(plain)) for _, _, plain in works)} "
              f"steps as without a seat, {seats} seats taken", flush=True)


if __name__ == "__main__":
    main()
