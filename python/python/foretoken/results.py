"""Results folders, read."""

from __future__ import annotations

import json
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import polars

from foretoken import _native
from foretoken.errors import BadInput

__all__ = ["Capacity", "Results"]


class _Folder:
    """A folder of tables."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise BadInput(f"{self.path} is no folder", hint="results folders are made by foretoken.run, or `foretoken run`")
        self._read: dict[str, polars.DataFrame] = {}

    @property
    def tables(self) -> list[str]:
        """The names of its tables, each an attribute."""
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
    """The results of a run: its tables as polars DataFrames, each read when it is asked for.

    Parameters
    ----------
    path : path
        A results folder of ``foretoken.run``, or of ``foretoken run``, ``live`` or ``observe``.

    Attributes
    ----------
    summary : polars.DataFrame
        A row a cell: policy, swept values, seed, and all that is measured of it.
    requests : polars.DataFrame
        A row a request of a cell.
    steps : polars.DataFrame
        A row a step of a cell, where the experiment keeps them (``output.steps``).
    positions, series, lengths, calibration : polars.DataFrame
        Acceptance by draft position; over time; drafted lengths; confidences against what was accepted.
    path : pathlib.Path
        The folder.
    """

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was run, with which version, on which files."""
        manifest: dict[str, Any] = json.loads(self._text("manifest.json"))
        return manifest

    @cached_property
    def comparison(self) -> dict[str, Any]:
        """The comparison as data: policies, their numbers over seeds with intervals, claims of a paper."""
        comparison: dict[str, Any] = json.loads(self._text("report.json"))
        return comparison

    def show(self) -> None:
        """The comparison as the program prints it."""
        print(self._text("report.txt"), end="")

    def report(
        self, path: str | PathLike[str] | None = None, *, baseline: str | PathLike[str] | Results | None = None
    ) -> Path:
        """Writes the page.

        Parameters
        ----------
        path : path, optional
            The folder for it; ``report`` within the results where left out.
        baseline : path or Results, optional
            Other results of the same experiment to set beside these.

        Returns
        -------
        pathlib.Path
            The page.
        """
        beside = baseline.path if isinstance(baseline, Results) else baseline
        to = None if path is None else Path(path)
        return Path(_native.report(self.path, None if beside is None else Path(beside), to))

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()


class Capacity(_Folder):
    """What policies carry: the answer of :func:`foretoken.capacity`.

    Attributes
    ----------
    capacity : polars.DataFrame
        A row a policy, swept value and seed: requests/s, tokens/s a GPU.
    probes : polars.DataFrame
        A row a rate that was tried.
    """

    @cached_property
    def answer(self) -> dict[str, Any]:
        """All of it as data, with intervals over seeds."""
        answer: dict[str, Any] = json.loads(self._text("capacity.json"))
        return answer

    def show(self) -> None:
        """The table as the program prints it."""
        print(self._text("capacity.txt"), end="")

    def _repr_html_(self) -> str:
        return self.capacity._repr_html_()
