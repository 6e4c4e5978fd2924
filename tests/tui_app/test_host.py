"""An engine in its thread: its handle, its end, its death."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from typing import TYPE_CHECKING

import pytest

from engine import log
from engine.errors import PolltopError, StoreError
from engine.snapshot import EvictScope, Outcome, Pull
from tests.support.until import until
from tests.tui_app.toy import Toy
from tui_app.host import LocalEngine, reason

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hosted:
    """A toy in its host, and the way to the toy."""

    def __init__(self, how: str = "", seconds: float | None = None) -> None:
        self.toy: Toy

        def make() -> Toy:
            self.toy = Toy(how=how)
            return self.toy

        self.host = LocalEngine(make, seconds)

    def start(self) -> LocalEngine:
        self.host.start()
        until(lambda: self.host._engine is not None or self.host.ended)
        return self.host

    def end(self) -> None:
        self.host.stop()
        assert self.host.join(3)


async def fresh(host: LocalEngine, after: int, than: int) -> Pull:
    """A snapshot newer than that one: on a busy machine the first pulls may still give the one before."""
    while (pull := await host.pull(after)) is None or pull.snapshot.seq <= than:
        pass
    return pull


@pytest.fixture(autouse=True)
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure(stream)
    yield stream
    log.configure(io.StringIO())


def test_pull_verbs_and_a_clean_stop() -> None:
    hosted = Hosted()
    host = hosted.start()

    async def main() -> None:
        first = await fresh(host, 0, than=0)
        assert [event.seq for event in first.events] == [1, 2, 3]
        second = await fresh(host, 3, than=first.snapshot.seq)
        assert second.events == ()
        assert await host.pause("ana") == Outcome(ok=True, text="paused by ana")
        assert (await host.resume("ana")).text == "resumed by ana"
        assert (await host.evict(EvictScope(kind="all"), "ana", expect=3)).text == "evicted all 3 False by ana"
        with pytest.raises(ValueError, match="whales"):
            await host.poll_now("whales", "ana")

    asyncio.run(main())
    assert not host.ended
    hosted.end()
    assert host.clean
    assert hosted.toy.ended

    async def after() -> None:
        last = await host.pull(0)
        assert last is not None
        assert last.snapshot.state == "stopped"
        assert len(last.events) == 3
        with pytest.raises(ConnectionError, match="has ended"):
            await host.pause("ana")

    asyncio.run(after())
    host.stop()  # again is no harm


def test_a_busy_engine_leaves_the_view_with_its_newest_snapshot() -> None:
    hosted = Hosted()
    host = hosted.start()

    async def main() -> None:
        before = await fresh(host, 0, than=0)
        assert host._loop is not None
        busy, done = threading.Event(), threading.Event()
        host._loop.call_soon_threadsafe(busy.set)
        host._loop.call_soon_threadsafe(done.wait, 30)
        busy.wait(30)
        made = hosted.toy.made
        for _ in range(5):
            pull = await asyncio.wait_for(host.pull(3), 10)
            assert pull is not None
            assert pull.snapshot == before.snapshot
        done.set()
        await fresh(host, 3, than=before.snapshot.seq)
        assert hosted.toy.made <= made + 2, "one question at a time was asked of it, and perhaps one more after it"

    asyncio.run(main())
    hosted.end()


def test_before_it_has_started_there_is_nothing_to_see() -> None:
    host = Hosted().host

    async def main() -> None:
        assert await host.pull(0) is None
        with pytest.raises(ConnectionError, match="not started"):
            await host.pause("ana")

    asyncio.run(main())


def test_a_stop_before_the_start_is_kept() -> None:
    hosted = Hosted()
    hosted.host.stop()
    hosted.host.start()
    assert hosted.host.join(2)
    assert hosted.host.clean


def test_a_duration() -> None:
    hosted = Hosted(seconds=0.1)
    hosted.start()
    assert hosted.host.join(2)
    assert hosted.host.clean
    assert hosted.toy.ended


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreError("state.db: disk full"), "state.db: disk full"),
        (ValueError("[/] \x1b[31m"), "ValueError: [/] \ufffd[31m"),
        (ExceptionGroup("two", [PolltopError("first"), ValueError("second")]), "first (and 1 more)"),
        (ExceptionGroup("", [ExceptionGroup("", [OSError("inner")])]), "OSError: inner"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_dying_engine_is_dead_with_its_reason(error: BaseException, said: str, logged: io.StringIO) -> None:
    assert reason(error) == said
    hosted = Hosted()
    host = hosted.start()

    async def main() -> None:
        before = await host.pull(0)
        assert before is not None
        hosted.toy.error = error
        assert await asyncio.to_thread(host.join, 3)
        pull = await host.pull(0)
        assert pull is not None
        assert pull.snapshot.state == "dead"
        assert pull.snapshot.reason == said
        assert pull.snapshot.seq >= before.snapshot.seq
        again = await host.pull(0)
        assert again is not None
        assert again.snapshot == pull.snapshot, "it grows old from here on"

    asyncio.run(main())
    assert not host.clean
    assert "Traceback" in logged.getvalue()
    assert "\x1b" not in logged.getvalue()


def test_an_engine_that_cannot_even_be_made_is_dead() -> None:
    def fail() -> Toy:
        raise StoreError("no such folder")

    host = LocalEngine(fail)
    host.start()
    assert host.join(2)

    async def main() -> None:
        pull = await host.pull(0)
        assert isinstance(pull, Pull)
        assert (pull.snapshot.state, pull.snapshot.reason) == ("dead", "no such folder")

    asyncio.run(main())


def test_a_call_that_the_engines_end_overtakes_is_answered() -> None:
    hosted = Hosted()
    host = hosted.start()

    async def main() -> None:
        call = asyncio.create_task(host.poll_now("never", "ana"))
        await asyncio.sleep(0.1)
        host.stop()
        with pytest.raises(ConnectionError, match="has ended"):
            await asyncio.wait_for(call, 3)

    asyncio.run(main())
    hosted.end()


def test_a_view_that_gives_up_cancels_nothing_in_the_engine() -> None:
    hosted = Hosted()
    host = hosted.start()

    async def main() -> None:
        assert host._loop is not None
        host._loop.call_soon_threadsafe(time.sleep, 0.2)
        call = asyncio.create_task(host.pause("ana"))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())
    until(lambda: hosted.toy.done == ["paused by ana"])
    hosted.end()
