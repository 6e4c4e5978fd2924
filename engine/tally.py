"""Counts by time: what a sparkline shows."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tally"]


class Tally:
    """How often something happened in each of the last `buckets` whole spans of `seconds`. Memory does not grow."""

    def __init__(self, now: Callable[[], float], *, seconds: float, buckets: int) -> None:
        self._now = now
        self._seconds = seconds
        self._counts = [0] * buckets
        self._last = self._bucket()

    def add(self, amount: int = 1) -> None:
        self._advance()
        self._counts[self._last % len(self._counts)] += amount

    def counts(self) -> tuple[int, ...]:
        """Oldest first; the last one is still filling."""
        self._advance()
        split = (self._last + 1) % len(self._counts)
        return (*self._counts[split:], *self._counts[:split])

    def _bucket(self) -> int:
        return int(self._now() // self._seconds)

    def _advance(self) -> None:
        current = self._bucket()
        for bucket in range(max(self._last + 1, current - len(self._counts) + 1), current + 1):
            self._counts[bucket % len(self._counts)] = 0
        self._last = max(self._last, current)
