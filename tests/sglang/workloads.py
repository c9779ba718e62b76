"""What a workload is, and how its requests are drawn. Does not import SGLang."""

from dataclasses import asdict, dataclass, field
from random import Random

# Token ids: 2 is the end of a sequence; groups' prefixes, requests' own prompt tokens and outputs never meet.
SPAN, OWN, OUTPUT = 1 << 12, 1 << 18, 1 << 20


def output_token(request: int, position: int) -> int:
    """The token that request number `request` puts out at `position`, which counts from 0."""
    return OUTPUT + SPAN * request + position


@dataclass
class Settings:
    """Arguments of SGLang's server that are drawn, by SGLang's names, and `drafts`, `overlap`, `adaptive`."""

    max_total_tokens: int = 8192
    page_size: int = 1
    chunked_prefill_size: int = 256
    max_prefill_tokens: int = 16384
    max_running_requests: int | None = 12
    max_queued_requests: int | None = None
    enable_mixed_chunk: bool = False
    schedule_policy: str = "fcfs"
    schedule_conservativeness: float = 1.0
    disable_radix_cache: bool = False
    radix_eviction_policy: str = "lru"
    radix_eviction_policy_config: dict | None = None
    retraction_policy: str = "length"
    enable_priority_scheduling: bool = False
    disable_priority_preemption: bool = False
    schedule_low_priority_values_first: bool = False
    priority_scheduling_preemption_threshold: int = 10
    prefill_max_requests: int | None = None
    prefill_decode_interval: int = 0
    prefill_decode_interval_min_bs: int = 0
    scheduler_recv_interval: int = 1
    drafts: int = 0
    overlap: bool = False
    adaptive: dict | None = None

    def server(self) -> dict:
        """The arguments that SGLang takes by the same name."""
        return {name: value for name, value in asdict(self).items() if name not in ("drafts", "overlap", "adaptive")}


@dataclass
class Request:
    """`prompt` is a list of runs [first token, length] of consecutive token ids."""

    at: int
    prompt: list[list[int]]
    max_new_tokens: int
    ignore_eos: bool = False
    eos_after: int | None = None
    priority: int | None = None

    def length(self) -> int:
        return sum(count for _, count in self.prompt)

    def outputs(self) -> int:
        return min(self.max_new_tokens, self.eos_after or self.max_new_tokens)


@dataclass
class Workload:
    family: str
    seed: int
    accept: int  # chance in thousandths that a draft is right
    settings: Settings
    requests: list[Request] = field(default_factory=list)

    def encode(self) -> dict:
        return {
            "family": self.family,
            "seed": self.seed,
            "accept": self.accept,
            "settings": asdict(self.settings),
            "requests": [asdict(request) for request in self.requests],
        }


def tokens(prompt: list[list[int]]) -> list[int]:
    return [first + at for first, count in prompt for at in range(count)]


@dataclass
class Shape:
    """How requests are drawn. Times in microseconds."""

    count: tuple[int, int] = (2, 12)
    prompt: tuple[int, int] = (5, 600)
    outputs: tuple[int, int] = (1, 60)
    gap: int = 12000  # at most, between two arrivals
    together: float = 0.3  # chance that a request comes with the one before
    shared: float = 0.3  # chance of a shared prefix
    turns: float = 0.15  # chance that a prompt goes on from another request's output
    eos: float = 0.5  # chance that a request ends by EOS
    last: int = 1 << 20  # no request ends by EOS after more outputs
    ignore_eos: float = 0.0
    prefix: tuple[int, int] = (8, 200)
    priorities: tuple[int, ...] = ()
    fits: bool = True  # no prompt is so long that it is refused


def room(settings: Settings) -> int:
    """Tokens of KV in whole pages."""
    return settings.max_total_tokens // settings.page_size * settings.page_size


def draw_requests(rng: Random, work: Workload, shape: Shape) -> None:
    settings = work.settings
    longest = min(shape.prompt[1], room(settings) - 8) if shape.fits else shape.prompt[1]
    groups = [rng.randint(*shape.prefix) for _ in range(rng.randint(1, 3))]
    now = 0
    for index in range(rng.randint(*shape.count)):
        if index and rng.random() >= shape.together:
            now += rng.randint(0, shape.gap)
        shortest = shape.prompt[0]
        length = rng.randint(shortest, longest if rng.random() < 0.5 else max(shortest, longest // 3))
        prompt = draw_prompt(rng, work, shape, groups, index, length)
        outputs = rng.randint(*shape.outputs)
        request = Request(now, prompt, outputs, ignore_eos=rng.random() < shape.ignore_eos)
        if not request.ignore_eos and rng.random() < shape.eos:
            request.eos_after = rng.randint(1, min(outputs, shape.last))
        if shape.priorities:
            request.priority = rng.choice(shape.priorities)
        work.requests.append(request)


def draw_prompt(rng: Random, work: Workload, shape: Shape, groups: list[int], index: int, length: int) -> list[list[int]]:
    """A prompt of about `length` tokens: a shared start or an earlier request's prompt and output, then its own tokens."""
    own = OWN + SPAN * index
    if work.requests and rng.random() < shape.turns:
        other = rng.randrange(len(work.requests))
        before = work.requests[other]
        taken = rng.randint(1, before.outputs())
        ends = before.eos_after is not None and taken == before.eos_after
        runs = [list(run) for run in before.prompt] + [[OUTPUT + SPAN * other, taken - ends]] * (taken > ends) + [[2, 1]] * ends
        start = sum(count for _, count in runs)
        if start < room(work.settings) - 24:
            return runs + [[own + start, rng.randint(1, 16)]]
    if rng.random() < shape.shared:
        group = rng.randrange(len(groups))
        shared = min(groups[group] if rng.random() < 0.7 else rng.randint(1, groups[group]), length - 1)
        return [[SPAN * (1 + group), shared], [own + shared, length - shared]]
    return [[own, length]]
