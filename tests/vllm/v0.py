"""Records vLLM 0.6.3's scheduler, the engine of the papers ("v0"), in the same format.

    python v0.py TREE vllm-0.6.3.txt 100

TREE is the unpacked source of 0.6.3. Its scheduler, its block manager (v2), its sequences, its output processor and its
stop checker run as released; empty modules replace models, tokenizers and tracing, which they import without need.
"""

import argparse
import importlib.abc
import importlib.machinery
import logging
import sys
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import lines
from chance import accepted, mix
from observed import IDLE_STEPS, STEP, TOKEN, Entry, Run, Step
from workloads import Workload, ceil_div, draw_requests

UNNEEDED = ("vllm.model_executor", "vllm.transformers_utils", "vllm.tracing", "vllm._custom_ops", "vllm.triton_utils", "vllm.multimodal", "vllm.worker", "vllm.spec_decode.proposer_worker_base", "vllm.attention")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides empty modules, in which every name exists, for imports that the scheduler does not use."""

    def find_spec(self, name, path=None, target=None):
        if any(name == part or name.startswith(part + ".") for part in UNNEEDED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def load(tree: Path) -> SimpleNamespace:
    """vLLM's classes, without running the package's own `__init__`."""
    logging.disable(logging.CRITICAL)
    sys.meta_path.insert(0, StandIns())
    package = ModuleType("vllm")
    package.__path__ = [str(tree / "vllm")]
    sys.modules["vllm"] = package
    from vllm.config import CacheConfig, SchedulerConfig
    from vllm.core.scheduler import Scheduler
    from vllm.engine.output_processor.multi_step import MultiStepOutputProcessor
    from vllm.engine.output_processor.stop_checker import StopChecker
    from vllm.sampling_params import SamplingParams
    from vllm.sequence import Logprob, Sequence, SequenceGroup, SequenceOutput
    from vllm.spec_decode.top1_proposer import Top1Proposer

    return SimpleNamespace(**locals())


def draw(seed: int) -> Workload:
    """A workload for a prefill-first engine with whole prompts; there is no null block."""
    rng = Random(seed)
    k = (0, 0, 1, 3, 5)[seed % 5]
    policy = ("fcfs", "fcfs", "priority")[seed // 5 % 3]
    pool = ("roomy", "tight", "one")[seed // 15 % 3]
    work = Workload(seed, "draft-model" if k else "none", k, "fixed", pool, policy, False, rng.choice((2, 4, 8, 16)), chunked=False)
    work.accept = rng.choice((0, 300, 600, 800, 950))
    draw_requests(rng, work)
    for request in work.requests:
        request.group = request.prefix = 0
    longest = max(r.prompt + r.outputs for r in work.requests)
    work.max_model_len = max(2, rng.choice((longest, longest + 20, longest * 3 // 4)))
    work.max_num_seqs = rng.choice((1, 2, 4, 8, 16, 32))
    work.max_num_batched_tokens = max(work.max_num_seqs, work.max_model_len + rng.choice((0, 0, 20, 100)))
    if rng.random() < 0.04:
        work.max_num_batched_tokens = work.max_model_len - 1
    one = ceil_div(longest + work.k, work.block_size)
    many = sum(ceil_div(r.prompt + r.outputs + 2 * work.k, work.block_size) for r in work.requests)
    work.blocks = {"roomy": 2 * many, "tight": one + int(many * 0.4 * rng.random()), "one": max(1, one - rng.choice((0, 0, 0, 1, 2)))}[pool]
    return work


class Engine:
    """The engine around the scheduler: arrivals, a model that accepts by `chance`, vLLM's handling of outputs."""

    def __init__(self, vllm: SimpleNamespace, work: Workload) -> None:
        self.vllm, self.work = vllm, work
        settings = vllm.SchedulerConfig(
            max_num_batched_tokens=work.max_num_batched_tokens,
            max_num_seqs=work.max_num_seqs,
            max_model_len=work.max_model_len,
            num_lookahead_slots=work.k,
            enable_chunked_prefill=False,
            policy=work.policy,
        )
        cache = vllm.CacheConfig(work.block_size, gpu_memory_utilization=0.9, swap_space=0, cache_dtype="auto", enable_prefix_caching=False)
        cache.num_gpu_blocks, cache.num_cpu_blocks = work.blocks, 0
        self.scheduler = vllm.Scheduler(settings, cache, None)
        tokens = SimpleNamespace(max_model_len=work.max_model_len)
        stop = vllm.StopChecker(tokens.max_model_len, lambda sequence: None)
        self.outputs = vllm.MultiStepOutputProcessor(MagicMock(), [self.scheduler], None, lambda sequence: None, stop)
        self.groups: dict[str, object] = {}
        self.arrived, self.refused, self.preempted, self.known, self.blocks = 0, [], [], {}, 0
        preempt = self.scheduler._preempt

        def preempt_and_note(group, *args, **kwargs):
            self.preempted.append(int(group.request_id))
            self.known.pop(group.request_id, None)
            return preempt(group, *args, **kwargs)

        self.scheduler._preempt = preempt_and_note

    def arrive(self, now: int) -> None:
        """Hands the requests that have arrived by `now` to the scheduler."""
        while self.arrived < len(self.work.requests) and self.work.requests[self.arrived].time <= now:
            index, request = self.arrived, self.work.requests[self.arrived]
            self.arrived += 1
            prompt = {"prompt": None, "prompt_token_ids": list(range(request.prompt))}
            sequence = self.vllm.Sequence(index, prompt, self.work.block_size, None)
            parameters = self.vllm.SamplingParams(ignore_eos=True, max_tokens=request.outputs, detokenize=False)
            group = self.vllm.SequenceGroup(str(index), [sequence], request.time / 1e6, sampling_params=parameters, priority=request.priority)
            self.groups[str(index)] = group
            self.scheduler.add_seq_group(group)

    def step(self, now: int) -> Step:
        """Runs a step: schedule, model, tokens."""
        self.preempted = []
        metadata, output, _ = self.scheduler.schedule()
        self.refused += [int(group.request_id) for group in output.ignored_seq_groups]
        entries = []
        for place, scheduled in enumerate(output.scheduled_seq_groups):
            index, tokens = int(scheduled.seq_group.request_id), scheduled.token_chunk_size
            drafts = 0 if place < output.num_prefill_groups else self.drafts(metadata[place])
            cached = 0 if place < output.num_prefill_groups else None
            entries.append(Entry(index, tokens + drafts, drafts, cached))
            self.note_blocks(index, scheduled.seq_group)
        end = now + STEP + TOKEN * sum(entry.tokens for entry in entries)
        free = self.scheduler.block_manager.get_num_free_gpu_blocks()
        step = Step(now, end, entries, self.preempted, [], free, self.work.k, False, self.blocks)
        groups = [(scheduled.seq_group, scheduled.token_chunk_size) for scheduled in output.scheduled_seq_groups]
        for entry, (group, chunk) in zip(entries, groups):
            self.sample(entry, group, chunk)
            if group.is_finished():
                step.finished.append(entry.request)
                self.known.pop(group.request_id)
        if step.finished:
            self.scheduler.free_finished_seq_groups()
        return step

    def drafts(self, metadata) -> int:
        """Number of drafts of a decoding request: `k`, or none if they would exceed `max_model_len`."""
        if self.work.k == 0:
            return 0
        proposer = SimpleNamespace(max_proposal_len=self.work.max_model_len)
        return self.vllm.Top1Proposer._split_by_proposal_len(proposer, [metadata], self.work.k)[0][0]

    def sample(self, entry: Entry, group, chunk: int) -> None:
        """Applies the model's tokens for one request."""
        group.update_num_computed_tokens(chunk)
        (sequence,) = group.get_seqs()
        position = sequence.get_output_len()
        count = 1 + accepted(self.work.seed, self.work.accept, entry.request, position, entry.drafts)
        sample = self.vllm.SequenceOutput(sequence.seq_id, 7, {7: self.vllm.Logprob(0.0)})
        self.outputs.process_outputs(group, [SimpleNamespace(samples=[sample]) for _ in range(count)])

    def note_blocks(self, index: int, group) -> None:
        """Adds the blocks that a request's table has gained to the running hash."""
        table = self.scheduler.block_manager.get_block_table(group.get_seqs()[0])
        for block in table[self.known.get(group.request_id, 0) :]:
            self.blocks = mix(self.blocks ^ (index << 32 | block))
        self.known[group.request_id] = len(table)


