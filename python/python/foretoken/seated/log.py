"""The log of a seat: JSON lines, written by a thread of its own so that no step waits for a disk."""

from __future__ import annotations

import atexit
import json
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A line has about 300 bytes and a server makes at most some thousand a second.
QUEUED = 10_000
FLUSH_S = 0.5


class Log:
    """Appends lines to a file. A file that cannot be written ends the log, and nothing else.

    Parameters
    ----------
    path : Path
    header : dict
        The first line that this start of the engine adds.
    say : callable
        Takes one line for the engine's own log.
    """

    def __init__(self, path: Path, header: dict[str, Any], say: Callable[[str], None]) -> None:
        self.path = path
        self.ended = False
        self.lost = 0
        self._say = say
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUED)
        self._thread = threading.Thread(target=self._write, args=(header,), name="foretoken-log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, line: dict[str, Any]) -> None:
        """Adds a line. Its values must not change later. Where the disk is too slow, the line is lost and counted."""
        if self.ended:
            return
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Writes what is queued, and ends the log."""
        atexit.unregister(self.close)
        if not self.ended and self._thread.is_alive():
            try:
                self._queue.put(None, timeout=1.0)
            except queue.Full:
                return
            self._thread.join(5.0)

    def _write(self, header: dict[str, Any]) -> None:
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                if _cut_off(self.path):
                    file.write("\n")
                file.write(json.dumps(header) + "\n")
                file.flush()
                self._lines(file)
        except Exception as error:  # of a disk, or of a line that is no JSON
            self._say(f"the log {self.path} ends: {error}")
        self.ended = True

    def _lines(self, file: Any) -> None:
        flushed = time.monotonic()
        while True:
            try:
                line = self._queue.get(timeout=FLUSH_S)
                if line is None:
                    return
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                if self.lost:
                    said, self.lost = f"{self.lost} lines are lost: the disk is too slow", 0
                    file.write(json.dumps({"is": "fallback", "at": line["at"], "why": "log", "said": said}) + "\n")
            except queue.Empty:
                pass
            if time.monotonic() - flushed > FLUSH_S:
                file.flush()
                flushed = time.monotonic()


def _cut_off(path: Path) -> bool:
    """Whether a kill left a part of a line at the end of the file."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
