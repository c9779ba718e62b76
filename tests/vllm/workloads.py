"""Draws random workloads: settings of an engine, and requests. Does not import vLLM."""

from dataclasses import dataclass, field
from random import Random

DRAFTERS = ("none", "ngram", "draft-model", "eagle", "mtp", "dflash", "dspark")
POOLS = ("roomy", "tight", "one")
POLICIES = ("fcfs", "priority")
LENGTHS = ("fixed", "request", "batch")


@dataclass
class Arrival:
    """One request: arrival (µs), numbers of tokens, and the group with which it shares a prefix."""

    time: int
    prompt: int
    outputs: int
    group: int = 0
    prefix: int = 0
    priority: int = 0


@dataclass
class Workload:
    """Settings and requests. `blocks` counts the null block; 0 means unset where noted."""

    seed: int
    drafter: str
    k: int
    lengths: str
    pool: str
    policy: str
    caching: bool
    block_size: int
    blocks: int = 0
    checked: bool = True
    max_num_seqs: int = 0
    max_num_active_seqs: int = 0  # 0: unset
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    long_prefill_token_threshold: int = 0
    adaptive: bool = False
    reserve: bool = True
    watermark: int = 0  # in thousandths
    interval: int = 1
    chunked: bool = True
    runner: int = 1
    asynchronous: bool = False  # `async_scheduling`; recorded with the engine core alone
    parallel: bool = False  # PARD and P-EAGLE
    modules: int = 1  # of MTP
    fill_in: bool = False  # of DSpark
    accept: int = 0  # in thousandths
    table: list[tuple[int, int, int]] = field(default_factory=list)
    requests: list[Arrival] = field(default_factory=list)


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def draw(seed: int) -> Workload:
    """The workload of a seed. 252 seeds in a row hold every combination of the even axes once."""
    rng = Random(seed)
    turn, drafter = divmod(seed, len(DRAFTERS))
    turn, caching = divmod(turn, 2)
    turn, pool = divmod(turn, len(POOLS))
    turn, policy = divmod(turn, len(POLICIES))
    turn, lengths = divmod(turn, len(LENGTHS))
    work = Workload(
        seed=seed,
        drafter=DRAFTERS[drafter],
        k=rng.choice((1, 2, 3, 3, 4, 5, 7)),
        lengths=LENGTHS[lengths],
        pool=POOLS[pool],
        policy=POLICIES[policy],
        caching=bool(caching),
        block_size=rng.choice((2, 4, 8, 8, 16, 16, 32)),
        accept=rng.choice((0, 300, 600, 800, 950, 1000)),
        runner=rng.choice((1, 2)),
    )
    draw_drafter(rng, work)
    draw_requests(rng, work)
    draw_engine(rng, work)
    draw_pool(rng, work)
    if rng.random() < 0.05:
        draw_mistake(rng, work)
    return work


