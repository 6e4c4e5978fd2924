"""Running an app, and getting out of it: by key, by signal, with a terminal that answers and with one that does not.

Textual's writer blocks the view's loop when the terminal stops reading, so the way out must not need that loop. A
thread stands ready from the start; a signal handler only writes a byte to it. It stops the engine first, asks the view
to leave, and when that does not happen in time puts the terminal right as far as it can and ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, Final, Protocol

from engine.clock import SystemClock

__all__ = ["INTERRUPTED", "Hosted", "Leavable", "run_app"]

ENGINE_SECONDS: Final = 1.7
"""For the engine's clean stop, from the wish to leave."""
VIEW_SECONDS: Final = 0.6
"""For the view to leave once the engine has stopped."""
LOOK_SECONDS: Final = 0.5
"""How often the terminal is looked at."""
FAILED, INTERRUPTED = 1, 130

TRIES, ROOM_SECONDS = 20, 0.005
"""How often to try to write to a terminal that is full, and the time between."""

RESET: Final = (
    b"\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l"
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l\x1b[0m\r\n"
)
"""Undoes all that Textual switches on."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Hosted(Protocol):
    """What has to be known of a hosted engine to leave it behind in order."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Ask for a clean stop, without a lock, from any thread."""
        ...

    def join(self, seconds: float) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def clean(self) -> bool: ...


class Leavable(Protocol):
    """An app that can be asked to leave."""

    on_quit: Callable[[], Awaitable[int]] | None

    def run(self, *, mouse: bool = ...) -> object: ...

    @property
    def return_code(self) -> int | None: ...

    def ask_to_leave(self) -> None:
        """Leave soon; from any thread."""
        ...


def run_app(app: Leavable, engine: Hosted | None = None, *, mouse: bool = True) -> int:
    """Run the app until it is left, with an engine beside it that is started and stopped. Main thread only.

    Gives the exit code: 0 for a clean end, 1 when the engine failed or stopped too late, 130 when interrupted twice.
    """
    watch = _Watch(app, engine)
    app.on_quit = watch.quit
    if engine is not None:
        engine.start()
    with watch.on_guard():
        app.run(mouse=mouse)
        if app.return_code == INTERRUPTED:
            # At once, and no further: the engine's thread may still be at work on what others here would take down.
            watch.out(INTERRUPTED)
        if engine is not None:
            engine.stop()
            engine.join(ENGINE_SECONDS)
        # A terminal that is gone makes an app that was asked to leave end in an error; that is not worth a code.
        return watch.code() or (0 if watch.leaving else app.return_code or 0)


class _Watch:
    """The way out that needs no event loop."""

    def __init__(self, app: Leavable, engine: Hosted | None) -> None:
        self._app = app
        self._engine = engine
        self._gone = threading.Event()
        self._read, self._write = os.pipe()
        self._terminal = _Terminal()
        self.leaving = False

    def code(self) -> int:
        """0 when nothing was left undone."""
        return 0 if self._engine is None or self._engine.clean else FAILED

    async def quit(self) -> int:
        """The view's own way out: wait for the engine, but not on it, and leave the guard awake behind."""
        self._wake()
        end = SystemClock.mono() + ENGINE_SECONDS
        while self._engine is not None and not self._engine.ended and SystemClock.mono() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return self.code()

    @contextlib.contextmanager
    def on_guard(self) -> Iterator[None]:
        """Handle signals; Textual installs no handler for any of these."""
        threading.Thread(target=self._stand, name="polltop-guard", daemon=True).start()
        before = {number: signal.signal(number, self._caught) for number in SIGNALS}
        try:
            yield
        finally:
            self._gone.set()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._wake()

    def _caught(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.leaving:
            self.out(INTERRUPTED)
        self._wake()

    def _wake(self) -> None:
        """Safe anywhere: a byte in a pipe, no lock."""
        self.leaving = True
        os.write(self._write, b"!")

    def _stand(self) -> None:
        # A terminal that goes away sends SIGHUP to its own session only; elsewhere Textual would spin on for ever.
        while not select.select([self._read], [], [], LOOK_SECONDS)[0] and not self._terminal.gone:
            pass
        if self._gone.is_set():
            return
        self.leaving = True
        end = SystemClock.mono() + ENGINE_SECONDS
        if self._engine is not None:
            self._engine.stop()
        self._app.ask_to_leave()
        if self._engine is not None:
            self._engine.join(ENGINE_SECONDS)
        patience = min(VIEW_SECONDS, max(0.2, end + 0.2 - SystemClock.mono()))
        if not self._gone.wait(patience):
            self.out(self.code())

    def out(self, code: int) -> None:
        """End the process, terminal restored."""
        self._terminal.restore()
        os._exit(code)


class _Terminal:
    """The terminal as it was before, reached without waiting for it."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        self._path = ""
        with contextlib.suppress(OSError, termios.error, AttributeError, ValueError):
            number = sys.__stderr__.fileno()  # type: ignore[union-attr]
            self._path = os.ttyname(number)
            self._modes = termios.tcgetattr(number)

    @property
    def gone(self) -> bool:
        """It was there, and has been hung up."""
        return self._modes is not None and not os.isatty(sys.__stderr__.fileno())  # type: ignore[union-attr]

    def restore(self) -> None:
        """Throw away what the terminal has not read, put its modes back, and write what fits."""
        if self._modes is None:
            return
        with contextlib.suppress(OSError, termios.error):
            # A description of its own: not blocking must not spread to the shell's.
            number = os.open(self._path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            termios.tcsetattr(number, termios.TCSANOW, self._modes)
            for _ in range(TRIES):
                # The view's writer may be stuck in a write of its own: the room made here wakes it, and it takes some.
                termios.tcflush(number, termios.TCOFLUSH)
                with contextlib.suppress(BlockingIOError):
                    if os.write(number, RESET) == len(RESET):
                        break
                select.select([], [], [], ROOM_SECONDS)
