"""A file that grows by one JSON line a signal, each on disk before its delivery counts as made."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

__all__ = ["Jsonl"]

_TAIL = 16 * 2**20
"""Bytes at the end of the file in which lines of the last, interrupted, delivery are looked for."""


class Jsonl:
    """Appends to `path`. After a crash it finds what it had already written, so that a line comes once."""

    def __init__(self, path: Path) -> None:
        self.name = f"jsonl:{path}"
        self._path = path

    async def recover(self, owed: Sequence[str]) -> int:
        return await to_thread.run_sync(self._recover, owed)

    async def write(self, lines: Sequence[str]) -> None:
        # Never abandoned: what is half written must be known to be.
        await to_thread.run_sync(self._write, "".join(f"{line}\n" for line in lines).encode("ascii"))

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, f"{self._path} is a link: name the file itself in the config") from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "not a regular file", str(self._path))
        return fd

    def _sync_folder(self) -> None:
        # A new file is safe once its name is, too.
        fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _recover(self, owed: Sequence[str]) -> int:
        fd = self._open()
        try:
            size = os.fstat(fd).st_size
            start = max(0, size - _TAIL)
            whole, _, torn = os.pread(fd, size - start, start).rpartition(b"\n")
            if torn:
                if any(line.encode("ascii").startswith(torn) for line in owed):
                    # The start of a line that we owe: the crash cut it short, and it will be written again.
                    os.ftruncate(fd, size - len(torn))
                else:
                    os.write(fd, b"\n")
                os.fsync(fd)
            # Without a delivery cut short there is nothing to look for, however large the file.
            had = set(whole.split(b"\n")) if owed else set()
        finally:
            os.close(fd)
        count = 0
        while count < len(owed) and owed[count].encode("ascii") in had:
            count += 1
        return count

    def _write(self, data: bytes) -> None:
        fd = self._open()
        try:
            before = os.fstat(fd).st_size
            try:
                written = 0
                while written < len(data):
                    written += os.write(fd, data[written:])
                os.fsync(fd)
                if not before:
                    self._sync_folder()
            except OSError:
                # A disk that filled up half way: take the half back, so that the next try does not repeat it.
                os.ftruncate(fd, before)
                raise
        finally:
            os.close(fd)