def draw_rush(seed: int) -> Workload:
    """Many short prompts at once, long outputs, and a budget below what they ask for: the rules of the budgets."""
    rng = Random(seed)
    drafter = ("draft-model", "draft-model", "ngram", "eagle", "dflash")[seed % 5]
    work = Workload(seed, drafter, rng.randint(2, 6), rng.choice(("fixed", "request")), "roomy", POLICIES[seed // 5 % 2], bool(seed // 10 % 2), 8)
    work.accept, work.runner = rng.choice((300, 600, 800)), rng.choice((1, 2))
    work.parallel = drafter == "draft-model" and rng.random() < 0.4
    for index in range(rng.randint(18, 28)):
        prompt = 1 if index > 6 and rng.random() < 0.6 else rng.randint(2, 6)
        work.requests.append(Arrival(0, prompt, rng.randint(10, 50), priority=rng.randint(0, 3) if seed // 5 % 2 else 0))
    work.max_model_len, work.max_num_seqs = 64, 24
    work.max_num_batched_tokens = max(24, int(12 * (1 + work.k) * rng.uniform(0.5, 0.9)))
    draw_pool(rng, work)
    return work


def draw_core(seed: int) -> Workload:
    """The engine core's workload of a seed: the workload of `draw`, with runner V1 or V2, synchronous or asynchronous."""
    rng, work = Random(f"core {seed}"), draw(seed)
    setting = (seed + seed // 252) % 4  # 1008 seeds in a row contain every combination with the even axes once
    work.runner, work.asynchronous = 1 + setting // 2, bool(setting % 2)
    if rng.random() < 0.9:  # mostly a runner that can serve the drafter
        if work.drafter == "dspark" or work.drafter == "ngram" and work.asynchronous:
            work.runner = 2
        elif work.parallel:
            work.runner = 1
    return work


def draw_drafter(rng: Random, work: Workload) -> None:
    """Draws the kind of drafter and the table of lengths by batch size."""
    if work.drafter == "none":
        work.k, work.lengths = 0, "fixed"
        return
    if work.drafter == "eagle":
        work.drafter = rng.choice(("eagle", "eagle3"))
    if work.drafter in ("draft-model", "eagle3"):
        work.parallel = rng.random() < 0.3
    if work.drafter == "mtp" and rng.random() < 0.35:
        work.modules = rng.choice((2, 3))
        work.k = work.modules * rng.choice((1, 1, 2)) - rng.choice((0, 0, 0, 1))
    work.fill_in = work.drafter == "dspark" and rng.random() < 0.4
    if rng.random() < 0.9:  # mostly a runner that can serve the drafter
        work.runner = 2 if work.drafter == "dspark" else 1 if work.drafter == "eagle3" and work.parallel else work.runner
    if work.lengths == "batch":
        first = 1
        for _ in range(rng.randint(1, 4)):
            last = first + rng.randint(0, 5)
            work.table.append((first, last, rng.randint(0, work.k)))
            first = last + rng.choice((1, 1, 2, 4))


def draw_requests(rng: Random, work: Workload) -> None:
    """Draws 5 to 60 requests: lengths, prefixes, priorities, arrivals."""
    count = 5 + int(56 * rng.random() ** 3)
    longest = rng.choice((24, 48, 48, 96, 96, 200))
    outputs = rng.choice((4, 8, 16, 16, 32))
    groups = [work.block_size * rng.randint(1, 8) + rng.choice((0, 0, 1, rng.randint(0, 31))) for _ in range(rng.randint(1, 3))]
    shares = rng.choice((0.0, 0.5, 0.9)) if not work.caching else rng.choice((0.2, 0.7, 0.9, 1.0))
    gap = rng.choice((0, 300, 1000, 3000, 8000))
    burst = rng.choice((1, 1, 3, 8))
    time = 0
    for index in range(count):
        if index % burst == 0 and index > 0:
            time += int(rng.expovariate(1) * gap * burst)
        kind = rng.random()
        if kind < 0.12:
            prompt = 1
        elif kind < 0.3:
            prompt = work.block_size * rng.randint(1, max(1, longest // work.block_size))
        elif kind < 0.5:
            prompt = work.block_size * rng.randint(0, max(1, longest // work.block_size)) + 1
        else:
            prompt = max(1, int(longest ** rng.random()))
        request = Arrival(time, prompt, max(1, int((2 * outputs) * rng.random())))
        if rng.random() < shares:
            group = rng.randrange(len(groups))
            request.group, request.prefix = group + 1, groups[group]
            cut = rng.random()
            if cut < 0.25:
                request.prefix = rng.randint(1, groups[group])
            request.prompt = request.prefix + (0 if rng.random() < 0.35 else prompt)
        if work.policy == "priority":
            request.priority = rng.randint(0, 3)
        work.requests.append(request)


def draw_engine(rng: Random, work: Workload) -> None:
    """Draws limits and switches of the scheduler."""
    longest = max(request.prompt + request.outputs for request in work.requests)
    work.max_model_len = max(2, rng.choice((longest, longest, longest + 1, longest + rng.randint(0, 12), longest + 200, longest * 3 // 4, longest - rng.randint(1, 8))))
    work.max_num_seqs = rng.choice((1, 2, 4, 4, 6, 8, 8, 16, 32))
    if rng.random() < 0.25:
        work.max_num_active_seqs = rng.randint(1, work.max_num_seqs)
    work.chunked = rng.random() < 0.85
    budget = rng.choice((12, 16, 24, 32, 48, 64, 96, 128, 256))
    if work.k and rng.random() < 0.4:  # near the number that the decoding requests and their drafts need
        budget = int(work.max_num_seqs * (work.k + 1) * rng.choice((0.5, 0.8, 1.0, 1.2)))
    floor = max(work.max_num_seqs, work.k + 2, 1 if work.chunked else work.max_model_len)
    work.max_num_batched_tokens = max(budget, floor)
    if rng.random() < 0.45:
        low = 2 if rng.random() < 0.05 else work.k + 1
        work.long_prefill_token_threshold = min(rng.randint(low, low + 40), work.max_model_len)
        work.adaptive = rng.random() < 0.45
    work.reserve = rng.random() < 0.7
    if rng.random() < 0.45:
        work.watermark = rng.choice((10, 50, 100, 250, 400))
    if rng.random() < 0.4:
        work.interval = rng.randint(2, 6)


def draw_pool(rng: Random, work: Workload) -> None:
    """Draws the number of KV blocks: enough for all, for some, or for one request of the longest length."""
    lengths = sorted((min(r.prompt + r.outputs, work.max_model_len) for r in work.requests), reverse=True)
    one = ceil_div(work.max_model_len, work.block_size) + 1
    demand = sum(ceil_div(n + 2 * work.k + 2, work.block_size) for n in lengths) + 2
    if work.pool == "roomy":
        work.blocks = max(one, demand)
        return
    work.checked = rng.random() < 0.85
    if not work.checked:
        one = max(2, ceil_div(lengths[0] + rng.randint(-work.block_size, work.k + 1), work.block_size) + 1)
    if work.pool == "one":
        work.blocks = one
    else:
        active = sum(ceil_div(n, work.block_size) for n in lengths[: work.max_num_seqs])
        work.blocks = one + int(max(1, active - one) * rng.random() ** 2)


def draw_mistake(rng: Random, work: Workload) -> None:
    """Changes a setting, or a prompt, to one that vLLM refuses; a mistake that does not fit the workload changes nothing."""
    kind = rng.randrange(8)
    if kind == 0:
        work.max_num_batched_tokens = max(1, work.max_num_seqs - 1)
    elif kind == 1:
        work.max_num_active_seqs = work.max_num_seqs + 1
    elif kind == 2:
        work.long_prefill_token_threshold = work.max_model_len + 1
    elif kind == 3:
        work.chunked, work.max_num_batched_tokens = False, max(work.max_num_seqs, work.max_model_len - 1)
    elif kind == 4:
        work.checked, work.blocks = True, ceil_div(work.max_model_len, work.block_size)
    elif kind == 5 and work.k > 0:
        work.max_num_seqs = min(work.max_num_seqs, work.k)
        work.max_num_active_seqs = 0
        work.max_num_batched_tokens = work.k + rng.randint(0, 1)
    elif kind == 6 and work.table:
        work.table = rng.choice(([(2, 4, work.k)], [(1, 4, work.k), (3, 6, 1)], [(1, 4, 1), (6, 5, 1)], [(1, 4, -1)], [(0, 4, 1)]))
    elif kind == 7:
        work.requests[rng.randrange(len(work.requests))].prompt = work.max_model_len + rng.randint(0, 2)
