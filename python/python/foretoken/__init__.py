"""Foretoken: how far ahead should this server speculate, for which request, at this moment?

Run experiments (:func:`run`), read their results (:class:`Results`), write policies (:class:`Policy`), search the
highest rate of requests that each policy sustains (:func:`capacity`) and the fewest GPUs of a fleet (:func:`fleet`),
advise a real server (:func:`ask`, :func:`observe`, :func:`calibrate`, :func:`recommend`), let a policy choose the draft
lengths of an engine (:class:`Seat`), and sweep on a cluster (``import foretoken.ray``).
"""

from __future__ import annotations

import json as _json
from typing import Any as _Any

from foretoken import _native
from foretoken._native import Batch, Chunks, Drafts, NewRequest, Outcome, Tree, __version__
from foretoken.errors import BadInput, Error
from foretoken.experiment import ForetokenWarning, capacity, decide, fleet, merge, run, shard, state
from foretoken.files import Profile, TruthTable
from foretoken.policy import Beam, Belief, Coefficients, Context, Expansion, Limit, PassTimes, Policy
from foretoken.results import Capacity, Fleet, Results
from foretoken.seat import Admitted, Observed, Seat, Setup, View
from foretoken.server import Answer, ask, calibrate, observe, recommend

__all__ = [
    "Admitted",
    "Answer",
    "BadInput",
    "Batch",
    "Beam",
    "Belief",
    "Capacity",
    "Chunks",
    "Coefficients",
    "Context",
    "Drafts",
    "Error",
    "Fleet",
    "Expansion",
    "ForetokenWarning",
    "Limit",
    "NewRequest",
    "Observed",
    "Outcome",
    "PassTimes",
    "Policy",
    "Profile",
    "Results",
    "Seat",
    "Setup",
    "Tree",
    "TruthTable",
    "View",
    "__version__",
    "ask",
    "calibrate",
    "capacity",
    "decide",
    "fleet",
    "merge",
    "observe",
    "policies",
    "recommend",
    "run",
    "shard",
    "state",
]


def policies() -> list[dict[str, _Any]]:
    """The policies that experiments can name.

    Returns
    -------
    list of dict
        A policy's dict has ``name``, ``summary``, ``source``, ``sees``, ``differences``, ``sees_hidden_truth`` and
        ``settings``. The last is the table of default settings as an experiment would write it.
    """
    listed: list[dict[str, _Any]] = _json.loads(_native.policies())
    return listed
