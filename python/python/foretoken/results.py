"""Reads results folders."""

from __future__ import annotations

import json
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import polars

from foretoken import _html, _native
from foretoken.errors import BadInput

__all__ = ["Capacity", "Results"]

# The parts into which a request's time is divided, in the order of the table of ``foretoken run --why``.
_PARTS = ("plain", "drafts", "verify", "rejected", "prompts", "host", "waiting", "kv_lost")


class _Folder:
    """A folder with Parquet tables, each readable as an attribute."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise BadInput(f"{self.path} is no folder", hint="results folders are made by foretoken.run, or `foretoken run`")
        self._read: dict[str, polars.DataFrame] = {}

    @property
    def tables(self) -> list[str]:
        """The names of the folder's tables. Each name is an attribute."""
        return sorted(file.stem for file in self.path.glob("*.parquet"))

    def __getattr__(self, name: str) -> polars.DataFrame:
        if name.startswith("_") or "path" not in self.__dict__:
            raise AttributeError(name)
        file = self.path / f"{name}.parquet"
        if not file.is_file():
            raise AttributeError(f"{self.path} has no table `{name}`: it has {', '.join(self.tables)}")
        if name not in self._read:
            self._read[name] = polars.read_parquet(file)
        return self._read[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{self.path} is not complete: {error}", hint="run it again: what is finished is kept") from None


class Results(_Folder):
    """The results of a run. Its tables are polars DataFrames, each read on first use.

    Parameters
    ----------
    path : path
        A results folder of ``foretoken.run``, or of ``foretoken run``, ``live`` or ``observe``.

    Attributes
    ----------
    summary : polars.DataFrame
        One row per cell: policy, swept values, seed, and the cell's metrics.
    requests : polars.DataFrame
        One row per request of a cell.
    steps : polars.DataFrame
        One row per step of a cell, if the experiment keeps steps (``output.steps``).
    positions, series, lengths, calibration : polars.DataFrame
        Acceptance by draft position; metrics over time; counts of drafted lengths; draft confidence against acceptance.
    replicas, replica_series : polars.DataFrame
        For a fleet: one row per replica of a cell with its counts; its running, waiting and sent requests over time.
    lives, replica_counts, decisions : polars.DataFrame
        For a fleet that a rule scales: the times of each replica; the number of replicas over time; what was decided.
    path : pathlib.Path
        The results folder.
    """

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The run's experiment, Foretoken version, input files and timings."""
        manifest: dict[str, Any] = json.loads(self._text("manifest.json"))
        return manifest

    @cached_property
    def comparison(self) -> dict[str, Any]:
        """The comparison as data: metrics of each policy over seeds with intervals, and the claims of a paper."""
        comparison: dict[str, Any] = json.loads(self._text("report.json"))
        return comparison

    def show(self) -> None:
        """Prints the comparison as ``foretoken run`` does."""
        print(self._text("report.txt"), end="")

    def speedups(self, over: str | None = None) -> polars.DataFrame:
        """The speedup of each policy over plain decoding or over another policy, with its 95 % interval over seeds.

        Parameters
        ----------
        over : str, optional
            The label of the policy whose mean end-to-end latency is divided by each other policy's, seed by seed.
            Default: plain decoding, which the experiment need not list.

        Returns
        -------
        polars.DataFrame
            One row per policy and combination of swept values: ``mean``, ``low``, ``high`` and ``seeds``, the number of
            seeds. One seed has no interval: ``low`` and ``high`` are null. A policy without a speedup is left out.
        """
        rows: list[dict[str, Any]] = []
        ends = {"mean": polars.Float64, "low": polars.Float64, "high": polars.Float64}
        if over is not None:
            swept_columns = [column for column in self.summary.columns if column.startswith("sweep.")]
            at = [*swept_columns, "seed"]
            base = self.summary.filter(policy=over).select(*at, over_s="e2e_mean_s")
            if base.is_empty():
                raise BadInput(f"{self.path} has no policy `{over}`", hint="Results.summary names its policies")
            others = self.summary.filter(polars.col("policy") != over).join(base, on=at, nulls_equal=True)
            ratios = others.with_columns(ratio=polars.col("over_s") / polars.col("e2e_mean_s")).drop_nulls("ratio")
            for key, of in ratios.group_by("policy", *swept_columns, maintain_order=True):
                names = dict(zip(["policy", *swept_columns], key, strict=True))
                interval = _native.ratio_interval(of["ratio"].to_list())
                rows.append(names | dict(zip(["mean", "low", "high", "seeds"], interval, strict=True)))
            return polars.DataFrame(rows, schema_overrides=ends, infer_schema_length=None)
        for variant in self.comparison["variants"]:
            swept = {
                f"sweep.{choice['path']}": choice["value"] if choice["number"] is None else choice["number"]
                for choice in variant["sweep"]
            }
            for policy in variant["policies"]:
                if (of := policy.get("speedup")) is not None:
                    seen = {"mean": of["mean"], "low": of.get("low"), "high": of.get("high"), "seeds": of["n"]}
                    rows.append({"policy": policy["policy"], **swept, **seen})
        return polars.DataFrame(rows, schema_overrides=ends, infer_schema_length=None)

    def why(self) -> polars.DataFrame:
        """Why each policy is slower or faster than plain decoding: the difference in parts.

        Returns
        -------
        polars.DataFrame
            One row per policy and combination of swept values, without the autoregressive one. ``difference_s`` is the
            mean end-to-end latency of the policy minus that of autoregressive on the same draws, seconds, averaged over
            seeds; ``difference_half_width_s`` is half its 95 % interval, null with one seed. The other columns are the
            parts of the difference, and sum to it: ``plain_s`` (target passes at one token a request), ``drafts_s``,
            ``verify_s``, ``rejected_s``, ``prompts_s``, ``host_s``, ``waiting_s``, ``kv_lost_s``. ``mostly`` names the
            largest part in a sentence.

        Raises
        ------
        BadInput
            No policy here can be compared with plain decoding.
        """
        rows: list[dict[str, Any]] = []
        for variant in self.comparison["variants"]:
            swept = {choice["path"]: choice["value"] for choice in variant["sweep"]}
            for policy in variant["policies"]:
                if (why := policy.get("why")) is None:
                    continue
                whole = why["difference_s"]
                row = {"policy": policy["policy"], **swept, "difference_s": whole["mean"]}
                row["difference_half_width_s"] = whole["half_width"]
                row |= {f"{part}_s": why["parts_s"][part]["mean"] for part in _PARTS}
                rows.append(row | {"mostly": why["mostly"]})
        if not rows:
            raise BadInput(
                f"{self.path}: no policy here can be compared with plain decoding",
                hint="it takes a policy beside `autoregressive`, and results of this version: add one, or run again",
            )
        return polars.DataFrame(rows, schema_overrides={"difference_half_width_s": polars.Float64}, infer_schema_length=None)

    def report(
        self, path: str | PathLike[str] | None = None, *, baseline: str | PathLike[str] | Results | None = None
    ) -> Path:
        """Writes the page of the results, an HTML file.

        Parameters
        ----------
        path : path, optional
            The folder for the page; the default is ``report`` within the results.
        baseline : path or Results, optional
            Other results of the same experiment to set beside these.

        Returns
        -------
        pathlib.Path
            Path of the page.
        """
        beside = baseline.path if isinstance(baseline, Results) else baseline
        to = None if path is None else Path(path)
        return Path(_native.report(self.path, None if beside is None else Path(beside), to))

    def _repr_html_(self) -> str:
        replicas = self.replicas if "replicas" in self.tables else None
        return _html.of_run(self.comparison, self.path / "figures", replicas)


class Capacity(_Folder):
    """The result of :func:`foretoken.capacity`: the highest rate that each policy sustains.

    Attributes
    ----------
    capacity : polars.DataFrame
        One row per policy, swept value and seed: requests/s, tokens/s per GPU.
    probes : polars.DataFrame
        One row per rate that was tried.
    """

    @cached_property
    def answer(self) -> dict[str, Any]:
        """The whole result as data, with intervals over seeds."""
        answer: dict[str, Any] = json.loads(self._text("capacity.json"))
        return answer

    def show(self) -> None:
        """Prints the table as ``foretoken capacity`` does."""
        print(self._text("capacity.txt"), end="")

    def _repr_html_(self) -> str:
        return self.capacity._repr_html_()


class Fleet(_Folder):
    """The result of :func:`foretoken.fleet`: the fewest GPUs with which each policy keeps the bounds.

    Attributes
    ----------
    fleet : polars.DataFrame
        One row per number of replicas that was tried: whether it carried the load, its price, its latencies.
    page : pathlib.Path
        The page of the results, an HTML file; it exists unless figures were turned off.
    """

    @property
    def page(self) -> Path:
        """Path of the page of the results."""
        return self.path / "fleet.html"

    @cached_property
    def answer(self) -> dict[str, Any]:
        """The whole result as data, with the number of GPUs that perfect scaling needs."""
        answer: dict[str, Any] = json.loads(self._text("fleet.json"))
        return answer

    def show(self) -> None:
        """Prints the table as ``foretoken fleet`` does."""
        print(self._text("fleet.txt"), end="")

    def _repr_html_(self) -> str:
        return _html.of_fleet(self.answer, self.path / "figures")
