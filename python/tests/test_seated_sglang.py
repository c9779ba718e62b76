"""A policy in SGLang's seat, over a small stand-in of its scheduler. `tests/sglang/seat/` runs SGLang's own."""

import json
import sys
import types
from pathlib import Path

import pytest

import foretoken.sglang
from foretoken.seated.chooser import nearest
from foretoken.sglang import desk, fit

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "experiments/profiles/tiny-cpu.toml"


class Mode:
    def __init__(self, name):
        self.name = name

    def is_idle(self):
        return self.name == "idle"

    def is_decode(self):
        return self.name == "decode"


class Request:
    def __init__(self, rid, prompt, most):
        self.rid, self.origin_input_ids, self.output_ids = rid, [7] * prompt, []
        self.sampling_params = types.SimpleNamespace(max_new_tokens=most)
        self.finished_len, self.finished_reason, self.is_retracted, self.cached_tokens = None, None, False, 0

    def finished(self):
        return self.finished_reason is not None

    def takes(self, tokens):
        self.output_ids += [9] * tokens
        if len(self.output_ids) >= (most := self.sampling_params.max_new_tokens):
            self.finished_len = most
            self.finished_reason = types.SimpleNamespace(to_json=lambda: {"type": "length"})


class AdaptiveSpeculativeParams:
    """Slots of 0, 1 and 3 drafts, and of 1 from four requests on. SGLang's own choice is the longest."""

    def __init__(self):
        self.told = []

    candidate_steps = [0, 1, 3]

    def _route(self, size):
        return types.SimpleNamespace(candidate_steps=[0, 1, 3] if size < 4 else [1])

    def get_steps_for_batch(self, size):
        return self._route(size).candidate_steps[-1]

    def on_verify_complete(self, counts, size):
        self.told.append(counts)
        return 1


class Scheduler:
    """Runs the batches that a test gives it. Half of the drafts of each row are right."""

    def __init__(self, args):
        self.server_args, self.params = args, sys.modules["fake"].AdaptiveSpeculativeParams()
        self.running_batch, self.waiting_queue = types.SimpleNamespace(reqs=[]), []
        self.max_total_num_tokens, self.page_size, self.max_running_requests = 1000, 1, 8
        self.chunked_prefill_size, self.max_prefill_tokens, self.enable_overlap = 256, 4096, True
        self.model_config = types.SimpleNamespace(context_len=4096)
        self.token_to_kv_pool_allocator = types.SimpleNamespace(available_size=lambda: 600)
        self.tree_cache = types.SimpleNamespace(evictable_size=lambda: 150)
        self.spec_algorithm = types.SimpleNamespace(is_none=lambda: False)
        self.model_worker = types.SimpleNamespace(speculative_num_steps=3)
        self.lengths = []

    def _add_request_to_queue(self, request):
        self.waiting_queue.append(request)

    def send_abort_output(self, message, request):
        self.waiting_queue.remove(request)

    def run_batch(self, batch):
        if batch.forward_mode.is_decode():
            self.model_worker.speculative_num_steps = self.params.get_steps_for_batch(len(batch.reqs))
            self.lengths.append(self.model_worker.speculative_num_steps)
        return types.SimpleNamespace(drafts=self.model_worker.speculative_num_steps)

    def process_batch_result(self, batch, result):
        right = (result.drafts + 1) // 2 if batch.forward_mode.is_decode() else 0
        if batch.forward_mode.is_decode():
            result.num_correct_drafts_per_req_cpu = [right] * len(batch.reqs)
            self.change = self.params.on_verify_complete([right] * len(batch.reqs), len(batch.reqs))
        for request in batch.reqs:
            if not request.finished():
                request.takes(1 + right)


ARGS = {
    "tp_size": 1, "dp_size": 1, "pp_size": 1, "disaggregation_mode": "null", "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3, "model_path": "m", "disable_radix_cache": False,
}  # fmt: skip


