"""Tests of running, reading and interrupting experiments, of shards, and of files."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars
import pytest
from conftest import EXPERIMENT, digests

import foretoken
from foretoken import BadInput

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "experiments" / "quickstart.toml"


def test_a_file_with_overrides_gives_the_results_of_the_program(tmp_path):
    changes = {"seeds": [1, 2], "workload__requests": 40, "engine__max_num_seqs": {"sweep": [8, 64]}}
    ours = foretoken.run(QUICKSTART, output=tmp_path / "ours", **changes)
    sets = ["--set", "seeds=[1, 2]", "--set", "workload.requests=40", "--set", "engine.max_num_seqs={ sweep = [8, 64] }"]
    command = [sys.executable, "-m", "foretoken", "run", QUICKSTART, "-o", tmp_path / "theirs", *sets]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert digests(ours.path) == digests(tmp_path / "theirs")
    assert (ours.path / "report.txt").read_text() == done.stdout


def test_tables_are_frames(experiment):
    results = foretoken.run(experiment, figures=False)
    assert results.summary.height == 4 and isinstance(results.summary, polars.DataFrame)
    assert results.requests.height == 4 * 60 and {"summary", "requests", "steps"} <= set(results.tables)
    assert results.steps.height > 100 and "requests" in dir(results)
    assert results.comparison["name"] == "small" or "policies" in results.comparison
    assert results.manifest["complete"]
    with pytest.raises(AttributeError, match="has no table `nothing`: it has calibration"):
        results.nothing  # noqa: B018
    assert "small" in repr(results)
    page = results.report(Path("page"))
    assert page.name == "index.html" and "<title>" in page.read_text()
    beside = results.report(Path("beside"), baseline=results)
    assert beside.exists()


def test_results_show_themselves_in_a_notebook(experiment):
    results = foretoken.run(experiment)
    html = results._repr_html_()
    assert results.comparison["headline"].split(":")[0] in html and "simulated" in html
    for variant in results.comparison["variants"]:
        for policy in variant["policies"]:
            assert (f"<td>{policy['policy']}</td>" in html) == (not policy["implied"])
    assert html.count("<img ") == 2 and html.count("data:image/svg+xml;base64,") == 2
    without = foretoken.run(experiment, figures=False, output=Path("bare"))._repr_html_()
    assert "<table>" in without and "<img" not in without


def test_why_splits_the_difference_to_plain_decoding(experiment):
    results = foretoken.run(experiment, figures=False)
    why = results.why()
    parts = [column for column in why.columns if column.endswith("_s") and not column.startswith("difference")]
    assert len(parts) == 8 and why.height > 0 and "autoregressive" not in why["policy"]
    summary = results.summary.group_by("policy").agg(polars.col("e2e_mean_s").mean())
    e2e = dict(summary.iter_rows())
    for row in why.iter_rows(named=True):
        difference = e2e[row["policy"]] - e2e["autoregressive"]
        assert sum(row[part] for part in parts) == pytest.approx(row["difference_s"], rel=1e-9, abs=1e-12)
        assert row["difference_s"] == pytest.approx(difference, rel=1e-6, abs=1e-12)
        assert row["policy"] in row["mostly"]


def test_speedups_have_intervals(experiment):
    results = foretoken.run(experiment, seeds=[1, 2, 3], engine__max_num_seqs={"sweep": [4, 8]})
    of = results.speedups()
    assert of.columns == ["policy", "sweep.engine.max_num_seqs", "mean", "low", "high", "seeds"]
    drafting = of.filter(polars.col("policy") != "autoregressive")
    assert (drafting["low"] < drafting["mean"]).all() and (drafting["mean"] < drafting["high"]).all()
    assert (of["seeds"] == 3).all()
    # The mean of ratios is geometric, and lies between the seeds' own.
    own = results.summary.group_by("policy", "sweep.engine.max_num_seqs").agg(least=polars.min("speedup"), most=polars.max("speedup"))
    both = drafting.join(own, on=["policy", "sweep.engine.max_num_seqs"])
    assert len(both) == len(drafting) and both["mean"].is_between(both["least"], both["most"]).all()
    # Over plain decoding by name: the same numbers. Over another policy: ratios of latencies, seed by seed.
    by_name = results.speedups(over="autoregressive").join(drafting, on=["policy", "sweep.engine.max_num_seqs"])
    assert len(by_name) == len(drafting)
    for column in ["mean", "low", "high"]:
        assert (by_name[column] - by_name[f"{column}_right"]).abs().max() < 1e-9
    first = drafting["policy"][0]
    e2e = results.summary.pivot(on="policy", index=["sweep.engine.max_num_seqs", "seed"], values="e2e_mean_s")
    for row in results.speedups(over=first).iter_rows(named=True):
        here = e2e.filter(polars.col("sweep.engine.max_num_seqs") == row["sweep.engine.max_num_seqs"])
        assert row["mean"] == pytest.approx((here[first] / here[row["policy"]]).mean(), rel=1e-12)
    with pytest.raises(BadInput, match="no policy"):
        results.speedups(over="nothing")


def test_a_complete_folder_is_read_and_an_unfinished_one_goes_on(experiment, tmp_path):
    first = foretoken.run(experiment, figures=False)
    assert first.path.parent.name == "results" and first.path.name.startswith("small-")
    before = digests(first.path)
    assert digests(foretoken.run(experiment, figures=False).path) == before
    with pytest.raises(BadInput, match="not empty|is there"):
        foretoken.run(experiment, figures=False, mode="fresh")
    assert digests(foretoken.run(experiment, figures=False, mode="overwrite").path) == before
    with pytest.raises(ValueError, match="none of"):
        foretoken.run(experiment, mode="again")


def test_errors_have_a_place_and_a_hint(experiment, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(QUICKSTART.read_text().replace("arrivals", "arrival", 1))
    with pytest.raises(BadInput) as caught:
        foretoken.run(file)
    error = caught.value
    assert "arrival" in error.message and "arrivals" in f"{error.message}{error.hint}"
    assert error.place.startswith(f"{file}:") and error.exit_code == 2 and error.hint in str(error)
    with pytest.raises(BadInput, match="cannot read the experiment"):
        foretoken.run(tmp_path / "nothing.toml")
    with pytest.raises(BadInput, match="cannot be written as TOML"):
        foretoken.run(experiment, workload__requests=float("nan"))
    with pytest.raises(BadInput, match="cannot be written as TOML"):
        foretoken.run(experiment, workload__requests=object())
    with pytest.raises(BadInput, match="reqests"):
        foretoken.run(experiment, workload__reqests=3)
    with pytest.raises(BadInput, match="is no folder"):
        foretoken.Results(tmp_path / "nowhere")


def test_regret_can_be_added_to_any_experiment(experiment):
    results = foretoken.run(experiment, figures=False, regret=True)
    assert "oracle-goodput" in results.summary["policy"].to_list()


def test_progress_is_reported(experiment, monkeypatch):
    from foretoken import _native, experiment as module

    told = []
    asked, _ = module._experiment(experiment, {})
    options = module._options(None, "resume", 1, False)
    _native.run(asked, options, False, lambda done, of: told.append((done, of)))
    assert told[-1] == (4, 4) and told == sorted(told)


def test_an_exception_in_the_progress_function_ends_the_run(experiment):
    from foretoken import _native, experiment as module

    def no(done, of):
        raise LookupError("not found")

    asked, _ = module._experiment({**experiment, "workload": {**experiment["workload"], "requests": 30000}}, {})
    with pytest.raises((LookupError, KeyboardInterrupt)):
        _native.run(asked, module._options(None, "resume", 1, False), False, no)


def test_a_run_continues_after_ctrl_c(tmp_path):
    script = tmp_path / "long.py"
    script.write_text(
        textwrap.dedent(f"""
        import foretoken
        from functools import partial
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import presets
        experiment = {EXPERIMENT!r}
        experiment["seeds"] = list(range(1, 400))
        try:
            foretoken.run(experiment, output="long", figures=False, policies=["autoregressive", presets.AdaspecInPython])
        except KeyboardInterrupt as e:
            print("ended:", e)
            raise SystemExit(130)
        """)
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    cells = tmp_path / "long" / "cells"
    until = time.monotonic() + 60
    # The file of a cell (a run of one policy) gets its name `*.cell` when the run is finished.
    while time.monotonic() < until and len(list(cells.glob("*.cell"))) < 10:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "what was finished is kept" in said
    kept = len(list(cells.glob("*.cell")))
    assert 10 <= kept < 798


def test_merged_shards_equal_a_run_on_one_machine(experiment, tmp_path):
    experiment["engine"] = {"max_num_seqs": {"sweep": [4, 16, 64]}}
    whole = foretoken.run(experiment, output=tmp_path / "whole")
    for i in (2, 3, 1):
        assert foretoken.shard(experiment, f"{i}/3", output=tmp_path / "shared") == 4
    assert foretoken.shard(experiment, "1/3", output=tmp_path / "shared") == 0
    assert [s["finished"] for s in foretoken.state(tmp_path / "shared")["shards"]] == [4, 4, 4]
    merged = foretoken.merge(tmp_path / "shared")
    assert digests(merged.path) == digests(whole.path)
    with pytest.raises(ValueError, match="counted from 1"):
        foretoken.shard(experiment, "0/3", output=tmp_path / "other")


def test_capacity(experiment):
    experiment["slo"] = {"ttft_s": 1.0, "tpot_s": 0.03}
    experiment["capacity"] = {"requests": 100, "warm_up_requests": 10, "tolerance": 0.05}
    found = foretoken.capacity(experiment, figures=False)
    assert found.capacity.height == 4 and found.probes.height > 8
    assert all(c["req_s"] for c in found.answer["capacities"])
    assert foretoken.capacity(experiment, figures=False).path == found.path
    with pytest.raises(BadInput, match="has no SLO"):
        foretoken.capacity({**experiment, "slo": {}}, figures=False, output="nothing", mode="fresh")
    assert not Path("nothing").exists(), "what came to nothing leaves nothing"


def test_fleet(experiment):
    experiment["slo"] = {"ttft_s": 1.0, "tpot_s": 0.03}
    experiment["capacity"] = {"share": 0.9, "requests": 100, "warm_up_requests": 10, "tolerance": 0.05}
    experiment["fleet"] = {"router": "least-requests", "price_gpu_hour": 2.0}
    found = foretoken.fleet(experiment, figures=False)
    assert found.fleet.height >= 4 and {"replicas", "cost_hour", "carried"} <= set(found.fleet.columns)
    assert all(f["replicas"] >= 1 for f in found.answer["fleets"])
    with pytest.raises(BadInput, match="price_gpu_hour is missing"):
        foretoken.fleet({**experiment, "fleet": {"router": "random"}}, figures=False, output="nothing", mode="fresh")


def test_a_search_for_the_fewest_gpus_shows_itself(experiment):
    experiment["slo"] = {"ttft_s": 1.0, "tpot_s": 0.03}
    experiment["capacity"] = {"share": 0.9, "requests": 100, "warm_up_requests": 10, "tolerance": 0.05}
    experiment["fleet"] = {"router": "least-requests", "price_gpu_hour": 2.0}
    found = foretoken.fleet(experiment)
    html = found._repr_html_()
    assert "as little as any" in found.answer["headlines"][0] and found.answer["headlines"][0] in html
    assert html.count("<img ") == 1 and "least-requests" in html
    assert found.answer["headlines"][0] in found.page.read_text()


def test_a_fleet_has_its_replicas_everywhere(experiment):
    experiment["fleet"] = {"replicas": 3, "router": "least-requests"}
    results = foretoken.run(experiment)
    assert results.replicas.height == 4 * 3 and {"replicas", "replica_series"} <= set(results.tables)
    series = results.replica_series
    assert {"replica", "start_s", "running", "waiting", "sent", "cached_tokens"} <= set(series.columns)
    assert series["sent"].sum() == results.replicas["requests"].sum() == 4 * 60
    # The time that all requests waited and ran on replicas equals their time in the fleet.
    spent = (series["width_s"] * (series["running"] + series["waiting"])).sum()
    assert spent == pytest.approx(results.requests["e2e_s"].sum(), rel=1e-6)
    steps = results.steps.group_by("policy", "seed", "replica").len().height
    assert steps == 4 * 3, "every replica has steps"
    html = results._repr_html_()
    assert "<b>3 replicas</b>, fixed-3, seed 1." in html and html.count("<img ") == 3
    page = results.report(Path("page")).read_text()
    assert 'id="fleet"' in page and "Each replica, fixed-3" in page
    assert "replicas</b>" not in foretoken.run({**EXPERIMENT}, output=Path("alone"), figures=False)._repr_html_()


def test_policies_are_listed():
    listed = foretoken.policies()
    assert len(listed) > 40 and all({"name", "summary", "source", "settings"} <= set(p) for p in listed)


def test_a_profile_is_read():
    profile = foretoken.Profile(ROOT / "experiments" / "profiles" / "tiny-cpu.toml")
    line = profile.line("target")
    assert line.delta_s > 0 and profile.context_reads in ("once", "per-position")
    assert profile.pass_s("target", 8, 800, 800) > profile.pass_s("draft", 8, 800, 800) > 0
    measured = profile.measured("target")
    assert measured.height > 50 and measured["seconds"].min() > 0
    with pytest.raises(ValueError, match="neither"):
        profile.pass_s("both", 1, 1)
    with pytest.raises(BadInput):
        foretoken.Profile(QUICKSTART)


def test_a_truth_table_is_read():
    table = foretoken.TruthTable(ROOT / "experiments" / "profiles" / "tiny-pair.truth")
    assert len(table) == table.outputs.height and table.outputs["tokens"].sum() == table.positions.height
    right = table.positions["right"].mean()
    assert 0.2 < right < 1.0
    assert table.positions["confidence"].is_between(0, 1).all()
    # Draft tokens with a high confidence are right more often than all draft tokens.
    sure = table.positions.filter(polars.col("confidence") > 0.9)["right"].mean()
    assert sure > right
    with pytest.raises(BadInput):
        foretoken.TruthTable(QUICKSTART)


@pytest.mark.parametrize("page", ["python/README.md", "docs/write-a-policy.md"])
def test_the_documents_python_example_runs(tmp_path, page):
    """Runs a page's example in the root folder of the source. It prints what the page shows: some of the lines, of which
    one with `…` at its end is cut."""
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    example, *rest = (ROOT / page).read_text().split("```python\n")[1].split("```")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "calm-or-busy" in done.stdout, done.stderr
    printed = iter(done.stdout.splitlines())
    shown = "```".join(rest).split("```text\n")[1:]
    for line in shown[0].split("```")[0].splitlines() if shown else []:
        start = line.removesuffix("…")
        same = str.startswith if line.endswith("…") else (lambda out, start: out.rstrip() == start)
        assert any(same(out, start) for out in printed), f"{page} prints no more {line!r}. It prints:\n{done.stdout}"


def test_the_program():
    def run(*words):
        return subprocess.run([sys.executable, "-m", "foretoken", *words], capture_output=True, text=True)

    assert "speculate" in run("--help").stdout
    assert run("policies", "show", "adaspec").stdout.startswith("adaspec:")
    wrong = run("run", "nothing.toml")
    assert wrong.returncode == 2 and "cannot read the experiment" in wrong.stderr
