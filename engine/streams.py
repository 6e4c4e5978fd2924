"""What is new in a read of a stream, and which identifiers its window must go on holding.

An API page serves old records long after any window, and polling stops for longer than a window at every cool-down,
pause, night or restart. So a timed stream keeps a watermark, the newest record time of its complete reads: a record
older than `watermark - lateness` is history, never new, and needs no entry. Every other key is held, for as long as it
is served or not yet history, and ages only from the first good read after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.signals import Bad, Named, Record, name_all

__all__ = ["FUTURE_SECONDS", "Progress", "Sorted", "StreamState", "shared_floor", "sort_out"]

FUTURE_SECONDS = 5.0
"""A record stamped this much after the answer's own `Date` is quarantined: as a watermark it would hide all others."""


@dataclass(slots=True)
class StreamState:
    """How far a stream has been read; what of it is stored."""

    name: str
    namespace: str
    """First part of its keys; streams that share it see each other's records."""
    identity: str = ""
    """What its records are told apart by, as configured. When that changes, nothing that is stored of it is known."""
    seeded: bool = False
    """The first read is done."""
    watermark: float | None = None
    floor: float = -math.inf
    """Records before this are history. Stored, and never moved back: what is before it has been forgotten, and a config
    with a longer lateness must not make it new again."""
    seeded_to: float = -math.inf
    """Newest record time of the first read, if that was remembered without acting."""
    read_at: float | None = None
    """Server time of the last good read: nothing older than this minus the lateness is unseen by this stream."""
    held: dict[bytes, float | None] = field(default_factory=dict)
    """Keys that this stream holds in the window, with the time of the record."""
    page: int = 0
    """Records that its last read served, where they have no time."""

    def advance(self, progress: Progress) -> None:
        """A read has been committed."""
        self.watermark, self.floor, self.seeded_to, self.read_at = progress
        self.seeded = True


class Progress(NamedTuple):
    """What a committed read leaves of a stream's state; see there."""

    watermark: float | None
    floor: float
    seeded_to: float
    read_at: float


@dataclass(frozen=True, slots=True)
class Sorted:
    """A read, sorted out against its stream's state. Nothing is changed yet."""

    candidates: list[Named]
    """Neither history nor bad nor seeded; oldest first; each key once."""
    seeded: list[bytes]
    """Keys served again that the first read remembered."""
    repeats: int
    """Further records of the read with a key of the candidates."""
    history: int
    future: list[Bad]
    progress: Progress
    """The stream's state once this read is committed."""
    seeds: bool
    """The first read of a stream that is to remember without acting."""

    def overlaps(self, state: StreamState) -> bool:
        """Whether the read reaches back to what `state` knows, or there is nothing that it could reach."""
        known = self.history or self.seeded or any(named.digest in state.held for named in self.candidates)
        return bool(known) or not state.held

    def left(self, state: StreamState, shared: float, known: Callable[[bytes], bool]) -> list[bytes]:
        """Keys that `state` holds and need not hold once this read is committed.

        Args:
            state: The stream.
            shared: `shared_floor` of its namespace.
            known: Whether the window still has a key; a full one pushes out even what is held.
        """
        served = {named.digest for named in self.candidates}.union(self.seeded)
        floor = min(self.progress.floor, shared)
        return [
            key
            for key, time in state.held.items()
            if key not in served and (time is None or time < floor or not known(key))
        ]


def sort_out(
    state: StreamState, records: Sequence[Record], *, lateness: float, served_at: float, act: bool, timed: bool = True
) -> Sorted:
    """Tell history, impossible times and candidates apart, in one read of `state`.

    What a first read remembers without acting, it remembers for its own stream only (under a key of that stream's):
    another stream of the namespace, followed for longer, may not have met the record yet, and has to act.

    Args:
        state: The stream as the last committed read left it.
        records: All records of the read, as served.
        lateness: How late a record may show up behind its neighbours, seconds.
        served_at: The answer's `Date`, else our wall clock.
        act: Whether a first read is acted on (`start: lookback`).
        timed: Whether the source's records have a time of their own.
    """
    seeds = not state.seeded and not act
    named = name_all(records)
    future = [item for item in named if (item.record.time or 0.0) > served_at + FUTURE_SECONDS]
    if future:
        impossible = {id(item) for item in future}
        named = [item for item in named if id(item) not in impossible]
    times = [item.record.time for item in named if item.record.time is not None]
    newest = max(times, default=None)
    watermark = newest if state.watermark is None else max(state.watermark, newest or state.watermark)
    next_floor = state.floor if watermark is None else max(state.floor, watermark - lateness)
    if not state.seeded and timed and newest is None:
        # Nothing to remember: what was there before, and was only not served this once, is history all the same.
        next_floor = served_at - lateness
    # The first read goes down to newest minus lateness and no further, however much a page holds.
    floor = state.floor if state.seeded else next_floor
    current = [item for item in named if item.record.time is None or item.record.time >= floor]
    once = {item.digest: item for item in current}
    candidates = list(once.values())
    repeats = len(current) - len(candidates)
    seeded: list[bytes] = []
    if seeds and timed:
        candidates = [_own(state, item) for item in candidates]
    elif timed and state.floor <= state.seeded_to:
        own = [(item, _own(state, item).digest) for item in candidates]
        seeded = [key for _, key in own if key in state.held]
        candidates = [item for item, key in own if key not in state.held]
    if times:
        # Newest first is how timed APIs serve; ties keep the order in which they happened.
        candidates.reverse()
        candidates.sort(key=lambda item: item.record.time or 0.0)
    return Sorted(
        candidates=candidates,
        seeded=seeded,
        repeats=repeats,
        history=len(named) - len(current),
        future=[Bad.of("its time is in the future", item.record.item) for item in future],
        progress=Progress(
            watermark, next_floor, newest if seeds and newest is not None else state.seeded_to, served_at
        ),
        seeds=seeds,
    )


def _own(state: StreamState, item: Named) -> Named:
    return Named(item.record, ("seed", state.name, *item.key))


def shared_floor(states: Iterable[StreamState], namespace: str, lateness: float, *, act: bool) -> float:
    """Record time before which every stream of a namespace has seen all there is.

    A record acted on by one stream must not be forgotten while another, stalled since before it, may still meet it as
    new. A stream not yet seeded does not count, unless its first read will be acted on.
    """
    times = [
        -math.inf if state.read_at is None else state.read_at - lateness
        for state in states
        if state.namespace == namespace and (state.seeded or act)
    ]
    return min(times, default=math.inf)
