"""The text of a fixture of the engine core. The README defines it; what it shares with the others is in `lines.py`."""

from observed import CoreRun, Schedule, Update

import lines


def encode(run: CoreRun) -> str:
    """The lines of one workload."""
    text = [f"{lines.settings(run.work)} async={int(run.work.asynchronous)}", *lines.requests(run.work)]
    if run.derived:
        text.append("D " + " ".join(f"{name}={value}" for name, value in run.derived.items()))
    text += events(run)
    text += [f"X {index}" for index in run.refused]
    blocks = next((event.blocks for event in reversed(run.events) if isinstance(event, Schedule)), 0)
    text.append(f"E {run.error or 'done'} {run.events[-1].end if run.events else 0} {blocks:016x}")
    return "\n".join(text) + "\n"


def events(run: CoreRun) -> list[str]:
    """An S line a call of `schedule`, a U line a call of `update_from_output`, each told by its difference to what came before."""
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
    """A mark for each request of the step: tokens delivered, `!` before stale ones, `x` for what was dropped."""
    return "".join("x" if fate is None else "!" * fate[1] + lines.DIGITS[fate[0]] for fate in event.fates)
