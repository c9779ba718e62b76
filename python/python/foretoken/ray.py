"""Sweeps on a Ray cluster. Shards are tasks; results are on storage that all nodes share.

Ray is not installed with Foretoken: ``pip install 'foretoken-testbed[ray]'``, or the Ray that the cluster has.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from foretoken import _native
from foretoken._progress import shown
from foretoken.errors import BadInput, Error
from foretoken.experiment import _experiment, _options, _said, merge, state
from foretoken.policy import Registered
from foretoken.results import Fleet, Results

__all__ = ["fleet", "sweep"]

#: Number of cells per task that the default aims at: starting a task takes a fraction of a second.
CELLS_A_TASK = 500
#: Most tasks per processor by default. Several tasks let processors finish at about the same time.
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
    progress: bool | None = None,
    **overrides: Any,
) -> Results:
    """Runs an experiment on a Ray cluster: its shards are tasks of one processor each.

    Every cell is written to the shared folder as soon as it is finished, so finished cells of a lost node are not run
    again. Python policies are sent with the tasks. After Ctrl-C or a loss of the cluster, the same call continues the
    sweep; so does ``foretoken run --shard I/N --resume`` for a shard.

    Parameters
    ----------
    experiment : path or dict
        See :func:`foretoken.run`. Every node must have the traces at the paths that the experiment names.
    address : str, optional
        The cluster: ``"auto"``, ``"ray://HOST:10001"``, ``"HOST:6379"``. By default the cluster to which ``ray.init``
        has connected, or that it finds or starts.
    output : path, optional
        The results folder, on storage that all nodes see under that path.
    shards : int, optional
        Number of shards. The default is the number that an unfinished folder has, else shards of about 500 cells,
        but one to four shards per processor.
    retries : int
        How often a task is tried again if its node died, or if a dead node still holds its shard.
    retry_failed : bool
        Whether to run cells again that failed before.
    figures, progress, **overrides
        See :func:`foretoken.run`.

    Returns
    -------
    foretoken.Results

    Raises
    ------
    BadInput
        If the experiment is invalid, or cells failed; all other cells are finished.
    Error
        If Ray is not installed, or the cluster cannot be reached.
    KeyboardInterrupt
        After Ctrl-C; finished cells are kept.
    """
    ray = _ray()
    asked, ours = _experiment(experiment, overrides)
    begun, comparisons, cells, complete = _native.begin(asked, None if output is None else Path(output))
    folder = Path(begun).resolve()
    if complete:
        return merge(folder)
    _connect(ray, address)
    of = _shards(ray, folder, comparisons, cells, shards)
    failed = _spread(ray, _shard, folder, of, (ours, retries, retry_failed), cells, progress)
    if failed:
        _tell(folder, failed, cells)
    return merge(folder, figures=figures, progress=progress)


def fleet(
    experiment: str | PathLike[str] | dict[str, Any],
    *,
    address: str | None = None,
    output: str | PathLike[str] | None = None,
    shards: int | None = None,
    retries: int = 3,
    figures: bool = True,
    progress: bool | None = None,
    **overrides: Any,
) -> Fleet:
    """Searches the fewest GPUs on a Ray cluster: shards of the search are tasks of one processor each.

    Every fleet that was tried is in the shared folder, so that the same call continues an interrupted search; so does
    ``foretoken fleet --shard I/N --resume`` for a shard.

    Parameters
    ----------
    experiment, figures, progress, **overrides
        See :func:`foretoken.fleet`.
    address, output, retries
        See :func:`sweep`.
    shards : int, optional
        Number of shards. The default is the number that an unfinished folder has, else one for each search (a policy at
        one combination of swept values), but at most four per processor.

    Returns
    -------
    foretoken.Fleet

    Raises
    ------
    BadInput, Error, KeyboardInterrupt
        See :func:`sweep`.
    """
    ray = _ray()
    asked, ours = _experiment(experiment, overrides)
    begun, searches, cells, complete = _native.begin_fleet(asked, None if output is None else Path(output))
    folder = Path(begun).resolve()
    options = _options(folder, "resume", None, figures)
    if complete:
        return Fleet(_said(_native.merge_fleet(folder, options, None)))
    _connect(ray, address)
    of = _shards(ray, folder, searches, searches * CELLS_A_TASK, shards)
    failed = _spread(ray, _fleet_shard, folder, of, (ours, retries), cells, progress)
    for which, first in failed.items():
        words = getattr(first, "message", None) or str(first)
        kind = type(first) if isinstance(first, Error) else Error
        message = f"{len(failed)} of {of} tasks failed, first shard {which}: {words}"
        raise kind(message, hint="the same call goes on with what is missing") from first
    with shown(progress, "fleets") as tell:
        return Fleet(_said(_native.merge_fleet(folder, options, tell)))


def _spread(
    ray: Any, run: Any, folder: Path, of: int, more: tuple[Any, ...], cells: int, progress: bool | None
) -> dict[str, BaseException]:
    """Runs all shards as tasks of one processor each; returns the failed ones, with their errors.

    ``run`` gets the folder, the shard, and ``more``: first the policies in Python, second the number of retries.
    """
    ours, retries, *rest = more
    task = ray.remote(run).options(num_cpus=1, max_retries=retries)
    # The policies are sent to the cluster once, not with each task.
    policies = ray.put(ours)
    waiting = {
        task.remote(str(folder), f"{i}/{of}", policies, retries, *rest): f"{i}/{of}" for i in range(1, of + 1)
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
    return failed


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise Error("Ray is not installed", hint="pip install 'foretoken-testbed[ray]', or the version that the cluster has") from None
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
    """Raises an error if no process listens at the address; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _shards(ray: Any, folder: Path, comparisons: int, cells: int, wanted: int | None) -> int:
    """The number of shards; a folder with shards of an earlier call keeps its number."""
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
    """Runs one shard; this is the function of a Ray task with one processor. Returns the number of cells it ran."""
    return _patient(lambda: _native.shard(Path(folder), which, retry_failed, 1, None), policies, retries)


