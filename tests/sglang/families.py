"""The families of random workloads: each draws a server's settings and the shape of its requests. Does not import SGLang."""

from random import Random

from workloads import Settings, Shape, Workload, draw_requests


def draw(family: str, seed: int) -> Workload:
    """The workload of a seed in a family."""
    rng = Random(f"{family} {seed}")
    settings, shape = Settings(), Shape()
    FAMILIES[family](rng, settings, shape)
    work = Workload(family, seed, rng.choice((0, 300, 600, 800, 950, 1000)), settings)
    draw_requests(rng, work, shape)
    return work


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
    entries = [entry for entry in settings.adaptive.values() if isinstance(entry, dict)]
    steps = {step for entry in entries for step in entry["candidate_steps"] if step}
    settings.drafts = rng.choice(sorted(steps) or [3])
    if not steps:  # SGLang wants the first length among the candidates
        entries[0]["candidate_steps"].append(3)
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


def evictions(rng: Random, settings: Settings, shape: Shape) -> None:
    """The rarer rules of what goes."""
    eviction(rng, settings, shape)
    settings.radix_eviction_policy = rng.choice(("tlru", "tlru", "mru", "fifo", "filo"))
    if settings.radix_eviction_policy == "tlru":
        estimate = rng.choice((0, 0, 5, 20))
        settings.radix_eviction_policy_config = {"threshold": estimate + rng.randint(1, 60), "next_prompt_estimate": estimate}


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
    "evictions": evictions,
    "anything": anything,
}
