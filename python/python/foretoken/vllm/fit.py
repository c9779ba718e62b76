"""Where a policy can sit: which vLLM, which drafters, which draft lengths."""

from __future__ import annotations

import re
from typing import Any

# The releases whose schedulers were run with a policy in the seat, step by step.
KNOWN = re.compile(r"0\.(32|33)\.")
# Drafters of runner V1 that make as many drafts as a step asks for. Runner V2 cuts the drafts of every drafter.
OF_V1 = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")
# Drafters of runner V2 that make all passes whatever is asked.
WHOLE_ON_V2 = ("draft_model", "dflash", "dspark")


def closed(version: str, config: Any) -> str | None:
    """Why the seat stays empty: nothing is asked, logged or measured."""
    parallel = config.parallel_config
    if not KNOWN.match(version):
        return f"vLLM {version} is not known, only 0.32 and 0.33 are"
    if parallel.data_parallel_size > 1:
        return "with data parallelism all ranks must have one draft length"
    if parallel.pipeline_parallel_size > 1:
        return "pipeline parallelism is not known"
    return None


def unfit(config: Any, runner_v2: bool) -> str | None:
    """Why no policy is asked. Steps are logged all the same."""
    spec = config.speculative_config
    if spec is None or not spec.num_speculative_tokens:
        return "this server does not speculate"
    if getattr(config, "diffusion_config", None) is not None:
        return "diffusion models have no draft lengths"
    if not runner_v2 and spec.method not in OF_V1:
        return f"the drafter {spec.method!r} makes all its drafts whatever a step asks for"
    return None


def lengths(config: Any, act: bool) -> tuple[int, ...]:
    """The draft lengths that a step may get: all, or the lengths in the table where full graphs are captured."""
    spec = config.speculative_config
    most = spec.num_speculative_tokens if spec is not None else 0
    graphs = config.compilation_config.cudagraph_mode
    if not act or graphs is None or not graphs.has_full_cudagraphs():
        return tuple(range(most + 1))
    table = spec.num_speculative_tokens_per_batch_size
    if table is None:
        return (most,)
    return tuple(sorted(set(dense(table, config.scheduler_config.max_num_seqs, most)[1:])))


def dense(table: Any, max_num_seqs: int, most: int) -> list[int]:
    """vLLM's own list from number of requests to draft length."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup  # type: ignore[import-not-found]

    found: list[int] = build_dynamic_sd_schedule_lookup(table, max_num_seqs, most)
    return found


def passes(config: Any, runner_v2: bool, length: int) -> int:
    """Draft passes that a length adds; 0 for a drafter that makes all of them anyway."""
    spec = config.speculative_config
    if length == 0 or runner_v2 and (spec.method in WHOLE_ON_V2 or spec.use_multi_module_mtp()):
        return 0
    return 1 if parallel(config) else length


def parallel(config: Any) -> bool:
    """Whether all drafts are made in one pass."""
    spec = config.speculative_config
    return spec is not None and (spec.method in ("dflash", "dspark", "ngram") or bool(spec.parallel_drafting))
