"""Draws random workloads by family and seed: settings of a server, and requests. Does not import SGLang."""

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


def draw(family: str, seed: int) -> Workload:
    """The workload of a seed in a family."""
    rng = Random(f"{family} {seed}")
    settings, shape = Settings(), Shape()
    FAMILIES[family](rng, settings, shape)
    work = Workload(family, seed, rng.choice((0, 300, 600, 800, 950, 1000)), settings)
    draw_requests(rng, work, shape)
    return work


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


def loops(rng: Random, settings: Settings) -> None:
    settings.overlap = rng.random() < 0.5


def plain(rng: Random, settings: Settings, shape: Shape) -> None:
    settings.chunked_prefill_size = rng.choice((64, 100, 128, 256, 300, 512, 2048))
    settings.max_total_tokens = rng.choice((1000, 1500, 2048, 3000, 4096, 8192))
    settings.max_running_requests = rng.choice((3, 4, 6, 8, 12, None))
    settings.schedule_conservativeness = rng.choice((0.3, 0.7, 1.0, 1.0, 1.3))
    settings.max_prefill_tokens = rng.choice((16384, 16384, 200, 500))


def overlap(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    settings.overlap = True


def unchunked(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.chunked_prefill_size = -1
    settings.max_prefill_tokens = rng.choice((100, 200, 400, 800))


def mixed(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.enable_mixed_chunk = True
    settings.chunked_prefill_size = rng.choice((16, 64, 100, 128, 256))
    settings.max_total_tokens = rng.choice((700, 1000, 1500, 3000, 4096))


def pages(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.page_size = rng.choice((4, 16, 16, 64))
    settings.chunked_prefill_size = rng.choice((64, 100, 128, 256, 300, 512))
    settings.max_total_tokens = rng.choice((1000, 1500, 2048, 3000, 4096))
    settings.enable_mixed_chunk = rng.random() < 0.2


def tight(rng: Random, settings: Settings, shape: Shape) -> None:
    loops(rng, settings)
    settings.max_total_tokens = rng.randint(200, 500)
    settings.schedule_conservativeness = rng.choice((0.0, 0.0, 0.0, 0.1, 0.3))
    settings.chunked_prefill_size = rng.choice((64, 128, 256, -1))
    settings.max_running_requests = rng.choice((4, 8, 12))
    settings.disable_radix_cache = rng.random() < 0.2
    # A request that is admitted alone needs room for its own outputs only: the others' are what grows too large.
    shape.count, shape.prompt, shape.outputs, shape.prefix = (5, 12), (5, 60), (40, 120), (8, 60)
    shape.eos, shape.together, shape.gap = 0.15, 0.05, 6000


def tight_pages(rng: Random, settings: Settings, shape: Shape) -> None:
    tight(rng, settings, shape)
    settings.page_size = rng.choice((4, 16))
    settings.enable_mixed_chunk = settings.chunked_prefill_size > 0 and rng.random() < 0.3


def known(rng: Random, settings: Settings, shape: Shape) -> None:
    """Known lengths: requests that ignore EOS, with and without the radix cache, alone and among others."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.disable_radix_cache = rng.random() < 0.7
    settings.max_total_tokens = rng.choice((400, 600, 900, 1300, 2048))
    settings.page_size = rng.choice((1, 1, 1, 4, 16))
    shape.ignore_eos = rng.choice((1.0, 1.0, 0.5))
    shape.prompt, shape.count = (5, 200), (4, 12)


def priority(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.enable_priority_scheduling = True
    settings.schedule_policy = rng.choice(("fcfs", "fcfs", "lof"))
    settings.disable_priority_preemption = rng.random() < 0.2
    settings.schedule_low_priority_values_first = rng.random() < 0.3
    settings.priority_scheduling_preemption_threshold = rng.choice((0, 3, 10))
    settings.max_running_requests = rng.choice((1, 2, 3, 4))
    settings.max_total_tokens = rng.choice((600, 900, 1500, 3000))
    settings.retraction_policy = rng.choice(("length", "priority"))
    settings.page_size = rng.choice((1, 1, 16))
    settings.enable_mixed_chunk = rng.random() < 0.2
    shape.priorities = rng.choice(((0, 100), (0, 5, 20), (0, 1, 2, 3, 50), (-10, 0, 4, 15)))
    shape.prompt, shape.outputs, shape.count = (5, 300), (5, 60), (4, 12)


def lpm(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.schedule_policy = "lpm"
    settings.max_running_requests = rng.choice((1, 2, 3, 4, 8))
    settings.page_size = rng.choice((1, 1, 1, 4, 16))
    settings.max_total_tokens = rng.choice((700, 1000, 2048, 4096))
    shape.shared, shape.turns, shape.count, shape.gap = 0.8, 0.2, (5, 12), 8000


def orders(rng: Random, settings: Settings, shape: Shape) -> None:
    lpm(rng, settings, shape)
    settings.schedule_policy = rng.choice(("lof", "dfs-weight", "hrrn", "shortest-prefill-first"))
    shape.shared = rng.choice((0.3, 0.8))


def eagle(rng: Random, settings: Settings, shape: Shape) -> None:
    plain(rng, settings, shape)
    settings.drafts = rng.choice((1, 2, 3, 3, 4, 5, 7))
    shape.outputs = (1, 100)


def eagle_overlap(rng: Random, settings: Settings, shape: Shape) -> None:
    eagle(rng, settings, shape)
    settings.overlap = True


def eagle_pages(rng: Random, settings: Settings, shape: Shape) -> None:
    pages(rng, settings, shape)
    settings.drafts = rng.choice((1, 2, 3, 3, 5))
    shape.outputs = (1, 100)


def eagle_mixed(rng: Random, settings: Settings, shape: Shape) -> None:
    mixed(rng, settings, shape)
    settings.drafts = rng.choice((1, 2, 3, 3, 5))
    settings.page_size = rng.choice((1, 1, 4, 16))
    shape.outputs = (1, 80)


def eagle_tight(rng: Random, settings: Settings, shape: Shape) -> None:
    tight(rng, settings, shape)
    settings.drafts = rng.choice((1, 2, 3, 3, 5))
    settings.page_size = rng.choice((1, 1, 1, 4, 16))
    settings.enable_mixed_chunk = settings.chunked_prefill_size > 0 and rng.random() < 0.2
    settings.schedule_policy = rng.choice(("fcfs", "fcfs", "lpm"))
    shape.outputs = (40, 160)


def adaptive(rng: Random, settings: Settings, shape: Shape) -> None:
    eagle(rng, settings, shape)
    loops(rng, settings)
    settings.adaptive = draw_table(rng)
    settings.max_total_tokens = rng.choice((700, 1500, 4096))
    steps = {step for entry in settings.adaptive.values() if isinstance(entry, dict) for step in entry["candidate_steps"]}
    settings.drafts = rng.choice([step for step in sorted(steps) if step] or [3])
    shape.outputs, shape.prompt = (20, 200), (5, 200)


def draw_table(rng: Random) -> dict:
    """SGLang's own table at times; else candidates by batch size, which change after few batches."""
    if rng.random() < 0.25:
        return {
            "1": {"candidate_steps": [1, 3, 5, 7], "up_hysteresis": 0.0, "down_hysteresis": -0.25, "ceiling_coeff": 0},
            "8": {"candidate_steps": [0, 1, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
        }
    table: dict = {"update_interval": rng.choice((1, 2, 5)), "warmup_batches": rng.choice((0, 3, 10)), "ema_alpha": rng.choice((0.2, 0.5, 1.0))}
    for size in sorted(rng.sample((1, 2, 3, 4, 6, 8), rng.randint(1, 3))):
        entry: dict = {"candidate_steps": sorted(rng.sample((0, 1, 2, 3, 4, 5, 7), rng.randint(1, 4)))}
        if rng.random() < 0.5:
            entry |= {"up_hysteresis": rng.choice((-0.3, 0.0, 0.2)), "down_hysteresis": rng.choice((-0.25, 0.0, 0.25))}
        if rng.random() < 0.3:
            entry["ceiling_coeff"] = rng.choice((0.5, 1.0, 1.5))
        table[str(size)] = entry
    return table


def closed(rng: Random, settings: Settings, shape: Shape) -> None:
    """Few rows and many requests: admission is closed most of the time."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.max_running_requests = rng.choice((1, 2, 3))
    settings.drafts = rng.choice((0, 0, 3))
    shape.count, shape.outputs, shape.gap = (6, 12), (1, 30), 5000


def gaps(rng: Random, settings: Settings, shape: Shape) -> None:
    """The server is idle at times: the ratio of new tokens starts again."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.drafts = rng.choice((0, 0, 3))
    settings.max_total_tokens = rng.choice((700, 1000, 1500, 3000))
    shape.outputs, shape.gap, shape.together, shape.turns = (1, 40), rng.choice((100000, 400000)), 0.4, 0.4


def limits(rng: Random, settings: Settings, shape: Shape) -> None:
    """The remaining limits: prompts of a batch, decode steps after prompts, the interval of receiving, the queue's length."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.prefill_max_requests = rng.choice((None, 1, 2, 3))
    settings.prefill_decode_interval = rng.choice((0, 1, 2, 5))
    settings.prefill_decode_interval_min_bs = rng.choice((0, 0, 2, 4))
    settings.scheduler_recv_interval = rng.choice((1, 2, 5, 10))
    settings.max_queued_requests = rng.choice((None, None, 1, 3))
    settings.drafts = rng.choice((0, 0, 2))
    settings.page_size = rng.choice((1, 1, 16))
    settings.enable_mixed_chunk = rng.random() < 0.3
    shape.count = (5, 12)


def refused(rng: Random, settings: Settings, shape: Shape) -> None:
    """Prompts about as long as KV, and outputs that are clipped to it."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.max_total_tokens = rng.randint(300, 600)
    settings.page_size = rng.choice((1, 1, 16))
    settings.drafts = rng.choice((0, 0, 3))
    settings.max_running_requests = 6
    shape.count, shape.prompt, shape.outputs, shape.fits = (2, 8), (200, settings.max_total_tokens + 20), (1, 400), False


def many(rng: Random, settings: Settings, shape: Shape) -> None:
    """A long queue: above 128 requests some orders give up, and prefixes of the first 128 are kept fresh."""
    loops(rng, settings)
    settings.max_total_tokens = rng.choice((1000, 2048, 4096))
    settings.max_running_requests = rng.choice((8, 16, 32, None))
    settings.schedule_policy = rng.choice(("fcfs", "lpm", "hrrn", "dfs-weight", "shortest-prefill-first"))
    settings.drafts = rng.choice((0, 0, 3))
    shape.count, shape.prompt, shape.outputs, shape.prefix = (130, 150), (5, 60), (1, 6), (8, 50)
    shape.shared, shape.together, shape.gap = 0.7, 0.9, 3000


def promised(rng: Random, settings: Settings, shape: Shape) -> None:
    """Far more outputs allowed than made: the 4096 tokens that admission counts at most."""
    plain(rng, settings, shape)
    loops(rng, settings)
    settings.max_total_tokens = rng.choice((5000, 8192, 16384, 30000))
    settings.drafts = rng.choice((0, 0, 3))
    shape.outputs, shape.eos, shape.last, shape.ignore_eos = (500, 9000), 1.0, 60, 0.0


def eviction(rng: Random, settings: Settings, shape: Shape) -> None:
    """Which cached tokens go: many turns and prefixes on little KV."""
    tight(rng, settings, shape)
    settings.disable_radix_cache, settings.schedule_conservativeness = False, rng.choice((0.3, 1.0))
    settings.radix_eviction_policy = rng.choice(("lru", "lru", "lru", "lfu", "slru", "priority"))
    settings.page_size = rng.choice((1, 1, 4, 16))
    settings.schedule_policy = rng.choice(("fcfs", "lpm", "dfs-weight"))
    settings.drafts = rng.choice((0, 0, 2))
    shape.count, shape.shared, shape.turns, shape.outputs, shape.gap = (10, 20), 0.6, 0.5, (1, 30), 20000


def anything(rng: Random, settings: Settings, shape: Shape) -> None:
    """Every setting at once."""
    (tight if rng.random() < 0.5 else plain)(rng, settings, shape)
    loops(rng, settings)
    settings.page_size = rng.choice((1, 1, 4, 16, 64))
    settings.max_total_tokens = max(settings.max_total_tokens, 8 * settings.page_size)
    settings.drafts = rng.choice((0, 1, 2, 3, 5))
    settings.enable_mixed_chunk = settings.chunked_prefill_size > 0 and rng.random() < 0.3
    settings.schedule_policy = rng.choice(("fcfs", "lpm", "lof", "dfs-weight", "hrrn"))
    settings.prefill_max_requests = rng.choice((None, None, None, 2))
    settings.disable_radix_cache = rng.random() < 0.15
    settings.prefill_decode_interval = rng.choice((0, 0, 0, 2))
    shape.ignore_eos, shape.turns = rng.choice((0.0, 0.3)), rng.choice((0.0, 0.3))
    if settings.schedule_policy in ("fcfs", "lof") and rng.random() < 0.4:
        settings.enable_priority_scheduling, shape.priorities = True, (0, 5, 20)
        settings.retraction_policy = rng.choice(("length", "priority"))


FAMILIES = {
    "plain": plain,
    "overlap": overlap,
    "unchunked": unchunked,
    "mixed": mixed,
    "pages": pages,
    "tight": tight,
    "tight-pages": tight_pages,
    "known": known,
    "priority": priority,
    "lpm": lpm,
    "orders": orders,
    "eagle": eagle,
    "eagle-overlap": eagle_overlap,
    "eagle-pages": eagle_pages,
    "eagle-mixed": eagle_mixed,
    "eagle-tight": eagle_tight,
    "adaptive": adaptive,
    "closed": closed,
    "gaps": gaps,
    "limits": limits,
    "refused": refused,
    "many": many,
    "promised": promised,
    "eviction": eviction,
    "anything": anything,
}
