"""A policy in the seat of an engine: the engine asks it for draft lengths, step by step, in this process."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foretoken import _native
from foretoken.errors import BadInput
from foretoken.files import Profile
from foretoken.policy import Coefficients, Context


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine knows before its first step.

    Parameters
    ----------
    max_draft_len : int
        Most draft tokens of a request in a step.
    draft, target : Coefficients
        Pass times that the policy assumes, seconds.
    draft_by_tokens_s, target_by_tokens_s : sequence of float
        Entry n: seconds of a pass over n tokens without context, for policies with cost tables. Empty: from ``draft``
        and ``target``.
    max_num_seqs, max_num_batched_tokens : int
        Most running requests, and most tokens of a step.
    drafting : str
        ``"autoregressive"``, or ``"parallel"`` for drafters that make all tokens in one pass.
    context_reads : str
        ``"once"`` or ``"per-position"``.
    draft_at : str
        ``"step-end"`` (vLLM) or ``"step-start"`` (SGLang).
    seed : int
        For policies that draw at random.
    """

    max_draft_len: int
    draft: Coefficients
    target: Coefficients
    draft_by_tokens_s: Sequence[float] = ()
    target_by_tokens_s: Sequence[float] = ()
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    drafting: str = "autoregressive"
    context_reads: str = "once"
    draft_at: str = "step-end"
    seed: int = 0

    @classmethod
    def of_profile(cls, profile: Profile, max_draft_len: int, **others: Any) -> Setup:
        """The setup with the costs of a profile, such as ``profile.toml`` of ``foretoken calibrate``.

        Parameters
        ----------
        profile : Profile
        max_draft_len : int
        others
            Other settings, by name.
        """
        tokens = range(others.get("max_num_batched_tokens", 8192) + 1)
        return cls(
            max_draft_len,
            profile.line("draft"),
            profile.line("target"),
            [profile.pass_s("draft", n, 0) for n in tokens],
            [profile.pass_s("target", n, 0) for n in tokens],
            context_reads=profile.context_reads,
            **others,
        )

    @classmethod
    def of_context(cls, context: Context, **others: Any) -> Setup:
        """The setup of a policy in an experiment that lets another policy decide. Costs are the belief's.

        Parameters
        ----------
        context : Context
            The first argument of the policy.
        others
            Other settings, by name.
        """
        belief = context.belief
        return cls(
            context.max_draft_len,
            belief.draft,
            belief.target,
            max_num_seqs=context.max_num_seqs,
            max_num_batched_tokens=context.max_num_batched_tokens,
            drafting=belief.drafting,
            context_reads=belief.context_reads,
            seed=context.seed,
            **others,
        )

    def _json(self) -> str:
        def passes(line: Coefficients, by_tokens_s: Sequence[float]) -> dict[str, Any]:
            alpha, gamma, delta = line.alpha_s, line.gamma_s, line.delta_s
            return {"by_tokens_s": list(by_tokens_s), "line": {"alpha_s": alpha, "gamma_s": gamma, "delta_s": delta}}

        names = ("max_draft_len", "max_num_seqs", "max_num_batched_tokens", "drafting", "context_reads", "draft_at")
        setup = {name: getattr(self, name) for name in (*names, "seed")}
        setup["draft"] = passes(self.draft, self.draft_by_tokens_s)
        setup["target"] = passes(self.target, self.target_by_tokens_s)
        return json.dumps(setup)


