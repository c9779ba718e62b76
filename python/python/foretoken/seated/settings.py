"""What the environment asks of a seat."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretoken.errors import BadInput

# A fast step takes 10 ms, so a decision of 2 ms costs a fifth of it. Shipped policies need about 20 µs at 32 requests:
# only a policy or a machine in trouble is slower.
SLOW_S = 2e-3


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a seat, each from a variable of the environment.

    Parameters
    ----------
    policy : dict
        ``FORETOKEN_POLICY``: a table with the policy's settings under its name, as JSON or as the path of a JSON or TOML
        file.
    act : bool
        ``FORETOKEN_MODE``: ``act``, or ``shadow`` (the default), in which the policy's choices are only logged.
    costs : Path, optional
        ``FORETOKEN_COSTS``: ``profile.toml`` of ``foretoken calibrate``. Without it costs are learnt from step times.
    log : Path, optional
        ``FORETOKEN_LOG``: a file of JSON lines.
    metrics_port : int, optional
        ``FORETOKEN_METRICS_PORT``: the port at which Prometheus finds the seat's metrics.
    slow_s : float
        ``FORETOKEN_SLOW_S``: a decision that takes longer is not used.
    """

    policy: dict[str, Any]
    act: bool = False
    costs: Path | None = None
    log: Path | None = None
    metrics_port: int | None = None
    slow_s: float = SLOW_S

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """The settings in an environment. Raises ``BadInput`` in one line for a value that cannot be used."""
        value = environment.get
        mode = value("FORETOKEN_MODE") or "shadow"
        if mode not in ("shadow", "act"):
            raise BadInput(f"FORETOKEN_MODE is {mode!r}: write shadow or act")
        costs, log = value("FORETOKEN_COSTS"), value("FORETOKEN_LOG")
        return cls(
            _policy(value("FORETOKEN_POLICY") or ""),
            mode == "act",
            Path(costs) if costs else None,
            Path(log) if log else None,
            _port(value("FORETOKEN_METRICS_PORT") or ""),
            _seconds(value("FORETOKEN_SLOW_S") or ""),
        )


def _policy(text: str) -> dict[str, Any]:
    example = 'write a table such as {"foresight": {}}, or the path of a file with one'
    if not text:
        raise BadInput(f"FORETOKEN_POLICY is not set: {example}")
    try:
        if text.lstrip().startswith("{"):
            table = json.loads(text)
        else:
            path = Path(text)
            content = path.read_text(encoding="utf-8")
            table = tomllib.loads(content) if path.suffix == ".toml" else json.loads(content)
    except (OSError, ValueError) as error:
        raise BadInput(f"FORETOKEN_POLICY {text!r} cannot be read ({_line(error)}): {example}") from error
    if not isinstance(table, dict) or len(table) != 1 or not isinstance(next(iter(table.values())), dict):
        raise BadInput(f"FORETOKEN_POLICY {text!r} is no table with one policy: {example}")
    return table


def _port(text: str) -> int | None:
    if text and not (text.isdecimal() and 0 < int(text) < 65536):
        raise BadInput(f"FORETOKEN_METRICS_PORT is {text!r}: write a port from 1 to 65535")
    return int(text) if text else None


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if text else SLOW_S
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise BadInput(f"FORETOKEN_SLOW_S is {text!r}: write seconds above 0, such as 0.002")
    return seconds


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
