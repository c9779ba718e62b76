"""A policy in an engine's seat: settings, costs, log, metrics, and a guard that nothing gets past."""

import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from foretoken import BadInput, Coefficients, Profile, Seat, Setup, View
from foretoken.seated.chooser import FAILURES, Chooser, Engine
from foretoken.seated.costs import Costs, Learnt, not_negative
from foretoken.seated.estimate import Acceptance, Gain
from foretoken.seated.log import QUEUED, Log
from foretoken.seated.metrics import Metrics
from foretoken.seated.settings import Settings
from foretoken.seated.step import Choice, Step

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "experiments/profiles/tiny-cpu.toml"
FORESIGHT = {"foresight": {"stop": False, "trim": False, "confidences": False}}
ENGINE = Engine("vllm", "0.32.0", 4, (0, 1, 2, 3, 4), {"max_num_seqs": 8, "max_num_batched_tokens": 256}, {"x": 1})
VIEW = View([1, 2], [10, 20], [3, 4], [4, 2], num_running=2)


def until(what, seconds=10.0):
    """Waits for another thread."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


# Settings


def test_settings_come_from_the_environment(tmp_path):
    text = json.dumps(FORESIGHT)
    assert Settings.of({"FORETOKEN_POLICY": text}) == Settings(FORESIGHT)
    (tmp_path / "p.json").write_text(text)
    (tmp_path / "p.toml").write_text("[fixed]\nk = 2\n")
    asked = {"FORETOKEN_MODE": "act", "FORETOKEN_METRICS_PORT": "9100", "FORETOKEN_SLOW_S": "0.01"}
    files = {"FORETOKEN_COSTS": "c.toml", "FORETOKEN_LOG": "l.jsonl", "FORETOKEN_POLICY": str(tmp_path / "p.toml")}
    expected = Settings({"fixed": {"k": 2}}, True, Path("c.toml"), Path("l.jsonl"), 9100, 0.01)
    assert Settings.of({**asked, **files}) == expected
    assert Settings.of({"FORETOKEN_POLICY": str(tmp_path / "p.json")}).policy == FORESIGHT


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FORETOKEN_POLICY", "", "is not set"),
        ("FORETOKEN_POLICY", "{", "cannot be read"),
        ("FORETOKEN_POLICY", "nowhere.json", "cannot be read .*No such file"),
        ("FORETOKEN_POLICY", '{"a": {}, "b": {}}', "no table with one policy"),
        ("FORETOKEN_POLICY", '{"fixed": 3}', "no table with one policy"),
        ("FORETOKEN_MODE", "on", "write shadow or act"),
        ("FORETOKEN_METRICS_PORT", "http", "write a port"),
        ("FORETOKEN_METRICS_PORT", "70000", "write a port"),
        ("FORETOKEN_SLOW_S", "-1", "write seconds above 0"),
        ("FORETOKEN_SLOW_S", "nan", "write seconds above 0"),
        ("FORETOKEN_SLOW_S", "soon", "write seconds above 0"),
    ],
)
def test_a_bad_setting_is_one_clear_line(name, value, said):
    with pytest.raises(BadInput, match=said) as raised:
        Settings.of({"FORETOKEN_POLICY": '{"fixed": {"k": 2}}', name: value})
    assert "\n" not in str(raised.value) and name in str(raised.value)


# Costs


def steps_of(times, rng, count, pause=0.0):
    """Steps with 1 to 8 requests whose times follow a law, at random draft lengths; the length is the step's choice."""
    constant, by_token, by_context, by_pass, by_draft = times
    length = 0
    for _ in range(count):
        before, length, requests = length, rng.randrange(5), rng.randint(1, 8)
        context = [rng.randint(10, 500) for _ in range(requests)]
        tokens, drafts = requests * (1 + before), requests * length
        took = constant + by_token * tokens + by_context * sum(context) + by_pass * length + by_draft * drafts
        took *= rng.gauss(1.0, 0.01)
        took += pause * (rng.random() < 0.03)
        yield Step(0.0, took, Choice(4, length), context=context, tokens=tokens, passes=length, drafts=drafts)


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_costs_are_learnt_from_steps(pause):
    truth = (13e-3, 0.2e-3, 0.4e-6, 1.5e-3, 8e-6)
    learnt = Learnt(4, max_num_seqs=8)
    for step in steps_of(truth, random.Random(1), 400, pause):
        learnt.saw(step, step.choice.used)
    assert learnt.lengths == 5
    costs = learnt.fit(*learnt.data())
    for requests in (1, 4, 8):
        for length in range(5):
            constant, by_token, by_context, by_pass, by_draft = truth
            context = 200 * requests
            want = constant + by_token * requests * (1 + length) + by_context * context
            want += by_pass * length + by_draft * requests * length
            assert costs.step_s(requests, length, context) == pytest.approx(want, rel=0.02)
    # The fit separates draft passes from the target pass.
    assert costs.setup.draft.delta_s == pytest.approx(1.5e-3, rel=0.1)
    draft_s, target_s = costs.split(Step(0.0, 0.03, Choice(0, 0), tokens=10, passes=4, drafts=8))
    assert draft_s + target_s == pytest.approx(0.03) and draft_s / target_s == pytest.approx(6.06 / 15.0, rel=0.1)


