"""The widget behind every pane."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult
from textual.geometry import Size

from tui_app.format import cells
from tui_app.panes.lines import Lines


class Resized(Lines):
    """Has another size than the one it was last painted for."""

    now: Size | None = None

    @property
    def size(self) -> Size:
        return self.now or super().size


class Pane(App[None]):
    CSS = "Lines { width: 20; height: 2; }"

    def compose(self) -> ComposeResult:
        yield Resized()


def test_a_frame_before_the_paint_for_a_new_size_keeps_to_that_size() -> None:
    """Else a line that was made for more columns runs into the gap beside it, where nobody repaints."""

    async def main() -> None:
        app = Pane()
        async with app.run_test(size=(40, 4)) as pilot:
            lines = app.query_one(Resized)
            lines.show([(("x" * 20, ""),), (("漢字" * 5, ""),)])
            await pilot.pause()
            for width in (20, 13, 7, 33):
                lines.now = Size(width, 2)
                for y in range(3):
                    strip = lines.render_line(y)
                    assert strip.cell_length == width
                    assert sum(cells(segment.text) for segment in strip) == width

    asyncio.run(main())
