"""A policy in a seat: it decides what it decides in an experiment, and what cannot sit is refused."""

import polars
import pytest

import foretoken
from foretoken import BadInput, Coefficients, Limit, Observed, Policy, Seat, Setup, View

SETUP = Setup(5, Coefficients(0.0, 5e-6, 1e-3), Coefficients(3e-7, 55e-6, 11e-3), max_num_seqs=16)

# Settings without which a policy reads confidences of draft tokens, which a scheduler does not have.
SETTINGS = {"foresight": {"confidences": False, "stop": False, "trim": False}}

# The simulated engine treats the first two as vLLM does: it knows their next length before it asks. The third has a
# hook that a seat does not ask: how many requests take part in a step.
OTHERS = {"fixed", "vllm-dynamic", "turbospec-v1"}


def seated(name, draft_at):
    """A policy in Python that asks a seat at each hook."""

    class Seated(Policy):
        def __init__(self, context):
            self.seat = Seat({name: SETTINGS.get(name, {})}, Setup.of_context(context, draft_at=draft_at))

        def limit(self):
            depth, most = self.seat.limit
            return Limit(depth, max_depth=most)

        def drafts_for_next(self, request):
            return self.seat.drafts_for_next(request)

        def propose(self, batch):
            return self.seat.choose(batch)

        def observe(self, outcome):
            self.seat.observe(outcome)

        def request_finished(self, id):
            self.seat.finished([id])

    Seated.name = f"seated-{name}"
    return Seated


def sits(name):
    try:
        Seat({name: SETTINGS.get(name, {})}, SETUP)
    except BadInput:
        return False
    return True


NAMES = [policy["name"] for policy in foretoken.policies()]
SITTING = [name for name in NAMES if sits(name)]


def test_most_policies_can_sit():
    assert len(SITTING) > 30
    assert OTHERS < set(SITTING)


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (
            [name for name in SITTING if name not in OTHERS],
            {
                "workload__arrivals": {"poisson": {"rate": 12.0}},
                "engine__max_num_batched_tokens": 96,
                "engine__max_num_seqs": 40,
                "hardware__context_reads": "per-position",
                "hardware__noise_cv": 0.2,
            },
        ),
        (["ema-tier", "smartspec", "foresight"], {"engine__version": "vllm-0.33", "engine__num_gpu_blocks": 200}),
        (["ema-tier", "smartspec", "foresight"], {"engine__version": "sglang-0.5.23", "engine__num_gpu_blocks": 400}),
    ],
    ids=["loaded", "vllm-0.33", "sglang"],
)
def test_a_seat_decides_what_the_policy_decides(experiment, names, changes):
    presets = [{name: SETTINGS.get(name, {})} for name in names]
    draft_at = "step-start" if changes.get("engine__version", "").startswith("sglang") else "step-end"
    experiment["policies"] = [*presets, *(seated(name, draft_at) for name in names)]
    experiment["seeds"] = [1]
    experiment["workload"] = {**experiment["workload"], "requests": 24}
    results = foretoken.run(experiment, figures=False, **changes)
    tables = {name: of.drop("policy") for (name,), of in results.steps.partition_by("policy", as_dict=True).items()}
    requests = {
        name: of.drop("policy") for (name,), of in results.requests.partition_by("policy", as_dict=True).items()
    }
    for name in names:
        # A label is the name, and the settings that are no default.
        (label,) = (label for label in tables if label == name or label.startswith(f"{name}["))
        assert tables[label].equals(tables[f"seated-{name}"]), name
        assert requests[label].equals(requests[f"seated-{name}"]), name
    lengths = results.steps.group_by("policy").agg(polars.col("drafted").n_unique())
    assert lengths["drafted"].max() > 5, "they choose"


def view(n=3, **others):
    return View(list(range(n)), [100] * n, [1] * n, **others)


def test_a_seat_without_an_experiment():
    """A batch of 200 on a target whose tokens are dear drafts less than one request alone."""
    setup = Setup(5, Coefficients(0.0, 5e-6, 1e-3), Coefficients(3e-7, 200e-6, 11e-3))
    seat = Seat({"smartspec": {}}, setup)
    assert seat.limit == (5, 5)
    for step in range(50):
        assert len(seat.choose(View(["a"], [100 + step], [step]))) == 1
        seat.observe(Observed(["a"], [3], [2]))
    alone = seat.choose(View(["a"], [200], [60]))
    many = seat.choose(view(200))
    assert alone[0] > many[0]
    assert seat.choose(view(2, limit=[1, 0]))[1] == 0
    seat.finished(["a", "never seen"])
    assert seat.choose(View([], [], [])) == []
    seat.observe(Observed([], [], []))


def test_requests_are_known_by_any_name_and_forgotten():
    seat = Seat({"smartspec-request": {}}, SETUP)
    for name in ("a", ("b", 1), 7):
        seat.choose(View([name], [10], [1]))
    assert len(seat._numbers) == 3
    seat.finished(["a", ("b", 1), 7])
    assert not seat._numbers


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("foresigth", "did you mean"),
        ({"fixed": {"k": 3}, "aimd": {}}, "give a name, or a table"),
        (3, "give a name, or a table"),
        ({"fixed": {"k": -1}}, "fixed"),
        ({"fixed": {"length": 3}}, "length"),
        ("autoregressive", "never drafts"),
        ("eagle2", "drafts trees"),
        ("oracle-goodput", "sees the hidden truth"),
        ("true-rates", "sees the hidden truth"),
        ("adaspec", "reads confidences"),
        ("foresight", "confidences = false"),
    ],
)
def test_what_cannot_sit_is_refused(policy, said):
    with pytest.raises(BadInput, match=said):
        Seat(policy, SETUP)


@pytest.mark.parametrize(
    "setup", [Setup(-1, SETUP.draft, SETUP.target), Setup(3, SETUP.draft, SETUP.target, drafting="by hand")]
)
def test_a_bad_setup_is_refused(setup):
    with pytest.raises(BadInput, match="the engine's setup"):
        Seat("aimd", setup)


def test_lists_of_unlike_lengths_are_refused():
    seat = Seat("aimd", SETUP)
    with pytest.raises(BadInput, match="2 requests and a list of 1"):
        seat.choose(View([1, 2], [10], [1, 1]))
    with pytest.raises(BadInput, match="1 requests and a list of 2"):
        seat.observe(Observed([1], [1, 2], [1]))
