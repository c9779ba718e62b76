"""Running experiments."""

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
from foretoken.results import Capacity, Results

__all__ = ["ForetokenWarning", "capacity", "decide", "merge", "run", "shard", "state"]


class ForetokenWarning(UserWarning):
    """What must be known of results: of a profile that is not trusted, of a policy that stopped speculating, of a setting that did nothing."""


def run(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    output: str | PathLike[str] | None = None,
    mode: str = "resume",
    threads: int | None = None,
    figures: bool = True,
    check_settings: str = "auto",
    regret: bool = False,
    progress: bool | None = None,
    **overrides: Any,
) -> Results:
    """Runs an experiment.

    Parameters
    ----------
    experiment : path or dict
        An experiment file, or what one says as tables. Relative paths start at the file's folder; those of a dict at the
        working directory.
    output : path, optional
        The results folder; ``results/NAME-DIGEST`` where left out, so that the same experiment has the same one.
    mode : {"resume", "overwrite", "fresh"}
        What to do with a folder that is there: go on with it if it is of this experiment, replace it, or refuse.
    threads : int, optional
        All cores where left out. Policies in Python share one interpreter.
    figures : bool
        Draw figures and the page?
    check_settings : {"auto", "always", "never"}
        When the run is tried again without its settings, to name those that did nothing.
    regret : bool
        Add ``oracle-goodput``, and with it every policy's regret?
    progress : bool, optional
        Show a bar? In a terminal and in a notebook where left out.
    **overrides
        Values of the experiment that are replaced, ``__`` for the dot: ``workload__requests=100``,
        ``engine__max_num_seqs={"sweep": [8, 64]}``. ``policies`` is a list of names, of tables of settings under a name, and
        of policies in Python: classes, factories, or a ``functools.partial`` of one with its settings.

    Returns
    -------
    Results

    Raises
    ------
    BadInput
        The experiment is wrong, or a policy is; ``__cause__`` is what it raised.
    Error
        Something cannot be written.
    KeyboardInterrupt
        Ctrl-C; what was finished is kept, and the same call goes on.
    """
    asked, _ = _experiment(experiment, overrides)
    options = _options(output, mode, threads, figures, check_settings)
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
    """The highest rate of requests that each policy carries within the experiment's bounds.

    Parameters
    ----------
    experiment, output, mode, threads, figures, progress, **overrides
        As of :func:`run`. The bounds are its ``slo``, the search is its ``capacity``.

    Returns
    -------
    Capacity
    """
    asked, _ = _experiment(experiment, overrides)
    options = _options(output, mode, threads, figures, "auto")
    with shown(progress, "searches") as tell:
        return Capacity(_said(_native.capacity(asked, options, tell)))


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
    """Runs one part of an experiment into a folder that the others share, or goes on with it.

    Parameters
    ----------
    experiment, threads, progress, **overrides
        As of :func:`run`.
    which : str
        ``"I/N"``: the I-th of N, from 1.
    output : path
        The folder.
    retry_failed : bool
        Try cells again that failed before?

    Returns
    -------
    int
        Cells of the shard; 0 where it was complete before.
    """
    asked, _ = _experiment(experiment, overrides)
    folder, *_ = _native.begin(asked, Path(output))
    with shown(progress, "cells") as tell:
        return _native.shard(Path(folder), which, retry_failed, threads, tell)


def merge(
    folder: str | PathLike[str],
    *,
    figures: bool = True,
    check_settings: str = "auto",
    threads: int | None = None,
    progress: bool | None = None,
) -> Results:
    """Puts the shards in a folder together: byte for byte what one machine makes, but for the time it took.

    Parameters
    ----------
    folder : path
        The folder that the shards share.
    figures, check_settings, threads, progress
        As of :func:`run`.

    Returns
    -------
    Results
    """
    options = _options(None, "resume", threads, figures, check_settings)
    with shown(progress, "cells") as tell:
        return Results(_said(_native.merge_shards(Path(folder), options, tell)))


def state(folder: str | PathLike[str]) -> dict[str, Any]:
    """How far the shards in a folder are.

    Parameters
    ----------
    folder : path

    Returns
    -------
    dict
        ``cells``, ``shards`` (each with ``cells``, ``finished``, ``failed``), and ``failures``.
    """
    told: dict[str, Any] = json.loads(_native.state(Path(folder)))
    return told


def decide(state: str | PathLike[str] | dict[str, Any], *, explain: bool = False) -> list[dict[str, Any]]:
    """What each policy decides in one state.

    Parameters
    ----------
    state : path or dict
        As ``foretoken decide --help`` shows it.
    explain : bool
        With all that was weighed?

    Returns
    -------
    list of dict
        A decision for each policy of the state.
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
    """What the native side takes, and the policies in Python, which are registered now."""
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
    output: str | PathLike[str] | None, mode: str, threads: int | None, figures: bool, check_settings: str
) -> dict[str, Any]:
    folder = None if output is None else Path(output)
    return {"output": folder, "mode": mode, "threads": threads, "figures": figures, "check_settings": check_settings}


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
