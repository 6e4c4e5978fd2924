"""Every state as text, compared exactly. POLLTOP_UPDATE_SCREENS=1 writes the files anew: read the diff."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.tui_app import builders as b
from tests.tui_app.bench import Bench, bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.snapshot import Snapshot

SCREENS = Path(__file__).parent / "screens"


async def nothing(_: Bench) -> None: ...


async def freeze(on: Bench) -> None:
    await on.press("space")
    await on.pull(b.backing_off(seq=2), after=38.0)  # the header goes on, the panes do not


async def die(on: Bench) -> None:
    on.engine.events = (*b.EVENTS, b.event(4, "the engine has failed: disk full", "error"))
    await on.pull(b.snapshot(state="dead", reason="StoreError: disk full"), after=48.0)


async def lose(on: Bench) -> None:
    on.engine.error = ConnectionError("connection refused")
    await on.pull(after=12.0)


def keys(*names: str) -> Callable[[Bench], Awaitable[None]]:
    async def press(on: Bench) -> None:
        await on.press(*names)

    return press


CASES: dict[str, tuple[Snapshot | None, tuple[int, int], Callable[[Bench], Awaitable[None]]]] = {
    "running-80x24": (b.snapshot(), (80, 24), nothing),
    "running-60x16": (b.snapshot(), (60, 16), nothing),
    "running-120x40": (b.snapshot(), (120, 40), nothing),
    "paused-80x24": (b.paused(), (80, 24), nothing),
    "frozen-80x24": (b.snapshot(), (80, 24), freeze),
    "backing-off-80x24": (b.backing_off(), (80, 24), nothing),
    "backing-off-60x16": (b.backing_off(), (60, 16), nothing),
    "engine-dead-80x24": (b.snapshot(), (80, 24), die),
    "no-contact-80x24": (b.snapshot(), (80, 24), lose),
    "empty-80x24": (b.empty(), (80, 24), nothing),
    "too-small-50x12": (b.paused(), (50, 12), nothing),
    "help-80x24": (b.snapshot(), (80, 24), keys("question_mark")),
    "evict-80x24": (b.snapshot(), (80, 24), keys("E")),
    "details-80x24": (b.backing_off(), (80, 24), keys("enter")),
    "pacing-80x24": (b.backing_off(), (80, 24), keys("1")),
    "back-off-80x24": (b.backing_off(), (80, 24), keys("2")),
    "dedup-80x24": (b.snapshot(), (80, 24), keys("3")),
    "signals-80x24": (b.snapshot(), (80, 24), keys("4")),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name: str) -> None:
    snapshot, size, act = CASES[name]

    async def run() -> str:
        async with bench(snapshot, size) as on:
            await act(on)
            return on.text()

    shown = asyncio.run(run())
    width, height = size
    lines = shown.splitlines()
    assert len(lines) == height
    assert all(cell_len(line) <= width for line in lines)
    path = SCREENS / f"{name}.txt"
    if os.environ.get("POLLTOP_UPDATE_SCREENS"):
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8")


def test_no_file_is_left_of_a_screen_that_is_gone() -> None:
    assert {path.stem for path in SCREENS.glob("*.txt")} == set(CASES)
