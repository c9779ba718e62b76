"""An executor of vLLM's engine core that runs no model. A law file gives the time of a pass, for which the executor
sleeps, and the probability that a draft is right. Everything else is vLLM's: HTTP, tokenizer, engine core, scheduler,
metrics, step log.

    PYTHONPATH=tests/vllm/clockwork CLOCKWORK_LAW=law.toml CLOCKWORK_TRUTH=truth.csv \
        vllm serve PAIR/target --distributed-executor-backend executor.Clockwork ...

The device runs passes one after another, as a GPU's stream does. With runner V1 the host has the tokens of a step when
the drafts behind it are made. Synchronous scheduling asks for a step's tokens at once, asynchronous scheduling queues
the next step first; both wait for the same instants.
"""

import os
import time
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from law import read
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput

SPIN_S = 150e-6  # `time.sleep` wakes late by some tens of microseconds: the rest is waited for by looking at the clock
TOKEN = ord("a")  # ids of the made-up tokens: bytes from a to z


def wait_until(instant: float) -> None:
    """Returns at `instant` of the monotonic clock, or at once if it has passed."""
    left = instant - time.monotonic()
    if left > SPIN_S:
        time.sleep(left - SPIN_S)
    while time.monotonic() < instant:
        pass


class Later(Future):
    """A result that the device has at an instant. Asking for it waits until then."""

    def __init__(self, answer, ready: float, log=None) -> None:
        super().__init__()
        self.ready, self.log = ready, log
        self.set_result(answer)

    def result(self, timeout=None):
        wait_until(self.ready)
        if self.log is not None:
            self.log(time.monotonic())
            self.log = None
        return super().result()


class Known:
    """What the device knows of a request."""

    def __init__(self, prompt: list[int]) -> None:
        self.prompt, self.sampled = len(prompt), 0
        self.luck = bytes(prompt)
        self.goal: int | None = self.prompt  # tokens that are computed before it samples; `None` while it decodes
        self.drafts = 0  # drafts that it holds and that may be accepted


@dataclass
class Step:
    """A step whose target pass is over."""

    output: SchedulerOutput
    target_s: float
    # The prompt chunks of the step: computed tokens before the step, and new tokens.
    chunks: list[tuple[int, int]]
    # Of each request that decodes: how many of its verified drafts were right.
    accepted: dict[str, int]
    # Of each request that samples a token: how many drafts it had verified.
    sampling: dict[str, int]


