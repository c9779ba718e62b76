"""Writes fixtures in the format that the README defines."""

from observed import Entry, Run, Step
from workloads import Workload

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def encode(run: Run) -> str:
    """The fixture's lines of one workload."""
    lines = [settings(run.work), *requests(run.work)]
    if run.derived:
        lines.append("D " + " ".join(f"{name}={value}" for name, value in run.derived.items()))
    lines += steps(run.steps, run.work.k)
    lines += [f"X {index}" for index in run.refused]
    last = run.steps[-1] if run.steps else None
    lines.append(f"E {run.error or 'done'} {last.end if last else 0} {last.blocks if last else 0:016x}")
    return "\n".join(lines) + "\n"


def settings(work: Workload) -> str:
    """The W line: all settings, in the order of the README."""
    table = ",".join(f"{first}-{last}:{k}" for first, last, k in work.table) or "-"
    pairs = {
        "seed": work.seed,
        "drafter": work.drafter,
        "k": work.k,
        "lengths": work.lengths,
        "accept": work.accept,
        "pool": work.pool,
        "policy": work.policy,
        "caching": int(work.caching),
        "block_size": work.block_size,
        "blocks": work.blocks,
        "checked": int(work.checked),
        "seqs": work.max_num_seqs,
        "active": work.max_num_active_seqs,
        "budget": work.max_num_batched_tokens,
        "length": work.max_model_len,
        "threshold": work.long_prefill_token_threshold,
        "adaptive": int(work.adaptive),
        "reserve": int(work.reserve),
        "watermark": work.watermark,
        "interval": work.interval,
        "chunked": int(work.chunked),
        "runner": work.runner,
        "parallel": int(work.parallel),
        "modules": work.modules,
        "fill_in": int(work.fill_in),
        "table": table,
    }
    return "W " + " ".join(f"{name}={value}" for name, value in pairs.items())


def requests(work: Workload) -> list[str]:
    """One R line per request: time since the previous arrival, prompt, outputs, then all other values that are not 0."""
    lines, before = [], 0
    for request in work.requests:
        line = f"R {request.time - before} {request.prompt} {request.outputs}"
        if request.group:
            line += f" g{request.group}:{request.prefix}"
        if request.priority:
            line += f" p{request.priority}"
        lines.append(line)
        before = request.time
    return lines


def steps(all_steps: list[Step], k: int) -> list[str]:
    """One S line per step, as the difference to the step before."""
    lines: list[str] = []
    now, free, skipped, blocks = 0, 0, False, 0
    order: list[int] = []
    for step in all_steps:
        line = "S" + entries(step.entries, order)
        if step.start != now:
            line += f" @{step.start - now}"
        if step.free != free:
            line += f" f{step.free - free}"
        if step.k != k:
            line += f" k{step.k}"
        if step.skipped != skipped:
            line += f" s{int(step.skipped)}"
        if step.preempted:
            line += " -" + ",".join(map(str, step.preempted))
        if step.finished:
            line += " ." + ",".join(map(str, step.finished))
        if step.blocks != blocks:
            line += f" #{step.blocks & 0xFFF:03x}"
        lines.append(line)
        now, free, k, skipped, blocks = step.end, step.free, step.k, step.skipped, step.blocks
        order = [entry.request for entry in step.entries]
    return lines


def entries(all_entries: list[Entry], order: list[int]) -> str:
    """The requests of a step. A request is named only if it breaks the order of the step before."""
    place = {request: at for at, request in enumerate(order)}
    text, expected = "", 0
    for entry in all_entries:
        named = not (expected < len(order) and order[expected] == entry.request)
        if not named and entry.cached is None and entry.tokens == entry.drafts + 1 and entry.drafts < len(DIGITS):
            text += DIGITS[entry.drafts]
        else:
            text += f"({entry.request if named else ''}:{entry.tokens}"
            text += f"/{entry.drafts}" if entry.drafts else ""
            text += f"+{entry.cached}" if entry.cached is not None else ""
            text += ")"
        expected = place[entry.request] + 1 if entry.request in place else len(order)
    return text
