"""Sweeps on a Ray cluster: shards as tasks, results on storage that all nodes share.

Ray is not installed with Foretoken: ``pip install 'foretoken[ray]'``, or the Ray that the cluster has.
"""

from __future__ import annotations

import socket
import time
from os import PathLike
from pathlib import Path
from typing import Any

from foretoken import _native
from foretoken._progress import shown
from foretoken.errors import BadInput, Error
from foretoken.experiment import _experiment, merge, state
from foretoken.policy import Registered
from foretoken.results import Results

__all__ = ["sweep"]

#: Cells of a task, at least, where there are enough: a task costs a fraction of a second before its first cell runs.
CELLS_A_TASK = 500
#: Tasks for each processor, at least, where there are enough cells: the last ones end at about the same time.
TASKS_A_CPU = 4


def sweep(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    address: str | None = None,
    output: str | PathLike[str] | None = None,
    shards: int | None = None,
    retries: int = 3,
    retry_failed: bool = False,
    figures: bool = True,
    check_settings: str = "auto",
    progress: bool | None = None,
    **overrides: Any,
) -> Results:
    """Runs an experiment on a Ray cluster: its shards are tasks of one processor each.

    Every finished cell is on the shared folder at once; what a lost node had finished is not run again. Policies in Python
    travel with their tasks. After Ctrl-C, or when the cluster is gone, the same call goes on, and so does ``foretoken run
    --shard I/N --resume`` by hand.

    Parameters
    ----------
    experiment : path or dict
        As of :func:`foretoken.run`. Traces must be where the experiment says on every node.
    address : str, optional
        The cluster: ``"auto"``, ``"ray://HOST:10001"``, ``"HOST:6379"``. The one that ``ray.init`` was called for, or finds or
        starts by itself, where left out.
    output : path, optional
        The results folder, on storage that all nodes see under that path.
    shards : int, optional
        How many. Of 500 cells or more, and at least four for each processor where there are enough cells, where left out.
        What an unfinished folder has, where it has some.
    retries : int
        How often a task is tried again whose node died, or that found its shard still held by one that died.
    retry_failed : bool
        Try cells again that failed before?
    figures, check_settings, progress, **overrides
        As of :func:`foretoken.run`.

    Returns
    -------
    foretoken.Results

    Raises
    ------
    BadInput
        The experiment is wrong, or cells of it failed: all others are finished.
    Error
        Ray is not there, or the cluster cannot be reached.
    KeyboardInterrupt
        Ctrl-C; what was finished is kept.
    """
    ray = _ray()
    asked, ours = _experiment(experiment, overrides)
    begun, comparisons, cells, complete = _native.begin(asked, None if output is None else Path(output))
    folder = Path(begun).resolve()
    if complete:
        return merge(folder)
    _connect(ray, address)
    of = _shards(ray, folder, comparisons, cells, shards)
    task = ray.remote(_shard).options(num_cpus=1, max_retries=retries)
    # Sent once, not with each task.
    policies = ray.put(ours)
    waiting = {
        task.remote(str(folder), f"{i}/{of}", policies, retries, retry_failed): f"{i}/{of}" for i in range(1, of + 1)
    }
    failed: dict[str, BaseException] = {}
    with shown(progress, "cells") as tell:
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), timeout=1.0)
                for ref in done:
                    which = waiting.pop(ref)
                    try:
                        ray.get(ref)
                    except (ray.exceptions.RayError, Error) as error:
                        failed[which] = getattr(error, "cause", None) or error
                if tell:
                    tell(_finished(folder), cells)
        except KeyboardInterrupt:
            _cancel(ray, waiting)
            raise KeyboardInterrupt(f"interrupted: what was finished is kept in {folder}; the same call goes on") from None
    if failed:
        _tell(folder, failed, cells)
    return merge(folder, figures=figures, check_settings=check_settings, progress=progress)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise Error("Ray is not installed", hint="pip install 'foretoken[ray]', or the version that the cluster has") from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    if address is None and ray.is_initialized():
        return
    try:
        _reach(address)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (ConnectionError, OSError, RuntimeError, TimeoutError, ValueError) as error:
        hint = "is the cluster up, and its version of Ray and Python the one here? Without an address Ray starts by itself"
        raise Error(f"no Ray cluster at {address or 'the usual place'}: {error}", hint=hint) from error


def _reach(address: str | None) -> None:
    """Raises where no process listens: Ray itself looks for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _shards(ray: Any, folder: Path, comparisons: int, cells: int, wanted: int | None) -> int:
    """How many shards; the shards of an earlier call go on."""
    begun = sorted(folder.glob("shards/*-of-*.json"))
    if begun:
        of = int(begun[0].stem.rpartition("-of-")[2])
        if wanted not in (None, of):
            message = f"{folder} holds shards of {of}, and this asks for {wanted}"
            raise BadInput(message, hint="leave `shards` out, or give another output")
        return of
    if wanted is not None:
        if not 1 <= wanted <= comparisons:
            raise BadInput(f"{wanted} shards: the experiment has {comparisons} comparisons to share out")
        return wanted
    processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
    return max(1, min(comparisons, max(cells // CELLS_A_TASK, processors), TASKS_A_CPU * processors))


def _shard(folder: str, which: str, policies: list[Registered], retries: int, retry_failed: bool) -> int:
    """A task: one shard, on one processor."""
    for policy in policies:
        policy.register()
    while True:
        try:
            return _native.shard(Path(folder), which, retry_failed, 1, None)
        except Error as error:
            # A task that died with its node may hold the shard for a moment, as its file system sees it.
            if "running already" not in error.message or retries == 0:
                raise
            retries -= 1
            time.sleep(5)


def _finished(folder: Path) -> int:
    """Cells that are there."""
    return sum(1 for _ in folder.glob("cells/*.cell"))


def _cancel(ray: Any, waiting: dict[Any, str]) -> None:
    """Ends the tasks: those at work end in order, with what they finished."""
    for ref in waiting:
        ray.cancel(ref)
    ray.wait(list(waiting), num_returns=len(waiting), timeout=30)


def _tell(folder: Path, failed: dict[str, BaseException], cells: int) -> None:
    """Raises what went wrong."""
    told = state(folder)
    which, first = next(iter(failed.items()))
    words = getattr(first, "message", None) or str(first)
    finished = sum(part["finished"] for part in told["shards"])
    tasks = f"{len(failed)} of {len(told['shards'])} tasks failed"
    lines = [f"{finished} of {cells} cells are finished; {tasks}, first shard {which}: {words}"]
    lines += [f"failed: {f['cell']}: {f['message']}" for f in told["failures"][:8]]
    kind = BadInput if told["failures"] else Error
    raise kind("\n".join(lines), hint="the same call goes on with what is missing; retry_failed=True tries again what failed") from first
