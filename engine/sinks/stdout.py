"""Standard output, one JSON line a signal: `polltop --no-ui | ...`."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Sequence
from contextlib import suppress

import anyio
from anyio import to_thread

from engine.sinks.base import SinkClosedError

__all__ = ["Stdout"]

_CHUNK = select.PIPE_BUF
"""A pipe that is ready takes this much without blocking (POSIX)."""


class Stdout:
    """Writes to a file descriptor without ever blocking the engine, and without making it non-blocking.

    The descriptor is shared with the shell and others, so its flags are not ours to change.
    """

    name = "stdout"

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        mode = os.fstat(fd).st_mode
        # Nothing else can be waited for: not a file, not /dev/null. Neither has a reader that stalls.
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        if os.isatty(fd):
            # A terminal that says it is ready may take less than a chunk: through a description of our own it takes
            # what it can and does not block.
            self._fd = os.open(os.ttyname(fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    async def recover(self, owed: Sequence[str]) -> int:  # noqa: ARG002 - a pipe remembers nothing
        return 0

    async def write(self, lines: Sequence[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            if not self._waits:
                await to_thread.run_sync(self._write_all, data)
                return
            while data:
                # What is owed goes on being owed while nobody reads; polling does not notice.
                await anyio.wait_writable(self._fd)
                # Up to a line's end where there is one: a stop while nobody reads leaves whole lines.
                end = data.rfind(b"\n", 0, _CHUNK) + 1 or _CHUNK
                with suppress(BlockingIOError):
                    data = data[os.write(self._fd, data[:end]) :]
        except BrokenPipeError as error:
            raise SinkClosedError from error

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
