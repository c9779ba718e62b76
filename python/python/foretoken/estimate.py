"""What a step is believed to cost, for policies that weigh lengths: section 12 of docs/model.md as a running sum, in the order of
operations of the presets, so that a policy written on it decides as they do, to the last bit.
"""

from __future__ import annotations

import copy

from foretoken._native import Batch
from foretoken.policy import Belief

__all__ = ["Depths", "Estimate"]


class Depths:
    """Who could draft how deep, when request i may draft up to ``min(batch.limit[i], longest)`` tokens.

    Parameters
    ----------
    batch : Batch
    longest : int

    Attributes
    ----------
    at : list of tuple of int
        By depth from 1 to ``longest``: requests, the sum of their contexts, the sum of their catch-up tokens.
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
        # A request that reaches a depth also drafts at every lesser one.
        for depth in range(longest - 1, 0, -1):
            requests[depth] += requests[depth + 1]
            contexts[depth] += contexts[depth + 1]
            gaps[depth] += gaps[depth + 1]
        self.at = list(zip(requests, contexts, gaps))

    def __getitem__(self, depth: int) -> tuple[int, int, int]:
        return self.at[depth] if depth < len(self.at) else (0, 0, 0)


class Estimate:
    """The believed time of a step: without drafts at first, grown depth by depth while everything drafted is verified, then
    shrunk token by token when something drafted is not.

    Parameters
    ----------
    belief : Belief
    batch : Batch

    Attributes
    ----------
    passes : int
        Draft passes so far.
    """

    __slots__ = ("_belief", "_draft_s", "_riders", "_verify_s", "passes")

    def __init__(self, belief: Belief, batch: Batch) -> None:
        self._belief = belief
        self.passes = 0
        prefill, riding = batch.prefill, batch.draft_prefill
        # What the draft runs when no request drafts: its share of the prompts, and every gap where it always extends.
        gaps = sum(batch.draft_gap.tolist()) if batch.always_extend else 0
        self._riders = riding.tokens + gaps, riding.context
        idle = self._riders[0] > 0
        if not idle:
            self._riders = 0, 0
        self._draft_s = belief.draft.pass_s(self._riders[1], self._riders[0]) if idle else 0.0
        self._verify_s = belief.target.pass_s(batch.context_sum + prefill.context, len(batch) + prefill.tokens)

    @property
    def step_s(self) -> float:
        """Believed time of the step, seconds."""
        return self._draft_s + self._verify_s

    def copy(self) -> Estimate:
        """Another one to try something with."""
        return copy.copy(self)

    def deepen(self, at: tuple[int, int, int]) -> None:
        """One more draft pass, over the requests of ``depths[depth]``, whose tokens are verified. No requests: no pass."""
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
            # The one pass was paid for with the first depth: deeper tokens ride in it.
            self._draft_s += self._belief.draft.gamma_s * requests
        else:
            self._draft_s += self._belief.draft.pass_s(read, batched)
        self._verify_s += self._verify_tokens_s(requests, context + requests * (before + 1))

    def drop_token(self, position: int) -> None:
        """One draft token fewer to verify; its draft time stays. ``position``: the request's context and the token's depth."""
        self._verify_s -= self._verify_tokens_s(1, position)

    def _verify_tokens_s(self, tokens: int, context: int) -> float:
        target = self._belief.target
        read = target.alpha_s * context if self._belief.context_reads == "per-position" else 0.0
        return target.gamma_s * tokens + read
