"""Streams for the log that harm nobody: a file that stays small, and a pipe that may stall."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

from engine import log

__all__ = ["RotatedFile", "Unstalled"]

ROTATED_BYTES = 5 * 2**20
PENDING_LINES = 1000
LAST_SECONDS = 0.3
"""How long the end of the process waits for a reader to take the last lines."""


class RotatedFile:
    """A text file (mode 0600) that starts over at `limit` bytes and keeps one older file beside it."""

    def __init__(self, path: Path, limit: int = ROTATED_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._file = self._open()

    def __enter__(self) -> TextIO:
        return cast("TextIO", self)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> int:
        if self._file.tell() + len(text) > self._limit:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._open()
        return self._file.write(text)

    def flush(self) -> None:
        self._file.flush()

    def _open(self) -> TextIO:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return os.fdopen(fd, "a", encoding="utf-8")


class Unstalled:
    """Writes to `stream` from a thread of its own: a reader that stops reading our stderr must not stop the engine.

    When it is `PENDING_LINES` behind, further lines are dropped; a line before the next one taken says how many.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending: deque[str] = deque()
        self._changed = threading.Condition()
        self._dropped = 0
        self._closing = False
        self._thread = threading.Thread(target=self._pump, name="polltop-log", daemon=True)

    def __enter__(self) -> TextIO:
        self._thread.start()
        return cast("TextIO", self)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(LAST_SECONDS)

    def write(self, text: str) -> int:
        with self._changed:
            if len(self._pending) >= PENDING_LINES:
                self._dropped += 1
                return len(text)
            if self._dropped:
                lost, self._dropped = self._dropped, 0
                # By way of the log itself, to which this is the stream: a line like any other, before the one at hand.
                log.get().warning("lines of log were lost: nobody read them", lines=lost)
            self._pending.append(text)
            self._changed.notify()
        return len(text)

    def flush(self) -> None:
        """The thread flushes."""

    def _pump(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closing:
                    self._changed.wait()
                if not self._pending:
                    return
                text = self._pending.popleft()
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
