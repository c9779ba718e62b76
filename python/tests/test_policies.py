"""Python policies compared with the presets, and errors of faulty policies."""

import functools
import json

import numpy
import polars
import presets
import pytest
from conftest import digests

import foretoken
from foretoken import BadInput, Limit, Policy


def equal(results, ours, preset):
    """Asserts that both policies have the same rows in the tables of requests and of steps."""
    for table in (results.requests, results.steps):
        rows = [table.filter(polars.col("policy") == name).drop("policy") for name in (ours, preset)]
        assert rows[0].height > 0
        assert rows[0].equals(rows[1]), f"{ours} and {preset}"


@pytest.mark.parametrize(
    ("ours", "preset"),
    [
        (presets.SmartspecInPython, "smartspec"),
        (presets.AdaspecInPython, "adaspec"),
        (presets.Eagle2InPython, {"eagle2": {"num_steps": 5, "topk": 4, "num_draft_tokens": 8}}),
        (presets.Eagle2ByNodes, {"eagle2": {"num_steps": 5, "topk": 4, "num_draft_tokens": 8}}),
    ],
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        # These settings add load, chunked prompts, context read per position, delayed outcomes, noise, and an SLO bound
        # that has an effect.
        {
            "workload__arrivals": {"poisson": {"rate": 12.0}},
            "engine__max_num_batched_tokens": 96,
            "engine__max_num_seqs": 40,
            "hardware__context_reads": "per-position",
            "belief__staleness_steps": 2,
            "hardware__noise_cv": 0.2,
            "slo__tpot_s": 0.02,
        },
        {"engine__draft_gap": "always-extend", "slo__adaspec-scale": 1.2, "hardware__drafting": "parallel"},
        {"engine__version": "vllm-0.33", "engine__num_gpu_blocks": 200},
    ],
    ids=["plain", "loaded", "parallel", "vllm-0.33"],
)
def test_a_policy_in_python_is_the_preset_bit_for_bit(experiment, ours, preset, changes):
    experiment["policies"] = [{"autoregressive": {}}, preset if isinstance(preset, dict) else {preset: {}}]
    if preset == "smartspec":
        changes = {**changes, "acceptance__source": {"constant": {"rate": 0.3}}}
    results = foretoken.run(
        experiment, figures=False, policies=[*experiment["policies"], ours], **changes
    )
    names = results.summary["policy"].unique(maintain_order=True).to_list()
    equal(results, names[2], names[1])


# Pass times that are not linear in the number of tokens. A policy that assumed linear times would choose other draft
# lengths.
MEASURED = {
    "target": {
        "measured": {
            "batched": [[1, 0.011], [8, 0.0112], [16, 0.02], [64, 0.05]],
            "pairs": [[0, 0.0], [200000, 0.01]],
        }
    },
    "draft": {"measured": {"batched": [[1, 0.001], [4, 0.0011], [16, 0.004]], "context": [[0, 0.0], [9000, 0.002]]}},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware": MEASURED},
        {
            "hardware": {**MEASURED, "context_reads": "per-position"},
            "belief__noise_cv": 0.3,
            "belief__scale__draft": 2.0,
        },
        {"hardware": MEASURED, "belief__tables": "linear"},
    ],
    ids=["timed", "with-errors", "believed"],
)
def test_a_policy_in_python_fills_its_cost_table_as_the_preset_does(experiment, changes):
    slots = [{"batch_size": size, "candidates": list(steps)} for size, steps in presets.ThroughputInPython.SLOTS]
    preset = {"sglang-throughput": {"slots": slots}}
    changes = dict(changes)
    changes["workload__arrivals"] = {"poisson": {"rate": 8.0}}
    changes["acceptance__source"] = {"constant": {"rate": 0.5}}
    policies = ["autoregressive", preset, presets.ThroughputInPython]
    results = foretoken.run(experiment, figures=False, policies=policies, **changes)
    names = results.summary["policy"].unique(maintain_order=True).to_list()
    equal(results, names[2], names[1])
    lengths = results.steps.filter(polars.col("policy") == names[2])["drafted"].n_unique()
    assert lengths > 1, "it chooses"


def test_the_profile_of_a_belief_is_its_lines():
    draft, target = foretoken.Coefficients(1e-6, 2e-5, 3e-3), foretoken.Coefficients(0.0, 5e-5, 9e-3)
    lines = foretoken.Belief(draft, target, "once", "autoregressive")
    assert lines.draft_s(4, 100) == lines.draft.pass_s(100, 4)
    assert lines.target_s(4, context=100, pairs=7) == lines.target.pass_s(100, 4)


