"""The hooks in SGLang's scheduler and in its adaptive parameters. They only call the desk, behind its guard.

Each hook gets SGLang's own function first, and calls it once, whatever the desk does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from foretoken.sglang.desk import Desk, take

# The adaptive parameters that were made last, for the scheduler that is being made.
_made: list[Any] = []

ADAPTIVE = "sglang.srt.speculative.adaptive_spec_params.AdaptiveSpeculativeParams"
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"


def register() -> None:
    """Says to SGLang which of its functions are wrapped."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # type: ignore[import-not-found]

    wrapped = {
        f"{ADAPTIVE}.__init__": made,
        f"{ADAPTIVE}.get_steps_for_batch": get_steps_for_batch,
        f"{ADAPTIVE}.on_verify_complete": on_verify_complete,
        f"{SCHEDULER}.__init__": begin,
        f"{SCHEDULER}._add_request_to_queue": add_request,
        f"{SCHEDULER}.send_abort_output": send_abort_output,
        f"{SCHEDULER}.run_batch": run_batch,
        f"{SCHEDULER}.process_batch_result": process_batch_result,
    }
    for target, hook in wrapped.items():
        HookRegistry.register(target, hook, HookType.AROUND)


def desk_of(holder: Any) -> Desk | None:
    """The desk of a scheduler, or of adaptive parameters."""
    desk: Desk | None = getattr(holder, "foretoken_desk", None)
    return desk


def made(own: Callable[..., Any], params: Any, *args: Any, **kwargs: Any) -> None:
    own(params, *args, **kwargs)
    _made[:] = [params]


def begin(own: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> None:
    _made.clear()
    own(scheduler, *args, **kwargs)
    params = _made[0] if _made else None
    _made.clear()
    desk = take(scheduler, params)
    scheduler.foretoken_desk = desk
    if params is not None:
        params.foretoken_desk = desk


def get_steps_for_batch(own: Callable[..., int], params: Any, batch_size: int) -> int:
    theirs, desk = own(params, batch_size), desk_of(params)
    length = None if desk is None else desk.safely("get_steps_for_batch", desk.choose, batch_size, theirs)
    return theirs if length is None else length


def on_verify_complete(own: Callable[..., int | None], params: Any, counts: list[int], batch_size: int) -> int | None:
    # SGLang's own parameters go on learning, so that a fallback finds them ready. A change of theirs would take effect
    # at once; the next decode step asks for its length anyway.
    change, desk = own(params, counts, batch_size), desk_of(params)
    return None if desk is not None and desk.acts else change


def add_request(own: Callable[..., Any], scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
    desk = desk_of(scheduler)
    if desk is not None:
        desk.safely("add_request", desk.began, request)
    return own(scheduler, request, *args, **kwargs)


def send_abort_output(own: Callable[..., Any], scheduler: Any, message: Any, request: Any) -> Any:
    desk = desk_of(scheduler)
    if desk is not None:
        desk.safely("abort", desk.ended, request, "abort")
    return own(scheduler, message, request)


def run_batch(own: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    desk = desk_of(scheduler)
    if desk is None:
        return own(scheduler, batch, *args, **kwargs)
    desk.safely("run_batch", desk.launches, batch)
    result = own(scheduler, batch, *args, **kwargs)
    desk.safely("run_batch", desk.launched, result)
    return result


def process_batch_result(own: Callable[..., Any], scheduler: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
    desk = desk_of(scheduler)
    if desk is None:
        return own(scheduler, batch, result, *args, **kwargs)
    taken = desk.safely("process_batch_result", desk.gives, result)
    returned = own(scheduler, batch, result, *args, **kwargs)
    desk.safely("process_batch_result", desk.gave, taken, result, time.monotonic())
    return returned
