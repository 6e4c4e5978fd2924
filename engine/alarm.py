"""A timer that calls back: the one place where the event loops are told apart.

A task that sleeps, or waits with a timeout, costs twice the CPU of a callback for each time it wakes (measured on
asyncio: 78 against 40 us), and somebody would have to own it. asyncio has callbacks; trio has system tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anyio import sleep_forever
from sniffio import current_async_library

__all__ = ["Alarm"]


class Alarm:
    """Calls `ring` in the event loop, once, after the delay that was set last. For one loop, and within it."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._backend: _Asyncio | _Trio | None = None

    def set(self, seconds: float) -> None:
        """Ring in so many seconds, and not when it was set to before; never if infinite."""
        if self._backend is None:
            if seconds == math.inf:
                return
            self._backend = _Trio(self._ring) if current_async_library() == "trio" else _Asyncio(self._ring)
        self._backend.set(seconds)


class _Asyncio:
    def __init__(self, ring: Callable[[], None]) -> None:
        from asyncio import TimerHandle, get_running_loop

        self._loop = get_running_loop()
        self._ring = ring
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None if seconds == math.inf else self._loop.call_later(seconds, self._ring)


class _Trio:
    def __init__(self, ring: Callable[[], None]) -> None:
        import trio

        self._trio = trio
        self._ring = ring
        self._scope: Any = None

    def set(self, seconds: float) -> None:
        deadline = self._trio.current_time() + seconds
        if self._scope is not None:
            self._scope.deadline = deadline
        elif seconds < math.inf:
            self._scope = self._trio.CancelScope(deadline=deadline)
            self._trio.lowlevel.spawn_system_task(self._run)

    async def _run(self) -> None:
        """Lives while it is set: `ring` most likely sets it again."""
        while self._scope.deadline < math.inf:
            with self._scope:
                await sleep_forever()
            self._scope = self._trio.CancelScope(deadline=math.inf)
            self._ring()
        self._scope = None
