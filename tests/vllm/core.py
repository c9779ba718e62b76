"""Runs a workload through vLLM's engine core: its loop, `step` or `step_with_batch_queue`, `post_step`, on a virtual clock.

The core is made without its constructor, which would load models and start threads; this file sets the constructor's
attributes.
"""

import queue
from collections import deque
from types import SimpleNamespace

from engine import Refused, derived, hasher, make, prompt_refused, request  # before any of vLLM's

import vllm.v1.engine.core as engine_core
from device import Clock, Device
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCoreProc, EngineShutdownState

from observed import IDLE_STEPS, Blocks, CoreRun, Schedule, Update, entries
from workloads import Workload

SCHEDULE, UPDATE = 90, 40  # µs that the host takes for each call


class Over(Exception):
    """Raised when nothing more will happen. The argument is the kind of the end."""


class Inbox:
    """The input queue. It holds the requests that have arrived; waiting for more advances the clock."""

    def __init__(self, work: Workload, scheduler, clock: Clock, result: CoreRun) -> None:
        self.work, self.clock = work, clock
        self.hasher = hasher(scheduler)
        result.refused = [index for index, arrival in enumerate(work.requests) if prompt_refused(scheduler, arrival.prompt)]
        self.coming = deque(index for index in range(len(work.requests)) if index not in result.refused)

    def empty(self) -> bool:
        return not self.coming or self.work.requests[self.coming[0]].time > self.clock.now

    def get(self, block: bool = True):
        if not self.coming:
            raise Over("done")
        self.clock.now = max(self.clock.now, self.work.requests[self.coming[0]].time)
        return self.get_nowait()

    def get_nowait(self):
        return EngineCoreRequestType.ADD, (request(self.work, self.coming.popleft(), self.hasher), 0)


class Core(EngineCoreProc):
    """The engine core of one process, without data parallelism."""

    def __init__(self, work: Workload, scheduler, clock: Clock, result: CoreRun) -> None:
        config = scheduler.vllm_config
        self.vllm_config, self.scheduler = config, scheduler
        self.log_stats, self._weight_version = False, "default"
        self.model_executor = Device(work, scheduler, clock)
        self.use_spec_decode = self.check_for_draft_tokens = config.speculative_config is not None
        self.batch_queue_size = config.max_concurrent_batches
        self.batch_queue = deque(maxlen=self.batch_queue_size) if self.batch_queue_size > 1 else None
        self.is_mm_encoder_only = self.is_pooling_model = False
        self.step_fn = self.step_with_batch_queue if self.batch_queue is not None else self.step
        self.async_scheduling = config.scheduler_config.async_scheduling
        self.aborts_queue = queue.Queue()
        self._idle_state_callbacks = []
        self.engines_running = self.publish_dp_lb_stats = self.reject_new_requests = False
        self.shutdown_state = EngineShutdownState.RUNNING
        self.process_input_queue_block = True
        self.input_queue = Inbox(work, scheduler, clock, result)
        self.output_queue = SimpleNamespace(put_nowait=self.deliver)
        self.delivered: dict[str, int] = {}

    def deliver(self, item) -> None:
        """Notes how many tokens an output of the core delivers to each client."""
        for output in item[1].outputs:
            self.delivered[output.request_id] = len(output.new_token_ids)


class Watcher:
    """Records each call of `schedule` and `update_from_output`, and advances the clock by the call's duration."""

    def __init__(self, core: Core, clock: Clock, result: CoreRun) -> None:
        self.core, self.clock, self.result = core, clock, result
        self.scheduler = scheduler = core.scheduler
        self.blocks = Blocks(scheduler.kv_cache_manager)
        self.preempted: list[int] = []
        self.ended: set[str] = set()  # since the last call of `schedule`
        self.idle = 0
        self.schedule, scheduler.schedule = scheduler.schedule, self.on_schedule
        self.update, scheduler.update_from_output = scheduler.update_from_output, self.on_update
        self.preempt, scheduler._preempt_request = scheduler._preempt_request, self.on_preempt

    def free(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def on_preempt(self, victim, *args, **kwargs):
        self.preempted.append(int(victim.request_id))
        self.blocks.forget(victim.request_id)
        return self.preempt(victim, *args, **kwargs)

    def on_schedule(self, *args):
        start, self.preempted = self.clock.now, []
        output = self.schedule(*args)
        assert output.finished_req_ids == self.ended
        self.ended = set()
        for name in output.num_scheduled_tokens:
            self.blocks.note(name)
        self.clock.now += SCHEDULE
        skipped = getattr(output, "skip_drafts", False)
        step = Schedule(start, self.clock.now, entries(output), self.preempted, self.free(), output.num_spec_tokens_to_schedule, skipped, self.blocks.hash)
        self.result.events.append(step)
        return output

    def on_update(self, output, answer):
        start, scheduler = self.clock.now, self.scheduler
        names = list(output.num_scheduled_tokens)
        gone = {name for name in names if name not in scheduler.requests}
        stale = {name for name in names if name not in gone and scheduler.requests[name].num_stale_output_tokens > 0}
        outputs = self.update(output, answer)
        self.clock.now += UPDATE
        ended = [name for name in names if name not in gone and name not in scheduler.requests]
        for name in ended:
            self.blocks.forget(name)
        self.ended.update(ended)
        tokens = {each.request_id: len(each.new_token_ids) for group in outputs.values() for each in group.outputs}
        fates = [None if name in gone else (tokens.get(name, 0), name in stale) for name in names]
        self.result.events.append(Update(start, self.clock.now, fates, [int(name) for name in ended], self.free()))
        self.idle = 0 if tokens else self.idle + 1
        return outputs


def run(work: Workload, watch=None) -> CoreRun:
    """Runs a workload to its end, or until vLLM refuses it or makes no progress.

    `watch(core)` may wrap methods of the core and its parts before the first step.
    """
    result = CoreRun(work)
    try:
        scheduler = make(work)
    except Refused as refused:
        result.error = str(refused)
        return result
    engine_core.time = clock = Clock()
    core = Core(work, scheduler, clock, result)
    device = core.model_executor
    result.derived = derived(scheduler) | {"queue": core.batch_queue_size, "modules": int(device.modules), "drafter_length": device.longest}
    if watch:
        watch(core)
    watcher = Watcher(core, clock, result)
    try:
        while True:
            coming = len(core.input_queue.coming)
            core._process_input_queue()
            if len(core.input_queue.coming) < coming:
                watcher.idle = 0
            core._process_engine_step()
            stand_still(core, watcher, result)
    except Over as over:
        result.error = None if str(over) == "done" else str(over)
    except AssertionError:
        result.error = "assertion"
    return result


def stand_still(core: Core, watcher: Watcher, result: CoreRun) -> None:
    """Ends an endless workload: nothing arrives, is in flight or is scheduled, or no token came for many steps."""
    if watcher.idle >= IDLE_STEPS and not core.input_queue.coming:
        raise Over("endless")
    calls = [event for event in result.events[-6:] if isinstance(event, Schedule)][-2:]
    still = len(calls) == 2 and not any(call.entries or call.preempted for call in calls)
    if still and not core.input_queue.coming and core.scheduler.has_unfinished_requests():
        raise Over("stuck")
