"""A timer that calls back, and what is waited on until it has: the one place where the event loops are told apart.

A task that sleeps, or waits with a timeout, costs twice the CPU of a callback for each time it wakes (measured on
asyncio: 78 against 40 us), and somebody would have to own it. asyncio has callbacks; trio has system tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from anyio import Event, sleep_forever
from sniffio import current_async_library

__all__ = ["Alarm", "Wakeup"]


class Wakeup(Protocol):
    """An event for one task, set at most once."""

    async def wait(self) -> object: ...

    def set(self) -> None: ...


class Alarm:
    """Calls `ring` in the event loop, once, after the delay that was set last. For one loop, and within it."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._backend: _Asyncio | _Trio | None = None

    def set(self, seconds: float) -> None:
        """Ring in so many seconds, and not when it was set to before; never if infinite."""
        if self._backend is not None or seconds < math.inf:
            self._loop().set(seconds)

    def wakeup(self) -> Wakeup:
        """A new one, for a task of this loop."""
        return self._loop().wakeup()

    def _loop(self) -> _Asyncio | _Trio:
        if self._backend is None:
            self._backend = _Trio(self._ring) if current_async_library() == "trio" else _Asyncio(self._ring)
        return self._backend


_LATER = 1e-8


class _Asyncio:
    def __init__(self, ring: Callable[[], None]) -> None:
        from asyncio import TimerHandle, get_running_loop

        self._loop = get_running_loop()
        self._ring = ring
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        # asyncio rings up to the resolution of its clock too early, and then it would take a whole millisecond more.
        self._handle = None if seconds == math.inf else self._loop.call_later(seconds + _LATER, self._ring)

    def wakeup(self) -> Wakeup:
        return _Future(self._loop.create_future())


class _Future:
    """An anyio.Event on asyncio costs three times as much."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    async def wait(self) -> None:
        await self._future

    def set(self) -> None:
        if not self._future.done():  # whoever waited was cancelled
            self._future.set_result(None)


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

    def wakeup(self) -> Wakeup:
        return Event()

    async def _run(self) -> None:
        """Lives while it is set: `ring` most likely sets it again."""
        while self._scope.deadline < math.inf:
            with self._scope:
                await sleep_forever()
            self._scope = self._trio.CancelScope(deadline=math.inf)
            self._ring()
        self._scope = None
