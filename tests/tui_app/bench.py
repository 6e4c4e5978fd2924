"""Runs the monitor on a crafted engine and reads its screen as text."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.tui_app.builders import FakeClock, FakeEngine
from tui_app.app import MonitorApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

    from engine.snapshot import Snapshot


class Bench:
    """A monitor under test: its engine, its clock, its app."""

    def __init__(self, engine: FakeEngine, **options: Any) -> None:
        self.engine = engine
        self.clock = FakeClock()
        given: dict[str, Any] = {"actor": "ana", "host": "prod1", "interval": 3600.0, "hosted": _never}
        self.app = MonitorApp(engine, now=self.clock, **given | options)
        self.app.monitor.interval = 1.0  # the beat is the test's; patience is as in life
        self.pilot: Pilot[None]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self.pilot.pause()
        if under_way := [worker for worker in self.app.workers if worker.group != "engine"]:
            await self.app.workers.wait_for_complete(under_way)
        await self.pilot.pause()

    async def pull(self, snapshot: Snapshot | None = None, *, after: float = 0.0) -> None:
        """Let so many seconds go by, then let the beat strike; the engine has this snapshot by then."""
        self.clock.at += after
        if snapshot is not None:
            self.engine.snapshot = snapshot
        await self.app.pull()
        await self.pilot.pause()

    def text(self) -> str:
        """The whole screen, modals and all."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"

    def row(self, number: int) -> str:
        return self.text().splitlines()[number]

    @property
    def head(self) -> str:
        return self.app.board.block("head").text()

    @property
    def foot(self) -> str:
        return self.app.board.block("foot").text()


def _never(seconds: float) -> bool:
    """An engine that does not end; the worker that waits for it looks again and again."""
    import time

    time.sleep(min(seconds, 0.02))
    return False


@asynccontextmanager
async def bench(
    snapshot: Snapshot | None = None, size: tuple[int, int] = (80, 24), engine: FakeEngine | None = None, **options: Any
) -> AsyncIterator[Bench]:
    made = Bench(engine or FakeEngine(), **options)
    if snapshot is not None:
        made.engine.snapshot = snapshot
    async with made.app.run_test(size=size) as pilot:
        made.pilot = pilot
        await made.settle()
        yield made
