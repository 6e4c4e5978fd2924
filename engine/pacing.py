"""Who may send, and when: limits, and the pacer that grants a request under all the limits it meets, or not yet.

A limit of N requests per W seconds grants on a grid of slots W/N apart, without credit for time away, and keeps a ring
of its last N release times: the Nth last must be W ago. The grid alone would be over by one when a late slot precedes
one on time; the ring alone would release the whole budget in one clump. Headroom h stretches W to W / (1 - h).

A slot is consumed at the grant, in one synchronous step for all limits of a request; nothing is reserved, so a waiter
that gives up costs nobody anything, and a cool-down set meanwhile is seen by all who wait.
"""

from __future__ import annotations

import math
import random
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Literal

import anyio
import httpx
from anyio.lowlevel import checkpoint_if_cancelled

from engine.backoff import BAN_SECONDS, MAX_HINT_SECONDS, Verdict, full_jitter, wait_after_refusal
from engine.clock import Clock
from engine.config import Backoff, LimitConfig, Rate
from engine.snapshot import CooldownView, LimitView
from engine.text import plain

__all__ = ["Grant", "Limit", "Pacer"]

MAX_IN_FLIGHT = 64
"""Requests to one host at a time. Part of the grant: a slot spent before a connection is free would send in clumps."""

_GRAIN_SECONDS = 0.004
"""Event loops wake up to a few milliseconds late: a caller that was already waiting may make up for that much."""

_LATE_SECONDS = 0.05
"""With a slow grid for up to this much: it cannot clump. Later than that it was a pause or a cool-down: no credit."""

_RECHECK_SECONDS = 30.0
"""A timer stops with the machine, a cool-down does not: look again this often."""

_ROUNDING = 1.0 + 1e-9
"""So that (t2 - t1) < W holds for no two releases N apart, whatever way a reader of the log rounds."""


