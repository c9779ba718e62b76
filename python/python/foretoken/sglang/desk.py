"""The seat's books inside one scheduler of SGLang: what each batch is made of, and what it gave."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from foretoken.errors import BadInput
from foretoken.seat import View
from foretoken.seated import taking
from foretoken.seated.chooser import Chooser, Engine, nearest
from foretoken.seated.settings import Settings
from foretoken.seated.step import Choice, Step
from foretoken.seated.taking import or_empty
from foretoken.sglang import fit

Found = TypeVar("Found")


@dataclass(slots=True)
class Pending:
    """A batch whose result SGLang has not yet taken. Of its requests ``requests`` decode, in the order of ``step``."""

    step: Step
    decodes: bool
    requests: list[Any] = field(default_factory=list)
    batch: list[Any] = field(default_factory=list)
    so_far: list[int] = field(default_factory=list)
    result: Any = None


class Desk:
    """What the hooks call, through ``safely``: the other methods may raise."""

    def __init__(self, scheduler: Any, adaptive: Any, chooser: Chooser) -> None:
        self.scheduler, self.adaptive, self.chooser = scheduler, adaptive, chooser
        self._output_at = 0.0
        self._launching: Pending | None = None
        self._pending: deque[Pending] = deque()
        self._ids: dict[str, int] = {}
        self._made = 0
        self._over = False

    def safely(self, what: str, call: Callable[..., Found], *args: Any) -> Found | None:
        """Calls a part of the books. One that raises ends them: nothing is asked, noted or kept from then on."""
        found, whole = None, self._over
        if not self._over:
            with self.chooser.guard(what):
                found, whole = call(*args), True
        if not whole:
            self._over, self._launching = True, None
            self._ids.clear()
            self._pending.clear()
        return found

    @property
    def acts(self) -> bool:
        """Whether the policy's lengths are used."""
        return self.chooser.settings.act and self.chooser.off is None

    def began(self, request: Any) -> None:
        """A request joins the queue. One that lost its KV and joins again is no new request."""
        if request.rid not in self._ids:
            self._ids[request.rid] = self._made
            self._made += 1
            prompt, most = len(request.origin_input_ids), request.sampling_params.max_new_tokens
            self.chooser.began(self._ids[request.rid], prompt, most)

    def ended(self, request: Any, why: str) -> None:
        """A request leaves the scheduler."""
        id = self._ids.pop(request.rid, None)
        if id is not None:
            self.chooser.ended(id, _outputs(request), request.cached_tokens, why)

    def launches(self, batch: Any) -> None:
        """SGLang is about to run a batch."""
        self._launching = None
        if batch.forward_mode.is_idle() or not batch.reqs:
            return
        scheduler, decodes = self.scheduler, batch.forward_mode.is_decode()
        step = Step(self.chooser.now(), 0.0, Choice(0, 0))
        step.running, step.waiting = len(scheduler.running_batch.reqs), len(scheduler.waiting_queue)
        step.kv = self._kv()
        pending = Pending(step, decodes, batch=list(batch.reqs))
        if decodes:
            pending.requests = pending.batch
        else:
            beside = {id(request) for request in batch.decoding_reqs or ()}
            for request, before, new in zip(batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True):
                if id(request) in beside:
                    pending.requests.append(request)
                else:
                    step.chunks.append((self._id(request), int(before), int(new)))
            step.running += len(batch.reqs)
            step.tokens = int(sum(batch.extend_lens))
        step.ids = [self._id(request) for request in pending.requests]
        self._launching = pending

    def choose(self, batch_size: int, theirs: int) -> int | None:
        """The draft length of the batch that SGLang is about to run; None for its own."""
        pending = self._launching
        if pending is None or not pending.decodes or batch_size != len(pending.requests):
            return None
        choice = self.chooser.choose(lambda: self._view(pending), theirs)
        lengths = fit.offered(self.adaptive, batch_size)
        if choice.would is not None:
            choice.would = nearest(choice.would, lengths)
        choice.used = nearest(choice.used, lengths) if self.acts else theirs
        choice.requests = batch_size
        pending.step.choice = choice
        return choice.used

    def launched(self, result: Any) -> None:
        """SGLang has launched the batch; its result comes later."""
        pending, self._launching = self._launching, None
        if pending is None:
            return
        step, count, length = pending.step, len(pending.requests), 0
        if pending.decodes:
            if not self.scheduler.spec_algorithm.is_none():
                length = int(self.scheduler.model_worker.speculative_num_steps)
            step.passes, step.drafts, step.tokens = length, count * length, count * (1 + length)
            if not step.choice.requests:
                step.choice = Choice(length, length)
        step.drafted, step.verified = [length] * count, [length] * count
        pending.result = result
        self._pending.append(pending)

    def gives(self, result: Any) -> Pending | None:
        """SGLang is about to take a result."""
        while self._pending and self._pending[0].result is not result:
            self._pending.popleft()  # a batch whose result was never taken
        if not self._pending:
            return None
        pending = self._pending.popleft()
        # All tokens are in KV but the newest. While another result was awaited this was not yet known.
        pending.step.context = [_tokens(request) - 1 for request in pending.requests]
        pending.so_far = [len(request.output_ids) for request in pending.requests]
        # What a request that has ended or lost its KV meanwhile gets is dropped: nothing was tried.
        for at, request in enumerate(pending.requests):
            if request.finished() or request.is_retracted:
                pending.step.drafted[at] = pending.step.verified[at] = 0
        return pending

    def gave(self, pending: Pending | None, result: Any, now: float) -> None:
        """SGLang has taken a result."""
        if pending is None:
            return
        step = pending.step
        begun = max(step.at + self.chooser.begun, self._output_at)
        step.at, step.took, self._output_at = begun - self.chooser.begun, now - begun, now
        right = getattr(result, "num_correct_drafts_per_req_cpu", None) if pending.decodes else None
        right = right or [0] * len(pending.requests)
        step.accepted = [min(int(n), most) for n, most in zip(right, step.verified, strict=True)]
        given = zip(pending.requests, pending.so_far, strict=True)
        step.emitted = [max(_outputs(request) - before, 0) for request, before in given]
        self.chooser.ran(step, step.choice.used)
        for request in pending.batch:
            if request.finished():
                self.ended(request, request.finished_reason.to_json()["type"])

    def _id(self, request: Any) -> int:
        if request.rid not in self._ids:
            self.began(request)
        return self._ids[request.rid]

    def _kv(self) -> float:
        """The share of KV that running requests hold."""
        scheduler = self.scheduler
        unused = scheduler.token_to_kv_pool_allocator.available_size() + scheduler.tree_cache.evictable_size()
        return 1.0 - min(float(unused / scheduler.max_total_num_tokens), 1.0)

    def _view(self, pending: Pending) -> View:
        """What is certain of the requests: each result that SGLang has not yet taken gives one token at least."""
        flying: Counter[int] = Counter()
        for earlier in self._pending:
            flying.update(map(id, earlier.batch))
        most = self.chooser.engine.max_draft_len
        context, emitted, limit = [], [], []
        for request in pending.requests:
            outputs = len(request.output_ids) + flying[id(request)]
            emitted.append(outputs)
            context.append(len(request.origin_input_ids) + outputs - 1)
            # The step gives one token more than it accepts.
            limit.append(max(min(most, request.sampling_params.max_new_tokens - outputs - 1), 0))
        step = pending.step
        return View(list(step.ids), context, emitted, limit, [], step.running, step.waiting, step.at)