def test_coefficients_are_never_negative_and_equal_columns_share_nothing():
    import numpy

    rng = numpy.random.default_rng(3)
    rows = rng.uniform(0.0, 1.0, (200, 3))
    # The plain solution has a negative weight; the best one without has 0 there.
    found = not_negative(rows, rows @ [2.0, -0.5, 1.0])
    assert found[1] == 0.0 and found[0] > 0.0 and found[2] > 0.0
    # No other weights of at least 0 are better: a small step in any direction makes it worse.
    error = ((rows @ found - rows @ [2.0, -0.5, 1.0]) ** 2).sum()
    for i in range(3):
        for by in (0.01, -0.01):
            other = found.copy()
            other[i] = max(other[i] + by, 0.0)
            assert ((rows @ other - rows @ [2.0, -0.5, 1.0]) ** 2).sum() >= error
    twice = numpy.column_stack([rows[:, 0], rows[:, 0], numpy.zeros(200)])
    assert not_negative(twice, 3.0 * rows[:, 0]).tolist() == pytest.approx([3.0, 0.0, 0.0])


def test_a_profile_gives_costs_and_a_broken_one_is_refused(tmp_path):
    costs = Costs.of_profile(PROFILE, 4, max_num_batched_tokens=256)
    assert costs.setup.target == Profile(PROFILE).line("target")
    (tmp_path / "broken.toml").write_text("[target\n")
    with pytest.raises(BadInput):
        Costs.of_profile(tmp_path / "broken.toml", 4)


# Estimates


def test_acceptance_and_gain_are_what_the_rounds_say():
    rng, acceptance = random.Random(5), Acceptance(4)
    expected = accepted = 0.0
    for _ in range(3000):
        right = next((i for i in range(4) if rng.random() > 0.7), 4)
        step = Step(0.0, 0.0, Choice(4, 4), verified=[4, 0], accepted=[right, 0])
        expected += acceptance.saw(step)
        accepted += right
    assert acceptance.expected(4) == pytest.approx(0.7 + 0.49 + 0.343 + 0.2401, rel=0.08)
    assert expected == pytest.approx(accepted, rel=0.03)
    # A target pass of 10 ms and draft passes of 5 ms: 1 draft is better than 4 by what the numbers say.
    costs = Costs(Setup(4, Coefficients(0.0, 0.0, 5e-3), Coefficients(0.0, 0.0, 10e-3)))
    one = (1.0 + acceptance.expected(1)) / 15e-3
    four = (1.0 + acceptance.expected(4)) / 30e-3
    assert Gain(acceptance).saw(costs, 3, 100, 1, 4) == pytest.approx(one / four)


# The log