def run(vllm: SimpleNamespace, work: Workload) -> Run:
    """Runs a workload to its end, or until vLLM refuses it or makes no progress."""
    result = Run(work)
    try:
        engine = Engine(vllm, work)
    except ValueError:
        result.error = "budget-below-length"
        return result
    result.refused = engine.refused
    result.derived = {"lookahead": work.k, "watermark_blocks": engine.scheduler.block_manager.watermark_blocks}
    now = idle = 0
    while idle < IDLE_STEPS:
        came = engine.arrived
        engine.arrive(now)
        more = engine.arrived < len(work.requests)
        if engine.scheduler.has_unfinished_seqs():
            refused = len(engine.refused)
            step = engine.step(now)
            if step.entries or step.preempted:
                result.steps.append(step)
                now = step.end
                idle = 0 if step.entries or engine.arrived > came else idle + 1
                continue
            if len(engine.refused) > refused:
                continue
            if not more:
                result.error = "stuck"
                return result
        elif not more:
            return result
        now = work.requests[engine.arrived].time
    result.error = "endless"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    vllm = load(options.tree)
    with options.file.open("w") as file:
        file.write("foretoken-vllm 1 0.6.3\n")
        for seed in range(options.count):
            file.write(lines.encode(run(vllm, draw(seed))))


if __name__ == "__main__":
    main()
