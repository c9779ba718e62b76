"""Estimates the time of a step from a policy's cost belief (docs/model.md, section 12).

The estimate is a running sum in the order of operations of the Rust presets. A policy that uses it therefore computes
bit-identical times.
"""

from __future__ import annotations

import copy

from foretoken._native import Batch
from foretoken.policy import Belief

__all__ = ["Depths", "Estimate"]


class Depths:
    """The requests that can draft to each depth. Request i may draft ``min(batch.limit[i], longest)`` tokens.

    Parameters
    ----------
    batch : Batch
    longest : int

    Attributes
    ----------
    at : list of tuple of int
        ``at[depth]`` for depth 1 to ``longest``: requests, sum of their contexts, sum of their catch-up tokens.
    """

    __slots__ = ("at",)

    def __init__(self, batch: Batch, longest: int) -> None:
        requests, contexts, gaps = ([0] * (longest + 2) for _ in range(3))
        catches_up = not batch.always_extend
        for limit, context, gap in zip(batch.limit.tolist(), batch.context.tolist(), batch.draft_gap.tolist()):
            depth = min(limit, longest)
            requests[depth] += 1
            contexts[depth] += context
            gaps[depth] += gap if catches_up else 0
        # A request that drafts to a depth also drafts at every smaller depth, so its numbers are added there too.
        for depth in range(longest - 1, 0, -1):
            requests[depth] += requests[depth + 1]
            contexts[depth] += contexts[depth + 1]
            gaps[depth] += gaps[depth + 1]
        self.at = list(zip(requests, contexts, gaps))

    def __getitem__(self, depth: int) -> tuple[int, int, int]:
        return self.at[depth] if depth < len(self.at) else (0, 0, 0)


class Estimate:
    """The estimated time of a step, at first without drafts.

    :meth:`deepen` adds a depth whose drafts are all verified. :meth:`drop_token` takes one draft out of verification.

    Parameters
    ----------
    belief : Belief
    batch : Batch

    Attributes
    ----------
    passes : int
        Number of depths so far; with autoregressive drafting each is a draft pass.
    """

    __slots__ = ("_belief", "_draft_s", "_riders", "_verify_s", "passes")

    def __init__(self, belief: Belief, batch: Batch) -> None:
        self._belief = belief
        self.passes = 0
        prefill, riding = batch.prefill, batch.draft_prefill
        # Tokens that the first draft pass computes besides drafting: prompt chunks, and catch-up tokens if the draft
        # model processes these in every step.
        gaps = sum(batch.draft_gap.tolist()) if batch.always_extend else 0
        self._riders = riding.tokens + gaps, riding.context
        idle = self._riders[0] > 0
        if not idle:
            self._riders = 0, 0
        self._draft_s = belief.draft.pass_s(self._riders[1], self._riders[0]) if idle else 0.0
        self._verify_s = belief.target.pass_s(batch.context_sum + prefill.context, len(batch) + prefill.tokens)

    @property
    def step_s(self) -> float:
        """Estimated time of the step, seconds."""
        return self._draft_s + self._verify_s

    def copy(self) -> Estimate:
        """A copy, to try changes on."""
        return copy.copy(self)

    def deepen(self, at: tuple[int, int, int]) -> None:
        """Adds a draft pass over the requests ``at`` (``depths[depth]``) and the verification of its tokens."""
        requests, context, catch_up = at
        if requests == 0:
            return
        before = self.passes
        batched, read = requests, context + requests * before
        if before == 0:
            batched += self._riders[0] + catch_up
            read += self._riders[1]
            self._draft_s = 0.0
        self.passes += 1
        if self._belief.drafting == "parallel" and before > 0:
            # Parallel drafting has one draft pass, counted at the first depth. Tokens of greater depths only make this
            # pass larger.
            self._draft_s += self._belief.draft.gamma_s * requests
        else:
            self._draft_s += self._belief.draft.pass_s(read, batched)
        self._verify_s += self._verify_tokens_s(requests, context + requests * (before + 1))

    def drop_token(self, position: int) -> None:
        """Takes a draft token out of verification. ``position``: the request's context plus the token's depth."""
        self._verify_s -= self._verify_tokens_s(1, position)

    def _verify_tokens_s(self, tokens: int, context: int) -> float:
        target = self._belief.target
        read = target.alpha_s * context if self._belief.context_reads == "per-position" else 0.0
        return target.gamma_s * tokens + read