def test_a_log_is_whole_lines_and_a_restart_adds_a_header(tmp_path):
    path, said = tmp_path / "seat.jsonl", []
    for start in range(2):
        log = Log(path, {"format": "foretoken-seat 1", "start": start}, said.append)
        for i in range(100):
            log.put({"is": "fallback", "at": i, "why": "x"})
        log.close()
        with open(path, "a") as file:
            file.write('{"is": "st')  # as a kill leaves it
    lines = path.read_text().splitlines()
    assert [json.loads(line).get("start") for line in (lines[0], lines[102])] == [0, 1]
    assert len(lines) == 204 and said == []
    assert all(json.loads(line)["is"] == "fallback" for line in lines[1:101] + lines[103:203])


@pytest.mark.parametrize("path", ["/dev/full", "missing/folder/seat.jsonl", "."])
def test_a_log_that_cannot_be_written_ends_with_one_line(path):
    said = []
    log = Log(Path(path), {"format": "foretoken-seat 1"}, said.append)
    until(lambda: log.ended)
    for i in range(2 * QUEUED):
        log.put({"at": i})
    log.close()
    assert len(said) == 1 and "the log" in said[0]


def test_lines_that_a_slow_disk_loses_are_counted(tmp_path):
    os.mkfifo(tmp_path / "slow")
    log = Log(tmp_path / "slow", {"format": "foretoken-seat 1"}, [].append)
    for i in range(QUEUED + 7):
        log.put({"is": "step", "at": i})
    assert log.lost == 7  # none was waited for
    with open(tmp_path / "slow") as reader:
        lines = [json.loads(reader.readline()) for _ in range(3)]
        log.ended = True
    assert lines[2] == {"is": "fallback", "at": 0, "why": "log", "said": "7 lines are lost: the disk is too slow"}


# Metrics


