"""What every sink offers to delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Sink", "SinkClosedError"]


class SinkClosedError(Exception):
    """Whoever read this sink has gone for good, and the engine with it: the reader of our stdout."""


class Sink(Protocol):
    """Where signals go, one JSON line each."""

    name: str
    """Under which deliveries are owed to it; the same in every run."""

    async def recover(self, owed: Sequence[str]) -> int:
        """Once, before the first `write`: how many of the lines owed, from the first on, it has from an earlier run."""
        ...

    async def write(self, lines: Sequence[str]) -> None:
        """Take lines. On return they are safe. Raises OSError (try again later) or SinkClosedError."""
        ...
