"""Counts effects of the engine core's order of calls, by wrapping vLLM's methods."""

from rules import Rules, wrap


class CoreRules(Rules):
    """Counters over all watched cores: the counters of schedulers, and further ones of cores."""

    def watch(self, core) -> None:
        """Wraps the methods of one core, its scheduler and its device."""
        super().watch(core.scheduler)
        CoreWatch(self.count, core)


class CoreWatch:
    """Watches one engine core."""

    def __init__(self, count, core) -> None:
        self.count, self.core = count, core
        self.scheduler, self.device = core.scheduler, core.model_executor
        wrap(self.scheduler, "schedule", self.schedule)
        wrap(self.scheduler, "update_from_output", self.update)
        wrap(self.scheduler, "_preempt_request", self.preempt)
        wrap(self.device, "execute_model", self.execute)
        wrap(self.device, "fits", self.fits)
        wrap(self.device, "sample", self.sample)
        wrap(self.device.clock, "sleep", self.sleep)

    def schedule(self, method, *args):
        scheduler, count = self.scheduler, self.count
        flying = any(step.total_num_scheduled_tokens for _, step, _ in self.core.batch_queue or ())
        over = [request for request in scheduler.running if self.surely_over(request)]
        full = [request for request in scheduler.running if request.num_computed_tokens + 1 == scheduler.max_model_len and request not in over]
        count["admission held back by stale output"] += sum(request.num_stale_output_tokens > 0 for request in scheduler.waiting)
        output = method(*args)
        left = set(scheduler.running) - {scheduler.requests[name] for name in output.num_scheduled_tokens}
        count["not scheduled: the step in flight surely ends it"] += len(left.intersection(over))
        count["not scheduled: no room in the context if all drafts in flight hold"] += len(left.intersection(full))
        if not output.num_scheduled_tokens:
            count["empty schedule behind a step in flight" if flying else "empty schedule"] += 1
        return output

    def surely_over(self, request) -> bool:
        """vLLM's rule: with one token from the step in flight the request is complete."""
        return request.num_output_placeholders > 0 and request.num_output_tokens + 1 >= request.max_tokens

    def update(self, method, output, answer):
        names, requests, count = list(output.num_scheduled_tokens), self.scheduler.requests, self.count
        count["extra step after an end"] += sum(name not in requests for name in names)
        stale = [name for name in names if name in requests and requests[name].num_stale_output_tokens > 0]
        count["stale output"] += len(stale)
        count["stale output without a token"] += sum(not answer.sampled_token_ids[answer.req_id_to_index[name]] for name in stale)
        outputs = method(output, answer)
        count["stale output ended its request"] += sum(name not in requests for name in stale)
        return outputs

    def preempt(self, method, victim, *args, **kwargs):
        self.count["preemption with a step in flight"] += victim.num_in_flight_tokens > 0
        return method(victim, *args, **kwargs)

    def execute(self, method, output, *args, **kwargs):
        busy = self.device.clock.now < self.device.free
        self.count["drafts delayed the next step"] += busy and not self.core.async_scheduling and output.total_num_scheduled_tokens > 0
        return method(output, *args, **kwargs)

    def fits(self, method, names):
        fits = method(names)
        self.count["no drafts: runner V1 too near the end of the context"] += not fits
        return fits

    def sample(self, method, output, names):
        drafts = output.scheduled_spec_decode_tokens
        admitted = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        lost = [name for name in drafts if name not in self.device.real and name not in admitted]
        self.count["drafts lost: runner V1 skipped a step"] += len(lost)
        return method(output, names)

    def sleep(self, method, seconds):
        self.count["slept 1 ms"] += 1
        return method(seconds)
