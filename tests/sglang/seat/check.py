"""Runs random workloads through SGLang's own scheduler with and without a policy in its seat, and compares every batch.

    PYTHONPATH=..:../../../python/python python check.py shadow 500 [FIRST SEED]
    PYTHONPATH=..:../../../python/python python check.py theirs 200 [FIRST]
    PYTHONPATH=..:../../../python/python python check.py act 200 [FIRST]
    PYTHONPATH=..:../../../python/python python check.py faults 3 [FIRST]

`shadow`: the policy is asked and logged, and no event may differ. `theirs`: the seat acts and chooses what SGLang would
choose; no event may differ. `act`: `fixed-1` chooses; every decode has the shortest length that its batch size offers and
that is at least 1 (0 if all requests are at their last token), and every request ends with as many tokens as without the
seat. `faults`: one after another, parts of the product are broken; no event may differ. All workloads speculate with
adaptive lengths.

Ten workloads run in a process, a fork after the imports, as in `record.py`.
"""

import json
import os
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from pathlib import Path

import families
import record
from workloads import Workload, draw_requests

POLICY = {"foresight": {"stop": False, "trim": False, "confidences": False}}
# These workloads are too short to learn costs from.
ROOT = Path(__file__).resolve().parents[3]
COSTS = ROOT / "experiments/profiles/tiny-cpu.toml"
PROJECT = ROOT / "python/pyproject.toml"


def draw(seed: int) -> Workload:
    """A workload with adaptive lengths, of one of the families. Every second one has other lists of lengths."""
    from random import Random

    rng = Random(f"seat {seed}")
    settings, shape = families.Settings(), families.Shape()
    families.adaptive(rng, settings, shape)
    if rng.random() < 0.5:
        families.tight(rng, settings, shape)
        settings.disable_radix_cache = False
    if rng.random() < 0.5:
        lengths = sorted(rng.sample(range(6), rng.randint(1, 4)))
        settings.adaptive = {"1": {"candidate_steps": lengths, "warmup_batches": 1, "update_interval": 2}}
        settings.drafts = max(rng.choice(lengths), 1)
        if settings.drafts not in lengths:
            lengths.append(settings.drafts)
    settings.enable_mixed_chunk = settings.chunked_prefill_size > 0 and rng.random() < 0.3
    settings.overlap = rng.random() < 0.5
    work = Workload("seat", seed, rng.choice((300, 600, 800, 950, 1000)), settings)
    draw_requests(rng, work, shape)
    return work


# Faults that leave the policy its place, and faults at which none is taken. At all others SGLang's lengths are used.
HARMLESS, EMPTY = ("disk", "folder", "port"), ("broken", "unborn", "version")
# Faults that show after the policy has chosen a length: their workloads run in shadow mode, else lengths would differ.
LATE = ("ended", "gave", "gives", "observe", *HARMLESS)


class Faults:
    """What may go wrong: each breaks a part of the product."""

    def raises(self):
        self.policy(lambda seat, view: 1 // 0)

    def nonsense(self):
        self.policy(lambda seat, view: [-1] * len(view.ids))

    def short(self):
        self.policy(lambda seat, view: [])

    def text(self):
        self.policy(lambda seat, view: "3")

    def sleeps(self):
        os.environ["FORETOKEN_SLOW_S"] = "0.0001"
        self.policy(lambda seat, view: time.sleep(0.001) or [1] * len(view.ids))

    def observe(self):
        from foretoken.seat import Seat

        Seat.observe = lambda seat, outcome: 1 // 0

    def launches(self):
        self.desk("launches")

    def choose(self):
        self.desk("choose")

    def launched(self):
        self.desk("launched")

    def gives(self):
        self.desk("gives")

    def gave(self):
        self.desk("gave")

    def began(self):
        self.desk("began")

    def ended(self):
        self.desk("ended")

    def disk(self):
        os.environ["FORETOKEN_LOG"] = "/dev/full"

    def folder(self):
        os.environ["FORETOKEN_LOG"] = "/nowhere/seat.jsonl"

    def port(self):
        import socket

        self.taken = socket.create_server(("", 0))
        os.environ["FORETOKEN_METRICS_PORT"] = str(self.taken.getsockname()[1])

    def costs(self):
        os.environ["FORETOKEN_COSTS"] = os.devnull

    def unknown(self):
        os.environ["FORETOKEN_POLICY"] = '{"no such policy": {}}'

    def broken(self):
        os.environ["FORETOKEN_POLICY"] = "{"

    def version(self):
        import sglang.version

        sglang.version.__version__ = "0.5.24"

    def unborn(self):
        import foretoken.sglang.desk as desk

        desk._engine = lambda *args: 1 // 0

    @staticmethod
    def policy(answer):
        from foretoken.seat import Seat

        Seat.choose = answer

    @staticmethod
    def desk(method: str):
        from foretoken.sglang.desk import Desk

        setattr(Desk, method, lambda *args: 1 // 0)


FAULTS = sorted(name for name, value in vars(Faults).items() if not name.startswith("_") and name not in ("policy", "desk"))


def install() -> None:
    """SGLang finds the plugin by its entry point, as it does in the wheel, and hooks its classes."""
    from sglang.srt.plugins import load_plugins

    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / "foretoken_testbed-0.dist-info"
        wheel.mkdir()
        (wheel / "METADATA").write_text("Metadata-Version: 2.1\nName: foretoken-testbed\nVersion: 0\n")
        groups = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
        lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items()) for group, of in groups.items()]
        (wheel / "entry_points.txt").write_text("\n".join(lines))
        sys.path.insert(0, folder)
        load_plugins()
        sys.path.remove(folder)