class Limit:
    """At most `rate` releases in any window, and the cool-down after a refusal. Times: `Clock.mono`, its own `boot`."""

    def __init__(
        self, name: str, kind: str, rate: Rate, *, headroom: float = 0.0, max_in_flight: int | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.rate = rate
        self.window = rate.seconds / (1.0 - headroom) * _ROUNDING
        self.gap = self.window / rate.requests
        self.max_in_flight = max_in_flight
        self.in_flight = 0
        self.granted = 0
        self.refused = 0
        self.attempt = 0
        self.epoch = 0
        """Counts cool-downs: a refusal of a request granted before the last one began belongs to the same round."""
        self.cool_since = 0.0
        self.cool_until = 0.0
        self.wait = 0.0
        self.hint: float | None = None
        self.cause = ""
        self.bans = 0
        self.probe_due = False
        self.probe: Grant | None = None
        self._next = -math.inf
        self._releases: deque[float] = deque(maxlen=rate.requests)

    def __repr__(self) -> str:
        return f"Limit({self.name!r}, {self.rate}, attempt={self.attempt})"

    def ready_at(self, mono: float, boot: float) -> float:
        """`mono` of the earliest next grant as things stand; infinite while only an answer can change that."""
        if self.probe is not None or (self.max_in_flight is not None and self.in_flight >= self.max_in_flight):
            return math.inf
        ready = self._next
        if len(self._releases) == self.rate.requests:
            ready = max(ready, self._releases[0] + self.window)
        if self.cool_until > boot:
            ready = max(ready, mono + (self.cool_until - boot))
        return ready

    def charge(self, grant: Grant, since: float) -> None:
        """Consume a slot for a caller that has waited since `since`."""
        # Only lateness of the loop is made up for. A slot that nobody waited for is gone.
        late = grant.at - self._next
        on_grid = since <= self._next and late < min(max(self.gap, _GRAIN_SECONDS), _LATE_SECONDS)
        self._next = (self._next if on_grid else grant.at) + self.gap
        self._releases.append(grant.at)
        self.granted += 1
        self.in_flight += 1
        if self.probe_due:
            self.probe = grant

    def used(self, mono: float) -> int:
        """Releases in the last window."""
        return sum(1 for at in self._releases if at > mono - self.window)

    def cool(self, *, boot: float, wait: float, hint: float | None, cause: str) -> None:
        self.epoch += 1
        self.attempt += 1
        self.refused += 1
        self.cool_since = boot
        self.cool_until = max(self.cool_until, boot + wait)
        self.wait = self.cool_until - boot
        self.hint = hint
        self.cause = cause
        self.probe_due = True

    def extend(self, *, boot: float, wait: float, hint: float | None, cause: str) -> None:
        """Another refusal of the same round: it may lengthen the wait, it is no attempt of its own."""
        self.refused += 1
        if boot + wait > self.cool_until:
            self.cool_until = boot + wait
            self.wait = self.cool_until - self.cool_since
            self.hint = hint
            self.cause = cause


class Grant:
    """Leave to send one request now. It must be settled once, when its answer has been read or will not come."""

    __slots__ = ("_epochs", "_pacer", "_settled", "at", "limits")

    def __init__(self, pacer: Pacer, limits: tuple[Limit, ...], at: float) -> None:
        self.limits = limits
        self.at = at
        """`Clock.mono` of the grant."""
        self._pacer = pacer
        self._epochs = tuple(limit.epoch for limit in limits)
        self._settled = False

    @property
    def since_refusal(self) -> float | None:
        """Seconds since the last cool-down of any of its limits was over, 0 within one; None without one."""
        # From its end: the wait after a ban is longer than the memory of what led to it.
        ends = [limit.cool_until for limit in self.limits if limit.refused]
        return max(0.0, self._pacer.clock.boot() - max(ends)) if ends else None

    def settle(self, verdict: Verdict, *, hint: float | None = None, cause: str = "") -> float:
        """Tell the limits how it went. Returns the seconds that they wait, if refused. Only the first call counts."""
        if self._settled:
            return 0.0
        self._settled = True
        return self._pacer._settle(self, self._epochs, verdict, hint, cause)  # noqa: SLF001 - two halves of one object


class _Waiter:
    __slots__ = ("event", "grant", "limits", "seq", "since")

    def __init__(self, seq: int, limits: tuple[Limit, ...], since: float) -> None:
        self.seq = seq
        self.limits = limits
        self.since = since
        self.event = anyio.Event()
        self.grant: Grant | None = None


class Pacer:
    """Grants requests under every limit that matches their URL. For one event loop; it knows of every caller in it."""

    def __init__(
        self,
        limits: Iterable[LimitConfig],
        *,
        default_rate: Rate,
        min_interval: float,
        headroom: float,
        backoff: Backoff,
        clock: Clock,
        rng: random.Random,
        say: Callable[[Literal["info", "warning"], str], None] = lambda _level, _text: None,
    ) -> None:
        self.clock = clock
        self.backoff = backoff
        self._say = say
        self.last_cooldown = ""
        self._patterns = [
            (_pattern(limit.match), Limit(limit.match, "limit", limit.rate, headroom=headroom)) for limit in limits
        ]
        self._default_rate = default_rate
        self._min_interval = min_interval
        self._headroom = headroom
        self._rng = rng
        self._hosts: dict[str, Limit] = {}
        self._defaults: dict[str, Limit] = {}
        # One queue a set of limits, first come first served. An OrderedDict gives up any waiter in O(1).
        self._queues: dict[tuple[Limit, ...], OrderedDict[int, _Waiter]] = {}
        self._seq = count()
        self._paused = False

    def limits_for(self, url: httpx.URL) -> tuple[Limit, ...]:
        """All limits a request to `url` is charged to: the host's gap, and what matches, or else the default rate."""
        host = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if host not in self._hosts:
            # A gap of zero still bounds the requests in flight.
            gap = Rate(1, self._min_interval) if self._min_interval > 0 else Rate(1, 1e-9)
            self._hosts[host] = Limit(host, "gap", gap, max_in_flight=MAX_IN_FLIGHT)
        # With the query and without; as it is sent, and with %xx decoded: a limit must not be missed by its spelling.
        query = f"?{url.query.decode('ascii')}"
        paths = {url.path, url.raw_path.decode("ascii").partition("?")[0]}
        forms = [host + path + end for path in paths for end in ("", query)]
        matching = [limit for pattern, limit in self._patterns if any(map(pattern.fullmatch, forms))]
        if not matching:
            if host not in self._defaults:
                self._defaults[host] = Limit(host, "default", self._default_rate, headroom=self._headroom)
            matching = [self._defaults[host]]
        return (self._hosts[host], *matching)

    async def acquire(self, url: httpx.URL) -> Grant:
        """Wait until a request to `url` may be sent, and consume its slots. The caller settles the grant."""
        await checkpoint_if_cancelled()
        limits = self.limits_for(url)
        waiter = _Waiter(next(self._seq), limits, self.clock.mono())
        queue = self._queues.setdefault(limits, OrderedDict())
        queue[waiter.seq] = waiter
        try:
            self._dispatch()
            while waiter.grant is None:
                waiter.event = anyio.Event()
                await self._wait(waiter, queue)
                self._dispatch()
        except BaseException:
            if waiter.grant is not None:
                # Granted and cancelled in the same step. The slot stays spent: the safe side.
                waiter.grant.settle(Verdict.TRANSIENT)
            elif queue.pop(waiter.seq, None) is not None:
                self._wake_head(limits)
            raise
        return waiter.grant

    def pause(self) -> None:
        """Grant nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._kick()

    async def _wait(self, waiter: _Waiter, queue: OrderedDict[int, _Waiter]) -> None:
        # Only the head of a queue keeps a timer; the others are woken when they become head, or are granted.
        if self._paused or next(iter(queue)) != waiter.seq:
            await waiter.event.wait()
            return
        mono = self.clock.mono()
        ready = self._ready_at(waiter.limits, mono, self.clock.boot())
        with anyio.move_on_after(min(ready - mono, _RECHECK_SECONDS)):
            await waiter.event.wait()

    def _ready_at(self, limits: tuple[Limit, ...], mono: float, boot: float) -> float:
        return max(limit.ready_at(mono, boot) for limit in limits)

    def _dispatch(self) -> None:
        """Grant all that may go now; among heads that may, the one that has waited longest goes first."""
        if self._paused:
            return
        mono, boot = self.clock.mono(), self.clock.boot()
        while True:
            best: _Waiter | None = None
            for limits, queue in self._queues.items():
                if queue:
                    head = next(iter(queue.values()))
                    if (best is None or head.seq < best.seq) and self._ready_at(limits, mono, boot) <= mono:
                        best = head
            if best is None:
                return
            grant = best.grant = Grant(self, best.limits, mono)
            for limit in best.limits:
                limit.charge(grant, best.since)
            del self._queues[best.limits][best.seq]
            best.event.set()
            self._wake_head(best.limits)

    def _wake_head(self, limits: tuple[Limit, ...]) -> None:
        queue = self._queues[limits]
        if queue:
            next(iter(queue.values())).event.set()

    def _kick(self) -> None:
        """Something that held waiters back is gone: grant what may go, and let every head set its timer anew."""
        self._dispatch()
        for limits in self._queues:
            self._wake_head(limits)

    def _settle(self, grant: Grant, epochs: tuple[int, ...], verdict: Verdict, hint: float | None, cause: str) -> float:
        boot = self.clock.boot()
        wait = 0.0
        if verdict.refused:
            wait = self._cool(grant, epochs, verdict, hint, cause, boot)
        freed = False
        opened: list[Limit] = []
        for limit in grant.limits:
            freed = freed or limit.in_flight == limit.max_in_flight
            limit.in_flight -= 1
            if limit.probe is grant:
                limit.probe = None
                freed = True
                if verdict in (Verdict.OK, Verdict.FATAL) and limit.cool_until <= boot:
                    # A 404 to the probe is an answer too: the limit no longer refuses. A late refusal that came
                    # meanwhile still holds; its end has a probe of its own.
                    opened.append(limit)
        if opened:
            refused = max(limit.attempt for limit in opened)
            names = ", ".join(limit.name for limit in opened)
            self.last_cooldown = plain(f"open again after {refused} refused in a row: {names}")
            self._say("info", self.last_cooldown)
            for limit in opened:
                limit.probe_due, limit.attempt, limit.bans = False, 0, 0
        if freed:
            self._kick()
        return wait

    def _cool(
        self, grant: Grant, epochs: tuple[int, ...], verdict: Verdict, hint: float | None, cause: str, boot: float
    ) -> float:
        # The gap of the host is not what was refused: other limits of the same host go on.
        cooled = [pair for pair in zip(grant.limits, epochs, strict=True) if pair[0].kind != "gap"]
        # Granted before the round began, refused while it lasts: of the same round.
        fresh = [limit for limit, epoch in cooled if limit.epoch == epoch or not limit.probe_due]
        attempt = max((limit.attempt for limit in fresh), default=0)
        if verdict is Verdict.BANNED:
            bans = max((limit.bans for limit in fresh), default=0)
            hint = max(hint or 0.0, min(BAN_SECONDS * 2.0 ** min(bans, 10), MAX_HINT_SECONDS))
        jitter = full_jitter(attempt, base=self.backoff.base_seconds, cap=self.backoff.cap_seconds, rng=self._rng)
        wait = wait_after_refusal(hint, jitter)
        for limit, _ in cooled:
            if limit in fresh:
                limit.cool(boot=boot, wait=wait, hint=hint, cause=cause)
                limit.bans += verdict is Verdict.BANNED
            else:
                limit.extend(boot=boot, wait=wait, hint=hint, cause=cause)
                limit.bans = max(limit.bans, verdict is Verdict.BANNED)
        wait = max(limit.cool_until for limit, _ in cooled) - boot
        if fresh:
            names = ", ".join(limit.name for limit in fresh)
            what = "taken for a ban, waits" if verdict is Verdict.BANNED else "waits"
            self._say("warning", f"{cause}: {what} {wait:.1f} s (refused {attempt + 1} in a row): {names}")
        return wait

    def _limits(self) -> list[Limit]:
        return [limit for _, limit in self._patterns] + list(self._defaults.values()) + list(self._hosts.values())

    @property
    def in_flight(self) -> int:
        return sum(limit.in_flight for limit in self._hosts.values())

    def views(self) -> tuple[tuple[LimitView, ...], tuple[CooldownView, ...]]:
        """The state of all limits, and of those that cool down, soonest first."""
        mono, boot = self.clock.mono(), self.clock.boot()
        limits = tuple(self._view(limit, mono, boot) for limit in self._limits())
        cooling = sorted((limit for limit in self._limits() if limit.probe_due), key=lambda limit: limit.cool_until)
        return limits, tuple(
            CooldownView(
                limit=plain(limit.name, 200),
                attempt=limit.attempt,
                since=limit.cool_since,
                until=limit.cool_until,
                wait=limit.wait,
                hint=limit.hint,
                cause=limit.cause,
                probing=limit.cool_until <= boot,
                banned=limit.bans > 0,
            )
            for limit in cooling
        )

    def _view(self, limit: Limit, mono: float, boot: float) -> LimitView:
        ready = limit.ready_at(mono, boot)
        return LimitView(
            name=plain(limit.name, 200),
            kind=limit.kind,
            requests=limit.rate.requests,
            window_seconds=limit.rate.seconds,
            effective_window_seconds=limit.window,
            used=limit.used(mono),
            granted=limit.granted,
            refused=limit.refused,
            in_flight=limit.in_flight,
            queue=sum(len(queue) for limits, queue in self._queues.items() if limit in limits),
            next_slot=ready if mono < ready < math.inf else None,
        )


def _pattern(match: str) -> re.Pattern[str]:
    # Compared with httpx's normal form: lower-case scheme and host, no default port.
    head = re.match(r"https?://[^/*]*", match, re.IGNORECASE)
    start = head[0] if head else ""
    rest = match[len(start) :]
    start = re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", start.lower())
    return re.compile(".*".join(re.escape(part) for part in (start + rest).split("*")), re.DOTALL)