def scrape(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_metrics_are_prometheuss_text():
    metrics, said = Metrics(4), []
    port = metrics.serve(0, said.append)
    for length in (0, 3, 3, 4):
        metrics.used.observe(length)
    metrics.fallbacks.add(2, "slow")
    metrics.gain.set(1.25)
    text = scrape(port)
    for line in (
        'foretoken_draft_length_bucket{le="0"} 1',
        'foretoken_draft_length_bucket{le="3"} 3',
        'foretoken_draft_length_bucket{le="+Inf"} 4',
        "foretoken_draft_length_sum 10",
        "foretoken_draft_length_count 4",
        'foretoken_fallbacks_total{why="slow"} 2',
        "foretoken_estimated_gain_ratio 1.25",
        "# TYPE foretoken_decision_seconds histogram",
    ):
        assert line in text.splitlines()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scrape(port, "/")
    # Where Prometheus's own checker is installed, it agrees.
    if tool := shutil.which("promtool"):
        checked = subprocess.run([tool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
    other = Metrics(4)
    assert other.serve(port, said.append) == 0 and "cannot be used" in said[0]
    metrics.close()
    other.close()


# The policy behind its guard


class Faulty:
    """A policy that answers with 2, 1, or with a fault."""

    def __init__(self, answer=None, observe=None, build=None):
        self.answer, self.fault, self.build = answer, observe, build
        self.seen, self.gone, self.asked = [], [], 0

    def made(self, policy, setup):
        if self.build:
            raise self.build
        self.setup = setup
        return self

    def choose(self, view):
        self.asked += 1
        return self.answer() if self.answer else [2, 1]

    def observe(self, outcome):
        self.seen.append(outcome)
        if self.fault:
            raise self.fault

    def finished(self, ids):
        self.gone += ids


class Panic(BaseException):
    """As PyO3's `PanicException`, which is no `Exception`."""


def fail(error):
    def answer():
        raise error

    return answer


def late():
    time.sleep(0.02)
    return [2, 1]


def chooser(fake=None, engine=ENGINE, unfit=None, **settings):
    said = []
    settings = {"policy": {"fixed": {"k": 2}}, "act": True, "costs": PROFILE, "slow_s": 10.0} | settings
    made = Chooser(Settings(**settings), engine, said.append, unfit, fake.made if fake else Seat)
    for id in (1, 2):
        made.began(id, 10, 50)
    return made, said


def step(used=2, **others):
    of = {"ids": [1, 2], "context": [10, 20], "drafted": [2, 2], "verified": [2, 2], "accepted": [1, 2], "emitted": [2, 3]}
    of |= {"at": 1.0, "took": 0.02, "tokens": 6, "passes": used, "drafts": 2 * used}
    return Step(choice=Choice(4, used, used, 1e-5, 2), **of | others)


def test_the_longest_wish_is_used_when_acting_and_logged_in_shadow():
    for act, used in ((True, 2), (False, 4)):
        policy = Faulty()
        seat, said = chooser(policy, act=act)
        choice = seat.choose(lambda: VIEW, 4)
        assert (choice.theirs, choice.would, choice.used) == (4, 2, used)
        assert said == [] and seat.off is None and 0.0 < choice.seconds < 1.0
        seat.ran(step(), 2)
        assert policy.seen[0].accepted == [1, 2] and policy.seen[0].draft_time > 0.0
        assert policy.seen[0].draft_time + policy.seen[0].verify_time == pytest.approx(0.02)
        seat.ended(1, 5, 0, "stop")
        assert policy.gone == [1]
        seat.ran(step(), 2)  # request 1 had ended while this step was in flight
        assert policy.seen[1].ids == [2] and policy.seen[1].accepted == [2]


def test_a_real_policy_decides_in_the_seat():
    seat, said = chooser(policy={"fixed": {"k": 3}})
    assert seat.choose(lambda: VIEW, 4).used == 3  # request 1 may have 4, request 2 at most 2
    seat.ran(step(), 2)
    seat.ended(1, 5, 0, "stop")
    assert said == [] and seat.off is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (fail(ValueError("no")), "error"),
        (fail(Panic("index out of bounds")), "error"),
        (lambda: [-1, 1], "nonsense"),
        (lambda: [5, 1], "nonsense"),
        (lambda: [2, 3], "nonsense"),
        (lambda: ["2", 1], "nonsense"),
        (lambda: [2.0, 1.0], "nonsense"),
        (lambda: [None, 1], "nonsense"),
        (lambda: None, "nonsense"),
        (lambda: 3, "nonsense"),
        (lambda: [2], "nonsense"),
        (lambda: [2, 1, 1], "nonsense"),
        (late, "slow"),
    ],
)
def test_a_policy_that_fails_falls_back_and_is_soon_asked_no_more(tmp_path, answer, why):
    policy = Faulty(answer)
    seat, said = chooser(policy, log=tmp_path / "log", slow_s=0.01)
    for _ in range(FAILURES + 3):
        choice = seat.choose(lambda: VIEW, 4)
        assert (choice.used, choice.would) == (4, None)
    assert policy.asked == FAILURES and seat.off is not None
    assert seat.metrics.fallbacks.values == {why: FAILURES, "off": 1}
    assert len(said) == 2 and why in said[0] and "from now on" in said[1]
    seat.ran(step(), 2)
    seat.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line.get("why") for line in lines] == [None] * 3 + [why] * FAILURES + ["off", None]
    assert lines[-1]["is"] == "step"


def test_one_failure_is_forgiven():
    answers = iter([[2, 1], None, [2, 1], None] * 20)
    seat, said = chooser(Faulty(lambda: next(answers)))
    used = [seat.choose(lambda: VIEW, 4).used for _ in range(40)]
    assert used == [2, 4] * 20 and seat.off is None and len(said) == 1


@pytest.mark.parametrize("error", [RuntimeError("no"), Panic("no")])
def test_a_policy_that_fails_to_learn_is_asked_no_more(error):
    policy = Faulty(observe=error)
    seat, said = chooser(policy)
    for _ in range(FAILURES):
        assert seat.choose(lambda: VIEW, 3).used == 2  # its choices are good all the while
        seat.ran(step(), 2)
    assert seat.off is not None and seat.choose(lambda: VIEW, 3).used == 3
    assert len(policy.seen) == FAILURES and len(said) == 2


def test_faults_of_our_own_books_end_the_policys_part_alone():
    for fault in ("view", "books", "step"):
        seat, said = chooser(Faulty())
        if fault == "view":
            for _ in range(FAILURES):
                assert seat.choose(fail(KeyError("request")), 4).used == 4
        elif fault == "books":
            with seat.guard("schedule"):
                raise KeyError("request")
        else:
            seat.ran(step(accepted=[1]), 2)  # fewer than verified
        assert seat.off is not None and seat.choose(lambda: VIEW, 4).used == 4
        assert seat.metrics.text()


