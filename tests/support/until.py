"""Waiting on the real world: for what a test is about, not for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as it holds; a failure when it does not within a time that even a busy machine keeps."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)
