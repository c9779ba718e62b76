"""Sweeps on a real cluster of two Ray nodes on this machine."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import presets
import pytest
from conftest import EXPERIMENT, digests

import foretoken
from foretoken import BadInput, Error

# `.ci/python` installs Ray and sets `FORETOKEN_REQUIRE`. The tests then fail if Ray is missing; without it they are
# skipped.
if "ray" in os.environ.get("FORETOKEN_REQUIRE", "").split(","):
    import ray
else:
    ray = pytest.importorskip("ray", reason="SKIPPED sweeps on Ray: it is not installed")
import foretoken.ray as clusters  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402


@pytest.fixture
def cluster():
    """A cluster of a head without processors, which runs no tasks, and two nodes."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    # With this path, the tasks on the cluster can import the tests' modules.
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ray.init(address=cluster.address, runtime_env={"env_vars": {"PYTHONPATH": path}}, log_to_driver=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def sweep(seeds=12, **changes):
    return {**EXPERIMENT, "seeds": list(range(1, seeds + 1)), "output": {"steps": False}, **changes}


def left(count):
    """Waits up to a minute until at most `count` nodes are alive; returns their number.

    Ray may list a node that was killed as alive for seconds, and a sweep that goes on elsewhere does not wait for that.
    """
    until = time.monotonic() + 60
    while (alive := sum(node["Alive"] for node in ray.nodes())) > count and time.monotonic() < until:
        time.sleep(0.1)
    return alive


def test_a_sweep_equals_a_run_on_one_machine(cluster, tmp_path):
    policies = ["autoregressive", "fixed", presets.SmartspecInPython]
    whole = foretoken.run(sweep(), output=tmp_path / "whole", policies=policies)
    swept = clusters.sweep(sweep(), output=tmp_path / "swept", shards=6, policies=policies)
    assert digests(swept.path) == digests(whole.path)
    assert clusters.sweep(sweep(), output=tmp_path / "swept", policies=policies).path == swept.path


def test_a_node_dies_midway_and_nothing_is_lost(cluster, tmp_path):
    hosts, nodes = cluster
    policies = ["autoregressive", presets.AdaspecInPython]
    experiment = sweep(60)
    whole = foretoken.run(experiment, output=tmp_path / "whole", figures=False, policies=policies)
    folder = tmp_path / "swept"
    cells = folder / "cells"

    def kill():
        while len(list(cells.glob("*.cell"))) < 20:
            time.sleep(0.02)
        hosts.remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    swept = clusters.sweep(experiment, output=folder, shards=8, figures=False, policies=policies)
    killer.join()
    assert left(2) == 2, "one of three is gone"
    assert digests(swept.path) == digests(whole.path)


def test_a_sweep_continues_after_ctrl_c(cluster, tmp_path):
    hosts, _ = cluster
    script = tmp_path / "sweep.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import ray
        import foretoken.ray, presets
        from conftest import EXPERIMENT
        experiment = {{**EXPERIMENT, "seeds": list(range(1, 301)), "output": {{"steps": False}}}}
        ray.init(address={hosts.address!r}, log_to_driver=False, runtime_env={{"env_vars": {{"PYTHONPATH": sys.path[0]}}}})
        try:
            foretoken.ray.sweep(
                experiment, output="swept", shards=8, figures=False, policies=["autoregressive", presets.AdaspecInPython]
            )
        except KeyboardInterrupt as e:
            print("ended:", e)
            raise SystemExit(130)
        """)
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    cells = tmp_path / "swept" / "cells"
    until = time.monotonic() + 90
    # The file of a cell (a run of one policy) gets its name `*.cell` when the run is finished.
    while time.monotonic() < until and len(list(cells.glob("*.cell"))) < 20:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 130 and "what was finished is kept" in said, said
    kept = set(cells.glob("*.cell"))
    assert 20 <= len(kept) < 600
    experiment = sweep(300)
    policies = ["autoregressive", presets.AdaspecInPython]
    swept = clusters.sweep(experiment, output=tmp_path / "swept", figures=False, policies=policies)
    assert swept.summary.height == 600


def test_failed_cells_are_reported_and_all_others_are_finished(cluster, tmp_path):
    policies = ["autoregressive", presets.Failing, "fixed"]
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        clusters.sweep(sweep(4), output=tmp_path / "swept", shards=2, policies=policies)
    told = foretoken.state(tmp_path / "swept")
    assert sum(s["finished"] for s in told["shards"]) == 8 and len(told["failures"]) == 4


def test_shards_are_checked(cluster, tmp_path):
    with pytest.raises(BadInput, match="0 shards"):
        clusters.sweep(sweep(4), output=tmp_path / "swept", shards=0)
    with pytest.raises(BadInput, match="5 shards"):
        clusters.sweep(sweep(4), output=tmp_path / "swept", shards=5)


def test_a_cluster_that_is_not_there(tmp_path):
    with pytest.raises(Error, match="no Ray cluster at 127.0.0.1:1"):
        clusters.sweep(sweep(2), output=tmp_path / "swept", address="127.0.0.1:1")


def test_without_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Error, match="Ray is not installed") as caught:
        clusters.sweep(sweep(2), output=tmp_path / "swept")
    assert "pip install" in caught.value.hint


def test_a_search_for_the_fewest_gpus_equals_one_on_one_machine(cluster, tmp_path):
    searched = {
        **EXPERIMENT,
        "seeds": [1, 2],
        "output": {"steps": False},
        "fleet": {"router": {"sweep": ["round-robin", "vllm-dp"]}, "price_gpu_hour": 2.0},
        "slo": {"ttft_s": 0.5, "tpot_s": 0.05},
        "capacity": {"requests": 40, "warm_up_requests": 2, "share": 0.9},
    }
    whole = foretoken.fleet(searched, output=tmp_path / "whole")
    spread = clusters.fleet(searched, output=tmp_path / "spread")
    assert digests(spread.path) == digests(whole.path)
    assert clusters.fleet(searched, output=tmp_path / "spread").path == spread.path
