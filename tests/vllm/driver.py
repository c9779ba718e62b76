"""Runs a workload step by step through vLLM's scheduler, on a virtual clock."""

from chance import accepted, proposed
from engine import Refused, derived, hasher, make, output_tokens, prompt_refused, request
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from observed import IDLE_STEPS, STEP, TOKEN, Blocks, Run, Step, entries
from workloads import Workload


class Driver:
    """The engine around the scheduler: arrivals, a model that accepts by `chance`, a drafter."""

    def __init__(self, work: Workload, scheduler: Scheduler) -> None:
        self.work = work
        self.scheduler = scheduler
        self.hasher = hasher(scheduler)
        self.arrived = 0
        self.refused: list[int] = []
        self.preempted: list[int] = []
        self.sampled = False
        self.blocks = Blocks(scheduler.kv_cache_manager)
        preempt = scheduler._preempt_request

        def preempt_and_note(victim, *args, **kwargs):
            self.preempted.append(int(victim.request_id))
            self.blocks.forget(victim.request_id)
            return preempt(victim, *args, **kwargs)

        scheduler._preempt_request = preempt_and_note

    def arrive(self, now: int) -> None:
        """Hands the requests that have arrived by `now` to the scheduler, in the file's order."""
        requests = self.work.requests
        while self.arrived < len(requests) and requests[self.arrived].time <= now:
            index = self.arrived
            self.arrived += 1
            if prompt_refused(self.scheduler, requests[index].prompt):
                self.refused.append(index)
            else:
                self.scheduler.add_request(request(self.work, index, self.hasher))

    def step(self, now: int) -> Step:
        """Runs a step: schedule, model, tokens, drafts."""
        scheduler = self.scheduler
        self.preempted = []
        self.sampled = False
        output = scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        for name in ids:
            self.blocks.note(name)
        end = now + STEP + TOKEN * output.total_num_scheduled_tokens
        step = Step(
            start=now,
            end=end,
            entries=entries(output),
            preempted=self.preempted,
            finished=[],
            free=scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            k=output.num_spec_tokens_to_schedule,
            skipped=getattr(output, "skip_drafts", False),
            blocks=self.blocks.hash,
        )
        if ids:
            step.finished = self.update(output, ids)
            self.propose(output, ids, step.skipped)
        return step

    def update(self, output, ids: list[str]) -> list[int]:
        """Applies the model's tokens. Returns the requests that ended, in order."""
        work, scheduler = self.work, self.scheduler
        sampled = []
        for name in ids:
            state = scheduler.requests[name]
            if state.is_prefill_chunk:
                sampled.append([])
                continue
            index, position = int(name), state.num_output_tokens
            drafts = output.scheduled_spec_decode_tokens.get(name, [])
            placeholder = bool(drafts) and drafts[0] == -1
            held = 0 if placeholder else accepted(work.seed, work.accept, index, position, len(drafts))
            sampled.append(output_tokens(index, position, held + 1))
            self.sampled = True
        places = {name: place for place, name in enumerate(ids)}
        scheduler.update_from_output(output, ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=sampled))
        ended = [name for name in ids if name not in scheduler.requests]
        for name in ended:
            self.blocks.forget(name)
        return [int(name) for name in ended]

    def propose(self, output, ids: list[str], skipped: bool) -> None:
        """Makes drafts for every request of the step that has not ended."""
        work, scheduler = self.work, self.scheduler
        if work.k == 0:
            return
        live = [name for name in ids if name in scheduler.requests and not scheduler.requests[name].is_prefill_chunk]
        drafts = []
        for name in live:
            if skipped:
                count = 0
            elif work.lengths == "request":
                count = proposed(work.seed, work.k, int(name), scheduler.requests[name].num_output_tokens)
            else:
                count = output.num_spec_tokens_to_schedule
            drafts.append([7] * count)
        scheduler.update_draft_token_ids(DraftTokenIds(live, drafts))


def run(work: Workload, watch=None) -> Run:
    """Runs a workload to its end, or until vLLM refuses it or makes no progress.

    `watch(scheduler)` may wrap the scheduler's methods before the first step.
    """
    result = Run(work)
    try:
        scheduler = make(work)
    except Refused as refused:
        result.error = str(refused)
        return result
    result.derived = derived(scheduler)
    if watch:
        watch(scheduler)
    driver = Driver(work, scheduler)
    result.refused = driver.refused
    now = idle = 0
    while True:
        came = driver.arrived
        driver.arrive(now)
        if driver.arrived > came:
            idle = 0
        more = driver.arrived < len(work.requests)
        if not scheduler.has_unfinished_requests():
            if not more:
                return result
            now = work.requests[driver.arrived].time
            continue
        try:
            step = driver.step(now)
        except AssertionError:
            result.error = "assertion"
            return result
        if step.entries or step.preempted:
            result.steps.append(step)
            now = step.end
            idle = 0 if driver.sampled else idle + 1
        elif more:
            now = work.requests[driver.arrived].time
        else:
            result.error = "stuck"
            return result
        if idle == IDLE_STEPS:
            result.error = "endless"
            return result
