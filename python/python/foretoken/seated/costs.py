"""How long steps take: from a profile, or learnt from the steps of the running engine."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from foretoken.files import Profile
from foretoken.policy import Coefficients
from foretoken.seat import Setup
from foretoken.seated.step import Step

# Steps of each draft length that are kept, and needed before anything is believed.
KEPT, NEEDED = 64, 16


@dataclass(frozen=True, slots=True)
class Costs:
    """The pass times that a policy assumes, in the setup with which it is built."""

    setup: Setup

    @classmethod
    def of_profile(cls, path: Path, max_draft_len: int, **others: Any) -> Costs:
        """The costs in ``profile.toml``. Raises ``BadInput`` for a file that is none."""
        return cls(Setup.of_profile(Profile(path), max_draft_len, **others))

    def step_s(self, requests: int, length: int, context: float) -> float:
        """Seconds of a step that verifies ``length`` draft tokens of each request, and of the passes that make them."""
        target = self.setup.target.pass_s(context, requests * (1 + length))
        return target + self._draft_s(self._passes(length), requests * length)

    def split(self, step: Step) -> tuple[float, float]:
        """The seconds of a step in its draft passes and in its target pass, in the ratio that the costs expect."""
        draft = self._draft_s(step.passes, step.drafts)
        both = draft + self.setup.target.pass_s(step.context_read, step.tokens)
        share = draft / both if both > 0 else 0.0
        return step.took * share, step.took * (1.0 - share)

    def _passes(self, length: int) -> int:
        return min(length, 1) if self.setup.drafting == "parallel" else length

    def _draft_s(self, passes: int, tokens: int) -> float:
        return self.setup.draft.delta_s * passes + self.setup.draft.gamma_s * tokens


class Learnt:
    """Costs that are learnt from steps: least squares with coefficients of at least 0.

    The time of a step (``Step.took``: from scheduling to output, or from output to output while steps overlap) is
    explained by 1, the tokens of the target pass, the tokens of KV that it reads, the draft passes and the draft tokens.
    So the host's work counts as a part of the target pass. The last 64 steps of each draft length are kept. Nothing is
    said before two draft lengths were seen in 16 steps each: with one length, no fit can tell draft passes from the rest.

    Parameters
    ----------
    max_draft_len : int
    others
        Settings of ``Setup``.
    """

    def __init__(self, max_draft_len: int, **others: Any) -> None:
        self._setup = (max_draft_len, others)
        self._rows: dict[int, deque[tuple[int, ...]]] = {}
        self._took: dict[int, deque[float]] = {}

    def saw(self, step: Step, length: int) -> None:
        """Learns from a step with draft passes for ``length`` tokens."""
        row = (1, step.tokens, step.context_read, step.passes, step.drafts)
        self._rows.setdefault(length, deque(maxlen=KEPT)).append(row)
        self._took.setdefault(length, deque(maxlen=KEPT)).append(step.took)

    @property
    def lengths(self) -> int:
        """The number of draft lengths that were seen often enough."""
        return sum(len(rows) >= NEEDED for rows in self._rows.values())

    def data(self) -> tuple[list[tuple[int, ...]], list[float]]:
        """What was seen, in lists of its own: ``fit`` may work on them in another thread."""
        return [row for rows in self._rows.values() for row in rows], [s for times in self._took.values() for s in times]

    def fit(self, seen: list[tuple[int, ...]], seconds: list[float]) -> Costs:
        """The costs that explain the data best."""
        rows, took = numpy.array(seen, dtype=float), numpy.array(seconds)
        weights = not_negative(rows, took)
        # A pause of the host is no cost of a pass: steps far from the first fit are left out of the second.
        off = numpy.abs(rows @ weights - took)
        near = off <= 4.0 * max(float(numpy.median(off)), 1e-6)
        weights = not_negative(rows[near], took[near])
        constant, by_token, by_context, by_pass, by_draft = map(float, weights)
        most, others = self._setup
        draft, target = Coefficients(0.0, by_draft, by_pass), Coefficients(by_context, by_token, constant)
        return Costs(Setup(most, draft, target, **others))


def not_negative(rows: numpy.ndarray[Any, Any], values: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The least-squares solution with coefficients of at least 0.

    The best solution is the plain one on some subset of the columns. There are 32 subsets of five columns: each is tried.
    Of subsets that fit equally well the smaller one is taken, so that columns that say the same share nothing.
    """
    size = numpy.sqrt((rows**2).mean(axis=0))
    columns = [i for i in range(rows.shape[1]) if size[i] > 0.0]
    scaled = rows[:, columns] / size[columns]
    gram, aim = scaled.T @ scaled / len(values), scaled.T @ values / len(values)
    energy = float((values**2).mean())
    best, least = numpy.zeros(rows.shape[1]), energy
    for n in range(1, len(columns) + 1):
        for chosen in itertools.combinations(range(len(columns)), n):
            at = list(chosen)
            part = gram[numpy.ix_(at, at)]
            if numpy.linalg.cond(part) > 1e10:
                continue
            found = numpy.linalg.solve(part, aim[at])
            rest = energy - float(aim[at] @ found)
            if (found >= 0.0).all() and rest < least * (1.0 - 1e-6) - 1e-12 * energy:
                best, least = numpy.zeros(rows.shape[1]), rest
                best[[columns[i] for i in at]] = found / size[[columns[i] for i in at]]
    return best
