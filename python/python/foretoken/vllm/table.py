"""The table of draft lengths, from which vLLM knows the lengths that need graphs.

vLLM captures full graphs for the lengths in ``num_speculative_tokens_per_batch_size`` alone. So the plugin writes a table
that names every length, before vLLM makes its configuration, if a policy is to act. The user's own table (or none)
stays vLLM's own choice, for fallbacks. With a table vLLM does not pad the first decode of a new request to the
longest length, and piecewise graphs take the place of full ones on runner V1.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from foretoken.errors import BadInput
from foretoken.seated.settings import Settings
from foretoken.vllm import fit

# Under this name the configuration keeps the table that the user asked for.
KEPT = "foretoken_theirs"
CLASS = "foretoken.vllm.Scheduler"


def plugin() -> None:
    """vLLM calls this in each of its processes (``vllm.general_plugins``), before it makes its configuration."""
    if not os.environ.get("FORETOKEN_POLICY"):
        return
    from vllm.config import VllmConfig  # type: ignore[import-not-found]

    plain = VllmConfig.__post_init__
    if hasattr(plain, "foretoken"):
        return

    @functools.wraps(plain)
    def made(self: Any) -> None:
        _offer(self)
        plain(self)

    made.foretoken = True  # type: ignore[attr-defined]
    VllmConfig.__post_init__ = made


def _offer(config: Any) -> None:
    """Writes the table into the configuration of a server in which a policy will act."""
    from vllm import __version__  # type: ignore[import-not-found]
    from vllm.logger import init_logger  # type: ignore[import-not-found]

    log = init_logger("vllm.foretoken")
    try:
        spec, asked = config.speculative_config, config.scheduler_config.scheduler_cls
        if spec is None:
            return
        if getattr(asked, "__module__", asked) not in (CLASS, CLASS.rpartition(".")[0]):
            log.warning_once("Foretoken: FORETOKEN_POLICY does nothing, because --scheduler-cls is not %s", CLASS)
        elif Settings.of(os.environ).act and fit.closed(__version__, config) is None:
            if not refused(spec, config.scheduler_config.max_num_seqs):
                write(spec, config.scheduler_config.max_num_seqs)
    except BadInput:
        pass  # the scheduler says it
    except Exception:
        log.exception("Foretoken: no table of draft lengths was written")


def refused(spec: Any, max_num_seqs: int) -> bool:
    """Whether vLLM refuses the user's own table. Then it must say so itself."""
    asked = spec.num_speculative_tokens_per_batch_size
    try:
        return asked is not None and not fit.dense(asked, max_num_seqs, spec.num_speculative_tokens)
    except ValueError:
        return True


def write(spec: Any, max_num_seqs: int) -> None:
    """Puts a table that names every length in the place of the user's own.

    The lengths stand at the largest batches: vLLM captures graphs of a length for batches up to the largest one with it.
    """
    if not hasattr(spec, KEPT):
        setattr(spec, KEPT, spec.num_speculative_tokens_per_batch_size)
        spec.num_speculative_tokens_per_batch_size = naming(spec.num_speculative_tokens, max_num_seqs)


def naming(most: int, max_num_seqs: int) -> list[tuple[int, int, int]]:
    """A table that names the lengths from 0 to ``most``, or as many as there are batch sizes. The longest comes first."""
    first = max(max_num_seqs - most, 1)
    tail = [(size, size, most - size + first) for size in range(first + 1, min(first + most, max_num_seqs) + 1)]
    return [(1, first, most), *tail]


def theirs(spec: Any) -> list[tuple[int, int, int]] | None:
    """The table that the user asked for."""
    asked = getattr(spec, KEPT, getattr(spec, "num_speculative_tokens_per_batch_size", None))
    return None if asked is None else [tuple(row) for row in asked]


def restore(scheduler: Any) -> bool:
    """Makes the user's own table vLLM's choice again. Returns whether the table was ours."""
    spec = scheduler.vllm_config.speculative_config
    if not hasattr(spec, KEPT) or spec.num_speculative_tokens_per_batch_size is None:
        return False  # it is vLLM's, or vLLM has dropped it
    asked, limits = getattr(spec, KEPT), scheduler.vllm_config.scheduler_config
    lookup = fit.dense(asked, limits.max_num_seqs, scheduler.num_spec_tokens) if asked else None
    scheduler.dynamic_sd_lookup = lookup
    return True


def unpad(scheduler: Any) -> None:
    """A constant length as a table: vLLM pads the first decode of a request only where it has none."""
    if scheduler.dynamic_sd_lookup is None:
        most = scheduler.num_spec_tokens
        scheduler.dynamic_sd_lookup = [most] * (scheduler.vllm_config.scheduler_config.max_num_seqs + 1)
