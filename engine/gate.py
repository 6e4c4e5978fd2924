"""What a paused engine waits at."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["Gate"]


class Gate:
    """Open or closed; whoever passes it while it is closed waits until it opens."""

    def __init__(self) -> None:
        self._opened = anyio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def close(self) -> None:
        if self.is_open:
            self._opened = anyio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> bool:
        """Return once it is open; whether that took waiting."""
        if self.is_open:
            await checkpoint()
            return False
        while not self._opened.is_set():
            await self._opened.wait()
        return True
