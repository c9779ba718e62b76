"""Where a policy can sit: which SGLang, which drafters, which draft lengths."""

from __future__ import annotations

import re
from typing import Any

# The releases whose scheduler was run with a policy in the seat, batch by batch.
KNOWN = re.compile(r"0\.5\.23(?!\d)")
# SGLang's drafters whose length can change from step to step.
ADAPTIVE = ("EAGLE", "EAGLE3")


def closed(version: str, args: Any, first_rank: bool, act: bool) -> str | None:
    """Why the seat stays empty: nothing is asked, logged or measured."""
    if not KNOWN.match(version):
        return f"SGLang {version} is not known, only 0.5.23 is"
    if args.dp_size > 1:
        return "data parallelism is not known"
    if args.pp_size > 1:
        return "pipeline parallelism is not known"
    if args.disaggregation_mode != "null":
        return "prompts and outputs on different servers are not known"
    if args.tp_size > 1 and act:
        return "with tensor parallelism all ranks must have one draft length: FORETOKEN_MODE=shadow only watches"
    if not first_rank:
        return "the first rank of tensor parallelism watches"
    return None


def unfit(args: Any, adaptive: Any) -> str | None:
    """Why no policy is asked. Steps are logged all the same. ``adaptive`` are SGLang's adaptive parameters, or None."""
    if not args.speculative_algorithm:
        return "this server does not speculate"
    if args.speculative_algorithm not in ADAPTIVE:
        return f"the drafter {args.speculative_algorithm!r} has one draft length, only EAGLE and EAGLE3 have more"
    if adaptive is None:
        return "SGLang prepares one draft length: add --speculative-adaptive"
    return None


def offered(adaptive: Any, batch_size: int) -> list[int]:
    """The draft lengths for which a batch of this size has graphs, rising."""
    lengths: list[int] = adaptive._route(batch_size).candidate_steps
    return lengths
