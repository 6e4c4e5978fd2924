"""One rate limit: its grid of slots, its ring of releases, and the cool-down after a refusal.

A limit of N units per W seconds grants on a grid of slots W/N apart, without credit for time away, and keeps the
release times of the last W seconds: there are never more than N. The grid alone would be over by one when a late slot
precedes one on time; the ring alone would release the whole budget in one clump. Headroom h stretches W to W / (1 - h).

The grid is wider than configured for as long as less was found to be borne: by the throttle, in the slow start after a
cool-down, and by what the server itself says is left. The ring always holds what is configured.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from engine.config import Rate
from engine.signals import digest
from engine.throttle import Throttle

__all__ = ["Limit", "LimitState"]

_GRAIN_SECONDS = 0.004
"""Event loops wake up to a few milliseconds late: a caller that was already waiting may make up for that much."""

_LATE_SECONDS = 0.05
"""With a slow grid for up to this much: it cannot clump. Later than that it was a pause or a cool-down: no credit."""

_ROUNDING = 1.0 + 1e-9
"""So that (t2 - t1) < W holds for no two releases N apart, whatever way a reader of the log rounds."""

_SLOW_START = 0.5
"""The part of the rate at which a limit goes on after its probe; `_SLOW_STEPS` answers later it is whole again."""
_SLOW_STEPS = 10

_CALM_SECONDS = 60.0
"""So long after a cool-down, or as long as it lasted, a refusal is a new round and not the next attempt."""

_SPANS = 60
"""Releases are kept over a restart in so many spans of the window, each as if at its end."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """What a limit keeps over a restart: seconds before and after the moment of saving, and figures."""

    cooled: tuple[float, float] | None
    """How long ago the last cool-down began, and in how many seconds it ends (negative: how long it is over)."""
    attempt: int
    bans: int
    probe_due: bool
    short: float
    hint: float | None
    cause: str
    learned: tuple[float, float, list[float | str]] | None
    """How long ago the throttle was cut, of how many units a second, and its `dump`."""
    releases: tuple[tuple[float, int], ...]
    """How long ago, and how many units."""

    def to_json(self) -> str:
        return _STATE.dump_json(self).decode("ascii")

    @staticmethod
    def from_json(text: str) -> LimitState:
        """Raises ValueError for what is none."""
        return _STATE.validate_json(text)


_STATE = TypeAdapter(LimitState)


class Limit:
    """At most `rate` units in any window, and the cool-down after a refusal. Times: `Clock.mono`, its own `boot`."""

    def __init__(
        self,
        name: str,
        kind: Literal["limit", "default", "gap"],
        rate: Rate,
        *,
        headroom: float = 0.0,
        max_in_flight: int | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.key = digest((kind, name, int(rate.seconds * 1000))).hex()
        """What it is kept under over a restart: the same limit with another number of requests is the same."""
        self.changed = False
        """Since it was last kept."""
        self.rate = rate
        self.window = rate.seconds / (1.0 - headroom) * _ROUNDING
        self.gap = self.window / rate.requests
        """Seconds between slots, as configured."""
        self.max_in_flight = max_in_flight
        self.in_flight = 0
        self.granted = 0
        """Units since the start."""
        self.refused = 0
        self.throttle = Throttle()
        self.attempt = 0
        """Refused rounds, also from before it was last open, unless a calm spell lies between; 0 while it is open."""
        self._earlier = 0
        self.round = 0
        """The round of refusals that it last cooled down for, as the pacer counts them."""
        self.cool_since = -math.inf
        self.cool_until = -math.inf
        self.wait = 0.0
        self.short = 0.0
        """A wait after which the probe was refused again, without a hint: the least of the next."""
        self.hint: float | None = None
        self.cause = ""
        self.bans = 0
        self.probe_due = False
        self.probe: object | None = None
        self._slow = _SLOW_STEPS
        self._told: tuple[float, float, str] | None = None
        self._told_at = 0.0
        self._next = -math.inf
        self._releases: deque[float] = deque()

    def __repr__(self) -> str:
        return f"Limit({self.name!r}, {self.rate}, attempt={self.attempt})"

    # When

    def ready_at(self, mono: float, boot: float, cost: int = 1) -> float:
        """`mono` of the earliest next grant as things stand; infinite while only an answer can change that."""
        if self.probe is not None or (self.max_in_flight is not None and self.in_flight >= self.max_in_flight):
            return math.inf
        ready = self._next
        over = len(self._releases) + cost - self.rate.requests
        if over > 0 and (full := self._releases[over - 1] + self.window) > ready:
            ready = full
        if self.shut_until > boot and (opens := mono + (self.shut_until - boot)) > ready:
            ready = opens
        return ready

    @property
    def shut_until(self) -> float:
        """`boot` before which nothing goes: a cool-down, or a quota that the server says is used up."""
        if self._told is None or self._told[0] > 0.0:
            return self.cool_until
        return max(self.cool_until, self._told[1])

    @property
    def shut_since(self) -> float:
        """Since when that is so."""
        return self.cool_since if self.cool_until >= self.shut_until else self._told_at

    def ready_after(self, other: int, mono: float, boot: float, cost: int) -> float:
        """When `cost` units could go if `other` units went now."""
        ready = max(self._next, mono) + self.effective_gap(boot) * other
        over = len(self._releases) + other + cost - self.rate.requests
        if over > len(self._releases):
            return max(ready, mono + self.window)
        return max(ready, self._releases[over - 1] + self.window) if over > 0 else ready

    def effective_gap(self, boot: float) -> float:
        """Seconds between slots as they are used now."""
        if self.throttle.share == 1.0 and self._slow == _SLOW_STEPS and self._told is None:
            return self.gap
        gap = self.gap / self.throttle.share
        if self._slow < _SLOW_STEPS:
            gap /= _SLOW_START + (1.0 - _SLOW_START) * self._slow / _SLOW_STEPS
        if self._told is not None and self._told[0] > 0.0 and self._told[1] > boot:
            gap = max(gap, 1.0 / self._told[0])
        return gap

    def why(self, boot: float) -> str:
        """Why less than the configured rate is used, in a few words; empty when it is not."""
        if (
            self._told is not None
            and self._told[1] > boot
            and (self._told[0] == 0.0 or 1.0 / self._told[0] > self.gap / self.throttle.share)
        ):
            return f"server: {self._told[2]}"
        learned = [f"learned: {self.throttle.why}"] if self.throttle.share < 1.0 else []
        return ", ".join([*learned, *["slow start"] * (self._slow < _SLOW_STEPS)])

    # What becomes of it

    def charge(self, grant: object, at: float, boot: float, since: float, cost: int = 1) -> None:
        """Consume slots for a caller that has waited since `since`."""
        # Only lateness of the loop is made up for. A slot that nobody waited for is gone.
        late = at - self._next
        on_grid = since <= self._next and late < min(max(self.gap, _GRAIN_SECONDS), _LATE_SECONDS)
        self._next = (self._next if on_grid else at) + self.effective_gap(boot) * cost
        releases = self._releases
        while releases and releases[0] <= at - self.window:
            releases.popleft()
        for _ in range(cost):
            releases.append(at)
        self.granted += cost
        self.in_flight += 1
        self.changed = True
        if self.probe_due:
            self.probe = grant

    def used(self, mono: float) -> int:
        """Units released in the last window."""
        while self._releases and self._releases[0] <= mono - self.window:
            self._releases.popleft()
        return len(self._releases)

    def load(self, mono: float) -> float:
        """The part of the window that is used, of what is used of the rate at present: what was likely refused."""
        return self.used(mono) / (self.rate.requests * self.throttle.share)

    def answered(self, cost: int, boot: float) -> None:
        """A good answer came."""
        if self._slow < _SLOW_STEPS:
            self._slow += 1
        self.throttle.answered(self.gap / self.throttle.share * cost, boot)

    def tell(self, per_second: float, boot: float, until: float, said: str) -> None:
        """The server says what is left: not more than `per_second` until `boot` has reached `until`."""
        self._told, self._told_at = (per_second, until, said), boot

    def begin(self, boot: float, *, too_short: bool) -> None:
        """A refusal begins a round."""
        if boot - self.cool_until > max(_CALM_SECONDS, self.wait):
            # Long after the last one: nothing to do with it.
            self.short, self._earlier = 0.0, 0
        self.attempt, self._earlier = max(self.attempt, self._earlier), 0
        if too_short:
            self.short = self.wait

    def override(self, boot: float) -> None:
        """Somebody has decided that it is over."""
        self.cool_until = min(self.cool_until, boot)
        self._told = None

    def cool(self, number: int, *, boot: float, wait: float, hint: float | None, cause: str) -> None:
        """Round `number` of refusals begins a cool-down."""
        self.round = number
        self.attempt += 1
        self.refused += 1
        self.cool_since = boot
        self.cool_until = max(self.cool_until, boot + wait)
        self.wait = self.cool_until - boot
        self.hint = hint
        self.cause = cause
        self.probe_due = self.changed = True
        self._slow = 0

    def extend(self, *, boot: float, wait: float, hint: float | None, cause: str) -> None:
        """Another refusal of the same round: it may lengthen the wait, it is no attempt of its own."""
        if boot + wait > self.cool_until:
            self.cool_until = boot + wait
            self.wait = self.cool_until - self.cool_since
            self.hint = hint
            self.cause = cause
            self.changed = True

    def open(self) -> None:
        """The probe was answered: go on, slowly at first."""
        self._earlier, self.attempt = self.attempt, 0
        self.probe_due, self.bans, self._slow = False, 0, 0
        self.changed = True

    # Over a restart

    def dump(self, mono: float, boot: float) -> LimitState:
        """What is kept of it, as of now."""
        self.changed = False
        self.used(mono)
        span = self.window / _SPANS
        counts: dict[int, int] = {}
        for at in self._releases:
            counts[math.floor((mono - at) / span)] = counts.get(math.floor((mono - at) / span), 0) + 1
        cut = self.throttle.share < 1.0
        return LimitState(
            cooled=(boot - self.cool_since, self.cool_until - boot) if self.cool_until > -math.inf else None,
            attempt=max(self.attempt, self._earlier),
            bans=self.bans,
            probe_due=self.probe_due,
            short=self.short,
            hint=self.hint,
            cause=self.cause,
            learned=(boot - self.throttle.cut_at, 1.0 / self.gap, self.throttle.dump()) if cut else None,
            releases=tuple((at * span, count) for at, count in sorted(counts.items(), reverse=True)),
        )

    def restore(self, state: LimitState, dumped: float, mono: float, boot: float) -> None:
        """Go on from what was dumped when `boot` was `dumped`."""
        age = boot - dumped
        if state.cooled is not None:
            began, left = state.cooled
            self.cool_since = boot - age - began
            self.cool_until = boot - age + left
            self.wait = began + left
        self.bans, self.probe_due = state.bans, state.probe_due
        self.attempt, self._earlier = (state.attempt, 0) if state.probe_due else (0, state.attempt)
        self._slow = 0 if state.probe_due else _SLOW_STEPS
        self.short, self.hint, self.cause = state.short, state.hint, state.cause
        if state.learned is not None:
            ago, per_second, kept = state.learned
            self.throttle.load(kept, boot - age - ago, per_second * self.gap)
        for ago, count in state.releases:
            at = mono - age - ago
            self._next = at + self.effective_gap(boot)
            if at > mono - self.window:
                self._releases.extend([at] * count)
        while len(self._releases) > self.rate.requests:
            self._releases.popleft()  # under a higher rate than it has now
