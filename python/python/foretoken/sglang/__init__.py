"""Foretoken's policies in a real SGLang server (0.5.23), through SGLang's own plugins, without a patch.

    FORETOKEN_POLICY='{"foresight": {"stop": false, "trim": false, "confidences": false}}' \\
      python -m sglang.launch_server ... --speculative-algorithm EAGLE3 --speculative-eagle-topk 1 \\
        --speculative-adaptive --speculative-adaptive-config steps.json

The policy chooses how many draft tokens the next decode step makes: one length for the batch, the longest that the policy
wants for any request. ``steps.json`` names the lengths for which SGLang captures graphs, by batch size; the policy
chooses among these: ``{"1": {"candidate_steps": [0, 1, 2, 3]}}`` offers four lengths to every batch. By default
(``FORETOKEN_MODE=shadow``) its choices are only logged. ``foretoken.seated.settings`` lists the other variables. Whatever
goes wrong, SGLang's own adaptive length is used and the server goes on.
"""

from __future__ import annotations

import os
import sys

from foretoken.sglang.hooks import register

__all__ = ["plugin"]


def plugin() -> None:
    """SGLang calls this in each of its processes (``sglang.srt.plugins``). Only those with a scheduler get hooks."""
    if os.environ.get("FORETOKEN_POLICY") and "sglang.srt.managers.scheduler" in sys.modules:
        register()
