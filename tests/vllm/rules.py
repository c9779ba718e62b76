"""Counts how often each rule of the scheduler applied, by wrapping vLLM's methods from outside."""

from collections import Counter
from functools import partial


class Rules:
    """Counters over all watched schedulers."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def watch(self, scheduler) -> None:
        """Wraps the methods of one scheduler."""
        Watch(self.count, scheduler)


class Watch:
    """Watches one scheduler's calls and counts the rules that they show.

    Within a call of `schedule` it computes the rest of both budgets from the allocations that it sees.
    """

    def __init__(self, count: Counter[str], scheduler) -> None:
        self.count = count
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        config = scheduler.vllm_config
        self.settings = config.scheduler_config
        spec = config.speculative_config
        self.slots = spec.max_num_new_slots_for_drafting if spec else 0
        self.interval = getattr(scheduler, "local_prefill_interval", 1)  # of no effect in 0.32
        self.ever_cached: set = set()
        self.in_schedule = False
        self.reset()
        wrap(scheduler, "schedule", self.schedule)
        wrap(scheduler, "_preempt_request", self.preempt)
        wrap(scheduler, "_reserve_prefill_lookahead", self.reserve_lookahead)
        wrap(self.manager, "allocate_slots", self.allocate)
        wrap(self.manager, "get_computed_blocks", self.lookup)
        wrap(self.pool, "_maybe_evict_cached_block", self.evict)
        wrap(self.pool, "_insert_block_hash", self.insert)

    def reset(self) -> None:
        """Prepares for a call of `schedule`."""
        self.tokens = self.scheduler.max_num_scheduled_tokens
        self.inputs = self.settings.max_num_batched_tokens
        self.eligible = sum(self.scheduler.get_request_counts())
        self.scheduled: dict[str, int] = {}
        self.current = self.looked_up = None
        self.preempted = False
        self.left = 0

    def schedule(self, method, *args):
        self.reset()
        chunks = [request for request in self.scheduler.running if request.is_prefill_chunk]
        self.in_schedule = True
        output = method(*args)
        self.in_schedule = False
        count, scheduler = self.count, self.scheduler
        if output.num_scheduled_tokens and getattr(output, "skip_drafts", False):
            count["drafts skipped"] += 1
        count["K lowered by the table"] += output.num_spec_tokens_to_schedule < scheduler.num_spec_tokens
        admitted = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        count["padded admission"] += len(admitted & output.scheduled_spec_decode_tokens.keys())
        room = self.tokens > 0 and self.inputs > self.slots
        if self.interval > 1 and room and not self.preempted and scheduler.num_prefill_lookahead <= 1:
            held = [request for request in chunks if request in scheduler.running and request.request_id not in output.num_scheduled_tokens]
            count["interval held a chunk"] += len(held)
        if room and scheduler.waiting and len(scheduler.running) >= scheduler.max_num_active_reqs < scheduler.max_num_running_reqs:
            count["admissions at the active limit"] += 1
        if self.looked_up is not None:
            self.stopped_at(self.looked_up)
        return output

    def stopped_at(self, request) -> None:
        """Counts a scan of waiting requests that ended after a prefix look-up and before an allocation."""
        limit = min(self.tokens, self.inputs - self.slots)
        if self.left == 1 and 1 + self.scheduler.num_spec_tokens > limit:
            self.count["padded admission refused"] += 1
        elif not self.settings.enable_chunked_prefill and self.left > limit:
            self.count["unchunked prompt refused"] += 1
        elif self.interval > 1:
            self.count["interval held an admission"] += 1

    def allocate(self, method, request, new_tokens, *args, **kwargs):
        admission = "full_sequence_must_fit" in kwargs
        self.current, self.looked_up = request, None
        if admission:
            refusal = self.admission_refusal(request, new_tokens, kwargs)
        held, known = len(request.spec_token_ids), request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
        blocks = method(request, new_tokens, *args, **kwargs)
        if blocks is None:
            if admission:
                self.count[refusal] += 1
            return None
        if not admission and held > max(0, new_tokens - known):
            self.drafts_cut(request, new_tokens)
        self.threshold(new_tokens)
        self.scheduled[request.request_id] = new_tokens
        self.tokens -= new_tokens
        self.inputs -= new_tokens + self.slots
        return blocks

    def drafts_cut(self, request, new_tokens: int) -> None:
        """Counts requests of which fewer drafts were scheduled than they held, by cause."""
        if new_tokens == self.scheduler.max_model_len - request.num_computed_tokens - 1:
            self.count["drafts cut by max_model_len"] += 1
        elif self.slots and new_tokens == self.inputs - self.slots:
            self.count["drafts cut by the input budget"] += 1
        elif new_tokens == self.tokens:
            self.count["drafts cut by the token budget"] += 1
        else:
            self.count["drafts cut by the threshold"] += 1

    def threshold(self, new_tokens: int) -> None:
        """Counts effects of `long_prefill_token_threshold` on an allocation."""
        threshold = self.settings.long_prefill_token_threshold
        if threshold == 0:
            return
        fair = self.settings.max_num_batched_tokens // self.eligible
        if new_tokens == threshold:
            self.count["threshold reached"] += 1
        elif new_tokens > threshold and self.eligible == 1:
            self.count["threshold lifted"] += 1
        elif new_tokens > threshold and new_tokens <= fair:
            self.count["threshold raised by the adaptive form"] += 1

    def admission_refusal(self, request, new_tokens: int, kwargs: dict) -> str:
        """The check that fails if an admission finds no room."""
        hits = kwargs["new_computed_blocks"].blocks
        computed = kwargs["num_new_computed_tokens"]
        longest = self.manager.max_model_len
        free = self.pool.get_num_free_blocks()

        def need(tokens: int) -> int:
            return self.manager.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=min(tokens, longest),
                new_computed_blocks=hits,
                num_encoder_tokens=0,
                total_computed_tokens=computed,
                num_local_computed_tokens=computed,
                num_tokens_main_model=min(tokens, longest),
            )

        chunk = need(computed + new_tokens + kwargs["num_lookahead_tokens"])
        whole = need(request.num_tokens) if kwargs["full_sequence_must_fit"] else 0
        if chunk > free:
            return "admission refused for want of blocks"
        return "whole sequence refused" if whole > free else "watermark refused"

    def preempt(self, method, victim, *args, **kwargs):
        self.preempted = True
        self.count["preemption"] += 1
        self.count["self-preemption"] += victim is self.current
        if victim.request_id in self.scheduled:
            self.count["priority victim already scheduled"] += 1
            tokens = self.scheduled.pop(victim.request_id)
            self.tokens += tokens
            self.inputs += tokens + self.slots
        return method(victim, *args, **kwargs)

    def reserve_lookahead(self, method, request, computed, new_tokens):
        left = method(request, computed, new_tokens)
        self.count["chunk shortened for MTP modules"] += left < new_tokens
        if left == 0:
            self.looked_up = None
        return left

    def lookup(self, method, request, *args):
        found = method(request, *args)
        hit = found[1]
        self.looked_up, self.left = request, request.num_tokens - hit
        at, most = hit // self.scheduler.block_size, (request.num_tokens - 1) // self.scheduler.block_size
        if hit:
            self.count["hit"] += 1
            self.count["partial hit"] += at < most
        if at < min(most, len(request.block_hashes)):
            key = request.block_hashes[at]
            if self.pool.get_cached_block(key, [0]):
                self.count["last block of a hit dropped"] += 1
            elif key in self.ever_cached:
                self.count["hit cut short by an eviction"] += 1
        return found

    def evict(self, method, block):
        evicted = method(block)
        self.count["eviction of a cached block"] += evicted
        return evicted

    def insert(self, method, key, block, *args, **kwargs):
        self.ever_cached.add(key[:-4])  # the hash without its group
        self.count["block cached twice"] += self.pool.cached_block_hash_to_block.get_one_block(key) is not None
        self.count["block cached when its tokens were verified"] += not self.in_schedule
        return method(key, block, *args, **kwargs)


def wrap(owner, name: str, around) -> None:
    """Replaces a method by `around(method, …)`."""
    setattr(owner, name, partial(around, getattr(owner, name)))