class Clockwork(Executor):
    """One device with a law."""

    supports_pp = False

    def _init_executor(self) -> None:
        self.law = read(os.environ["CLOCKWORK_LAW"])
        self.free = 0.0  # the instant at which the device has nothing left to do
        self.passes = 0
        self.requests: dict[str, Known] = {}
        self.drafted: DraftTokenIds | None = None
        path = os.environ.get("CLOCKWORK_TRUTH")
        self.truth = open(path, "a", buffering=1) if path else None
        if self.truth and self.truth.tell() == 0:
            self.truth.write("start_s,target_s,draft_s,late_s,decodes,tokens,prompt_tokens,context,drafts\n")

    # What the engine core asks for when it starts.

    def get_kv_cache_specs(self):
        config = self.vllm_config.model_config
        self.spec = FullAttentionSpec(block_size=self.cache_config.block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
        assert config.max_model_len <= self.law.kv_tokens, "kv_tokens of the law has no room for one request"
        return [{"clockwork": self.spec}]

    def get_supported_kv_cache_layouts(self):
        return [["LBNHC", "LBHNC"]]

    def determine_available_memory(self):
        return [self.law.kv_tokens // self.spec.block_size * self.spec.page_size_bytes]

    def initialize_from_config(self, kv_cache_configs) -> None:
        pass

    def compile_or_warm_up_model(self) -> None:
        pass

    @property
    def supported_tasks(self):
        return ("generate",)

    def supports_draft_weight_updates(self) -> bool:
        return False

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False):
        """Answers control messages as a worker without a model would; they have no effect."""
        answer = [{} if method == "get_encoder_output_widths" else None]
        return Later(answer, 0.0) if non_block else answer

    def check_health(self) -> None:
        return

    def shutdown(self) -> None:
        if self.truth:
            self.truth.close()
            self.truth = None

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    # A step.

    def execute_model(self, output, non_block: bool = False):
        """Queues the target's pass. The tokens are asked for separately, so the answer is `None`."""
        for name in output.finished_req_ids:
            self.requests.pop(name, None)
        if output.total_num_scheduled_tokens == 0:
            answer = EMPTY_MODEL_RUNNER_OUTPUT
        else:
            self.output, answer = output, None
            host_s = self.law.host_s + self.law.host_request_s * len(output.num_scheduled_tokens)
            if host_s:
                wait_until(time.monotonic() + host_s)
        return Later(answer, 0.0) if non_block else answer

    def sample_tokens(self, grammar, non_block: bool = False):
        """The tokens of the queued pass and the drafts behind it."""
        output, law = self.output, self.law
        scheduled = output.num_scheduled_tokens
        context, sampling, chunks, accepted = 0, {}, [], {}
        for name, computed in self.computed(output):
            known, tokens = self.requests[name], scheduled[name]
            if known.goal is None:
                context += known.prompt + known.sampled - 1
                sampling[name] = len(output.scheduled_spec_decode_tokens.get(name, ()))
                accepted[name] = 0
                continue
            chunks.append((computed, tokens))
            if computed + tokens >= known.goal:
                known.goal, sampling[name] = None, 0
        tokens, prompt_tokens = output.total_num_scheduled_tokens, sum(new for _, new in chunks)
        names, answers = list(scheduled), []
        for name in names:
            known = self.requests[name]
            if name not in sampling:
                answers.append([])
                continue
            held = min(sampling[name], known.drafts)
            right = law.accepted(known.luck, known.sampled, held) if held else 0
            if name in accepted:
                accepted[name] = right
            answers.append([TOKEN + (known.sampled + i) % 26 for i in range(1 + right)])
            known.sampled += 1 + right
        self.passes += 1
        start = max(self.free, time.monotonic())
        target_s = law.target_s(tokens, context, prompt_tokens, len(names)) * law.jitter(self.passes)
        k = self.propose(Step(output, target_s, chunks, accepted, sampling), names)
        draft_s = self.draft_s(k, tokens, len(names), context) * law.jitter(-self.passes)
        self.free = start + target_s + draft_s
        answer = ModelRunnerOutput(req_ids=names, req_id_to_index={name: at for at, name in enumerate(names)}, sampled_token_ids=answers)
        line = f"{start:.6f},{target_s:.6f},{draft_s:.6f},%.6f,{len(accepted)},{tokens},{prompt_tokens},{context},{k}\n"
        later = Later(answer, self.free, lambda now, free=self.free, truth=self.truth: truth and truth.write(line % (now - free)))
        return later if non_block else later.result()

    def computed(self, output):
        """Name and computed tokens of each request of a step."""
        for new in output.scheduled_new_reqs:
            self.requests[new.req_id] = Known(new.prompt_token_ids)
            yield new.req_id, new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens):
            if name in cached.resumed_req_ids:
                # A request that lost its KV runs over its prompt and its own tokens again.
                known = self.requests[name]
                known.goal, known.drafts = known.prompt + known.sampled, 0
            yield name, computed

    def propose(self, step: Step, names: list[str]) -> int:
        """Gives every request of the step its drafts. Returns the number of draft passes."""
        if self.speculative_config is None:
            return 0
        k = step.output.num_spec_tokens_to_schedule
        self.hold(names, {name: k for name in step.sampling})
        return k

    def hold(self, names: list[str], drafts: dict[str, int]) -> None:
        """Notes how many drafts each request holds; a request that is not in `drafts` holds none."""
        for name in names:
            self.requests[name].drafts = drafts.get(name, 0)
        self.drafted = DraftTokenIds(names, [[TOKEN] * self.requests[name].drafts for name in names])

    def draft_s(self, k: int, tokens: int, requests: int, context: int) -> float:
        """Seconds of the draft passes behind a step. The first runs over the step's tokens, and for a draft model over one
        slot a request more. A prompt lookup takes no time on the device."""
        method = self.speculative_config.method if k else "ngram"
        if method == "ngram":
            return 0.0
        slots = requests if method == "draft_model" else 0
        return self.law.draft_s(tokens + slots, context) + (k - 1) * self.law.draft_s(requests, context)

    def take_draft_token_ids(self):
        return self.drafted
