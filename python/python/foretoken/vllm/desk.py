"""The seat's books inside one scheduler of vLLM: what each step is made of, and what it gave."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from foretoken.errors import BadInput
from foretoken.seat import View
from foretoken.seated import taking
from foretoken.seated.chooser import Chooser, Engine
from foretoken.seated.settings import Settings
from foretoken.seated.step import Choice, Step
from foretoken.seated.taking import or_empty
from foretoken.vllm import fit, table

# On runner V2 the passes behind a step are within the next one, if that begins so soon.
SOON_S = 1e-3


@dataclass(slots=True)
class Pending:
    """A step that was scheduled. Its decode requests, in the order of the lists of ``step``."""

    output: Any
    step: Step
    length: int
    requests: list[Any] = field(default_factory=list)
    so_far: list[int] = field(default_factory=list)


class Desk:
    """What the hooks of a scheduler call. Its methods may raise; the hooks guard them."""

    def __init__(self, scheduler: Any, chooser: Chooser) -> None:
        self.scheduler, self.chooser = scheduler, chooser
        self.begun = time.monotonic()
        self._v2 = bool(scheduler.use_v2_model_runner)
        self._speculates = scheduler.vllm_config.speculative_config is not None
        self._output_at = 0.0
        self._pending: deque[Pending] = deque()
        self._ids: dict[str, int] = {}
        self._cached: dict[str, int] = {}
        self._drafted: dict[str, int] = {}
        self._made = 0
        self._before = Choice(0, 0)  # the choice of the step before, with its number of requests
        self._ends: list[tuple[int, int, int | None, str]] | None = None

    def began(self, request: Any) -> None:
        """A request came to the scheduler. A further part of a streamed input is no new request."""
        if request.request_id not in self._ids:
            self._ids[request.request_id] = self._made
            self._made += 1
            self.chooser.began(self._ids[request.request_id], request.num_prompt_tokens, request.max_tokens)

    def ended(self, request: Any) -> None:
        """A request leaves the scheduler. If a step's output ends it, the step is written first."""
        name = request.request_id
        self._drafted.pop(name, None)
        cached = self._cached.pop(name, None)
        if name in self._ids:
            why = str(type(request.status).get_finished_reason(request.status))
            end = (self._ids.pop(name), request.num_output_tokens, cached, why)
            if self._ends is None:
                self.chooser.ended(*end)
            else:
                self._ends.append(end)

    def scheduled(self, output: Any) -> None:
        """vLLM has made a step and not yet counted it. Chooses how many drafts are made behind it."""
        if not output.total_num_scheduled_tokens:
            return
        pending = self._read(output)
        theirs = output.num_spec_tokens_to_schedule
        names = [] if getattr(output, "skip_drafts", False) or not self._speculates else self._drafting(output)
        choice = Choice(theirs if names else 0, theirs if names else 0)
        if names:
            choice = self.chooser.choose(lambda: self._view(names, pending.step), theirs)
            choice.requests = len(names)
            if self.chooser.settings.act:
                output.num_spec_tokens_to_schedule = choice.used
            self._drafted.update(dict.fromkeys(names, choice.used))
        pending.step.choice = choice
        within = choice
        if self._v2:
            soon = self.begun - self._output_at < SOON_S or bool(self._pending)
            within = self._before if soon else Choice(0, 0)
        if within.requests:
            config = self.scheduler.vllm_config
            pending.step.passes = fit.passes(config, self._v2, within.used)
            pending.step.drafts = within.requests * within.used if pending.step.passes else 0
        pending.length = within.used
        self._before = choice
        self._pending.append(pending)

    def gave(self, output: Any, result: Any) -> Pending | None:
        """The output of a step is there, and vLLM has not yet taken it."""
        now = time.monotonic()
        while self._pending and self._pending[0].output is not output:
            self._pending.popleft()  # a step whose output never came
        if not self._pending:
            return None
        pending, step = self._pending.popleft(), None
        step = pending.step
        begun = max(step.at + self.chooser.begun, self._output_at)
        step.at, step.took = begun - self.chooser.begun, now - begun
        self._output_at = now
        live, sampled = self.scheduler.requests, result.sampled_token_ids
        for at, request in enumerate(pending.requests):
            place = result.req_id_to_index.get(request.request_id)
            gone = request.is_finished() or live.get(request.request_id) is not request
            given = 0 if gone or place is None or not sampled else len(sampled[place])
            if given == 0:  # aborted meanwhile: nothing was tried
                step.drafted[at] = step.verified[at] = 0
            step.accepted.append(min(max(given - 1, 0), step.verified[at]))
            pending.so_far.append(request.num_output_tokens)
            # All tokens are in KV but the newest. While a step is in flight this was not yet known.
            step.context[at] = request.num_tokens - 1
        self._ends = []
        return pending

    def updated(self, pending: Pending | None) -> None:
        """vLLM has taken the output of a step."""
        ends, self._ends = self._ends or [], None
        if pending is not None:
            now = [request.num_output_tokens for request in pending.requests]
            pending.step.emitted = [after - so_far for after, so_far in zip(now, pending.so_far, strict=True)]
            self.chooser.ran(pending.step, pending.length)
        for end in ends:
            self.chooser.ended(*end)

    def _read(self, output: Any) -> Pending:
        """The requests of a step: prompt chunks, and decodes with their drafts."""
        scheduler = self.scheduler
        step = Step(
            self.begun - self.chooser.begun,
            0.0,
            Choice(0, 0),
            running=len(scheduler.running),
            waiting=len(scheduler.waiting) + len(scheduler.kv_holding_waiting),
            kv=scheduler.get_kv_cache_usage(),
            tokens=output.total_num_scheduled_tokens,
        )
        pending = Pending(output, step, 0)
        fresh = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        for name, tokens in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            before = request.num_computed_tokens
            self._cached.setdefault(name, before)
            if name not in self._ids:
                self.began(request)
            if tokens != 1 + drafts or before < request.num_prompt_tokens:
                step.chunks.append((self._ids[name], before, tokens - drafts))
                continue
            # What a request just admitted verifies is padding, which no drafter made.
            verified = 0 if name in fresh else drafts
            pending.requests.append(request)
            step.ids.append(self._ids[name])
            step.context.append(before)
            step.verified.append(verified)
            step.drafted.append(max(self._drafted.get(name, 0), verified) if verified else 0)
        return pending

    def _drafting(self, output: Any) -> list[str]:
        """The requests of a step that sample a token, behind which drafts are made."""
        names = []
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            if request.num_computed_tokens + tokens >= request.num_tokens + request.num_output_placeholders:
                names.append(name)
        return names

    def _view(self, names: list[str], step: Step) -> View:
        """What is certain of the requests once the step has run: one token more, or two while a step is in flight."""
        scheduler = self.scheduler
        most, longest = scheduler.num_spec_tokens, scheduler.max_model_len
        ids, context, emitted, limit = [], [], [], []
        for name in names:
            request = scheduler.requests[name]
            outputs = request.num_output_tokens + 1 + (request.num_output_placeholders > 0)
            tokens = request.num_prompt_tokens + outputs
            left = min(request.max_tokens - outputs, longest - tokens)
            ids.append(self._ids[name])
            context.append(tokens - 1)
            emitted.append(outputs)
            # The step that verifies the drafts gives one token more than it accepts.
            limit.append(max(min(most, left - 1), 0))
        chunks = [(before, new) for _, before, new in step.chunks]
        return View(ids, context, emitted, limit, chunks, step.running, step.waiting, step.at)