def _fleet_shard(folder: str, which: str, policies: list[Registered], retries: int) -> int:
    """Runs one shard of a search for the fewest GPUs, as :func:`_shard`."""
    return _patient(lambda: _native.shard_fleet(Path(folder), which, 1, None), policies, retries)


def _patient(run: Callable[[], int], policies: list[Registered], retries: int) -> int:
    """Registers the policies and runs a shard.

    While another process holds the shard, it waits five seconds and tries again, ``retries`` times at most.
    """
    for policy in policies:
        policy.register()
    while True:
        try:
            return run()
        except Error as error:
            # A task that died with its node may have held a lock. A shared file system may keep this lock for a moment.
            if "running already" not in error.message or retries == 0:
                raise
            retries -= 1
            time.sleep(5)


def _finished(folder: Path) -> int:
    """Number of finished cells in a folder."""
    return sum(1 for _ in folder.glob("cells/*.cell")) + sum(1 for _ in folder.glob("probes/fleet-*.json"))


def _cancel(ray: Any, waiting: dict[Any, str]) -> None:
    """Cancels the tasks and waits up to 30 seconds for them; running tasks keep their finished cells."""
    for ref in waiting:
        ray.cancel(ref)
    ray.wait(list(waiting), num_returns=len(waiting), timeout=30)


def _tell(folder: Path, failed: dict[str, BaseException], cells: int) -> None:
    """Raises an error with the first failed shard and up to eight failed cells."""
    told = state(folder)
    which, first = next(iter(failed.items()))
    words = getattr(first, "message", None) or str(first)
    finished = sum(part["finished"] for part in told["shards"])
    tasks = f"{len(failed)} of {len(told['shards'])} tasks failed"
    lines = [f"{finished} of {cells} cells are finished; {tasks}, first shard {which}: {words}"]
    lines += [f"failed: {f['cell']}: {f['message']}" for f in told["failures"][:8]]
    kind = BadInput if told["failures"] else Error
    raise kind("\n".join(lines), hint="the same call goes on with what is missing; retry_failed=True tries again what failed") from first