def test_the_end_of_the_process_passes_the_guard():
    for end in (KeyboardInterrupt, SystemExit):
        seat, _ = chooser(Faulty(fail(end())))
        with pytest.raises(end):
            seat.choose(lambda: VIEW, 4)
        with pytest.raises(end), seat.guard("schedule"):
            raise end


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": {"fixd": {}}}, "fixd"),
        ({"policy": {"eagle2": {}}}, "trees"),
        ({"policy": {"foresight": {}}}, "confidences"),
        ({"policy": {"fixd": {}}, "costs": None}, "fixd"),
        ({"costs": Path("missing.toml")}, "missing.toml"),
        ({"costs": Path(__file__)}, "test_seated.py"),
    ],
)
def test_a_policy_that_cannot_sit_leaves_the_engine_as_it_is(settings, said):
    seat, lines = chooser(**settings)
    assert seat.choose(lambda: VIEW, 4).used == 4
    assert len(lines) == 1 and said in lines[0] and "\n" not in lines[0]


def test_an_engine_where_no_policy_fits_is_logged_all_the_same(tmp_path):
    seat, said = chooser(Faulty(), unfit="this server does not speculate", log=tmp_path / "log")
    assert seat.choose(lambda: VIEW, 0).used == 0
    seat.ran(step(used=0), 0)
    seat.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line.get("is") for line in lines] == [None, "fallback", "request", "request", "step"] and len(said) == 1


def test_a_length_without_graphs_is_replaced_by_the_next_longer_one():
    engine = Engine("vllm", "0.32.0", 4, (0, 3))
    for wish, used in (([2, 1], 3), ([0, 0], 0), ([4, 0], 3)):
        seat, said = chooser(Faulty(lambda wish=wish: wish), engine)
        assert seat.choose(lambda: VIEW, 3).used == used
        seat.choose(lambda: VIEW, 3)
        assert len(said) == (used not in wish)


def test_when_acting_all_lengths_are_walked_until_costs_are_known():
    policy, rng = Faulty(), random.Random(2)
    seat, said = chooser(policy, costs=None)
    used, before = [], 0
    for _ in range(2000):
        choice = seat.choose(lambda: VIEW, 4)
        if choice.would is not None:
            break
        used.append(choice.used)
        tokens, context = 2 * (1 + before), [rng.randint(10, 500), 20]
        took = 13e-3 + 0.2e-3 * tokens + 1.5e-3 * choice.used
        took *= rng.gauss(1.0, 0.003)
        seat.ran(step(choice.used, tokens=tokens, context=context, took=took), choice.used)
        before = choice.used
        time.sleep(0.005 if len(used) > 80 else 0.0)  # for the fit's thread
    assert 80 <= len(used) < 400, "16 steps of each of 5 lengths are needed, and the fit is soon done"
    assert choice.would == 2 and len(said) == 1 and "costs are learnt" in said[0]
    assert len(policy.seen) >= 80, "the new policy sees what happened before"
    assert policy.setup.draft.delta_s == pytest.approx(1.5e-3, rel=0.2)


def test_on_the_walk_each_length_follows_each_other_one():
    for n in (2, 3, 5):
        seat, _ = chooser(Faulty(), Engine("vllm", "0.32.0", 8, tuple(range(n))), costs=None)
        used = [seat.choose(lambda: VIEW, 0).used for _ in range(2 * n * n + 1)]
        pairs = list(zip(used, used[1:], strict=False))
        assert all(pairs.count((a, b)) == 2 for a in range(n) for b in range(n))


