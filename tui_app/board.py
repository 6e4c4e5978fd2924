"""The blocks of the screen and the rows that each gets. What is in them comes from the `Monitor`."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.widgets import Input

from tui_app.monitor import Monitor
from tui_app.panes.lines import Lines
from tui_app.view import LEAST, rows

__all__ = ["PANES", "Board"]

PANES: Final = ("pacing", "backoff", "dedup", "counters")


class Board(Container):
    """Header, four panes, three lists, footer; or one block at full size; or the card for a small terminal."""

    DEFAULT_CLASSES: ClassVar[str] = "board"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor
        self.zoomed = ""
        """A pane, `help` or `detail` at full size; empty for all of them."""

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        with Container(id="panes"):
            for name in PANES:
                yield Lines(id=name)
        for name in ("sources", "feed", "events", "full", "card", "foot"):
            yield Lines(id=name)
        with Horizontal(id="ask"):
            yield Lines(id="mark")
            yield Input(id="filter", placeholder="words in sources and signals", compact=True, select_on_focus=False)

    @property
    def small(self) -> bool:
        width, height = self.size
        return width < LEAST[0] or height < LEAST[1]

    @property
    def filtering(self) -> bool:
        return self.query_one("#ask", Horizontal).display

    def on_resize(self) -> None:
        self.share_out()

    def block(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    def share_out(self) -> None:
        """Give each block its rows: by the size and by what is open, never by what there is to show."""
        width, height = self.size
        small = self.small
        zoomed = "" if small else self.zoomed
        share = rows(height)
        for name, size in (("sources", share.sources), ("feed", share.signals), ("events", share.events)):
            self.block(name).display = not small and not zoomed and size > 0
            self.block(name).styles.height = max(1, size)
        panes = self.query_one("#panes", Container)
        panes.display = not small and (not zoomed or zoomed in PANES)
        panes.set_class(width >= 2 * LEAST[0], "-across")
        panes.set_class(zoomed in PANES, "-zoomed")
        for name in PANES:
            self.block(name).display = zoomed in {"", name}
        self.block("full").display = zoomed in {"help", "detail"}
        self.block("card").display = small
        self.block("head").display = not small
        self.block("foot").display = not small and not self.filtering
        self.call_after_refresh(self.draw)

    def zoom(self, name: str) -> None:
        """Show one block alone; again, or with no name: all of them."""
        self.zoomed = "" if name == self.zoomed else name
        self.share_out()

    def draw(self) -> None:
        """Show the state of this moment; what has not changed is not sent."""
        for block in self.query(Lines):
            if block.display and block.id is not None:
                block.show(self.monitor.lines(block.id, *block.size, zoomed=self.zoomed))

    def open_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = self.monitor.wanted
        self.query_one("#ask", Horizontal).display = True
        field.focus()
        self.share_out()

    def close_filter(self) -> None:
        self.query_one("#ask", Horizontal).display = False
        self.screen.set_focus(None)
        self.share_out()
