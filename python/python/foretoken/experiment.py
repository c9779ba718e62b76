"""Runs experiments, shards and searches."""

from __future__ import annotations

import json
import warnings as python_warnings
from os import PathLike
from pathlib import Path
from typing import Any

from foretoken import _native
from foretoken._progress import shown
from foretoken.errors import BadInput
from foretoken.policy import Registered, _number, registered
from foretoken.results import Capacity, Fleet, Results

__all__ = ["ForetokenWarning", "capacity", "decide", "fleet", "merge", "run", "shard", "state"]


class ForetokenWarning(UserWarning):
    """A warning about results, for example that a policy stopped speculating or that a setting had no effect."""


def run(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    output: str | PathLike[str] | None = None,
    mode: str = "resume",
    threads: int | None = None,
    figures: bool = True,
    regret: bool = False,
    progress: bool | None = None,
    **overrides: Any,
) -> Results:
    """Runs an experiment.

    Parameters
    ----------
    experiment : path or dict
        An experiment file, or its content as a dict. Relative paths in a file start at the file's folder, in a dict at
        the working directory.
    output : path, optional
        The results folder. The default ``results/NAME-DIGEST`` is the same for equal experiments.
    mode : {"resume", "overwrite", "fresh"}
        What to do if the folder exists: continue it if it belongs to this experiment, replace it, or raise an error.
    threads : int, optional
        Number of threads; the default is one per core. Policies in Python share one interpreter.
    figures : bool
        Whether to draw figures and write the page.
    regret : bool
        Whether to add the policy ``oracle-goodput`` and each policy's regret against it.
    progress : bool, optional
        Whether to show a progress bar; the default shows one in terminals and notebooks.
    **overrides
        Replaced settings of the experiment, with ``__`` for the dot: ``workload__requests=100``,
        ``engine__max_num_seqs={"sweep": [8, 64]}``. ``policies`` is a list of names, of tables of settings under a name, and
        of policies in Python: classes, factories, or a ``functools.partial`` of one with its settings.

    Returns
    -------
    Results

    Raises
    ------
    BadInput
        If the experiment or a policy is invalid. ``__cause__`` is the exception that the policy raised.
    Error
        If results cannot be written.
    KeyboardInterrupt
        After Ctrl-C. Finished cells are kept, and the same call continues the run.
    """
    asked, _ = _experiment(experiment, overrides)
    options = _options(output, mode, threads, figures)
    with shown(progress, "cells") as tell:
        return Results(_said(_native.run(asked, options, regret, tell)))


def capacity(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    output: str | PathLike[str] | None = None,
    mode: str = "resume",
    threads: int | None = None,
    figures: bool = True,
    progress: bool | None = None,
    **overrides: Any,
) -> Capacity:
    """Searches the highest request rate at which each policy keeps the experiment's bounds.

    Parameters
    ----------
    experiment, output, mode, threads, figures, progress, **overrides
        See :func:`run`. The experiment's ``slo`` has the bounds, its ``capacity`` the settings of the search.

    Returns
    -------
    Capacity
    """
    asked, _ = _experiment(experiment, overrides)
    options = _options(output, mode, threads, figures)
    with shown(progress, "searches") as tell:
        return Capacity(_said(_native.capacity(asked, options, tell)))


def fleet(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    output: str | PathLike[str] | None = None,
    mode: str = "resume",
    threads: int | None = None,
    figures: bool = True,
    progress: bool | None = None,
    **overrides: Any,
) -> Fleet:
    """Searches the fewest GPUs with which a fleet keeps the experiment's bounds at its own load.

    Parameters
    ----------
    experiment, output, mode, threads, figures, progress, **overrides
        See :func:`run`. The experiment's ``slo`` has the bounds, its ``fleet`` the router and the price of a GPU.

    Returns
    -------
    Fleet
    """
    asked, _ = _experiment(experiment, overrides)
    options = _options(output, mode, threads, figures)
    with shown(progress, "fleets") as tell:
        return Fleet(_said(_native.fleet(asked, options, tell)))