def run(work: Workload) -> dict:
    """The workload's events, and what the seat did, if there is one."""
    import engine
    from driver import Driver

    scheduler = None
    try:
        scheduler = engine.make(work.settings)
        events = Driver(scheduler, work).run()
        desk = getattr(scheduler, "foretoken_desk", None)
        found = {"events": events, "seat": None}
        if desk is not None:
            chooser = desk.chooser
            found["seat"] = {
                "off": chooser.off,
                "asked": sum(chooser.metrics.decisions.counts),
                "fallbacks": dict(chooser.metrics.fallbacks.values),
                "left": len(desk._ids),
            }
            chooser.close()
        return found
    finally:
        engine.close(scheduler)


def batch(mode: str, seeds: range) -> Counter:
    """Compares some workloads in this process."""
    from foretoken.seated.chooser import Chooser

    counts = Counter()
    plain = {seed: run(draw(seed)) for seed in seeds}
    install()
    if mode in FAULTS:
        faults = Faults()
        os.environ["FORETOKEN_MODE"] = "shadow" if mode in LATE else "act"
        getattr(faults, mode)()
    if mode == "theirs":
        choose = Chooser.choose

        def theirs(self, view, own):
            found = choose(self, view, own)
            found.would = found.used = own
            return found

        Chooser.choose = theirs
    wishes: list[int] = []
    if mode == "act":
        remember(wishes)
    for seed in seeds:
        work = draw(seed)
        seated = run(work)
        events, seat = seated["events"], seated["seat"]
        counts["workloads"] += 1
        counts["batches"] += sum(event["is"] == "run" for event in events)
        counts["decodes"] += sum(event["is"] == "run" and event["mode"] == "decode" for event in events)
        if seat:
            counts["asked"] += seat["asked"]
            counts["off"] += seat["off"] is not None
            counts["fallbacks"] += sum(seat["fallbacks"].values())
            counts["left"] += seat["left"]
        if mode == "act":
            acted(work, events, wishes, counts)
            wishes.clear()
            if ends(events) != ends(plain[seed]["events"]):
                raise AssertionError(f"workload {seed} ends otherwise")
        elif events != plain[seed]["events"]:
            at = next(i for i, (a, b) in enumerate(zip(events, plain[seed]["events"])) if a != b)
            raise AssertionError(f"workload {seed} differs at event {at}: {plain[seed]['events'][at]} is {events[at]}")
        if mode in EMPTY:
            expected = seat is None
        elif mode == "observe":  # a policy that cannot learn is still asked
            expected = seat is not None and bool(seat["fallbacks"])
        elif mode in FAULTS and mode not in HARMLESS:
            expected = seat is not None and bool(seat["off"]) and bool(seat["fallbacks"]) and not seat["left"]
        else:
            expected = seat is not None and not seat["off"] and not seat["fallbacks"]
        if not expected:
            raise AssertionError(f"workload {seed}: {seat}")
    return counts


def remember(wishes: list[int]) -> None:
    """Notes what the policy wishes: 1 if any request may draft, 0 if all are at their last token."""
    from foretoken.seat import Seat

    choose = Seat.choose

    def noted(self, view):
        lengths = choose(self, view)
        wishes.append(max(lengths))
        if wishes[-1] != min(1, max(view.limit)):
            raise AssertionError(f"{lengths} of {view}")
        return lengths

    Seat.choose = noted


def acted(work: Workload, events: list[dict], wishes: list[int], counts: Counter) -> None:
    """Each decode has the shortest length on offer that is at least the wish."""
    tiers = {int(size): tier["candidate_steps"] for size, tier in work.settings.adaptive.items() if size.isdigit()}
    decodes = [event for event in events if event["is"] == "run" and event["mode"] == "decode"]
    for event, wish in zip(decodes, wishes, strict=True):
        size = len(event["rows"])
        tier = sorted(set(tiers[max((s for s in tiers if s <= size), default=min(tiers))]))
        length = next((length for length in tier if length >= wish), tier[-1])
        if any(row[1] != 1 + length for row in event["rows"]):
            raise AssertionError(f"workload {work.seed}: {event} should have the length {length}")
        counts[f"length {length}"] += 1


def ends(events: list[dict]) -> dict:
    return {request[0]: request[1:] for event in events if event["is"] == "end" for request in event["requests"]}


def main() -> None:
    mode, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if mode not in ("shadow", "theirs", "act", "faults"):
        sys.exit(f"{mode} is none of shadow, theirs, act, faults")
    folder = Path(tempfile.mkdtemp())
    os.environ |= {
        "FORETOKEN_POLICY": json.dumps({"fixed": {"k": 1}} if mode == "act" else POLICY),
        "FORETOKEN_MODE": "act" if mode in ("act", "theirs") else "shadow",
        "FORETOKEN_COSTS": str(COSTS), "FORETOKEN_LOG": str(folder / "seat.jsonl"), "FORETOKEN_SLOW_S": "1",
    }  # fmt: skip
    record.load()
    counts, failed = Counter(), 0
    parts = range(first, first + count, record.TOGETHER)
    jobs = [(mode, range(start, min(start + record.TOGETHER, first + count))) for start in parts]
    if mode == "faults":
        jobs = [(fault, range(first, first + count)) for fault in FAULTS]
    for job, seeds in jobs:
        told = folder / "counts"
        process = os.fork()
        if not process:
            code = 1
            with open(folder / "out", "w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                try:
                    told.write_text(json.dumps(batch(job, seeds)))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                sys.stderr.flush()
            os._exit(code)
        if os.waitpid(process, 0)[1]:
            failed += 1
            print("".join((folder / "out").read_text().splitlines(keepends=True)[-12:]), flush=True)
            continue
        part = json.loads(told.read_text())
        counts.update(part)
        print(job, part if mode == "faults" else dict(counts), flush=True)
    print("done:", mode, dict(counts), "in folder", folder)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
