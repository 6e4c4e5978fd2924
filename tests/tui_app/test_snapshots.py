"""Pictures of the main states at 80x24: what colour adds to the words. `--snapshot-update` takes them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tui_app import builders as b
from tests.tui_app.bench import Bench
from tests.tui_app.test_screens import die, freeze, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from engine.snapshot import Snapshot

CASES = {
    "running": (b.snapshot(), (80, 24), nothing),
    "paused": (b.paused(), (80, 24), nothing),
    "backing-off": (b.backing_off(), (80, 24), nothing),
    "frozen": (b.snapshot(), (80, 24), freeze),
    "dead": (b.snapshot(), (80, 24), die),
    "empty": (b.empty(), (80, 24), nothing),
    "too-small": (b.paused(), (50, 12), nothing),
}


def look(snap_compare: Callable[..., bool], snapshot: Snapshot, size: tuple[int, int], act: object, theme: str) -> None:
    on = Bench(b.FakeEngine(snapshot), theme=theme)

    async def before(pilot: Pilot[None]) -> None:
        on.pilot = pilot
        await on.settle()
        await act(on)  # type: ignore[operator]

    assert snap_compare(on.app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("name", CASES)
def test_state(snap_compare: Callable[..., bool], name: str) -> None:
    snapshot, size, act = CASES[name]
    look(snap_compare, snapshot, size, act, "polltop-dark")


@pytest.mark.parametrize("theme", ["polltop-light", "ansi-16"])
def test_theme(snap_compare: Callable[..., bool], theme: str) -> None:
    look(snap_compare, b.backing_off(), (80, 24), nothing, theme)
