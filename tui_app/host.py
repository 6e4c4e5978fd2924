"""Hosts an engine in a thread with an event loop of its own, and gives a view its handle.

Neither side waits on the other's loop: a terminal that stops reading stalls the view and nothing else, and an engine
that is busy leaves the view with its newest snapshot.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

import anyio

from engine import __version__, log
from engine.errors import PolltopError, sole
from engine.snapshot import Event, EvictScope, Outcome, Pull, Snapshot
from engine.text import plain
from tui_app.app import MonitorApp
from tui_app.first import FirstScreen
from tui_app.leaving import run_app
from tui_app.themes import choose_theme, load_themes

__all__ = ["HostedEngine", "LocalEngine", "reason", "run_first_screen", "run_monitor"]

T = TypeVar("T")
FRESH_SECONDS: Final = 0.2
"""How long a pull waits for a snapshot of this moment before it gives the one before."""

LOOK_SECONDS: Final = 0.1
ENDED: Final = "the engine has ended"


class HostedEngine(Protocol):
    """What is asked of an engine; every call is made in its own loop."""

    async def run(self) -> None:
        """Work until stopped; return after a clean stop."""
        ...

    def stop(self) -> None: ...

    def snapshot(self) -> Snapshot: ...

    def events(self, after: int) -> tuple[tuple[Event, ...], int]: ...

    async def pause(self, actor: str) -> Outcome: ...

    async def resume(self, actor: str) -> Outcome: ...

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome: ...

    async def poll_now(self, source: str, actor: str) -> Outcome: ...


def reason(error: BaseException) -> str:
    """What ended an engine, for an operator: our own errors in their words, others with their type."""
    error = sole(error)
    if isinstance(error, BaseExceptionGroup):
        return plain(f"{reason(error.exceptions[0])} (and {len(error.exceptions) - 1} more)", 300)
    text = str(error) if isinstance(error, PolltopError) else f"{type(error).__name__}: {error}"
    return plain(text, 300)


class LocalEngine:
    """An engine in a daemon thread, and the `EngineHandle` of it."""

    def __init__(self, make: Callable[[], HostedEngine], seconds: float | None = None) -> None:
        """Host what `make` gives, called in the engine's own loop; stop it by itself after `seconds`."""
        self._make = make
        self._seconds = seconds
        self._thread = threading.Thread(target=self._live, name="polltop-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: HostedEngine | None = None
        self._stopping = False
        self._asked: Future[Pull | None] | None = None
        self._last: Pull | None = None
        self._ended = False
        self.failure: BaseException | None = None
        """What ended the engine; None while it runs and after a clean stop."""

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the engine to stop cleanly. Takes no lock: it may be called from any thread and from a signal handler."""
        self._stopping = True
        loop, engine = self._loop, self._engine
        if loop is not None and engine is not None:
            with suppress(RuntimeError):  # the loop has closed: it has ended already
                loop.call_soon_threadsafe(engine.stop)

    def join(self, seconds: float) -> bool:
        """Wait for the end, at most so long; whether it has ended."""
        self._thread.join(seconds)
        return self._ended

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def clean(self) -> bool:
        """It has ended, and nothing failed."""
        return self._ended and self.failure is None

    def _live(self) -> None:
        try:
            anyio.run(self._main, backend="asyncio")
        except BaseException as error:  # noqa: BLE001 - this is the engine's outermost boundary
            self.failure = error
            log.get().error("the engine has failed", reason=reason(error), exc_info=error)
        finally:
            self._ended = True

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        engine = self._make()
        self._loop, self._engine = loop, engine
        if self._stopping:  # asked before there was anybody to ask
            return
        if self._seconds is not None:
            loop.call_later(self._seconds, engine.stop)
        try:
            await engine.run()
        finally:
            with suppress(Exception):  # a failed engine may not be able to tell its state any more
                self._last = Pull(snapshot=engine.snapshot(), events=(), missed=0)

    # -- the handle ----------------------------------------------------------------------------------------------------

    async def pull(self, after: int) -> Pull | None:
        """A snapshot of this moment, or after 200 ms the newest there is. One at a time is asked for."""
        loop = self._loop
        if self._ended:
            return self._final(after)
        if loop is None:
            return None
        try:
            if self._asked is None or self._asked.done():
                self._asked = self._submit(loop, self._build(after))
            done = await self._wait(self._asked, FRESH_SECONDS)
        except ConnectionError:
            return self._final(after)
        if done is None:
            return self._last
        self._last = Pull(snapshot=done.snapshot, events=(), missed=0)
        return done

    async def _build(self, after: int) -> Pull | None:
        engine = self._engine
        if engine is None:
            return None
        events, missed = engine.events(after)
        return Pull(snapshot=engine.snapshot(), events=events, missed=missed)

    def _final(self, after: int) -> Pull:
        """After the end: the last snapshot with how it ended, and the events that tell why."""
        last = self._last.snapshot if self._last else _nothing()
        state = {"state": "dead" if self.failure else "stopped", "reason": reason(self.failure) if self.failure else ""}
        news: tuple[tuple[Event, ...], int] = ((), 0)
        if self._engine is not None:
            with suppress(Exception):  # its loop is gone, so nobody else is in there; but it may be half taken down
                news = self._engine.events(after)
        return Pull(snapshot=last.model_copy(update=state), events=news[0], missed=news[1])

    async def pause(self, actor: str) -> Outcome:
        return await self._call(lambda engine: engine.pause(actor))

    async def resume(self, actor: str) -> Outcome:
        return await self._call(lambda engine: engine.resume(actor))

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome:
        return await self._call(lambda engine: engine.evict(scope, actor, expect=expect, dry_run=dry_run))

    async def poll_now(self, source: str, actor: str) -> Outcome:
        return await self._call(lambda engine: engine.poll_now(source, actor))

    async def _call(self, verb: Callable[[HostedEngine], Coroutine[Any, Any, Outcome]]) -> Outcome:
        loop, engine = self._loop, self._engine
        if self._ended or loop is None or engine is None:
            raise ConnectionError(ENDED if self._ended else "the engine has not started yet")
        done = await self._wait(self._submit(loop, verb(engine)), None)
        assert done is not None
        return done

    def _submit(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:  # the loop has closed since we looked
            work.close()
            raise ConnectionError(ENDED) from error

    async def _wait(self, asked: Future[T], seconds: float | None) -> T | None:
        """The answer; None when there is none in time. The work goes on: a view cancels nothing in an engine."""
        answer = asyncio.shield(asyncio.wrap_future(asked))
        answer.add_done_callback(_seen)
        end = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while True:
            left = LOOK_SECONDS if end is None else min(LOOK_SECONDS, end - asyncio.get_running_loop().time())
            done, _ = await asyncio.wait({answer}, timeout=max(0.0, left))
            if done and answer.cancelled():  # the loop's end cancels what it still holds
                raise ConnectionError(ENDED)
            if done:
                return answer.result()
            if self._ended:  # a call that reaches a loop at its very end is never answered
                raise ConnectionError(ENDED)
            if end is not None and asyncio.get_running_loop().time() >= end:
                return None


def _seen(answer: asyncio.Future[Any]) -> None:
    """Look at a late failure, which nobody waits for any more, lest asyncio complains of it."""
    if not answer.cancelled():
        answer.exception()


def _nothing() -> Snapshot:
    """The state of an engine that ended before it could tell any."""
    return Snapshot(
        seq=0,
        engine_id="",
        version=__version__,
        state="dead",
        started=0.0,
        mono=0.0,
        boot=0.0,
        wall=0.0,
        config="",
        state_dir="",
        requests=0,
        responses={},
        requests_per_second=(),
        signals_per_minute=(),
        in_flight=0,
        limits=(),
        cooldowns=(),
        windows=(),
        sources=(),
        sinks=(),
        signals=(),
        records=0,
        new=0,
        duplicates=0,
        history=0,
        late=0,
        quarantined=0,
    )


def run_monitor(make: Callable[[], HostedEngine], *, seconds: float | None = None, theme: str | None = None) -> None:
    """Open the monitor with the engine that `make()` gives inside it, until it is left or `seconds` have passed.

    Ends the process with 130 when interrupted twice. Raises ConfigError for a theme that does not exist, and
    PolltopError in the words of the screen when the engine failed.
    """
    themes, problems = load_themes()
    engine = LocalEngine(make, seconds)
    app = MonitorApp(
        engine,
        theme=choose_theme(theme, themes, os.environ, problems),
        themes=themes,
        actor=_user(),
        host=plain(socket.gethostname().split(".")[0], 16),
        hosted=engine.join,
        notes=problems,
    )
    code = run_app(app, engine, mouse=not _remote())
    for problem in problems:
        print(plain(problem), file=sys.stderr)  # noqa: T201 - the screen is gone; the events pane said it, too
    if engine.failure is not None:
        raise PolltopError(reason(engine.failure)) from engine.failure
    if code:
        sys.exit(code)


def run_first_screen(lines: Sequence[str], *, theme: str | None = None) -> None:
    """Show what to do without a config, until a key closes it."""
    themes, problems = load_themes()
    app = FirstScreen(lines, themes=themes, theme=choose_theme(theme, themes, os.environ, problems))
    if code := run_app(app, mouse=not _remote()):
        sys.exit(code)


def _remote() -> bool:
    """Whether the terminal is at the other end of ssh: the mouse stays off there."""
    return bool(os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"))


def _user() -> str:
    try:
        return plain(getpass.getuser(), 32)
    except (OSError, KeyError):  # a user id without a name, as in a container
        return f"uid {os.getuid()}"
