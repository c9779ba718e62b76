"""Records vLLM's adaptive verification on random histories: its online acceptance estimator, its budget, and the
distribution of the budget over requests.

    TRITON_INTERPRET=1 python vllm_adaptive.py vllm-adaptive.jsonl 320

The kernels are interpreted. vLLM switches Triton off on a machine without a GPU, so this script gives the real package
to vLLM's modules.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

# numpy's vector code is off in the last bits of single-precision exponentials and logarithms, and refits amplify that.
# Without vector code numpy calls the C library, as other programs do.
os.environ["NPY_DISABLE_CPU_FEATURES"] = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3"

import numpy as np  # noqa: E402
import torch
import triton
import triton.language
import vllm.triton_utils
from chance import draw

vllm.triton_utils.triton, vllm.triton_utils.tl = triton, triton.language

from vllm.v1.worker.gpu.spec_decode import acceptance_estimator, adaptive_verification  # noqa: E402

LEVELS, VOCABULARY = 64, 48
TEMPERATURES = [0.0, 0.7, 1.0, 1.3]
PROMPT = 50


class Stream:
    """A stream or an event of a device on which all work is always done."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, _):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass


torch.cuda.Stream = torch.cuda.Event = Stream
torch.cuda.current_stream = Stream
adaptive_verification.stream = lambda *_: nullcontext()
adaptive_verification.gpu_sync_allowed = nullcontext
adaptive_verification.get_tp_group = lambda: SimpleNamespace(broadcast_object=lambda value, src: value)
# Replaces torch.compile of the same function: equal results without a compiler.
adaptive_verification._assign_draft_token_budget_compiled = adaptive_verification._assign_draft_token_budget


def palette() -> torch.Tensor:
    """Logits of LEVELS tokens, from undecided to sure."""
    rows = np.array([[draw(1, 1, level, word) % 4096 / 1024 for word in range(VOCABULARY)] for level in range(LEVELS)])
    rows[:, 7] = 4 + np.arange(LEVELS) * 14 / LEVELS
    return torch.tensor(rows, dtype=torch.float32)


def sums(logits: torch.Tensor) -> list[list[float]]:
    """Σ exp(logit − greatest) of each level at each temperature, as the kernel makes it: one over the greatest probability."""
    made = torch.empty(len(TEMPERATURES), LEVELS, 2, 1)
    for number, temperature in enumerate(TEMPERATURES):
        acceptance_estimator._local_max_sumexp_kernel[(LEVELS, 1)](
            made[number, :, 0], 2, made[number, :, 1], 2, logits, logits.stride(0),
            torch.zeros(LEVELS, dtype=torch.int32), 1, torch.tensor([temperature]), LEVELS, VOCABULARY, BLOCK_SIZE=4096,
        )  # fmt: skip
    return made[:, :, 1, 0].tolist()


def short(values) -> list[float]:
    """Single-precision numbers with no more digits than tell them apart."""
    return [float(str(np.float32(value))) for value in values]


def level(seed: int, slot: int, position: int, at: int) -> int:
    """The level of the draft that a slot makes at the end of step `at`."""
    return draw(seed, 11, 64 * slot + position, at) % LEVELS


