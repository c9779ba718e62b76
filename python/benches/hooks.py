"""Measures the time of hooks: the engine's time a step with a policy in Python, minus its time with the preset, at a
batch of 8.

    python python/benches/hooks.py
"""

import sys
import tempfile
from pathlib import Path

import polars

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import presets  # noqa: E402
from conftest import EXPERIMENT  # noqa: E402

import foretoken  # noqa: E402

REPEATS = 5
EXPERIMENT = {
    **EXPERIMENT,
    "seeds": [1],
    "workload": {
        "arrivals": {"closed-loop": 8},
        "lengths": {"fixed": {"prompt": 128, "output": 256}},
        "requests": 400,
    },
    "engine": {"max_num_seqs": 8},
    "output": {"steps": False, "figures": False},
}


class Empty(foretoken.Policy):
    """Has all hooks, and each does nothing."""

    def __init__(self, context):
        pass

    def limit(self):
        return 3

    def propose(self, batch):
        return 3

    def keep_drafting(self, batch, drafts):
        return True

    def select(self, batch, drafts):
        return None

    def observe(self, outcome):
        pass

    def request_finished(self, id):
        pass


class Reading(Empty):
    """Every hook that gets arrays looks at one of them."""

    def propose(self, batch):
        batch.context
        return 3

    def keep_drafting(self, batch, drafts):
        drafts.draft_len
        return True

    def select(self, batch, drafts):
        batch.limit

    def observe(self, outcome):
        outcome.accepted


def cost(policy):
    """Returns the fastest of several runs of the policy: the engine's total seconds, and the policy's row of the
    summary."""
    best = None
    for i in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            results = foretoken.run(
                EXPERIMENT, output=folder, policies=["autoregressive", policy], threads=1, figures=False,
                mode="overwrite", progress=False,
            )  # fmt: skip
            engine_s = results.manifest["timing"]["engine_s"]
            row = results.summary.filter(polars.col("policy") != "autoregressive").row(0, named=True)
        best = min(best or (engine_s, row), (engine_s, row), key=lambda t: t[0])
    return best


def main():
    alone = {}
    for i in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            results = foretoken.run(EXPERIMENT, output=folder, policies=["autoregressive"], threads=1, figures=False, mode="overwrite", progress=False)  # fmt: skip
            alone[i] = results.manifest["timing"]["engine_s"]
    alone = min(alone.values())
    print(f"batch of 8, engine alone; least of {REPEATS} runs. us a step:")
    pairs = [
        (Empty, {"fixed": {"k": 3}}, 1 + 1 + 3 + 1 + 1),
        (Reading, {"fixed": {"k": 3}}, 1 + 1 + 3 + 1 + 1),
        (presets.FixedInPython, {"fixed": {"k": 3}}, 2),
        (presets.SmartspecInPython, "smartspec", None),
        (presets.AdaspecInPython, "adaspec", None),
    ]
    for policy, preset, hooks in pairs:
        (ours_s, row), (preset_s, _) = cost(policy), cost(preset)
        steps = row["steps"]
        ours, theirs = 1e6 * (ours_s - alone) / steps, 1e6 * (preset_s - alone) / steps
        each = f", {(ours - theirs) / hooks:.2f} a hook ({hooks} a step)" if hooks else ""
        print(f"{policy.__name__:20} {ours:8.2f}   preset {theirs:6.2f}{each}")


main()
