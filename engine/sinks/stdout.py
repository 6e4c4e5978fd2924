"""Standard output, one JSON line a signal: `polltop --no-ui | ...`."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Sequence

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
        self._file = stat.S_ISREG(os.fstat(fd).st_mode)

    async def recover(self, owed: Sequence[str]) -> int:  # noqa: ARG002 - a pipe remembers nothing
        return 0

    async def write(self, lines: Sequence[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            if self._file:
                await to_thread.run_sync(self._write_all, data)
                return
            for start in range(0, len(data), _CHUNK):
                # What is owed goes on being owed while nobody reads; polling does not notice.
                await anyio.wait_writable(self._fd)
                os.write(self._fd, data[start : start + _CHUNK])
        except BrokenPipeError as error:
            raise SinkClosedError from error

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
