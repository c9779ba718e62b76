"""The dashboard in the documents is the one that its script makes, and asks for what vLLM, `serve` and a seat report."""

import importlib.util
import json
import pathlib
import re

from foretoken.seated.metrics import Metrics

ROOT = pathlib.Path(__file__).parents[2]


def test_the_committed_dashboard_is_the_scripts():
    spec = importlib.util.spec_from_file_location("make", ROOT / "tests/dashboard/make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    committed = json.loads((ROOT / "docs/grafana.json").read_text())
    assert committed == make.dashboard(), "docs/grafana.json is old: run tests/dashboard/make.py"


def test_every_metric_is_one_of_vllms():
    """`fixtures/vllm-0.32-metrics.txt` was recorded from a server of vLLM 0.32 with a drafter, and cut: of its
    histograms it has the first token's alone."""
    reported = (ROOT / "servers/fixtures/vllm-0.32-metrics.txt").read_text()
    queries = [t["expr"] for p in json.loads((ROOT / "docs/grafana.json").read_text())["panels"] for t in p["targets"]]
    asked = {name for query in queries for name in re.findall(r"vllm:\w+", query)}
    assert len(asked) > 10
    for name in asked - {"vllm:inter_token_latency_seconds_bucket"}:
        assert re.search(rf"^{name}\b", reported, re.M), name


def test_every_metric_of_a_seat_is_one_that_seats_have():
    metrics = Metrics(4)
    metrics.fallbacks.add(1, "slow")
    metrics.gain.set(1.0)
    queries = [t["expr"] for p in json.loads((ROOT / "docs/grafana.json").read_text())["panels"] for t in p["targets"]]
    asked = {name for query in queries for name in re.findall(r"foretoken_\w+", query)}
    assert len(asked) == 9
    for name in asked:
        assert re.search(rf"^{name}\b", metrics.text(), re.M), name