def module(monkeypatch, name, **values):
    made = types.ModuleType(name)
    vars(made).update(values)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def sglang(monkeypatch, tmp_path):
    """SGLang's places that the seat imports, and its classes with the hooks that the plugin registers."""
    registered = {}
    registry = types.SimpleNamespace(register=lambda target, hook, kind: registered.update({target: hook}))
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins", "sglang.srt.managers", "sglang.srt.managers.scheduler"):
        module(monkeypatch, name)
    kinds = types.SimpleNamespace(AROUND="around")
    module(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=registry, HookType=kinds)
    module(monkeypatch, "sglang.version", __version__="0.5.23")
    module(monkeypatch, "sglang.srt.runtime_context", get_parallel=lambda: types.SimpleNamespace(tp_rank=0))
    monkeypatch.setenv("FORETOKEN_POLICY", '{"fixed": {"k": 1}}')
    monkeypatch.setenv("FORETOKEN_COSTS", str(PROFILE))
    monkeypatch.setenv("FORETOKEN_LOG", str(tmp_path / "seat.jsonl"))
    monkeypatch.setenv("FORETOKEN_SLOW_S", "5")
    foretoken.sglang.plugin()
    fake = module(monkeypatch, "fake")
    for base in (AdaptiveSpeculativeParams, Scheduler):
        hooked = type(base.__name__, (base,), {})
        for target, hook in registered.items():
            owner, _, name = target.rpartition(".")
            if owner.endswith(f".{base.__name__}"):
                own = getattr(base, name)
                setattr(hooked, name, lambda *args, own=own, hook=hook, **kwargs: hook(own, *args, **kwargs))
        setattr(fake, base.__name__, hooked)
    fake.registered = registered
    fake.start = lambda **changed: fake.Scheduler(types.SimpleNamespace(**{**ARGS, **changed}))
    return fake


def batch(mode, *requests, before=(), new=(), beside=()):
    return types.SimpleNamespace(
        forward_mode=Mode(mode), reqs=list(requests), prefix_lens=list(before), extend_lens=list(new), decoding_reqs=list(beside)
    )


def serve(scheduler, overlap=False):
    """Three requests, from their prompts to their ends."""
    requests = [Request(f"r{i}", 20 + i, 8) for i in range(3)]
    for request in requests:
        scheduler._add_request_to_queue(request)
    scheduler.waiting_queue.clear()
    flying = []

    def run(made):
        flying.append((made, scheduler.run_batch(made)))
        while len(flying) > overlap:
            scheduler.process_batch_result(*flying.pop(0))

    run(batch("extend", *requests, before=[0, 4, 0], new=[20, 17, 22]))
    scheduler.running_batch.reqs = requests
    while left := [request for request in requests if not request.finished()]:
        run(batch("decode", *left))
    while flying:
        scheduler.process_batch_result(*flying.pop(0))
    return requests


def lines(scheduler, tmp_path):
    scheduler.foretoken_desk.chooser.close()
    return [json.loads(line) for line in (tmp_path / "seat.jsonl").read_text().splitlines()]


def test_a_plugin_without_a_policy_or_a_scheduler_does_nothing(sglang, monkeypatch):
    assert {target.rpartition(".")[2] for target in sglang.registered} >= {"run_batch", "get_steps_for_batch"}
    sglang.registered.clear()
    monkeypatch.delenv("FORETOKEN_POLICY")
    foretoken.sglang.plugin()
    monkeypatch.setenv("FORETOKEN_POLICY", "{}")
    monkeypatch.delitem(sys.modules, "sglang.srt.managers.scheduler")
    foretoken.sglang.plugin()
    assert not sglang.registered


