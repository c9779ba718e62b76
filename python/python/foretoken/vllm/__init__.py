"""Foretoken's policies in a real vLLM server (0.32 and 0.33), without a patch.

    FORETOKEN_POLICY='{"foresight": {"stop": false, "trim": false, "confidences": false}}' \\
      vllm serve ... --scheduler-cls foretoken.vllm.Scheduler

The policy chooses how many draft tokens vLLM makes behind each step: one length for the batch, the longest that the policy
wants for any request. By default (``FORETOKEN_MODE=shadow``) its choices are only logged. ``foretoken.seated.settings``
lists the other variables. Whatever goes wrong, vLLM's own length is used and the server goes on.
"""

from __future__ import annotations

import importlib
from typing import Any

from foretoken.vllm.scheduler import seated
from foretoken.vllm.table import plugin

__all__ = ["Scheduler", "plugin"]


def Scheduler(*args: Any, **kwargs: Any) -> Any:
    """The scheduler that vLLM itself would use, with a policy in its seat.

    Takes and returns what vLLM's class does, which is why a function stands where vLLM expects a class.
    """
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    return seated(_vllms_own(config))(*args, **kwargs)


def _vllms_own(config: Any) -> Any:
    """The class that vLLM takes if none is asked for."""
    kind = "Async" if config.scheduler_config.async_scheduling else ""
    room = "async_scheduler" if kind else "scheduler"
    if getattr(config, "diffusion_config", None) is not None:
        kind, room = f"Diffusion{kind}", "diffusion_scheduler"
    return getattr(importlib.import_module(f"vllm.v1.core.sched.{room}"), f"{kind}Scheduler")
