"""The demo's rate limits, enforced as strictly as the documentation reads, and the log of all that arrived."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["LoggedRequest", "RequestLog", "SlidingLimit", "worst_window"]

_MOST_ARRIVALS = 100_000


class SlidingLimit:
    """At most `requests` counted arrivals in any half-open window of `seconds`, judged as each one arrives."""

    def __init__(self, requests: int, seconds: float, *, count_refused: bool = False) -> None:
        """Make a limit that counts accepted requests; with `count_refused` those that it refuses as well."""
        self.requests = requests
        self.seconds = seconds
        self.count_refused = count_refused
        self._arrivals: deque[float] = deque(maxlen=_MOST_ARRIVALS)

    def retune(self, requests: int, seconds: float) -> None:
        """Go on with another rate; what has arrived counts against it."""
        self.requests = requests
        self.seconds = seconds

    def arrive(self, now: float) -> float:
        """Judge a request: 0 when accepted, else the seconds until the next one would be."""
        accepted = self.wait(now) == 0
        if accepted or self.count_refused:
            self.charge(now)
        return 0.0 if accepted else self.wait(now)

    def wait(self, now: float) -> float:
        """Seconds until a request would be accepted."""
        while self._arrivals and self._arrivals[0] + self.seconds <= now:
            self._arrivals.popleft()
        if len(self._arrivals) < self.requests:
            return 0.0
        return self._arrivals[-self.requests] + self.seconds - now

    def charge(self, now: float) -> None:
        """Count an arrival."""
        self._arrivals.append(now)


def worst_window(times: Iterable[float], seconds: float) -> int:
    """The most arrivals in any half-open window `[t, t + seconds)`."""
    ordered = sorted(times)
    worst = first = 0
    for last, time in enumerate(ordered):
        while ordered[first] + seconds <= time:
            first += 1
        worst = max(worst, last - first + 1)
    return worst


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request as the server saw it."""

    mono: float
    """When it arrived."""
    path: str
    query: str
    status: int
    """0: the client left before it was answered."""
    limit: str | None
    """The limit that refused it, else the tightest that it was counted under."""


class RequestLog:
    """The newest `capacity` requests, and all of them as JSON lines in `file` where one is given."""

    def __init__(self, capacity: int = 100_000, file: Path | None = None) -> None:
        self._ring: deque[LoggedRequest] = deque(maxlen=capacity)
        self._lock = Lock()
        self._file: TextIO | None = None if file is None else file.open("a", encoding="ascii", buffering=1)
        self.total = 0

    def add(self, request: LoggedRequest) -> None:
        with self._lock:
            self.total += 1
            self._ring.append(request)
            if self._file is not None:
                self._file.write(json.dumps(asdict(request)) + "\n")

    def requests(self, path: str | None = None, status: int | None = None) -> list[LoggedRequest]:
        """What is held, oldest answer first; of one path or status only, when given."""
        with self._lock:
            held = list(self._ring)
        return [
            request
            for request in held
            if (path is None or request.path == path) and (status is None or request.status == status)
        ]

    def arrivals(self, path: str | None = None, status: int | None = None) -> list[float]:
        """The arrival times of `requests(path, status)`, in order: food for `worst_window`."""
        return sorted(request.mono for request in self.requests(path, status))

    def close(self) -> None:
        """Close the file; later requests are kept in the ring only."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
