"""`--no-ui`: the same engine without a screen. Signals go to stdout, everything else to stderr. No textual here."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import anyio

from engine import log
from engine.supervisor import Engine

__all__ = ["INTERRUPTED_TWICE", "run_for", "run_headless"]

INTERRUPTED_TWICE = 130
_PATIENCE_SECONDS = 1.9
"""A disk that hangs must not keep the process: what is recorded is safe, what is owed is delivered next time."""


async def run_for(engine: Engine, seconds: float | None) -> None:
    """Run `engine` until it is stopped, or for `seconds`."""
    async with anyio.create_task_group() as tasks:
        if seconds is not None:

            async def stop_later() -> None:
                await anyio.sleep(seconds)
                engine.stop()

            tasks.start_soon(stop_later)
        await engine.run()
        tasks.cancel_scope.cancel()


def run_headless(make: Callable[[], Engine], seconds: float | None) -> None:
    """Run the engine that `make()` gives, in an event loop, until SIGINT, SIGTERM, SIGHUP or `seconds` end it.

    Its last line of log is the summary. A second SIGINT ends the process at once, with exit code 130.
    """
    anyio.run(_main, make, seconds)


async def _main(make: Callable[[], Engine], seconds: float | None) -> None:
    engine = make()
    with _signals(engine):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_guard, engine)
            await run_for(engine, seconds)
            tasks.cancel_scope.cancel()
    log.get().info("summary", **engine.summary())


async def _guard(engine: Engine) -> None:
    """Whatever stops the engine (a signal, the duration, a reader that has gone): it is out in time."""
    await engine.stopping.wait()
    _end_in_time()


def _end_in_time() -> None:
    watchdog = threading.Timer(_PATIENCE_SECONDS, os._exit, (0,))
    watchdog.daemon = True
    watchdog.start()


@contextmanager
def _signals(engine: Engine) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    asked = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            os._exit(INTERRUPTED_TWICE)
        if not asked.is_set():
            asked.set()
            _end_in_time()
        # From a signal handler: the loop may be asleep in the kernel.
        loop.call_soon_threadsafe(engine.stop)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asked for it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
