"""What has happened, in words: the bounded list of events that every view reads, and the log lines behind them."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from engine import log
from engine.clock import Clock
from engine.snapshot import Event
from engine.text import plain

__all__ = ["Board"]

KEPT = 500


class Board:
    """Events, newest last. Each is logged too; one line for a change of state, none for an ordinary poll."""

    def __init__(self, clock: Clock) -> None:
        self.seq = 0
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._log = log.get()

    def say(self, level: Literal["info", "warning", "error"], text: str, **fields: Any) -> None:
        """Add an event. `fields` go to the log line only."""
        self.seq += 1
        self._events.append(Event(seq=self.seq, time=self._clock.wall(), level=level, text=plain(text)))
        getattr(self._log, level)(text, **fields)

    def after(self, seq: int) -> tuple[tuple[Event, ...], int]:
        """Events after `seq`, oldest first, and how many after it are no longer kept."""
        events = tuple(event for event in self._events if event.seq > seq)
        return events, max(0, self.seq - max(seq, 0) - len(events))
