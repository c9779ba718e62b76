"""The view of results in a notebook: the answer, a table, and two figures."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

# Keys of the comparison, headings, factors to the headings' units, and digits.
_COLUMNS = (
    ("e2e_mean_s", "E2E, mean (s)", 1.0, 3),
    ("speedup", "speedup", 1.0, 2),
    ("ttft_mean_s", "TTFT, mean (ms)", 1e3, 1),
    ("tpot_p99_s", "TPOT, p99 (ms)", 1e3, 2),
    ("slo_attainment", "SLO met (%)", 100.0, 1),
    ("mean_acceptance_length", "acceptance length", 1.0, 2),
)

# The first two of these that the run has drawn are shown.
_FIGURES = ("speedup*.svg", "tpot*.svg", "ttft*.svg", "slo-attainment*.svg", "draft-length*.svg")


def _number(value: dict[str, Any] | None, factor: float, digits: int) -> str:
    """A mean, with half the width of its 95 % interval if there are several seeds; a dash without a value."""
    if value is None:
        return "–"
    half = value.get("half_width")
    if half is None and value.get("low") is not None:
        half = (value["high"] - value["low"]) / 2
    mean = f"{value['mean'] * factor:.{digits}f}"
    return mean if half is None else f"{mean} ± {half * factor:.{digits}f}"


def _rows(comparison: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The headings and the rows of the table. Columns without a number are left out."""
    shown = [
        (variant, policy)
        for variant in comparison["variants"]
        for policy in variant["policies"]
        if not policy["implied"]
    ]
    swept = [choice["name"] for choice in comparison["variants"][0]["sweep"]]
    columns = [column for column in _COLUMNS if any(policy.get(column[0]) is not None for _, policy in shown)]
    rows = [
        [choice["value"] for choice in variant["sweep"]]
        + [policy["policy"]]
        + [_number(policy.get(key), factor, digits) for key, _, factor, digits in columns]
        for variant, policy in shown
    ]
    return [*swept, "policy", *(heading for _, heading, _, _ in columns)], rows


def _figures(folder: Path) -> list[Path]:
    found: list[Path] = []
    for pattern in _FIGURES:
        found += sorted(folder.glob(pattern))[:1]
    return found[:2]


def of_run(comparison: dict[str, Any], figures: Path) -> str:
    """The HTML of a run.

    Parameters
    ----------
    comparison : dict
        The run's ``report.json``.
    figures : pathlib.Path
        The folder with the run's figures; it need not exist.
    """
    head, rows = _rows(comparison)
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    scope = f"{comparison['scope']} · {comparison['source']} by Foretoken {comparison['version']}"
    parts = [
        f"<p><b>{escape(comparison['headline'])}</b><br><small>{escape(scope)}</small></p>",
        f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>",
    ]
    for figure in _figures(figures):
        data = base64.b64encode(figure.read_bytes()).decode("ascii")
        parts.append(f'<img alt="{escape(figure.stem)}" style="max-width: 48%" src="data:image/svg+xml;base64,{data}">')
    return "\n".join(parts)
