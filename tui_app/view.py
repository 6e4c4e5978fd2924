"""What every pane is given: the newest snapshot, how old it is, and the clocks at this moment. No Textual here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from engine.snapshot import Snapshot, SourceView
from tui_app.format import SOURCE_WORDS, duration

__all__ = ["LEAST", "ORDERS", "Order", "Rows", "View", "matches", "rows", "sort_sources"]

LEAST: Final = (60, 16)
"""Columns and rows below which only a card is shown."""

PANES: Final = 8
"""Rows of the four live panes together: two by two, or four side by side."""

Order = Literal["worst", "name", "next", "signals"]
ORDERS: Final[tuple[Order, ...]] = ("worst", "name", "next", "signals")

_RANK: Final = {state: rank for rank, state in enumerate(SOURCE_WORDS)}


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot as it is to be shown now."""

    snapshot: Snapshot
    age: float
    """Seconds since the snapshot arrived here."""
    patience: float
    """The age from which it is stale."""
    contact: str = ""
    """Why the engine could not be asked for a newer one; empty when it answers."""

    @property
    def stale(self) -> bool:
        return bool(self.contact) or self.age > self.patience

    @property
    def over(self) -> bool:
        """Nothing comes after this snapshot that it foretells: no countdown has a meaning."""
        return self.stale or self.snapshot.state in {"dead", "stopped"}

    @property
    def held(self) -> bool:
        """Nothing is sent, on purpose."""
        return self.snapshot.state in {"pausing", "paused"}

    @property
    def elapsed(self) -> float:
        """How far the clocks have gone on since the snapshot; they stand still once it is stale."""
        return min(self.age, self.patience)

    @property
    def mono(self) -> float:
        return self.snapshot.mono + self.elapsed

    @property
    def boot(self) -> float:
        return self.snapshot.boot + self.elapsed

    @property
    def note(self) -> str:
        """What a title says behind its name when its values are old."""
        return f"{duration(self.age)} old" if self.stale else ""

    def since(self, boot: float | None) -> float | None:
        """Seconds since a reading of `Clock.boot`."""
        return None if boot is None else max(0.0, self.boot - boot)

    def until(self, mono: float | None) -> float | None:
        """Seconds to a reading of `Clock.mono`; None when nothing is to be expected any more."""
        return None if mono is None or self.over or self.held else max(0.0, mono - self.mono)

    def until_boot(self, boot: float) -> float | None:
        """Seconds to a reading of `Clock.boot`."""
        return None if self.over else max(0.0, boot - self.boot)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the lists below the panes, each with its title; they depend on the size of the screen alone."""

    sources: int
    signals: int
    events: int


def rows(height: int) -> Rows:
    """Share out what header, panes and footer leave."""
    left = height - PANES - 2
    if left < 10:  # noqa: PLR2004
        return Rows(left - 2, 0, 2)
    if left < 14:  # noqa: PLR2004
        return Rows(left - 6, 3, 3)
    extra = left - 14
    signals = 4 + extra // 4
    events = 4 + extra // 4
    return Rows(left - signals - events, signals, events)


def matches(wanted: str, *texts: str) -> bool:
    """Whether a filter's words all occur, in any of the texts, case aside."""
    text = "\n".join(texts).casefold()
    return all(word in text for word in wanted.casefold().split())


def sort_sources(sources: Sequence[SourceView], order: Order) -> list[SourceView]:
    """Sources in an order that only their own changes disturb: ties go by name."""
    keys: dict[Order, Callable[[SourceView], tuple[float, str]]] = {
        "worst": lambda source: (float(_RANK[source.state]), source.name),
        "name": lambda source: (0.0, source.name),
        "next": lambda source: (float("inf") if source.next_poll is None else source.next_poll, source.name),
        "signals": lambda source: (-float(source.signals), source.name),
    }
    return sorted(sources, key=keys[order])