def _outputs(request: Any) -> int:
    """Output tokens that the client gets."""
    made, cut = len(request.output_ids), request.finished_len
    return made if cut is None else min(int(cut), made)


def _tokens(request: Any) -> int:
    return len(request.origin_input_ids) + len(request.output_ids)


def take(scheduler: Any, adaptive: Any) -> Desk | None:
    """Puts a policy into the seat of a scheduler, or says in one line why there is none."""
    log = logging.getLogger("sglang.foretoken")
    with or_empty(log, "SGLang"):
        from sglang.srt.runtime_context import get_parallel  # type: ignore[import-not-found]
        from sglang.version import __version__  # type: ignore[import-not-found]

        settings = Settings.of(os.environ)
        args = scheduler.server_args
        why = fit.closed(__version__, args, args.tp_size == 1 or get_parallel().tp_rank == 0, settings.act)
        if why is not None:
            raise BadInput(why)
        engine = _engine(scheduler, adaptive, __version__)
        return Desk(scheduler, adaptive, taking.chooser(log, settings, engine, fit.unfit(args, adaptive)))
    return None


def _engine(scheduler: Any, adaptive: Any, version: str) -> Engine:
    args = scheduler.server_args
    steps = int(args.speculative_num_steps or 0) if args.speculative_algorithm else 0
    lengths = tuple(adaptive.candidate_steps) if adaptive is not None else (steps,)
    page, tokens = int(scheduler.page_size), int(scheduler.max_total_num_tokens)
    running = int(scheduler.max_running_requests)
    budget = int(scheduler.chunked_prefill_size or scheduler.max_prefill_tokens)
    settings = {
        "num_speculative_tokens": max(lengths),
        "candidate_steps": list(lengths),
        "table": None,
        "method": args.speculative_algorithm,
        "model": args.model_path,
        "max_num_seqs": running,
        "max_num_batched_tokens": budget,
        "block_size": page,
        "num_gpu_blocks": tokens // page,
        "enable_prefix_caching": not args.disable_radix_cache,
        "async_scheduling": bool(scheduler.enable_overlap),
        "max_model_len": int(scheduler.model_config.context_len),
    }
    setup = {"max_num_seqs": running, "max_num_batched_tokens": max(budget, running * (1 + max(lengths)))}
    return Engine("sglang", version, max(lengths), lengths, {**setup, "draft_at": "step-start"}, settings)
