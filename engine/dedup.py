"""`BoundedDeduplicator`: has this identifier been handled in the last N seconds?

A key is absent, claimed (its record is being written), or committed. A committed key ages from a moment on and is
forgotten `window_seconds` later, in the half-open window `[at, at + window_seconds)`; or it is *held* and does not age:
its source still serves it, or may still serve it as new. Eviction is part of every operation, bounded, and needs no
background job. Nothing here awaits: no other task can come between a check and its mark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import anyio

from engine.clock import Clock

__all__ = ["BoundedDeduplicator", "Claim", "Occupancy", "Verdict"]

_SWEEP_MOST = 512
_SWEEP = 8
"""Expired keys dropped for each key of an operation: a million that expire at once must not stall the loop."""


class Verdict(Enum):
    """What a claim found."""

    NEW = "new"
    IN_FLIGHT = "in flight"
    DUPLICATE = "duplicate"


@dataclass(eq=False, slots=True)
class Claim:
    """The hold on the new keys of one `claim()`: to be committed or released."""

    verdicts: list[Verdict]
    """One for each key asked for, in order. A key given twice is NEW once and then IN_FLIGHT by this very claim."""
    keys: set[bytes]
    """The keys that were NEW and are still held by this claim: a forced eviction takes them out."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when the claim has been committed or released."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """State and counts of a window."""

    entries: int
    capacity: int
    held: int
    claims: int
    oldest_age: float | None
    new: int
    duplicates: int
    expired: int
    evicted_early: int
    forced: int


class BoundedDeduplicator:
    """A window of identifiers. Keys are 16 bytes (`signals.digest`), or any bytes.

    Args:
        window_seconds: A key is forgotten this long after it was marked, or after it was no longer held.
        max_entries: Bound of committed keys. A full window evicts its oldest key, ageing ones first, and counts it.
        clock: Ages are measured by `Clock.boot`.
    """

    def __init__(self, window_seconds: float, max_entries: int, clock: Clock) -> None:
        self.window_seconds = window_seconds
        self.max_entries = max_entries
        self._now = clock.boot
        self._ageing: OrderedDict[bytes, float] = OrderedDict()  # key -> since when; oldest first
        self._held: OrderedDict[bytes, int] = OrderedDict()  # key -> by how many
        self._claims: dict[bytes, Claim] = {}
        self.new = self.duplicates = self.expired = self.evicted_early = self.forced = 0

    def __len__(self) -> int:
        return len(self._ageing) + len(self._held)

    def seen(self, key: bytes) -> bool:
        """Whether `key` is committed and not yet forgotten."""
        self._sweep(1)
        return self._committed(key)

    def mark(self, key: bytes) -> None:
        """Commit `key` as of now. A held key stays held."""
        self._sweep(1)
        self._age_from(key, self._now())
        self._bound()

    def claim(self, keys: Sequence[bytes]) -> Claim:
        """Judge every key, and hold those that are new until `commit` or `release`."""
        self._sweep(len(keys))
        claim = Claim([], set())
        for key in keys:
            if self._committed(key):
                verdict = Verdict.DUPLICATE
                self.duplicates += 1
            elif key in self._claims:
                verdict = Verdict.IN_FLIGHT
            else:
                verdict = Verdict.NEW
                self._claims[key] = claim
                claim.keys.add(key)
            claim.verdicts.append(verdict)
        return claim

    def in_flight(self, key: bytes) -> Claim | None:
        """The claim that holds `key` now: await its `settled`, then claim again."""
        return self._claims.get(key)

    def commit(self, claim: Claim, *, hold: bool = False) -> set[bytes]:
        """Mark the claimed keys as of now, or `hold` them at once, and return them.

        Keys revoked meanwhile, or a claim settled before, mark nothing.
        """
        keys = self._drop(claim)
        now = self._now()
        for key in keys:
            self._age_from(key, now)
        self.new += len(keys)
        if hold:
            # In one step: in a window full of held keys the new ones would be the only ones to push out.
            self.hold(keys)
        self._bound()
        return keys

    def release(self, claim: Claim) -> None:
        """Give the claimed keys back: the next sighting of each is new. Without effect on a settled claim."""
        self._drop(claim)

    def hold(self, keys: Iterable[bytes]) -> None:
        """Keep committed keys from ageing, once more for each call. Unknown keys become committed."""
        for key in keys:
            self._ageing.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1
        self._bound()

    def let_go(self, keys: Iterable[bytes]) -> None:
        """Undo one `hold` of each key; one that nobody else holds ages from now."""
        now = self._now()
        for key in keys:
            holders = self._held.get(key)
            if holders is None:
                continue
            if holders > 1:
                self._held[key] = holders - 1
            else:
                del self._held[key]
                self._ageing[key] = now
        self._sweep(1)

    def restore(self, aged: Iterable[tuple[bytes, float]]) -> None:
        """Put back keys of an earlier run, `(key, Clock.boot since when it ages)`, oldest first.

        A moment in the future counts as now, so that no clock step makes a key outlive its window.
        """
        now = self._now()
        for key, at in aged:
            self._age_from(key, min(at, now))
        self._bound()

    def evict(self, keys: Iterable[bytes]) -> int:
        """Forget keys by force: committed ones are dropped, claims revoked. Returns how many there were."""
        count = 0
        for key in keys:
            claim = self._claims.pop(key, None)
            if claim is not None:
                claim.keys.discard(key)
            known = self._ageing.pop(key, None) is not None
            known = self._held.pop(key, None) is not None or known or claim is not None
            count += known
        self.forced += count
        return count

    def sweep(self) -> bool:
        """Drop a bounded number of expired keys; whether there may be more. Keeps a quiet window's figures true."""
        before = self.expired
        self._sweep(_SWEEP_MOST)
        return self.expired - before == _SWEEP * _SWEEP_MOST

    def occupancy(self) -> Occupancy:
        self.sweep()
        return Occupancy(
            entries=len(self),
            capacity=self.max_entries,
            held=len(self._held),
            claims=len(self._claims),
            oldest_age=self._now() - next(iter(self._ageing.values())) if self._ageing else None,
            new=self.new,
            duplicates=self.duplicates,
            expired=self.expired,
            evicted_early=self.evicted_early,
            forced=self.forced,
        )

    def _committed(self, key: bytes) -> bool:
        if key in self._held:
            return True
        at = self._ageing.get(key)
        return at is not None and self._now() - at < self.window_seconds

    def _age_from(self, key: bytes, at: float) -> None:
        if key not in self._held:
            self._ageing[key] = at
            self._ageing.move_to_end(key)

    def _drop(self, claim: Claim) -> set[bytes]:
        keys = claim.keys
        claim.keys = set()
        for key in keys:
            del self._claims[key]
        claim.settled.set()
        return keys

    def _sweep(self, operations: int) -> None:
        horizon = self._now() - self.window_seconds
        for _ in range(_SWEEP * operations):
            oldest = next(iter(self._ageing.items()), None)
            if oldest is None or oldest[1] > horizon:
                return
            del self._ageing[oldest[0]]
            self.expired += 1

    def _bound(self) -> None:
        while len(self) > self.max_entries:
            at = next(iter(self._ageing.values()), None)
            if at is not None:
                self._ageing.popitem(last=False)
                if self._now() - at >= self.window_seconds:
                    self.expired += 1
                    continue
            else:
                self._held.popitem(last=False)
            self.evicted_early += 1
