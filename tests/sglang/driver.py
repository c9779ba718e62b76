"""Runs a workload through SGLang's event loop on a virtual clock and notes every event.

The host takes no time. `now` moves only when a result is taken (to the end of its pass) and when the scheduler is idle
(to the next arrival). Each pass of the loop receives what has arrived by `now`. In the overlap loop the host builds the
next batch while a pass runs and takes a result one pass of the loop later: the order of the calls is SGLang's.
"""

import array

from device import Device
from workloads import Workload, tokens

STUCK, ENDLESS = 40, 3000  # idle passes of the loop without anything to come; batches of one workload


def put(holder, name: str, method) -> None:
    """Replaces a method in the class, because some holders have slots."""
    setattr(type(holder), name, lambda self, *args, **kwargs: method(*args, **kwargs))


def number(request) -> int:
    return int(request.rid)


class Driver:
    def __init__(self, scheduler, work: Workload) -> None:
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.managers.schedule_policy import PrefillAdder

        self.scheduler, self.work = scheduler, work
        self.device = Device(scheduler, work)
        self.now, self.events, self.idle_passes, self.batches = 0, [], 0, 0
        self.coming = sorted(range(len(work.requests)), key=lambda index: (work.requests[index].at, index))
        self.left = set(self.coming)
        self.preempting = None
        self.process, self.housekeeping = scheduler.process_batch_result, scheduler.on_idle
        self.plan, self.release, self.preempt = scheduler.get_next_batch_to_run, ScheduleBatch.release_req, PrefillAdder.preempt_to_schedule
        scheduler.process_batch_result, scheduler.on_idle = self.take, self.idle
        scheduler.get_next_batch_to_run = self.next_batch
        scheduler.model_worker.forward_batch_generation = self.launch
        self.classes = ScheduleBatch, PrefillAdder
        ScheduleBatch.release_req = lambda batch, index, *args, **kwargs: self.released(batch, index, *args, **kwargs)
        PrefillAdder.preempt_to_schedule = lambda adder, request: self.preempted(adder, request)
        put(scheduler.request_receiver, "_pull_raw_reqs", self.receive)
        put(scheduler.ipc_channels.send_to_tokenizer, "send_output", self.sent)
        put(scheduler.output_streamer, "stream_output", lambda *args, **kwargs: None)

    def note(self, what: str, **values) -> None:
        self.events.append({"is": what, **values})

    def receive(self) -> list:
        seen = []
        while self.coming and self.work.requests[self.coming[0]].at <= self.now:
            seen.append(self.coming.pop(0))
        if seen:
            self.note("in", at=self.now, requests=seen)
            self.idle_passes = 0
        return [self.message(index) for index in seen]

    def message(self, index: int):
        """The request as the tokenizer process would send it."""
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        request = self.work.requests[index]
        sampling = SamplingParams(max_new_tokens=request.max_new_tokens, ignore_eos=request.ignore_eos, temperature=0.0)
        sampling.normalize(None)
        return TokenizedGenerateReqInput(
            rid=f"{index:04}",  # `hrrn` orders equal ratios by the text of the id
            input_text="",
            input_ids=array.array("q", tokens(request.prompt)),
            input_embeds=None,
            mm_inputs=None,
            token_type_ids=None,
            sampling_params=sampling,
            return_logprob=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            token_ids_logprob=None,
            stream=False,
            priority=request.priority,
        )

    def next_batch(self, *args, **kwargs):
        plan = self.plan(*args, **kwargs)
        if not plan.batch_to_run:
            self.note("none", at=self.now, waiting=self.waiting(), running=[number(r) for r in plan.running_batch.reqs])
        return plan

    def waiting(self) -> list[int]:
        return [number(request) for request in self.scheduler.waiting_queue]

    def launch(self, batch, *args, on_publish=None, **kwargs):
        self.batches += 1
        if self.batches > ENDLESS:
            self.note("endless")
            self.scheduler.gracefully_exit = True
        scheduler, extends = self.scheduler, batch.forward_mode.is_extend()
        drafts = self.device.drafts(batch)
        result, start, right = self.device.run(batch, self.now, drafts, on_publish)
        decoding = len(batch.decoding_reqs or ()) if extends else batch.batch_size()
        if extends:
            middle = zip(batch.extend_lens, batch.prefix_lens)
        else:
            middle = ((1 + drafts, count) for count in right)
        rows = [
            [number(r), int(new), int(second), int(r.kv.kv_committed_len), int(r.kv.kv_allocated_len)]
            for r, (new, second) in zip(batch.reqs, middle)
        ]
        chunked = scheduler.chunked_req
        self.note(
            "run",
            mode=batch.forward_mode.name.lower(),
            at=start,
            prompts=batch.batch_size() - decoding,
            rows=rows,
            waiting=self.waiting(),
            running=[number(r) for r in scheduler.running_batch.reqs],
            full=int(scheduler.running_batch.batch_is_full),
            chunked=None if chunked is None else number(chunked),
            ratio=round(scheduler.new_token_ratio_tracker.current * 1e6),
            free=int(scheduler.token_to_kv_pool_allocator.available_size()),
            evictable=int(scheduler.tree_cache.evictable_size()),
        )
        return result

    def take(self, batch, result) -> None:
        self.now = max(self.now, result.ready)
        self.process(batch, result)
        ended = [r for r in batch.reqs if r.finished() and number(r) in self.left]
        if ended:
            self.note("end", at=self.now, requests=[[number(r), self.outputs(r), why(r)] for r in ended])
            self.gone(ended)
        self.idle_passes = 0

    @staticmethod
    def outputs(request) -> int:
        """Output tokens that the client gets."""
        return len(request.output_ids) if request.finished_len is None else int(request.finished_len)

    def gone(self, requests) -> None:
        self.left.difference_update(number(r) for r in requests)
        if not self.left:
            self.scheduler.gracefully_exit = True

    def idle(self) -> None:
        self.housekeeping()  # SGLang looks for leaked KV here, and the ratio of new tokens goes back to its start
        self.note("idle", at=self.now)
        self.idle_passes += 1
        # A loop with something left to do comes again at once.
        if self.coming and not self.scheduler.waiting_queue and self.scheduler.chunked_req is None:
            self.now = max(self.now, self.work.requests[self.coming[0]].at)
        if self.idle_passes > STUCK:
            self.note("stuck", requests=sorted(self.left))
            self.scheduler.gracefully_exit = True

    def released(self, batch, index: int, *args, **kwargs):
        request = batch.reqs[index]
        if self.preempting is None:
            self.note("retract", request=number(request))
        else:
            self.note("preempt", request=number(request), by=self.preempting)
        return self.release(batch, index, *args, **kwargs)

    def preempted(self, adder, request) -> bool:
        self.preempting, before = number(request), len(adder.preempt_list)
        try:
            return self.preempt(adder, request)
        finally:
            self.preempting = None
            # SGLang appends a set of objects: any order. Here it is that of their numbers.
            adder.preempt_list[before:] = sorted(adder.preempt_list[before:], key=number)

    def sent(self, message, request=None) -> None:
        """A message to the tokenizer process. One that aborts a request is an event."""
        from sglang.srt.managers.io_struct import AbortReq

        if not isinstance(message, AbortReq):
            return
        reason = message.finished_reason or {}
        self.note("abort", request=number(request), why=reason.get("message", ""))
        self.gone([request])

    def run(self) -> list[dict]:
        self.scheduler.metrics_reporter.start_scheduler_time_accounting()
        try:
            (self.scheduler.event_loop_overlap if self.scheduler.enable_overlap else self.scheduler.event_loop_normal)()
        except Exception as error:  # SGLang's own: the recording says where it stopped
            self.note("error", why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        batch, adder = self.classes
        batch.release_req, adder.preempt_to_schedule = self.release, self.preempt
        return self.events


def why(request) -> str:
    kind = request.finished_reason.to_json()["type"]
    return {"stop": "eos"}.get(kind, kind)
