"""What a real server should draft: the commands `ask`, `observe`, `calibrate` and `recommend`.

Each function runs the command of its name in a process of its own, so that Python waits and Ctrl-C ends the command as
in a terminal. Options are the command's, with underscores: ``price=2.5`` is ``--price 2.5``, ``overwrite=True`` is
``--overwrite``, a list repeats its option. ``foretoken ask --help`` explains them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from foretoken.errors import BadInput, Error

__all__ = ["Answer", "ask", "calibrate", "observe", "recommend"]

_NEGATIVE = 3
"""The exit code of a command that finished with a negative verdict, such as costs that are not to be trusted."""


class Answer(dict[str, Any]):
    """What the command says with ``--format json``.

    Attributes
    ----------
    trusted : bool
        False if the command's verdict is negative: do not act on the answer before you read ``notes``.
    notes : str
        What the command said beside its answer: warnings, and where it wrote files.
    """

    trusted: bool
    notes: str

    def __init__(self, answer: dict[str, Any], trusted: bool, notes: str) -> None:
        super().__init__(answer)
        self.trusted = trusted
        self.notes = notes


def _options(options: dict[str, Any]) -> Iterable[str]:
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield flag
            elif one is not None and one is not False:
                yield from (flag, str(one))


def _command(name: str, arguments: Iterable[object], options: dict[str, Any]) -> tuple[str, bool, str]:
    line = [sys.executable, "-m", "foretoken", name, *map(str, arguments), *_options(options)]
    # The package that is running, wherever it lies.
    path = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    notes = ended.stderr.strip()
    if ended.returncode == 2:
        raise BadInput(notes)
    if ended.returncode not in (0, _NEGATIVE):
        raise Error(notes, exit_code=ended.returncode)
    return ended.stdout, ended.returncode == 0, notes


def _answer(name: str, arguments: Iterable[object], options: dict[str, Any]) -> Answer:
    said, trusted, notes = _command(name, arguments, {**options, "format": "json"})
    return Answer(json.loads(said), trusted, notes)


def ask(line: str, **options: Any) -> Answer:
    """What to draft instead, for the line that starts a vLLM or SGLang server.

    Examples
    --------
    ``foretoken.ask("vllm serve … --speculative-config …", gpu="h200", clients=16, input=7000, output=900)``
    """
    return _answer("ask", [line], options)


def observe(url: str, experiment: object, output: object, **options: Any) -> str:
    """Sends an experiment's workload to a running server and records its answers in the folder ``output``.

    Returns what the command printed. :func:`calibrate` reads the folder.
    """
    return _command("observe", [url, experiment], {**options, "output": output})[0]


def calibrate(*observed: object, output: object, **options: Any) -> Answer:
    """Costs and acceptance fitted to observed runs (folders, recordings, or files of other tools).

    Writes a profile, a truth table, traces and an experiment into the folder ``output``, for :func:`recommend` and
    :func:`foretoken.run`.
    """
    return _answer("calibrate", observed, {**options, "output": output})


def recommend(source: object, **options: Any) -> Answer:
    """How many tokens a server should draft for its traffic: a calibration's folder, or an experiment."""
    return _answer("recommend", [source], options)
