"""The view of results in a notebook: the answer, a table, and two figures."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

import polars

# The columns of the table: key in the comparison, heading, factor that converts to the heading's unit, digits.
_COLUMNS = (
    ("e2e_mean_s", "E2E, mean (s)", 1.0, 3),
    ("speedup", "speedup", 1.0, 2),
    ("ttft_mean_s", "TTFT, mean (ms)", 1e3, 1),
    ("tpot_p99_s", "TPOT, p99 (ms)", 1e3, 2),
    ("slo_attainment", "SLO met (%)", 100.0, 1),
    ("mean_acceptance_length", "acceptance length", 1.0, 2),
)

# Of these figures, the first two that the run has drawn are shown.
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


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _drawn(figure: Path) -> str:
    data = base64.b64encode(figure.read_bytes()).decode("ascii")
    return f'<img alt="{escape(figure.stem)}" style="max-width: 48%" src="data:image/svg+xml;base64,{data}">'


# A fleet with more replicas than this number is not shown replica by replica.
_MOST_REPLICAS = 16


def _of_replicas(replicas: polars.DataFrame, figures: Path) -> list[str]:
    """The fleet of the first cell that is no baseline: the share of requests and the cached prompts of each replica."""
    plain = replicas["policy"] == "autoregressive"
    drafting = replicas.filter(~plain) if not plain.all() else replicas
    swept = [column for column in replicas.columns if column.startswith("sweep.")]
    key = ["policy", *swept, "seed"]
    first = drafting.join(drafting.head(1).select(key), on=key, how="semi", nulls_equal=True).sort("replica")
    title = ", ".join(str(first[column][0]) for column in key[:-1]) + f", seed {first['seed'][0]}"
    requests = max(first["requests"].sum(), 1)
    head = ["replica", "requests (%)", "cached prompts (%)", "batch", "output tokens", "KV peak (%)"]
    rows = [
        [
            str(row["replica"]),
            f"{100 * row['requests'] / requests:.1f}",
            f"{100 * row['cached_tokens'] / row['prompt_tokens']:.1f}" if row["prompt_tokens"] else "–",
            f"{row['mean_batch_size']:.1f}",
            str(row["emitted"]),
            f"{100 * row['kv_use_peak']:.1f}",
        ]
        for row in first.head(_MOST_REPLICAS).iter_rows(named=True)
    ]
    left = first.height - len(rows)
    more = f" The table <code>replicas</code> has {left} more." if left else ""
    parts = [f"<p><b>{first.height} replicas</b>, {escape(title)}.{more}</p>", _table(head, rows)]
    for pattern in ("replica-counts*.svg", "replicas*.svg"):
        parts += [_drawn(figure) for figure in sorted(figures.glob(pattern))[:1]]
    return parts


def of_run(comparison: dict[str, Any], figures: Path, replicas: polars.DataFrame | None = None) -> str:
    """The HTML of a run.

    Parameters
    ----------
    comparison : dict
        The run's ``report.json``.
    figures : pathlib.Path
        The folder with the run's figures; it need not exist.
    replicas : polars.DataFrame, optional
        The table of replicas, for a run with a fleet.
    """
    scope = f"{comparison['scope']} · {comparison['source']} by Foretoken {comparison['version']}"
    parts = [
        f"<p><b>{escape(comparison['headline'])}</b><br><small>{escape(scope)}</small></p>",
        _table(*_rows(comparison)),
        *(_drawn(figure) for figure in _figures(figures)),
    ]
    if replicas is not None and replicas.height:
        parts += _of_replicas(replicas, figures)
    return "\n".join(parts)


def of_fleet(answer: dict[str, Any], figures: Path) -> str:
    """The HTML of a search for the fewest GPUs.

    Parameters
    ----------
    answer : dict
        The search's ``fleet.json``.
    figures : pathlib.Path
        The folder with the search's figure; it need not exist.
    """

    def number(value: float | None, digits: int) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    swept = list(answer["fleets"][0]["sweep"])
    rows = [
        [str(value) for value in fleet["sweep"].values()]
        + [fleet["policy"], fleet["router"], number(fleet["replicas"], 0), number(fleet["gpus"], 0)]
        + [number(fleet["cost_hour"], 2), number(fleet["cost_mtok"], 2)]
        for fleet in answer["fleets"]
    ]
    head = [*swept, "policy", "router", "replicas", "GPUs", "price of an hour", "price of a million tokens"]
    said = answer["headlines"]
    parts = [f"<p><b>{escape(said[0])}</b></p>", *(f"<p>{escape(line)}</p>" for line in said[1:]), _table(head, rows)]
    if (frontier := figures / "frontier.svg").is_file():
        parts.append(_drawn(frontier))
    return "\n".join(parts)
