"""How a policy takes the seat of an engine, in lines of the engine's own log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger
from typing import Any

from foretoken.errors import BadInput
from foretoken.seated.chooser import Chooser, Engine
from foretoken.seated.settings import Settings


@contextmanager
def or_empty(log: Logger | Any, engine: str) -> Iterator[None]:
    """Whatever is raised inside leaves the seat empty, and one line says why."""
    try:
        yield
    except BadInput as error:
        log.warning("Foretoken: %s chooses its own draft lengths: %s", engine, error)
    except Exception:
        log.exception("Foretoken: %s chooses its own draft lengths: the seat could not be taken", engine)


def chooser(log: Logger | Any, settings: Settings, engine: Engine, unfit: str | None) -> Chooser:
    """The policy behind its guard, which speaks through the engine's log."""

    def say(line: str) -> None:
        log.warning("Foretoken: %s", line)

    made = Chooser(settings, engine, say, unfit)
    if made.off is None:
        mode = "acts" if settings.act else "only watches (FORETOKEN_MODE=shadow)"
        log.info("Foretoken: policy %s %s, draft lengths %s", settings.policy, mode, list(engine.lengths))
    return made
