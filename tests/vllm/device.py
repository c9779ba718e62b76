"""A clock, and a stand-in for vLLM's executor: what a model runner returns, and when.

The device runs passes one after another. When its answers are ready, which passes the drafter makes and how many drafts
they leave follows the two model runners as the README states them.
"""

from concurrent.futures import Future

from chance import accepted, proposed
from engine import VERSION, output_tokens
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput

from observed import STEP, TOKEN
from workloads import Workload

PASS, PASS_TOKEN = 130, 3  # µs of a draft pass, and of each token in it
LOOKUP = 60  # µs of the n-gram look-up on the host
CONTEXT_ALONE = not VERSION.startswith("0.32")  # DFlash on runner V2 makes no query pass for 0 drafts


class Clock:
    """The engine's time in µs. It also replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 0

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)

    def monotonic(self) -> float:
        return self.now / 1e6

    time = monotonic


class Later(Future):
    """A result that the device has at a given time. Asking for it waits until that time."""

    def __init__(self, clock: Clock, ready: int, answer) -> None:
        super().__init__()
        self.clock, self.ready = clock, ready
        self.set_result(answer)

    def result(self, timeout=None):
        self.clock.now = max(self.clock.now, self.ready)
        return super().result()


class Device:
    """The executor of the engine core: one model runner, version 1 or 2."""

    def __init__(self, work: Workload, scheduler, clock: Clock) -> None:
        self.work, self.scheduler, self.clock = work, scheduler, clock
        spec = scheduler.vllm_config.speculative_config
        self.modules = spec is not None and spec.use_multi_module_mtp()
        drafter = spec.draft_model_config if spec else None
        self.longest = drafter.max_model_len if drafter else scheduler.max_model_len
        self.free = 0  # when the device has nothing left to do
        self.sampled: dict[str, int] = {}  # tokens put out so far, those of steps in flight too
        self.real: dict[str, int] = {}  # drafts that a request holds and that may be accepted
        self.drafts: DraftTokenIds | None = None

    def execute_model(self, output, non_block: bool = False):
        """Runs the target's pass. Returns `None`, since the tokens are asked for separately."""
        tokens = output.total_num_scheduled_tokens
        if tokens == 0:
            return Later(self.clock, 0, EMPTY_MODEL_RUNNER_OUTPUT)
        self.output = output
        self.free = max(self.free, self.clock.now) + STEP + TOKEN * tokens
        return Later(self.clock, 0, None)

    def sample_tokens(self, grammar, non_block: bool = False):
        """Samples the tokens of the pass and makes the drafts that follow it."""
        output, work = self.output, self.work
        names = list(output.num_scheduled_tokens)
        tokens = self.sample(output, names)
        ready = self.free
        if work.k:
            fits = work.runner == 2 or self.fits(names)
            drafts = 0 if getattr(output, "skip_drafts", False) else output.num_spec_tokens_to_schedule
            self.propose(names, drafts, fits)
            ready = self.draft(output.total_num_scheduled_tokens, len(names), drafts, fits)
        answer = ModelRunnerOutput(req_ids=names, req_id_to_index={name: at for at, name in enumerate(names)}, sampled_token_ids=tokens)
        later = Later(self.clock, ready, answer)
        return later if non_block else later.result()

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """The drafts for the scheduler, which does not ask for them under asynchronous scheduling."""
        return self.drafts

    def sample(self, output, names: list[str]) -> list[list[int]]:
        """For each request past its prompt: the accepted drafts and one more token."""
        work, tokens = self.work, []
        admitted = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        for name in names:
            if name in admitted:
                self.real[name] = 0
            if self.scheduler.requests[name].is_prefill_chunk:
                tokens.append([])
                continue
            index, position = int(name), self.sampled.get(name, 0)
            scheduled = len(output.scheduled_spec_decode_tokens.get(name, ()))
            count = accepted(work.seed, work.accept, index, position, min(scheduled, self.real.get(name, 0))) + 1
            tokens.append(output_tokens(index, position, count))
            self.sampled[name] = position + count
        return tokens

    def fits(self, names: list[str]) -> bool:
        """Runner V1 makes no drafts if any request is too close to the end of the drafter's context."""
        longest = max(self.scheduler.requests[name].num_computed_tokens for name in names)
        return longest + self.work.k + (self.work.drafter == "dflash") <= self.longest

    def propose(self, names: list[str], k: int, fits: bool) -> None:
        """Stores each request's real number of drafts, and the number that the scheduler sees."""
        work, lists = self.work, []
        if work.runner == 1 and work.asynchronous:
            self.real = {}  # kept for the batch alone
        for name in names:
            chunk = self.scheduler.requests[name].is_prefill_chunk
            count = proposed(work.seed, work.k, int(name), self.sampled[name]) if work.lengths == "request" and not chunk else k
            self.real[name] = min(count, k) if fits and not chunk else 0
            if not fits:
                lists.append([0] * work.k)
            else:
                lists.append([-1] * k if work.runner == 2 else [7] * self.real[name])
        self.drafts = DraftTokenIds(names, lists)

    def draft(self, tokens: int, requests: int, k: int, fits: bool) -> int:
        """Runs the drafter's passes. Returns when the host has the sampled tokens."""
        sampled = self.free
        if self.work.drafter == "ngram" and self.work.runner == 1:
            return max(sampled, self.clock.now) + LOOKUP if fits else sampled
        if fits:
            self.free += sum(PASS + PASS_TOKEN * size for size in self.passes(tokens, requests, k))
        return sampled if self.work.runner == 2 else self.free

    def passes(self, tokens: int, requests: int, k: int) -> list[int]:
        """Number of tokens of each of the drafter's passes after a step."""
        work, block = self.work, self.work.k
        if work.drafter == "ngram":
            return [0]
        if work.drafter in ("dflash", "dspark"):
            if work.runner == 2:
                if k == 0 and CONTEXT_ALONE:
                    return [tokens]
                k = block
            return [tokens, requests * (k if work.drafter == "dspark" and not work.fill_in else k + 1)]
        if self.modules and work.runner == 2:
            return [tokens] * block
        if work.parallel:
            return [tokens + requests * (block if work.drafter == "draft-model" else block - 1)]
        if work.drafter == "draft-model":
            k = block if work.runner == 2 else k
            return [tokens + requests] + [requests] * (k - 1)
        return [tokens] + [requests] * (k - 1)
