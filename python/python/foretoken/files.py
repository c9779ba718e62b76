"""Reads profiles and truth tables."""

from __future__ import annotations

import json
import tomllib
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy
import polars

from foretoken import _native
from foretoken.policy import Coefficients

__all__ = ["Profile", "TruthTable"]


class Profile:
    """The times of forward passes: a file that ``foretoken profile`` or ``foretoken calibrate`` wrote.

    Parameters
    ----------
    path : path

    Attributes
    ----------
    context_reads : str
        ``"once"`` or ``"per-position"``: how a verify pass counts context.
    noise_cv : float
        Relative spread of a target pass's time.
    step_overhead_s : float or None
        Seconds of the host between steps; ``None`` if the profile does not have them.
    distrust : str or None
        The reason why the profile should not be trusted; ``None`` if there is none.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._costs = _native.Profile(self.path)

    def pass_s(self, model: str, batched: int, context: int, pairs: int = 0) -> float:
        """Seconds of a pass, as simulations with this profile compute it.

        Parameters
        ----------
        model : {"target", "draft"}
        batched : int
            Tokens pushed through the model.
        context : int
            Tokens of KV that the pass reads.
        pairs : int
            Query-key pairs of attention, for cost models that count them.

        Returns
        -------
        float
        """
        return self._costs.pass_s(model, batched, context, pairs)

    def line(self, model: str) -> Coefficients:
        """The linear cost model that policies assume.

        Parameters
        ----------
        model : {"target", "draft"}

        Returns
        -------
        Coefficients
        """
        return Coefficients(*self._costs.line(model))

    @property
    def context_reads(self) -> str:
        return self._costs.context_reads

    @property
    def noise_cv(self) -> float:
        return self._costs.noise_cv

    @property
    def step_overhead_s(self) -> float | None:
        return self._costs.step_overhead_s

    @property
    def distrust(self) -> str | None:
        return self._costs.distrust

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The whole content of the file."""
        return tomllib.loads(self.path.read_text(encoding="utf-8"))

    def measured(self, model: str) -> polars.DataFrame:
        """The measured pass shapes, one per row; empty for a calibrated profile.

        Parameters
        ----------
        model : {"target", "draft"}

        Returns
        -------
        polars.DataFrame
            ``kind``, ``requests``, ``tokens`` (new tokens per request), ``context`` (per request), ``seconds`` (mean),
            ``spread``, ``samples``, ``fold``.
        """
        names = ["kind", "requests", "tokens", "context", "seconds", "spread", "samples", "fold"]
        return polars.DataFrame(self.tables[model].get("measured", []), schema=names, orient="row")

    def __repr__(self) -> str:
        return f"Profile({str(self.path)!r})"


class TruthTable:
    """Recorded acceptance of a draft model: a file of ``foretoken profile-acceptance`` or ``foretoken calibrate``.

    Parameters
    ----------
    path : path

    Attributes
    ----------
    header : dict
        Facts about the recording: models, device, prompts, temperature, families.
    outputs : polars.DataFrame
        One row per output: ``family``, ``prompt_len``, ``tokens``.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        header, families, prompts, lengths, ranks, confidences = _native.truth_table(self.path)
        self.header: dict[str, Any] = json.loads(header)
        names = self.header["families"]
        columns = {"family": [names[f] for f in families], "prompt_len": prompts, "tokens": lengths}
        self.outputs = polars.DataFrame(columns)
        self._lengths = numpy.array(lengths, dtype="int64")
        self._ranks = numpy.frombuffer(ranks, dtype="uint8")
        self._confidences = numpy.frombuffer(confidences, dtype="<u2")

    def __len__(self) -> int:
        return len(self._lengths)

    @cached_property
    def positions(self) -> polars.DataFrame:
        """One row per output position: ``output``, ``position``, ``rank``, ``right``, ``confidence``.

        ``rank`` is the rank of the target's token among the draft's guesses, null if nothing was drafted.
        ``confidence`` is the draft's probability of its first guess, null in tables of observed servers.
        """
        starts = numpy.cumsum(self._lengths) - self._lengths
        observed = self.header.get("observed") is not None
        frame = polars.DataFrame({
            "output": numpy.repeat(numpy.arange(len(self._lengths)), self._lengths),
            "position": numpy.arange(len(self._ranks)) - numpy.repeat(starts, self._lengths),
            "rank": self._ranks,
            "confidence": self._confidences / 65535.0,
        })
        rank = polars.when(polars.col("rank") > 0).then("rank")
        confidence = polars.lit(None, polars.Float64) if observed else polars.col("confidence")
        return frame.with_columns(rank, (rank == 1).alias("right"), confidence.alias("confidence"))

    def __repr__(self) -> str:
        return f"TruthTable({str(self.path)!r})"
