"""What draft lengths would bring: how often draft tokens are right, and tokens a second at other lengths."""

from __future__ import annotations

from collections import Counter

from foretoken.seated.costs import Costs
from foretoken.seated.step import Step

# A trial counts half after 700 later ones, a step half after 140.
TRIALS, STEPS = 0.999, 0.995


class Acceptance:
    """For each position, the chance that a draft token is right if all before it are.

    Parameters
    ----------
    max_draft_len : int
    """

    def __init__(self, max_draft_len: int) -> None:
        # Half of one imagined trial at each position was right.
        self._right = [0.5] * max_draft_len
        self._tried = [1.0] * max_draft_len

    def saw(self, step: Step) -> float:
        """Learns from a step. Returns how many of its accepted tokens were expected."""
        rounds = Counter(zip(step.verified, step.accepted, strict=True))
        expected = sum(count * self.expected(verified) for (verified, _), count in rounds.items())
        for (verified, accepted), count in rounds.items():
            for at in range(min(accepted + 1, verified)):
                fade = TRIALS**count
                self._tried[at] = self._tried[at] * fade + count
                self._right[at] = self._right[at] * fade + count * (at < accepted)
        return expected

    def expected(self, length: int) -> float:
        """Draft tokens of a round of this length that are right, on average."""
        chance, total = 1.0, 0.0
        for right, tried in zip(self._right[:length], self._tried[:length], strict=True):
            chance *= right / tried
            total += chance
        return total


class Gain:
    """Tokens a second at the policy's lengths, as a share of tokens a second at the engine's own lengths."""

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._policy = self._engine = (0.0, 0.0)

    def saw(self, costs: Costs, requests: int, context: int, would: int, theirs: int) -> float:
        """Adds a step of both. Returns the ratio of the last steps."""

        def add(sums: tuple[float, float], length: int) -> tuple[float, float]:
            tokens = requests * (1.0 + self._acceptance.expected(length))
            return sums[0] * STEPS + tokens, sums[1] * STEPS + costs.step_s(requests, length, context)

        self._policy, self._engine = add(self._policy, would), add(self._engine, theirs)
        (tokens, seconds), (their_tokens, their_seconds) = self._policy, self._engine
        return tokens * their_seconds / (their_tokens * seconds) if seconds * their_seconds > 0 else 1.0