def test_passes_cannot_be_timed_while_it_runs(experiment):
    with pytest.raises(BadInput, match="while the policy is made") as told:
        foretoken.run(experiment, figures=False, policies=["autoregressive", presets.KeepsTheProfile])
    assert "keep the numbers" in str(told.value)


def test_a_policy_without_init_is_refused_with_a_hint(experiment):
    class Bare(Policy):
        def limit(self):
            return 3

        def propose(self, batch):
            return 3

    with pytest.raises(BadInput, match="Bare has no __init__") as told:
        foretoken.run(experiment, policies=[Bare])
    assert told.value.hint.startswith("write `def __init__(self, context)`")


def test_every_step_is_observed_and_not_every_step_proposed_for(experiment):
    calls = {"propose": 0, "observe": 0, "empty": 0}

    class Counting(presets.FixedInPython):
        def propose(self, batch):
            calls["propose"] += 1
            assert len(batch) > 0
            return super().propose(batch)

        def observe(self, outcome):
            calls["observe"] += 1
            calls["empty"] += len(outcome) == 0

    policies = ["autoregressive", Counting]
    results = foretoken.run(experiment, figures=False, seeds=[1], policies=policies)
    steps = results.steps.filter(polars.col("policy") != "autoregressive").height
    assert calls["observe"] == steps
    assert 0 < calls["empty"] < steps, "steps of prompts alone"
    assert 0 < calls["propose"] < calls["observe"]


def test_settings_and_names(experiment):
    """Several policies of one class get labels from their settings; a class may set its name."""

    class Mine(presets.FixedInPython):
        name = "my-own"

    results = foretoken.run(
        experiment, figures=False, policies=[Mine, functools.partial(Mine, k=numpy.int64(5)), functools.partial(Mine, k=1)]
    )
    assert results.summary["policy"].unique(maintain_order=True).to_list() == [
        "autoregressive", "my-own", "my-own[k=5]", "my-own[k=1]",
    ]  # fmt: skip
    kept = (results.path / "experiment.toml").read_text()
    assert 'code = "' in kept
    listed = {p["name"]: p for p in foretoken.policies()}
    assert listed["my-own"]["settings"]["my-own"]["k"] == 3
    assert listed["my-own"]["summary"] == "Drafts a fixed length for every request"


def test_other_code_is_another_experiment(experiment, tmp_path):
    """The digest of a policy's source is part of the experiment, so results of changed code are not reused."""

    def made(length):
        text = f"class Changing:\n    def __init__(self, context): pass\n    def limit(self): return {length}\n"
        space = {"__name__": "nowhere"}
        exec(text + f"    def propose(self, batch): return {length}\n", space)
        return space["Changing"]

    one = foretoken.run(experiment, figures=False, policies=[made(1)], output=tmp_path / "one")
    two = foretoken.run(experiment, figures=False, policies=[made(4)], output=tmp_path / "two")
    drafted = [r.summary.filter(polars.col("policy") == "changing")["drafted"].sum() for r in (one, two)]
    assert drafted[1] > 2 * drafted[0]
    with pytest.raises(BadInput, match="another experiment|not of this"):
        foretoken.run(experiment, figures=False, policies=[made(4)], output=tmp_path / "one")


def test_any_number_of_threads(experiment, tmp_path):
    policies = ["adaspec", presets.AdaspecInPython, presets.SmartspecInPython]
    one, two = (
        foretoken.run(experiment, figures=False, policies=policies, output=tmp_path / str(n), threads=n) for n in (1, 2)
    )
    assert digests(one.path) == digests(two.path)


class Base(Policy):
    """Drafts two tokens per request."""

    def __init__(self, context, how=""):
        self.how, self.kept, self.calls = how, None, 0

    def limit(self):
        return 2

    def propose(self, batch):
        return 2


