"""The effective rate of a limit, learned from refusals and from rising latency.

A `Throttle` keeps the share of its limit's configured rate that a server was seen to bear. It is cut once a round, by
the factor 0.7, and grows back along the curve of CUBIC (RFC 9438): fast to just below where it was cut, slowly past it,
then faster. Growth counts seconds of use and not of time: a limit that nobody uses learns nothing (RFC 7661, for TCP).
It is never above the configured rate.

A server that delays instead of refusing shows in the latency. Each round of answers has a median; what it is above the
lowest one known, times the rate of answers, is the queue that our requests wait in over there (as TCP Vegas reckons:
Brakmo and Peterson, 1995). When that is more than a few requests, the answers come at the rate that the server bears,
and the cut is from there. A single request that takes long queues behind nothing of ours. A cut that brings no relief
was for nothing: the delay is the server's own, and becomes the new baseline.
"""

from __future__ import annotations

from statistics import median

__all__ = ["CUT", "LEAST_SHARE", "Throttle"]

CUT = 0.7
"""A cut leaves this part of the rate: CUBIC's beta."""

LEAST_SHARE = 0.01
"""No cut goes below this: a server that refuses even that has more to say than a rate."""

FORGET_SECONDS = 86_400.0
"""A share that was not cut for so long, and not used enough to grow back, is forgotten: published limits change."""

_GROWTH = 1.5e-7
"""CUBIC's C, in shares a cubed second: a limit cut from its full rate is there again after 190 s of use."""

_PLATEAU = 0.95
"""The curve levels out at this part of the rate that was refused: a hidden limit is met again, but seldom."""

_ROUND = 10
"""Answers that have one median latency."""

_INFLATED = 1.5
_INFLATED_SECONDS = 0.02
"""Delayed: above the baseline times this, plus this."""

_QUEUE = 2.0
"""Requests of ours over there from which on they delay each other: the alpha of TCP Vegas."""

_RELIEF = 0.9
"""A cut helped when the median fell to this part of what it was."""

_DRIFT = 1.0001
"""The baseline rises by this a round, so that one lucky round long ago does not stand for ever."""


class Throttle:
    """What share of the configured rate to use. Times are `Clock.boot`, in seconds."""

    __slots__ = (
        "_answered",
        "_baseline",
        "_before",
        "_deaf",
        "_latencies",
        "_peak",
        "_since",
        "_units",
        "cut_at",
        "share",
        "used",
        "why",
    )

    def __init__(self) -> None:
        self.share = 1.0
        """Of the configured rate; 1.0 until something was learned."""
        self.why = ""
        """What the last cut was for, in a few words; empty when the share is 1."""
        self.cut_at = 0.0
        """When that was."""
        self.used = 0.0
        """Seconds of use since the last cut."""
        self._peak = 1.0
        self._answered = True
        self._latencies: list[float] = []
        self._since = 0.0
        self._units = 0.0
        self._baseline: float | None = None
        self._before: float | None = None
        self._deaf = 0.0

    def cut(self, boot: float, why: str, *, borne: float = 1.0) -> bool:
        """Lower the share, from what was `borne` if that is less. False when nothing was answered since the last cut.

        A refusal then says that the ban still stands, and nothing about the new rate: it stays.
        """
        if not self._answered:
            return False
        self._answered = False
        share = min(self.share, borne)
        self._peak = max(LEAST_SHARE, share * _PLATEAU)
        self.share = max(LEAST_SHARE, share * CUT)
        self.used = 0.0
        self.why, self.cut_at = why, boot
        self._latencies.clear()
        return True

    def answered(self, seconds: float, boot: float) -> None:
        """A request under this limit was answered well; at the effective rate it used up `seconds` of the limit."""
        self._answered = True
        if self.share == 1.0:
            return
        self.used += seconds
        low = self._peak / _PLATEAU * CUT
        flat = ((self._peak - low) / _GROWTH) ** (1 / 3)
        self.share = min(1.0, max(self.share, self._peak + _GROWTH * (self.used - flat) ** 3))
        if self.share == 1.0 or boot - self.cut_at > FORGET_SECONDS:
            self.share, self.why = 1.0, ""

    def heard(self, latency: float, seconds: float, boot: float) -> bool:
        """The latency of a good answer; at the configured rate it used up `seconds`. True when that led to a cut."""
        if self.used < self._deaf:
            return False  # what had queued up over there is still being worked off
        if not self._latencies:
            self._since, self._units = boot, -seconds
        self._units += seconds
        self._latencies.append(latency)
        if len(self._latencies) < _ROUND:
            return False
        now = median(self._latencies)
        self._latencies.clear()
        took = max(boot - self._since, 1e-9)
        before, self._before, self._deaf = self._before, None, 0.0
        if self._baseline is None or now < self._baseline or (before is not None and now > before * _RELIEF):
            self._baseline = now
        self._baseline *= _DRIFT
        queued = (now - self._baseline) * (_ROUND - 1) / took
        if now <= self._baseline * _INFLATED + _INFLATED_SECONDS or queued < _QUEUE:
            return False
        if not self.cut(boot, f"answers took {now:.2g} s instead of {self._baseline:.2g}", borne=self._units / took):
            return False
        # Work that piles up at rate 1 is worked off at 1 - CUT of it.
        self._before, self._deaf = now, now / (1.0 - CUT)
        return True

    def dump(self) -> list[float | str]:
        """What `load` takes, to be kept over a restart."""
        return [self.share, self._peak, self.used, self.why]

    def load(self, kept: list[float | str], cut_at: float, scale: float) -> None:
        """Go on from a dump, made when the configured rate was `scale` times what it is now."""
        share, peak, used, why = kept
        self.share = min(1.0, float(share) * scale)
        self._peak = min(1.0, float(peak) * scale)
        self.used, self.why, self.cut_at = float(used), str(why) if self.share < 1.0 else "", cut_at
