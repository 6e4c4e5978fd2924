"""What one view knows and chooses: the newest snapshot and when it came, events, freeze, filter, order, cursor.

No Textual here: the app feeds it pulls and keys, and takes from it the lines of every block of the screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from engine.snapshot import Event, Pull, Snapshot, SourceView
from engine.text import plain
from tui_app.format import Line, Role, count, line, rule
from tui_app.keys import footer_line, help_rows
from tui_app.panes.backoff import backoff_lines
from tui_app.panes.dedup import dedup_lines
from tui_app.panes.events import event_lines
from tui_app.panes.feed import feed_lines
from tui_app.panes.header import Standing, header_line
from tui_app.panes.help import help_lines
from tui_app.panes.pacing import pacing_lines
from tui_app.panes.signals import signal_lines
from tui_app.panes.small import small_lines
from tui_app.panes.sources import Table, detail_lines, source_lines
from tui_app.view import ORDERS, Order, View, matches, sort_sources

__all__ = ["Monitor"]

KEPT: Final = 1_000
"""Events kept for the screen."""

MESSAGE_SECONDS: Final = 6.0
_PANES: Final = {"pacing": pacing_lines, "backoff": backoff_lines, "dedup": dedup_lines, "counters": signal_lines}


class Monitor:
    """The state of one view."""

    def __init__(self, now: Callable[[], float], *, host: str = "", leave: str = "Quit", interval: float = 1.0) -> None:
        self.now, self.host, self.leave, self.interval = now, host, leave, interval
        self.after = 0
        """Sequence number of the newest event taken."""
        self.order: Order = "worst"
        self.wanted = ""
        self.leaving = False
        self.contact = ""
        self._snapshot: Snapshot | None = None
        self._received = now()
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._frozen: tuple[float, View | None, tuple[Event, ...]] | None = None
        self._chosen = ""
        self._top = 0
        self._message: tuple[float, str, Role] | None = None

    # -- what comes in -------------------------------------------------------------------------------------------------

    def take(self, pull: Pull | None) -> None:
        """An answer of the engine. An old snapshot given again stays as old as it is."""
        self.contact = ""
        if pull is None:
            return
        before, snap = self._snapshot, pull.snapshot
        if before is not None and before.engine_id != snap.engine_id:
            self.after = 0  # another life, another count: its events come whole with the next pull
            self.tell("the engine was restarted; its counters start again", "warning")
        else:
            self._add(pull)
        if before is None or (before.engine_id, before.seq, before.mono) != (snap.engine_id, snap.seq, snap.mono):
            self._received = self.now()
        self._snapshot = snap

    def _add(self, pull: Pull) -> None:
        if pull.missed:
            self.tell(f"{count(pull.missed)} events are no longer kept by the engine", "warning")
        for event in pull.events:
            if event.seq > self.after:
                self._events.append(event)
                self.after = event.seq

    def lost(self, why: str) -> None:
        """The engine could not be asked."""
        self.contact = plain(why, 200) or "no answer"

    def tell(self, text: str, level: Literal["info", "warning", "error"]) -> None:
        """An event of this view's own."""
        view = self.live()
        wall = view.snapshot.wall + view.age if view else 0.0
        self._events.append(Event(seq=0, time=wall, level=level, text=plain(text)))

    def say(self, text: str, role: Role = "info") -> None:
        """Something for the last row, until it is old."""
        self._message = (self.now() + MESSAGE_SECONDS, plain(text, 300), role)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def patience(self) -> float:
        return max(3 * self.interval, 2.0)

    def live(self) -> View | None:
        """The newest state, as of now."""
        if self._snapshot is None:
            return None
        return View(self._snapshot, max(0.0, self.now() - self._received), self.patience, self.contact)

    def shown(self) -> View | None:
        """The state that the panes show: the newest, or the one that was frozen."""
        return self._frozen[1] if self._frozen else self.live()

    @property
    def frozen(self) -> bool:
        return self._frozen is not None

    def freeze(self) -> None:
        self._frozen = None if self._frozen else (self.now(), self.live(), tuple(self._events))

    def standing(self) -> Standing:
        frozen = self.now() - self._frozen[0] if self._frozen else None
        return Standing(self.host, frozen, self.leaving, self.contact)

    # -- sources -------------------------------------------------------------------------------------------------------

    def sources(self) -> list[SourceView]:
        view = self.shown()
        if view is None:
            return []
        wanted = self.wanted
        found = [each for each in view.snapshot.sources if matches(wanted, each.name, each.state, each.reason)]
        return sort_sources(found, self.order)

    def chosen(self) -> SourceView | None:
        """The source under the cursor; the first one as long as nobody moved it."""
        found = self.sources()
        return next((each for each in found if each.name == self._chosen), found[0] if found else None)

    def pin(self) -> None:
        """Keep the cursor on the source that it is on, wherever that is sorted to."""
        source = self.chosen()
        self._chosen = source.name if source else ""

    def move(self, by: int) -> None:
        found = self.sources()
        if not found:
            return
        at = next((index for index, each in enumerate(found) if each.name == self._chosen), 0)
        self._chosen = found[min(len(found) - 1, max(0, at + by))].name

    def next_order(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self._top = 0

    def _table(self, view: View, rows: int) -> Table:
        found = self.sources()
        at = next((index for index, each in enumerate(found) if each.name == self._chosen), 0)
        last = max(0, len(found) - rows)
        self._top = min(max(self._top if self._chosen else 0, at - rows + 1), at, last)
        name = found[at].name if found else ""
        return Table(found, len(view.snapshot.sources), max(0, self._top), name, self.order, self.wanted)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def lines(self, block: str, width: int, height: int, zoomed: str = "") -> list[Line]:
        """The lines of a block of the screen."""
        if width <= 0 or height <= 0:
            return []
        match block:
            case "head":
                return [header_line(self.live(), self.standing(), width)]
            case "foot":
                return [self._foot(width)]
            case "mark":
                return [line((" Filter ", "key"))]
            case "card":
                return small_lines(self.live(), self.standing(), width, height, self.leave)
            case "full" if zoomed == "help":
                return help_lines(tuple(help_rows()), width, height)
        return self._pane(block, width, height)

    def _pane(self, block: str, width: int, height: int) -> list[Line]:
        """The lines of a block that freezing holds."""
        view = self.shown()
        if block == "events":
            events = self._frozen[2] if self._frozen else tuple(self._events)
            return event_lines(events, width, height, view.note if view else "")
        if view is None:
            return self._waiting(block, width)
        match block:
            case "sources":
                return source_lines(view, self._table(view, max(1, height - 2)), width, height)
            case "feed":
                return feed_lines(view, width, height, self.wanted)
            case "full":
                return detail_lines(view, self.chosen(), width)
        return _PANES[block](view, width, height)

    def _waiting(self, block: str, width: int) -> list[Line]:
        """Before the first snapshot: the places are there, and nothing in them."""
        titles = {"pacing": "Pacing", "backoff": "Back-off", "dedup": "Dedup window", "counters": "Signals"}
        titles |= {"sources": "Sources", "feed": "Newest signals", "full": "Source"}
        told = "waiting for the engine" if block == "sources" else "-"
        return [rule(titles[block], width), line(" ", (told, "dim"))]

    def _foot(self, width: int) -> Line:
        if self._message is not None:
            until, text, role = self._message
            if self.now() < until:
                return line(" ", (text, role))
            self._message = None
        view = self.live()
        held = view is not None and view.held
        labels = {
            "view.leave": self.leave,
            "engine.pause": "Resume engine" if held else "Pause engine",
            "view.freeze": "Go live" if self.frozen else "Freeze",
        }
        return footer_line(width, labels)
