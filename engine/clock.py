"""The only reader of time. Everything else is handed a `Clock`, so that tests can drive it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Three readings of time, all in seconds, each for its own use."""

    boot_id: str
    """Names this boot of the machine: `boot()` of two readings compare only when their boot ids are equal."""

    def mono(self) -> float:
        """Never steps, and stops while the machine sleeps: pacing and timeouts get no credit for time away."""
        ...

    def boot(self) -> float:
        """Time that never steps and goes on while the machine sleeps: ages in windows, cool-downs."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch, as the operator set it: rows, logs, ages across a reboot."""
        ...

    async def sleep_until(self, mono: float) -> None:
        """Return not before `mono()` has reached `mono`."""
        ...


class SystemClock:
    """The clocks of this machine.

    CLOCK_BOOTTIME exists on Linux; elsewhere `boot` is `mono`, and a suspend lengthens windows and cool-downs, never
    shortens them.
    """

    def __init__(self) -> None:
        try:
            self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            # Without a boot id two readings of `boot` from different runs are never compared.
            self.boot_id = f"unknown-{time.time_ns()}"

    mono = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    if hasattr(time, "CLOCK_BOOTTIME"):

        def boot(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:

        def boot(self) -> float:
            return time.monotonic()

    async def sleep_until(self, mono: float) -> None:
        # Some loops wake early by their timer's grain (uvloop by up to 1.4 ms): look again after each wake-up.
        while (left := mono - self.mono()) > 0:  # noqa: ASYNC110 - it is time itself that is waited for
            await anyio.sleep(left)
        await checkpoint()