def test_in_shadow_one_length_teaches_no_costs_and_two_do():
    for lengths in ((4,), (4, 1)):
        seat, said = chooser(Faulty(), costs=None, act=False)
        for i in range(600):
            length = lengths[i // 16 % len(lengths)]
            choice = seat.choose(lambda: VIEW, length)
            assert choice.used == length
            if choice.would is not None:
                break
            seat.ran(step(length, tokens=2 + 2 * length), length)
            if i % 100 == 99:
                time.sleep(0.05)
        if len(lengths) == 1:
            assert choice.would is None and len(said) == 1 and "FORETOKEN_COSTS" in said[0]
        else:
            assert choice.would == 2 and "costs are learnt" in said[0]


def test_a_fit_that_fails_switches_the_policy_off():
    policy = Faulty()
    seat, said = chooser(policy, costs=None)
    policy.build = RuntimeError("no memory")
    for i in range(2000):
        seat.ran(step(seat.choose(lambda: VIEW, 4).used), i % 5)
        if seat.off:
            break
        time.sleep(0.002 if i > 80 else 0.0)
    assert "no memory" in seat.off and seat.choose(lambda: VIEW, 4).used == 4


def test_the_estimated_gain_is_reported():
    seat, _ = chooser(Faulty(), act=False)
    for _ in range(20):
        seat.choose(lambda: VIEW, 4)
        seat.ran(step(4, verified=[4, 4], accepted=[0, 0]), 4)
    # Nothing is ever right, so 2 drafts waste less than 4.
    assert seat.metrics.gain.values[""] > 1.0
    assert seat.metrics.theirs.sum == 80.0 and seat.metrics.accepted.values[""] == 0.0


# What a real server wrote


def test_the_log_of_a_real_server_has_the_stated_keys():
    """`fixtures/seat-vllm-0.32.jsonl` is the log of a real server, cut (tests/vllm/seat/README.md)."""
    lines = [json.loads(line) for line in (Path(__file__).parent / "fixtures/seat-vllm-0.32.jsonl").read_text().splitlines()]
    header = lines[0]
    assert list(header) == ["format", "engine", "version", "started_unix_s", "policy", "mode", "settings"]
    assert (header["format"], header["engine"], header["mode"]) == ("foretoken-seat 1", "vllm", "act")
    named = "num_speculative_tokens table method model max_num_seqs max_num_batched_tokens block_size num_gpu_blocks "
    named += "enable_prefix_caching async_scheduling max_model_len runner"
    assert list(header["settings"]) == named.split()
    keys = {
        "request": "is id at prompt max_tokens",
        "step": "is at took ids context verified accepted emitted chunks running waiting kv theirs would used decision_us",
        "end": "is id at tokens cached why",
        "fallback": "is at why said",
    }
    prompt, most, tokens, at = {}, {}, {}, 0.0
    used = 0
    for line in lines[1:]:
        assert list(line) == keys[line["is"]].split()
        if line["is"] == "request":
            prompt[line["id"]], most[line["id"]], tokens[line["id"]] = line["prompt"], line["max_tokens"], 0
        elif line["is"] == "end":
            assert tokens.pop(line["id"]) == line["tokens"] and line["why"] == "length"
            assert most[line["id"]] == line["tokens"]
        elif line["is"] == "step":
            assert line["at"] >= at, "the steps of a busy engine do not overlap"
            at = line["at"] + line["took"] - 2e-6
            columns = [line[name] for name in ("ids", "context", "verified", "accepted", "emitted")]
            for id, context, verified, accepted, emitted in zip(*columns, strict=True):
                if id not in tokens:  # it ended while the step was in flight
                    assert (verified, accepted, emitted) == (0, 0, 0)
                    continue
                assert context == prompt[id] + tokens[id] - 1
                assert 0 <= accepted <= verified <= used and 1 <= emitted <= accepted + 1
                tokens[id] += emitted
            for id, before, new in line["chunks"]:
                tokens[id] += before + new == prompt[id]
            used = line["used"]
    assert sum(line["is"] == "step" and line["would"] is not None for line in lines[1:]) > 20


def test_the_wheel_names_the_plugin():
    plugins = importlib.metadata.entry_points(group="vllm.general_plugins", name="foretoken")
    assert [plugin.value for plugin in plugins] == ["foretoken.vllm:plugin"]
    (plugin,) = plugins
    plugin.load()()  # without FORETOKEN_POLICY it does nothing, and needs no vLLM
