"""Virtual time: trio's MockClock drives the loop, and this clock reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import trio
import trio.testing

WALL = 1_790_000_000.0
"""Where wall time starts."""


class VirtualClock:
    """`Clock` of a machine whose time is the loop's; suspends, steps and reboots are made by hand."""

    def __init__(self, wall: float = WALL) -> None:
        self.boot_id = "boot-1"
        self._zero: float | None = None
        self._slept = 0.0
        self._step = 0.0
        self._wall = wall

    def mono(self) -> float:
        now = anyio.current_time()
        if self._zero is None:
            self._zero = now - 1000.0
        return now - self._zero

    def boot(self) -> float:
        return self.mono() + self._slept

    def wall(self) -> float:
        return self._wall + self.boot() - 1000.0 + self._step

    async def sleep_until(self, mono: float) -> None:
        while (left := mono - self.mono()) > 0:  # noqa: ASYNC110 - as the real one does
            await anyio.sleep(left)
        await anyio.lowlevel.checkpoint()

    def suspend(self, seconds: float) -> None:
        """The lid closes: `mono` stands, `boot` and `wall` go on."""
        self._slept += seconds

    def step(self, seconds: float) -> None:
        """The wall clock is set."""
        self._step += seconds


def run(scenario: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run `scenario` in virtual time: waiting costs nothing."""
    return trio.run(scenario, *args, clock=trio.testing.MockClock(autojump_threshold=0))