class Proposing(Base):
    """Proposes the invalid value that `how` names, from the fifth call on."""

    def propose(self, batch):
        self.calls += 1
        if self.calls < 5:
            return 2
        n = len(batch)
        return {
            "short": [1] * (n + 1),
            "table": numpy.ones((n, 2), dtype="int64"),
            "nan": float("nan"),
            "half": [1.5] * n,
            "float-array": numpy.full(n, 2.0),
            "negative": -1,
            "negative-array": numpy.full(n, -1),
            "beyond": 3,
            "beyond-array": numpy.full(n, 3),
            "none": None,
            "text": "2",
            "truth": True,
        }[self.how]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("short", "values for a batch of"),
        ("table", "lengths are whole numbers|values for a batch"),
        ("nan", "returned nan, and lengths are whole numbers"),
        ("half", "returned 1.5, and lengths are whole numbers"),
        ("float-array", "whole numbers"),
        ("negative", "returned -1"),
        ("negative-array", "returned -1"),
        ("beyond", "a draft length of 3 for request 0 of the batch, and `limit` says at most 2"),
        ("beyond-array", "a draft length of 3"),
        ("none", "returned None"),
        ("text", "returned '2'"),
        ("truth", "returned True"),
    ],
)
def test_wrong_return_values_are_refused(experiment, how, said):
    with pytest.raises(BadInput, match=said) as caught:
        foretoken.run(experiment, figures=False, policies=["autoregressive", functools.partial(Proposing, how=how)])
    assert "proposing" in str(caught.value) and "propose" in str(caught.value)
    assert "mend `proposing`" in caught.value.hint


class Raising(Base):
    """Raises an exception in a chosen hook."""

    def fail(self, hook):
        if self.how == hook:
            raise ZeroDivisionError("of its own")

    def propose(self, batch):
        self.fail("propose")
        return 2

    def keep_drafting(self, batch, drafts):
        self.fail("keep_drafting")
        return True

    def select(self, batch, drafts):
        self.fail("select")

    def observe(self, outcome):
        self.fail("observe")

    def request_finished(self, id):
        self.fail("request_finished")

    def warnings(self):
        self.fail("warnings")
        return ["worth knowing"]


@pytest.mark.parametrize("hook", ["propose", "keep_drafting", "select", "observe", "request_finished", "warnings"])
def test_an_exception_ends_the_cell_with_its_traceback(experiment, hook):
    with pytest.raises(BadInput, match="ZeroDivisionError: of its own") as caught:
        foretoken.run(experiment, figures=False, policies=["fixed", functools.partial(Raising, how=hook)])
    assert f"{hook}: ZeroDivisionError" in caught.value.message and "test_policies.py" in caught.value.message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_policys_warnings_are_reported(experiment):
    with pytest.warns(foretoken.ForetokenWarning, match="worth knowing"):
        foretoken.run(experiment, figures=False, policies=[Raising])


def test_a_failed_cell_does_not_stop_a_shard(experiment, tmp_path):
    """The failure is stored with its message, and all other cells are finished."""
    policies = ["autoregressive", functools.partial(Raising, how="select"), "fixed"]
    with pytest.raises(BadInput, match="2 of 6 cells of shard 1/1 failed"):
        foretoken.shard(experiment, "1/1", output=tmp_path / "shared", policies=policies)
    told = foretoken.state(tmp_path / "shared")
    assert [told["shards"][0][k] for k in ("cells", "finished", "failed")] == [6, 4, 2]
    assert "ZeroDivisionError" in told["failures"][0]["message"]
    with pytest.raises(foretoken.Error, match="2 of 6 cells are not finished"):
        foretoken.merge(tmp_path / "shared")


class Keeping(Base):
    """Keeps what `how` names: an argument of a hook, one of its arrays, or copies."""

    wants = ("confidence",)

    def propose(self, batch):
        if self.how == "batch":
            self.kept = batch
        elif self.how == "array":
            self.kept = batch.context
        elif self.how == "slice":
            self.kept = batch.context[:1]
        elif self.how == "copy":
            self.kept = batch.context.copy(), batch.limit.tolist(), batch.step
        return 2

    def keep_drafting(self, batch, drafts):
        if self.how == "drafts":
            self.kept = drafts
        elif self.how == "confidence":
            self.kept = drafts.confidence[0]
        return True

    def observe(self, outcome):
        if self.how == "outcome":
            self.kept = outcome.accepted
        elif self.how == "cycle":
            # The list `loop` refers to itself, so only garbage collection drops its reference to the outcome. This
            # happens before the check.
            loop = [outcome.accepted, outcome]
            loop.append(loop)


@pytest.mark.parametrize("how", ["batch", "array", "slice", "drafts", "confidence", "outcome"])
def test_a_policy_that_keeps_arrays_is_refused(experiment, how):
    with pytest.raises(BadInput) as caught:
        foretoken.run(experiment, figures=False, policies=[functools.partial(Keeping, how=how)])
    assert "which change with the next call: keep a copy (`.copy()`)" in caught.value.message


@pytest.mark.parametrize("how", ["copy", "cycle"])
def test_copies_are_fine(experiment, how):
    assert foretoken.run(experiment, figures=False, policies=[functools.partial(Keeping, how=how)]).summary.height == 4


