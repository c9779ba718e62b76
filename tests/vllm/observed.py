"""What is observed of a workload, and the clock it runs on."""

from dataclasses import dataclass, field

from workloads import Workload

STEP, TOKEN = 1000, 7  # µs of a step, and of a token scheduled in it
IDLE_STEPS = 100  # so many steps in a row without a token, an arrival or an end: it would go on for ever


@dataclass
class Entry:
    """A request in a step. `cached` is None except at an admission."""

    request: int
    tokens: int
    drafts: int
    cached: int | None


@dataclass
class Step:
    """One call of `schedule` and what followed from it. Times in µs."""

    start: int
    end: int
    entries: list[Entry]
    preempted: list[int]
    finished: list[int]
    free: int
    k: int
    skipped: bool
    blocks: int


@dataclass
class Run:
    """Everything observed of a workload. `error` is the kind of refusal, or None."""

    work: Workload
    derived: dict[str, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    error: str | None = None