@pytest.mark.parametrize("overlap", [False, True])
def test_shadow_watches_and_act_acts(sglang, monkeypatch, overlap):
    scheduler = sglang.start()
    serve(scheduler, overlap)
    assert set(scheduler.lengths) == {3} and scheduler.change == 1
    theirs = scheduler.params.told
    assert scheduler.foretoken_desk.chooser.off is None
    monkeypatch.setenv("FORETOKEN_MODE", "act")
    scheduler = sglang.start()
    requests = serve(scheduler, overlap)
    # The last token of a request needs no draft.
    assert set(scheduler.lengths) <= {0, 1} and scheduler.lengths[0] == 1
    assert all(len(request.output_ids) >= 8 for request in requests)
    # SGLang's parameters go on learning, and their change does not take effect.
    assert len(scheduler.params.told) > len(theirs) and scheduler.change is None


def test_a_length_has_graphs_at_its_batch_size(sglang, monkeypatch):
    assert [nearest(wish, [0, 1, 3]) for wish in (0, 1, 2, 3, 9)] == [0, 1, 3, 3, 3]
    monkeypatch.setenv("FORETOKEN_MODE", "act")
    monkeypatch.setenv("FORETOKEN_POLICY", '{"fixed": {"k": 3}}')
    scheduler = sglang.start()
    requests = [Request(f"r{i}", 9, 50) for i in range(4)]
    scheduler.run_batch(batch("decode", *requests))
    scheduler.run_batch(batch("decode", *requests[:3]))
    assert scheduler.lengths == [1, 3]


def test_the_log_says_what_every_batch_was(sglang, tmp_path):
    scheduler = sglang.start()
    serve(scheduler)
    gone = Request("gone", 5, 5)
    scheduler._add_request_to_queue(gone)
    scheduler._add_request_to_queue(gone)  # it was retracted and joins again
    scheduler.waiting_queue.remove(gone)
    scheduler.send_abort_output(None, gone)
    head, *rest = lines(scheduler, tmp_path)
    assert (head["format"], head["engine"], head["version"]) == ("foretoken-seat 1", "sglang", "0.5.23")
    assert head["settings"]["candidate_steps"] == [0, 1, 3] and head["settings"]["async_scheduling"] is True
    of = lambda kind: [line for line in rest if line["is"] == kind]  # noqa: E731
    assert [(line["prompt"], line["max_tokens"]) for line in of("request")] == [(20, 8), (21, 8), (22, 8), (5, 5)]
    first, *decodes = of("step")
    assert first["chunks"] == [[0, 0, 20], [1, 4, 17], [2, 0, 22]] and first["ids"] == [] and first["kv"] == 0.25
    assert [step["would"] for step in decodes] == [1] * (len(decodes) - 1) + [decodes[-1]["would"]]
    assert all(step["theirs"] == step["used"] == 3 and step["verified"] == [3, 3, 3] for step in decodes)
    assert decodes[0]["context"] == [20, 21, 22] and decodes[0]["accepted"] == [2, 2, 2]
    # Three tokens a step behind the first one; the last step goes beyond the end.
    assert [step["emitted"] for step in decodes] == [[3] * 3, [3] * 3, [1] * 3]
    assert [(line["tokens"], line["why"]) for line in of("end")] == [(8, "length")] * 3 + [(0, "abort")]
    assert not scheduler.foretoken_desk._ids


def test_a_batch_in_flight_counts_as_one_token(sglang):
    scheduler = sglang.start()
    seen = []
    seat = scheduler.foretoken_desk.chooser._seat
    scheduler.foretoken_desk.chooser._seat = types.SimpleNamespace(
        choose=lambda view: seen.append(view) or [0] * len(view.ids), observe=seat.observe, finished=seat.finished
    )
    request = Request("r", 10, 5)
    first = batch("extend", request, before=[0], new=[10])
    result = scheduler.run_batch(first)
    scheduler.run_batch(batch("decode", request))
    scheduler.process_batch_result(first, result)
    scheduler.run_batch(batch("decode", request))
    got = [(view.context[0], view.emitted[0], view.limit[0]) for view in seen]
    assert got == [(10, 1, 3), (11, 2, 2)]


