"""What an engine says of a step to the parts that do not know engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Choice:
    """The draft length of a step. ``would`` is the policy's, None where none was asked; ``theirs`` the engine's own."""

    theirs: int
    used: int
    would: int | None = None
    seconds: float = 0.0
    requests: int = 0


@dataclass(slots=True)
class Step:
    """A step that has ended. Lists have one entry for each request that decoded in it.

    ``at`` is when the engine began to schedule the step, or later: when the step before gave its output, if that one was
    still in flight. ``took`` are the seconds from there to the step's own output. So the steps of a busy engine do not
    overlap, and ``took`` has the host's work too.
    """

    at: float
    took: float
    choice: Choice
    ids: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    # Prompt chunks: request, tokens that were in KV before, new tokens.
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    kv: float = 0.0
    # Tokens of the target pass, padding too; draft passes within `took`, and the tokens that they made.
    tokens: int = 0
    passes: int = 0
    drafts: int = 0

    @property
    def context_read(self) -> int:
        """Tokens of KV that the target pass reads."""
        return sum(self.context) + sum(before for _, before, _ in self.chunks)

    def line(self) -> dict[str, Any]:
        """The step in the log."""
        return {
            "is": "step", "at": round(self.at, 6), "took": round(self.took, 6), "ids": self.ids, "context": self.context,
            "verified": self.verified, "accepted": self.accepted, "emitted": self.emitted, "chunks": self.chunks,
            "running": self.running, "waiting": self.waiting, "kv": round(self.kv, 4), "theirs": self.choice.theirs,
            "would": self.choice.would, "used": self.choice.used, "decision_us": round(1e6 * self.choice.seconds, 1),
        }  # fmt: skip
