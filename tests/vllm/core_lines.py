"""Writes fixtures of the engine core in the format that the README defines. `lines.py` has the parts common to all fixtures."""

from observed import CoreRun, Schedule, Update

import lines


def encode(run: CoreRun) -> str:
    """The fixture's lines of one workload."""
    text = [f"{lines.settings(run.work)} async={int(run.work.asynchronous)}", *lines.requests(run.work)]
    if run.derived:
        text.append("D " + " ".join(f"{name}={value}" for name, value in run.derived.items()))
    text += events(run)
    text += [f"X {index}" for index in run.refused]
    blocks = next((event.blocks for event in reversed(run.events) if isinstance(event, Schedule)), 0)
    text.append(f"E {run.error or 'done'} {run.events[-1].end if run.events else 0} {blocks:016x}")
    return "\n".join(text) + "\n"


def events(run: CoreRun) -> list[str]:
    """One S line per call of `schedule` and one U line per call of `update_from_output`, as differences to the line before."""
    text: list[str] = []
    now, free, k, skipped, blocks = 0, 0, run.work.k, False, 0
    order: list[int] = []
    for event in run.events:
        line = "S" + lines.entries(event.entries, order) if isinstance(event, Schedule) else "U" + fates(event)
        if event.start != now:
            line += f" @{event.start - now}"
        if event.free != free:
            line += f" f{event.free - free}"
        now, free = event.end, event.free
        if isinstance(event, Schedule):
            if event.k != k:
                line += f" k{event.k}"
            if event.skipped != skipped:
                line += f" s{int(event.skipped)}"
            if event.preempted:
                line += " -" + ",".join(map(str, event.preempted))
            if event.blocks != blocks:
                line += f" #{event.blocks & 0xFFF:03x}"
            k, skipped, blocks = event.k, event.skipped, event.blocks
            order = [entry.request for entry in event.entries] or order
        elif event.finished:
            line += " ." + ",".join(map(str, event.finished))
        text.append(line)
    return text


def fates(event: Update) -> str:
    """A mark for each request of the step: tokens delivered, `!` before stale ones, `x` for dropped tokens."""
    return "".join("x" if fate is None else "!" * fate[1] + lines.DIGITS[fate[0]] for fate in event.fates)