def test_what_an_ended_request_gets_is_dropped(sglang, tmp_path):
    scheduler = sglang.start()
    request = Request("r", 10, 2)
    request.takes(1)
    one, two = batch("decode", request), batch("decode", request)
    results = [scheduler.run_batch(one), scheduler.run_batch(two)]
    scheduler.process_batch_result(one, results[0])
    assert request.finished()
    scheduler.process_batch_result(two, results[1])
    steps = [line for line in lines(scheduler, tmp_path)[1:] if line["is"] == "step"]
    assert [(step["verified"], step["emitted"]) for step in steps] == [([3], [1]), ([0], [0])]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dp_size": 2}, "data parallelism"),
        ({"pp_size": 2}, "pipeline parallelism"),
        ({"disaggregation_mode": "prefill"}, "different servers"),
        ({"tp_size": 2}, "all ranks must have one draft length"),
    ],
)
def test_servers_in_which_the_seat_stays_empty(sglang, monkeypatch, caplog, changed, said):
    monkeypatch.setenv("FORETOKEN_MODE", "act")
    scheduler = sglang.start(**changed)
    assert scheduler.foretoken_desk is None and said in caplog.text
    serve(scheduler)
    assert set(scheduler.lengths) == {3}


def test_an_unknown_release_and_a_bad_setting_leave_the_seat_empty(sglang, monkeypatch, caplog):
    monkeypatch.setattr(sys.modules["sglang.version"], "__version__", "0.5.230")
    assert sglang.start().foretoken_desk is None and "0.5.230 is not known" in caplog.text
    monkeypatch.setattr(sys.modules["sglang.version"], "__version__", "0.5.23")
    monkeypatch.setenv("FORETOKEN_MODE", "on")
    assert sglang.start().foretoken_desk is None and "write shadow or act" in caplog.text
    assert fit.closed("0.5.23.post1", types.SimpleNamespace(**ARGS), True, True) is None
    ranks = types.SimpleNamespace(**{**ARGS, "tp_size": 4})
    assert fit.closed("0.5.23", ranks, True, False) is None and fit.closed("0.5.23", ranks, False, False)


def test_without_adaptive_lengths_steps_are_logged_alone():
    reason = lambda changed, adaptive: fit.unfit(types.SimpleNamespace(**{**ARGS, **changed}), adaptive)  # noqa: E731
    assert "does not speculate" in reason({"speculative_algorithm": None}, None)
    assert "'NGRAM' has one draft length" in reason({"speculative_algorithm": "NGRAM"}, object())
    assert "--speculative-adaptive" in reason({}, None)
    assert reason({}, object()) is None


@pytest.mark.parametrize("method", ["began", "launches", "choose", "launched", "gives", "gave", "ended"])
def test_an_error_in_the_books_ends_the_policys_part(sglang, monkeypatch, method):
    monkeypatch.setenv("FORETOKEN_MODE", "act")
    monkeypatch.setattr(desk.Desk, method, lambda *_: 1 // 0)
    scheduler = sglang.start()
    requests = serve(scheduler)
    assert "division" in scheduler.foretoken_desk.chooser.off and scheduler.lengths[-1] in (3, 1, 0)
    assert all(request.finished() for request in requests)
    assert not scheduler.foretoken_desk._ids and not scheduler.foretoken_desk._pending
    if method in ("began", "launches", "choose", "launched"):
        assert set(scheduler.lengths) == {3}


def test_a_policy_that_fails_leaves_sglangs_length(sglang, monkeypatch):
    monkeypatch.setenv("FORETOKEN_MODE", "act")
    for answer in (lambda view: 1 // 0, lambda view: [-1] * len(view.ids), lambda view: [1], lambda view: "3"):
        scheduler = sglang.start()
        seat = scheduler.foretoken_desk.chooser._seat
        broken = types.SimpleNamespace(choose=answer, observe=seat.observe, finished=seat.finished)
        scheduler.foretoken_desk.chooser._seat = broken
        serve(scheduler)
        assert set(scheduler.lengths) == {3} and scheduler.foretoken_desk.chooser.metrics.fallbacks.values
