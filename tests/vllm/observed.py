"""The data recorded of a workload's run, and the constants of its clock."""

from dataclasses import dataclass, field

from chance import mix
from workloads import Workload

STEP, TOKEN = 1000, 7  # µs of a step, and of a token scheduled in it
IDLE_STEPS = 100  # this number of steps in a row without a token, an arrival or an end: the workload would not end


@dataclass
class Entry:
    """A request in a step. `cached` is None except at an admission."""

    request: int
    tokens: int
    drafts: int
    cached: int | None


def entries(output) -> list[Entry]:
    """The requests of a `SchedulerOutput`, in its order."""
    admitted = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    for at, name in enumerate(cached.req_ids):
        if name in cached.resumed_req_ids:
            admitted[name] = cached.num_computed_tokens[at]
    drafts = output.scheduled_spec_decode_tokens
    return [Entry(int(name), tokens, len(drafts.get(name, ())), admitted.get(name)) for name, tokens in output.num_scheduled_tokens.items()]


class Blocks:
    """A running hash over all blocks that were added to tables."""

    def __init__(self, manager) -> None:
        self.manager = manager
        self.known: dict[str, int] = {}
        self.hash = 0

    def note(self, name: str) -> None:
        """Adds the blocks that a request's table has gained since the last call to the hash."""
        (table,) = self.manager.get_block_ids(name)
        for block in table[self.known.get(name, 0) :]:
            self.hash = mix(self.hash ^ (int(name) << 32 | block))
        self.known[name] = len(table)

    def forget(self, name: str) -> None:
        """Forgets a request that has lost its table."""
        self.known.pop(name, None)


@dataclass
class Step:
    """One call of `schedule` and its results. Times in µs."""

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
    """The recorded run of a workload. `error` is the kind of refusal, or None."""

    work: Workload
    derived: dict[str, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    error: str | None = None


@dataclass
class Schedule:
    """One call of `schedule` by the engine core. Times in µs."""

    start: int
    end: int
    entries: list[Entry]
    preempted: list[int]
    free: int
    k: int
    skipped: bool
    blocks: int


@dataclass
class Update:
    """One call of `update_from_output`, for the oldest step not yet taken. Times in µs; `end` is when clients get the tokens.

    A fate for each entry of that step: how many tokens were delivered and whether they were stale; None if the request had ended.
    """

    start: int
    end: int
    fates: list[tuple[int, bool] | None]
    finished: list[int]
    free: int


@dataclass
class CoreRun:
    """The recorded run of a workload by the engine core. `error` is the kind of refusal, or None."""

    work: Workload
    derived: dict[str, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    events: list[Schedule | Update] = field(default_factory=list)
    error: str | None = None