def test_arrays_match_the_step(experiment):
    """Arrays are read-only, of 64-bit integers, with one entry per request."""
    seen = []

    class Looking(Base):
        wants = ("confidence", "entropy", "divergence")

        def propose(self, batch):
            with pytest.raises(ValueError, match="read-only"):
                batch.context[0] = 1
            columns = [batch.ids, batch.context, batch.emitted, batch.limit, batch.draft_gap]
            assert all(c.dtype == "int64" and c.shape == (len(batch),) for c in columns)
            assert batch.slo_tpot_s.dtype == "float64" and numpy.isinf(batch.slo_tpot_s).all()
            assert batch.context.sum() == batch.context_sum and batch.num_running >= len(batch)
            assert len(set(batch.ids.tolist())) == len(batch)
            return batch.limit.clip(max=2)

        def observe(self, outcome):
            drafts = outcome.drafts
            assert drafts.confidence.shape[0] == len(outcome) and drafts.trees is None
            for i, (drafted, accepted) in enumerate(zip(outcome.drafted, outcome.accepted)):
                assert numpy.isfinite(drafts.confidence[i, :drafted]).all()
                assert numpy.isnan(drafts.confidence[i, drafted:]).all()
                known = min(accepted + 1, drafted)
                assert numpy.isfinite(drafts.divergence[i, :known]).all() and numpy.isnan(drafts.divergence[i, known:]).all()
            assert outcome.verify_time > 0
            seen.append(len(outcome))

    foretoken.run(experiment, figures=False, policies=[Looking], seeds=[1])
    # The batches have more requests than the arrays have room for at first.
    changes = {"engine__max_num_seqs": 64, "workload__arrivals": {"closed-loop": 40}}
    foretoken.run(experiment, figures=False, policies=[Looking], seeds=[1], **changes)
    assert max(seen) > 32


class Growing(Base):
    """Raises its limit above its first answer."""

    def limit(self):
        self.calls += 1
        most = 2 if self.calls < 5 else 4
        return Limit(most, max_depth=4) if self.how == "said" else most

    def propose(self, batch):
        return 2


def test_a_limit_may_not_grow_beyond_the_first_answer(experiment):
    foretoken.run(experiment, figures=False, policies=[functools.partial(Growing, how="said")])
    with pytest.raises(BadInput, match="never more than 2: say so from the beginning"):
        foretoken.run(experiment, figures=False, policies=[Growing])


def test_objects_that_are_no_policies_are_refused(experiment):
    def run(policy):
        foretoken.run(experiment, figures=False, policies=[policy])

    class Nothing:
        """Has no hooks."""

        def __init__(self, context):
            pass

    class Adaspec(Base):
        """Another policy's name."""

    class Coded(Base):
        def __init__(self, context, code=1):
            pass

    class Wanting(Base):
        wants = ("luck",)

    for policy, said in [
        (Nothing, "has no method `limit`"),
        (3, "is no policy"),
        (Adaspec, "there is a policy `adaspec`"),
        (Coded, "cannot be named `code`"),
        (Wanting, "`wants` names `luck`"),
        (functools.partial(Base, depth=3), "unexpected keyword argument"),
        (functools.partial(Base, how=object()), "settings must be numbers"),
        (functools.partial(Base, how=float("nan")), "settings must be numbers"),
        (functools.partial(Base, 3), "settings are given by name"),
        ("adaspecc", "adaspec"),
    ]:
        with pytest.raises(BadInput, match=said):
            run(policy)


def test_decide_takes_policies_of_this_process(experiment):
    foretoken.run(experiment, figures=False, policies=[presets.FixedInPython])
    model = {"alpha_s": 0.0, "gamma_s": 1e-5, "delta_s": 1e-3}
    state = {
        "draft": model,
        "target": {**model, "delta_s": 1e-2},
        "max_draft_len": 8,
        "requests": [{"context": 100, "confidences": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]}],
        "policies": [{"fixed": {"k": 3}}, {"fixed-in-python": {}}, {"smartspec": {}}],
    }
    preset, ours, smartspec = foretoken.decide(state, explain=True)
    assert preset["draft_len"] == ours["draft_len"] == [3]
    assert ours["estimated_step_s"] == preset["estimated_step_s"] and len(smartspec["candidates"]) > 3
    with pytest.raises(BadInput, match="max_draft_len"):
        foretoken.decide({**state, "max_draft_len": 10**6})
    assert json.dumps(state)