def shard(
    experiment: str | PathLike[str] | dict[str, Any],
    which: str,
    *,
    output: str | PathLike[str],
    retry_failed: bool = False,
    threads: int | None = None,
    progress: bool | None = None,
    **overrides: Any,
) -> int:
    """Runs or continues one shard of an experiment. All shards write to one shared folder.

    Parameters
    ----------
    experiment, threads, progress, **overrides
        See :func:`run`.
    which : str
        ``"I/N"``: shard I of N, counted from 1.
    output : path
        The folder that all shards share.
    retry_failed : bool
        Whether to run cells again that failed before.

    Returns
    -------
    int
        Number of cells in the shard; 0 if the shard was complete before.
    """
    asked, _ = _experiment(experiment, overrides)
    folder, *_ = _native.begin(asked, Path(output))
    with shown(progress, "cells") as tell:
        return _native.shard(Path(folder), which, retry_failed, threads, tell)


def merge(
    folder: str | PathLike[str],
    *,
    figures: bool = True,
    threads: int | None = None,
    progress: bool | None = None,
) -> Results:
    """Merges the shards in a folder. The results equal those of a run on one machine byte for byte, except for timings.

    Parameters
    ----------
    folder : path
        The folder that the shards share.
    figures, threads, progress
        See :func:`run`.

    Returns
    -------
    Results
    """
    options = _options(None, "resume", threads, figures)
    with shown(progress, "cells") as tell:
        return Results(_said(_native.merge_shards(Path(folder), options, tell)))


def state(folder: str | PathLike[str]) -> dict[str, Any]:
    """Reports the progress of the shards in a folder.

    Parameters
    ----------
    folder : path

    Returns
    -------
    dict
        ``cells``, ``shards`` (each with ``cells``, ``finished``, ``failed``), and ``failures``.
    """
    progress: dict[str, Any] = json.loads(_native.state(Path(folder)))
    return progress


def decide(state: str | PathLike[str] | dict[str, Any], *, explain: bool = False) -> list[dict[str, Any]]:
    """Computes what each policy decides in a given state.

    Parameters
    ----------
    state : path or dict
        The state, in the format that ``foretoken decide --help`` shows.
    explain : bool
        Whether to add the candidates that each policy compared.

    Returns
    -------
    list of dict
        One decision per policy of the state.
    """
    if isinstance(state, dict):
        name, text = "state", _json(state, "the state")
    else:
        name = str(state)
        try:
            text = Path(state).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read the state: {error}") from None
    decisions: list[dict[str, Any]] = json.loads(_native.decide(name, text, explain))
    return decisions


def _experiment(
    experiment: str | PathLike[str] | dict[str, Any], overrides: dict[str, Any]
) -> tuple[dict[str, Any], list[Registered]]:
    """The experiment in the form of the native module, and its Python policies, which are registered here."""
    ours: list[Registered] = []

    def entry(policy: Any) -> dict[str, Any]:
        if isinstance(policy, str):
            return {policy: {}}
        if isinstance(policy, dict):
            return policy
        made = registered(policy)
        ours.append(made)
        return made.entry

    def with_policies(tables: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(tables.get("policies"), (list, tuple)):
            return tables
        return {**tables, "policies": [entry(policy) for policy in tables["policies"]]}

    file = text = None
    if isinstance(experiment, dict):
        text = _native.as_toml(_json(with_policies(experiment), "the experiment"), True)
    else:
        file = Path(experiment)
    changes = with_policies({key.replace("__", "."): value for key, value in overrides.items()})
    sets = [f"{key}={_native.as_toml(_json(value, key), False)}" for key, value in changes.items()]
    _register(ours)
    return {"file": file, "text": text, "sets": sets}, ours


def _register(policies: list[Registered]) -> None:
    code: dict[str, str] = {}
    for policy in policies:
        if code.setdefault(policy.name, policy.code) != policy.code:
            raise BadInput(
                f"two policies are named `{policy.name}`", hint='give one of them another: `name = "my-other-policy"`'
            )
        policy.register()


def _options(
    output: str | PathLike[str] | None, mode: str, threads: int | None, figures: bool
) -> dict[str, Any]:
    folder = None if output is None else Path(output)
    return {"output": folder, "mode": mode, "threads": threads, "figures": figures}


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, default=_path, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what}: it cannot be written as TOML: {error}") from None


def _path(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else _number(value)


def _said(made: tuple[str, list[str], list[str]]) -> str:
    folder, warnings, notes = made
    for text in [*warnings, *notes]:
        python_warnings.warn(text, ForetokenWarning, stacklevel=3)
    return folder