class History:
    """vLLM's manager and estimator over slots 0 to n - 1; slot n is a prompt too long to end."""

    def __init__(self, seed: int):
        def choose(part, options):
            options = list(options)
            return options[draw(seed, 9, part, 0) % len(options)]

        # One history in a hundred has vLLM's interval and enough steps for it; one in twelve is wide. Interpreting is
        # slow.
        self.steps, self.interval = (110, 100) if seed % 100 == 0 else (16, choose(0, [6, 8]))
        self.seed, self.k, self.slots = seed, choose(1, [1, 2, 3]), choose(2, [2, 3])
        if seed % 12 == 5:
            self.k, self.slots = choose(1, [4, 5]), choose(2, [5, 6])
        self.captured, self.most_tokens, self.most_logits = choose(3, [4, 8, 16]), 96, choose(4, [4096, 4096, 4096, 14])
        sizes = sorted({1 + choose(10 + i, range(60)) for i in range(6)} | {self.captured})
        dear, base = choose(5, [0.02, 0.2, 1.0]), choose(6, [0.1, 1.0, 6.0])
        self.verify = [(size, 2 + choose(30 + i, range(40)) / 9 + size * dear) for i, size in enumerate(sizes)]
        self.draft = [(size, base + choose(50 + i, range(20)) / 50) for i, size in enumerate([1, 2, 4, 8][: choose(7, [1, 2, 3, 4])])]
        self.temperatures = [draw(seed, 10, slot, 0) % len(TEMPERATURES) for slot in range(self.slots + 1)]
        device, requests = torch.device("cpu"), self.slots + 1
        self.states = SimpleNamespace(
            num_speculative_steps=self.k,
            device=device,
            max_num_reqs=requests,
            max_num_batched_tokens=self.most_tokens,
            req_id_to_index={f"{slot}": slot for slot in range(requests)},
            num_computed_tokens_np=np.zeros(requests, dtype=np.int32),
            prefill_len=SimpleNamespace(np=np.full(requests, PROMPT, dtype=np.int32)),
        )
        self.states.prefill_len.np[self.slots] = 10**6
        self.manager = adaptive_verification.AdaptiveVerificationManager(
            self.states, torch.zeros(requests + 1, dtype=torch.int32), num_bonus_tokens=1, max_total_logits=self.most_logits
        )
        self.manager._cudagraph_limit = self.captured
        self.manager.set_cost_curves(self.draft, self.verify)
        self.manager.add_request(self.slots)
        self.estimator = acceptance_estimator.OnlineAcceptanceEstimator(requests, self.k, device)
        self.estimator.REFIT_INTERVAL = self.interval
        self.temperature = torch.tensor([TEMPERATURES[number] for number in self.temperatures])
        self.confidence = torch.empty(requests, self.k)
        # Tokens that a slot's request has still to produce; they cut its last drafts. 0 is an empty slot.
        self.left = [0] * self.slots
        # The step in which each slot's drafts were made.
        self.drafted = [0] * requests

    def join(self, at: int) -> list[int]:
        """New requests, whose whole prompts run in this step."""
        batch = [slot for slot in range(self.slots) if self.left[slot] == 0 and (at == 0 or draw(self.seed, 4, slot, at) % 3)]
        for slot in batch:
            self.manager.add_request(slot)
            self.states.num_computed_tokens_np[slot] = PROMPT
            self.left[slot] = 8 + draw(self.seed, 5, slot, at) % 60
        return batch

    def verify_step(self, batch: list[int], chunk: int) -> list[tuple[int, int, int, int]]:
        """(slot, drafts, admitted, accepted) of each, beside a chunk of `chunk` tokens."""
        drafts = {f"{slot}": [0] * min(self.k, self.left[slot] - 1) for slot in batch}
        scheduled = {slot: 1 + len(tokens) for slot, tokens in drafts.items()}
        if chunk:
            scheduled[f"{self.slots}"] = chunk
        if any(drafts.values()):
            total = self.manager.get_num_tokens(scheduled, drafts)
            rows = torch.tensor([int(slot) for slot in scheduled], dtype=torch.int32)
            logits_at, _, budget, _ = self.manager.reallocate_drafts(list(scheduled), rows)
            admitted = (logits_at.diff() - 1).tolist()
            assert sum(admitted) == budget == total - len(batch) - chunk
        else:
            admitted = [0] * len(scheduled)
        made = []
        for slot, count in zip(batch, admitted):
            levels = (level(self.seed, slot, j, self.drafted[slot]) for j in range(count))
            held = (draw(self.seed, 1, 64 * slot + j, self.at) % 1000 < 150 + 13 * of for j, of in enumerate(levels))
            made.append((slot, len(drafts[f"{slot}"]), count, next((j for j, hold in enumerate(held) if not hold), count)))
        return made

    def finish(self, batch: list[int], sampled: list[int], rejected: list[int]) -> bool:
        """Grades the drafts of the step, and makes the drafts of the next. Was there a refit?"""
        rows, refits = torch.tensor(batch, dtype=torch.int32), self.estimator._refits
        self.estimator.step(rows, torch.tensor(sampled, dtype=torch.int32), torch.tensor(rejected, dtype=torch.int32))
        for slot, count in zip(batch, sampled):
            if slot < self.slots:
                self.left[slot] = max(self.left[slot] - count, 0)
            self.drafted[slot] = self.at
        tokens = [level(self.seed, slot, j, self.at) for slot in batch for j in range(self.k)]
        if self.seed % 4:
            # All positions in one pass, as block drafters do.
            steps = torch.arange(self.k).repeat(len(batch))
            self.estimator.predict(LOGITS[tokens], rows.repeat_interleave(self.k), steps, self.confidence, self.temperature)
        else:
            for j in range(self.k):
                step = torch.tensor(j)
                self.estimator.predict(LOGITS[tokens[j :: self.k]], rows, step, self.confidence, self.temperature)
        self.manager.record_confidences(self.confidence, SimpleNamespace(num_reqs=len(batch), idx_mapping=rows.long()))
        return self.estimator._refits > refits

    def run(self) -> dict:
        steps, fits, new = [], [], []
        for self.at in range(self.steps):
            # vLLM predicts when it drafts; the policy under test predicts when it verifies. Both agree if every request
            # takes part in the step of a refit.
            due = self.estimator._steps_since_refit + 1 == self.interval
            live = [slot for slot in range(self.slots) if self.left[slot] > 0]
            # The policy also cannot see that a request waits between its prompt and its first decode step.
            if not live or (draw(self.seed, 3, 0, self.at) % 9 == 0 and not due and not new):
                batch = new = self.join(self.at)
                chunk, made = 0, []
                steps.append("+" + "".join(map(str, batch)))
            else:
                batch = [slot for slot in live if due or slot in new or draw(self.seed, 6, slot, self.at) % 6]
                new = []
                chunk = (draw(self.seed, 8, 0, self.at) % 20 + 1) * (draw(self.seed, 7, 0, self.at) % 5 == 0)
                made = self.verify_step(batch, chunk) if batch else []
                steps.append("".join(f"{a}{b}{c}{d}" for a, b, c, d in made) + (f"|{chunk}" if chunk else ""))
            if not batch:
                steps.pop()
                continue
            sampled = [1 + one[3] for one in made] if made else [1] * len(batch)
            rejected = [one[2] - one[3] for one in made] if made else [0] * len(batch)
            if chunk:
                batch, sampled, rejected = [*batch, self.slots], [*sampled, 0], [*rejected, 0]
            if self.finish(batch, sampled, rejected):
                fits.append(short([self.estimator.slope.item(), *self.estimator.intercepts.tolist()]))
            steps[-1] = f"{self.at}:{steps[-1]}"
        draft, verify = self.manager.cost_tables
        return {
            "seed": self.seed, "k": self.k, "interval": self.interval, "captured": self.captured, "logits": self.most_logits,
            "draft": self.draft, "verify": self.verify, "draft_ms": draft[::2].tolist(), "verify_ms": verify[::7].tolist(),
            "temperatures": self.temperatures, "steps": " ".join(steps), "fits": fits,
            "last": short(self.confidence[0].tolist()),
        }


LOGITS = palette()


def main() -> None:
    out, count = Path(sys.argv[1]), int(sys.argv[2])
    with out.open("w") as file:
        file.write(json.dumps({"sums": [short(row) for row in sums(LOGITS)]}, separators=(",", ":")) + "\n")
        for seed in range(count):
            file.write(json.dumps(History(seed).run(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