def take(scheduler: Any) -> Desk | None:
    """Puts a policy into the seat of a scheduler, or says in one line why there is none."""
    from vllm import __version__  # type: ignore[import-not-found]
    from vllm.logger import init_logger  # type: ignore[import-not-found]

    log = init_logger("vllm.foretoken")
    with or_empty(log, "vLLM"):
        ours = table.restore(scheduler)
        config = scheduler.vllm_config
        why = fit.closed(__version__, config)
        if why is not None:
            raise BadInput(why)
        settings = Settings.of(os.environ)
        engine = _engine(scheduler, __version__, settings.act)
        chooser = taking.chooser(log, settings, engine, fit.unfit(config, scheduler.use_v2_model_runner))
        if chooser.off is None and settings.act and ours:
            table.unpad(scheduler)
        return Desk(scheduler, chooser)
    return None


def _engine(scheduler: Any, version: str, act: bool) -> Engine:
    config = scheduler.vllm_config
    spec, limits, cache = config.speculative_config, config.scheduler_config, config.cache_config
    most, names = int(scheduler.num_spec_tokens), config.model_config.served_model_name
    drafting = "parallel" if fit.parallel(config) else "autoregressive"
    setup = {"max_num_seqs": limits.max_num_seqs, "max_num_batched_tokens": limits.max_num_batched_tokens}
    settings = {
        "num_speculative_tokens": most,
        "table": table.theirs(spec),
        "method": spec.method if spec is not None else None,
        "model": str(names[0] if isinstance(names, list) else names or config.model_config.model),
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "block_size": scheduler.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "async_scheduling": bool(limits.async_scheduling),
        "max_model_len": scheduler.max_model_len,
        "runner": 2 if scheduler.use_v2_model_runner else 1,
    }
    return Engine("vllm", version, most, fit.lengths(config, act), {**setup, "drafting": drafting}, settings)