@dataclass(frozen=True, slots=True)
class View:
    """The requests that decode in a step, and the load. All lists have one entry for each request.

    Parameters
    ----------
    ids : sequence
        The requests, by any value that a dict takes as a key.
    context : sequence of int
        Tokens of each request in the target's KV.
    emitted : sequence of int
        Output tokens so far.
    limit : sequence of int, optional
        Most tokens that each request may draft; default: the setup's ``max_draft_len``.
    prefill : sequence of (int, int)
        The step's prompt chunks: tokens that are in KV before, and new tokens.
    num_running : int, optional
        Running requests; default: the requests and the prompt chunks.
    num_waiting : int
        Requests that wait for admission.
    now : float
        The engine's clock, seconds.
    step : int, optional
        Index of the step; default: the calls of ``choose`` are counted.
    """

    ids: Sequence[Hashable]
    context: Sequence[int]
    emitted: Sequence[int]
    limit: Sequence[int] | None = None
    prefill: Sequence[tuple[int, int]] = ()
    num_running: int | None = None
    num_waiting: int = 0
    now: float = 0.0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is scheduled for the first time.

    Parameters
    ----------
    id : hashable
    prompt_len : int
        Tokens of its prompt.
    num_cached_tokens : int
        Tokens of its prompt that are in the prefix cache.
    max_tokens : int
        The most tokens that it may emit.
    num_running, num_waiting : int
        Requests that run, with this one, and that wait.
    """

    id: Hashable
    prompt_len: int
    num_cached_tokens: int = 0
    max_tokens: int = 2**32 - 1
    num_running: int = 1
    num_waiting: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """What a step gave. All lists have one entry for each request that decoded; without any, only prompts ran.

    Parameters
    ----------
    ids : sequence
    drafted, accepted : sequence of int
        Drafted tokens, and those that were right.
    verified : sequence of int, optional
        Verified draft tokens; default: all drafted ones.
    draft_time, verify_time : float
        Seconds of the draft passes and of the target pass.
    passes : int, optional
        Draft passes; default: the longest draft.
    """

    ids: Sequence[Hashable]
    drafted: Sequence[int]
    accepted: Sequence[int]
    verified: Sequence[int] | None = None
    draft_time: float = 0.0
    verify_time: float = 0.0
    passes: int | None = None


class Seat:
    """A policy that chooses the draft lengths of an engine's steps. It is the policy that experiments simulate.

    The engine calls :meth:`choose` for each step that decodes, :meth:`observe` after each step, and :meth:`finished`
    for each request that has ended; :meth:`drafts_for_next` is for engines that may leave prompts out of the drafter. How
    many requests take part in a step is not asked.

    Parameters
    ----------
    policy : str or dict
        A policy's name, or a table with its settings: ``{"ema-tier": {…}}``. ``foretoken policies list`` has all.
    setup : Setup

    Raises
    ------
    BadInput
        The policy is unknown, drafts trees, or needs what a scheduler lacks (confidences, the hidden truth).
    """

    def __init__(self, policy: str | dict[str, Any], setup: Setup) -> None:
        table = {policy: {}} if isinstance(policy, str) else policy
        if not isinstance(table, dict) or len(table) != 1:
            raise BadInput(f"{policy!r} is no policy: give a name, or a table of settings under a name")
        (name,) = table
        self.setup = setup
        self._native = _native.Seat(str(name), json.dumps(table), setup._json())
        self._returns = self._native.ids_may_return()
        self._numbers: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._made = 0
        self._steps = 0

    @property
    def limit(self) -> tuple[int, int]:
        """The most that the policy drafts for a request: in the next step, and ever."""
        return self._native.limits()

    def drafts_for_next(self, request: Admitted | _native.NewRequest) -> bool:
        """Whether the drafter reads the prompt of a request that is admitted.

        Parameters
        ----------
        request : Admitted or NewRequest
        """
        return self._native.drafts_for_next(
            self._number(request.id),
            (request.prompt_len, request.num_cached_tokens),
            request.max_tokens,
            (request.num_running, request.num_waiting),
        )

    def choose(self, view: View | _native.Batch) -> list[int]:
        """The draft length of each request, at most its limit.

        Parameters
        ----------
        view : View or Batch
        """
        n = len(view.ids)
        limit = [self.setup.max_draft_len] * n if view.limit is None else _list(view.limit)
        chunks = view.prefill
        if isinstance(chunks, _native.Chunks):
            prefill = _sums(chunks)
            draft_prefill = _sums(view.draft_prefill) if isinstance(view, _native.Batch) else prefill
        else:
            prefill = draft_prefill = (
                len(chunks),
                sum(new for _, new in chunks),
                sum(before for before, _ in chunks),
                sum(new * before + new * (new + 1) // 2 for before, new in chunks),
            )
        running = n + prefill[0] if view.num_running is None else view.num_running
        step = self._steps if view.step is None else view.step
        self._steps = step + 1
        gap, slo = getattr(view, "draft_gap", None), getattr(view, "slo_tpot_s", None)
        return self._native.choose(
            [self._number(id) for id in _list(view.ids)],
            _list(view.context),
            _list(view.emitted),
            limit,
            [0] * n if gap is None else _list(gap),
            [float("inf")] * n if slo is None else _list(slo),
            prefill,
            draft_prefill,
            bool(getattr(view, "always_extend", False)),
            (running, view.num_waiting),
            (view.now, step),
        )

    def observe(self, outcome: Observed | _native.Outcome) -> None:
        """The policy learns what a step gave.

        Parameters
        ----------
        outcome : Observed or Outcome
        """
        drafted = _list(outcome.drafted)
        verified = drafted if outcome.verified is None else _list(outcome.verified)
        passes = outcome.passes if isinstance(outcome, Observed) else outcome.drafts.passes
        self._native.observe(
            [self._number(id) for id in _list(outcome.ids)],
            drafted,
            verified,
            _list(outcome.accepted),
            max(drafted, default=0) if passes is None else passes,
            (outcome.draft_time, outcome.verify_time),
        )

    def finished(self, ids: Iterable[Hashable]) -> None:
        """The policy forgets requests that have ended.

        Parameters
        ----------
        ids : iterable
        """
        for id in ids:
            number = self._numbers.pop(id, None)
            if number is None:
                continue
            self._native.request_finished(number)
            if self._returns:
                self._free.append(number)

    def _number(self, id: Hashable) -> int:
        """A small number for a request, under which the policy knows it."""
        number = self._numbers.get(id)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = self._made
                self._made += 1
            self._numbers[id] = number
        return number


def _list(values: Any) -> list[Any]:
    """A list, of a sequence or of numpy's array."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _sums(of: _native.Chunks) -> tuple[int, int, int, int]:
    return (of.chunks, of.tokens, of.context, of.pairs)
