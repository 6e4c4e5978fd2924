"""Who may send, and when: the pacer grants a request under all the limits it meets, or not yet.

A slot is consumed at the grant, in one synchronous step for all limits of a request; nothing is reserved, so a waiter
that gives up costs nobody anything, and a cool-down set meanwhile is seen by all who wait.

Who has waited longest goes first. Others may go before only where that does not hold it up ("backfilling", as
schedulers of batch jobs do: Lifka, "The ANL/IBM SP Scheduling System", 1995), so that a request under several limits is
not starved by those who need only one. An urgent request counts as if it had come `HEAD_START_SECONDS` earlier.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Literal

import anyio
import httpx

from engine.alarm import Alarm, Wakeup
from engine.backoff import BAN_SECONDS, Verdict, full_jitter, wait_after_refusal
from engine.clock import Clock
from engine.config import Backoff, LimitConfig, Rate
from engine.errors import ThrottledError
from engine.hints import MAX_HINT_SECONDS, Advice
from engine.limits import Limit, LimitState
from engine.matching import Charges, Matcher
from engine.snapshot import CooldownView, LimitView
from engine.text import plain

__all__ = ["HEAD_START_SECONDS", "Grant", "Pacer"]

HEAD_START_SECONDS = 10.0
"""An urgent request goes before all that came up to this long before it; what has waited longer still goes first."""

_BINDS_SECONDS = 10.0
"""A limit binds when a request had to wait for it so short a time ago."""

_RECHECK_SECONDS = 30.0


class Grant:
    """Leave to send one request now. It must be settled once, when its answer has been read or will not come."""

    __slots__ = ("_charges", "_pacer", "_round", "_settled", "at", "bound", "limits")

    def __init__(self, pacer: Pacer, charges: Charges, at: float, bound: Limit | None) -> None:
        self.at = at
        """`Clock.mono` of the grant."""
        self.bound = bound
        """The limit that it waited for; None when it did not wait."""
        self.limits = charges.limits
        self._pacer = pacer
        self._charges = charges
        self._round = pacer.rounds
        self._settled = False

    @property
    def since_refusal(self) -> float | None:
        """Seconds since the last cool-down of any of its limits was over, 0 within one; None without one."""
        # From its end: the wait after a ban is longer than the memory of what led to it.
        last = max(limit.cool_until for limit in self.limits)
        return max(0.0, self._pacer.clock.boot() - last) if last > -math.inf else None

    def settle(
        self, verdict: Verdict, *, hint: float | None = None, cause: str = "", latency: float | None = None
    ) -> float:
        """Tell the limits how it went. Returns the seconds that they wait, if refused. Only the first call counts.

        Args:
            verdict: What the answer means.
            hint: Seconds that the server asks to be left alone.
            cause: The answer in a few words, for people.
            latency: Seconds until the answer's head came.
        """
        if self._settled:
            return 0.0
        self._settled = True
        return self._pacer._settle(self, verdict, hint, cause, latency)  # noqa: SLF001 - two halves of one object

    def settle_or_extend(self, verdict: Verdict, *, hint: float | None, cause: str, exact: bool) -> None:
        """The body of a refusal says more: settle it, or lengthen the wait that it was settled with.

        With `exact` a ban lasts as long as the hint says, and not as long as bans do that give none.
        """
        if self._settled:
            self._pacer._extend(self, verdict, hint, cause, exact=exact)  # noqa: SLF001 - as above
        else:
            self._settled = True
            self._pacer._settle(self, verdict, hint, cause, None, exact=exact)  # noqa: SLF001 - as above

    def throttled(self) -> ThrottledError:
        """What to raise when its limits cool down for longer than one waits."""
        limit = max(self.limits, key=lambda limit: limit.shut_until)
        return ThrottledError(plain(limit.name, 200), limit.shut_until, limit.cause)

    def advise(self, advice: Advice) -> None:
        """The server says what is left: taken to be about the tightest of the limits."""
        boot = self._pacer.clock.boot()
        self._charges.tightest[0].tell(advice.per_second, boot, boot + advice.seconds, advice.said)


class _Waiter:
    __slots__ = ("bound", "charges", "event", "grant", "key", "patience", "rank", "seq", "since", "throttled")

    def __init__(
        self, event: Wakeup, seq: int, charges: Charges, since: float, patience: float, *, urgent: bool
    ) -> None:
        self.seq = seq
        self.charges = charges
        self.key = (charges, urgent)
        self.since = since
        self.rank = since - HEAD_START_SECONDS if urgent else since
        self.patience = patience
        self.event = event
        self.grant: Grant | None = None
        self.bound: Limit | None = None
        self.throttled: ThrottledError | None = None


class Pacer:
    """Grants requests under every limit they meet. For one event loop; it knows of every caller in it.

    Args:
        limits: Those of the config.
        default_rate: Per host, for what matches none.
        min_interval: Least seconds between two requests to one host.
        headroom: Part of every limit that is left unused.
        backoff: Base and cap of the jitter.
        clock: The engine's.
        rng: For the jitter.
        max_in_flight: Requests to one host at a time. Part of the grant: a slot that is spent before a connection is
            free would send in clumps.
        max_cooldown: Seconds from which on a cool-down counts as long.
        say: Told of each refusal and of each end of a cool-down.
        keep: Awaited between a grant and its return where a limit is so slow that a restart could repeat its slot: to
            write `changes()` down.
    """

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
        max_in_flight: int = 64,
        max_cooldown: float = 900.0,
        say: Callable[[Literal["info", "warning"], str], None] = lambda _level, _text: None,
        keep: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.clock = clock
        self.backoff = backoff
        self.last_cooldown = ""
        self.news = anyio.Event()
        """Set at a refusal, at the end of a cool-down and when a rate was learned; for whoever keeps `changes`."""
        self.rounds = 0
        """Counts rounds of refusals: what was granted before one began and is refused while it lasts belongs to it."""
        self._say = say
        self._keep = keep
        self._max_cooldown = max_cooldown
        self._matcher = Matcher(
            limits,
            default_rate=default_rate,
            min_interval=min_interval,
            headroom=headroom,
            max_in_flight=max_in_flight,
            clock=clock,
        )
        self._rng = rng
        # One queue a set of limits and urgency, first come first served. An OrderedDict gives up any waiter in O(1).
        self._queues: dict[tuple[Charges, bool], OrderedDict[int, _Waiter]] = {}
        self._seq = count()
        self._paused = False
        self._alarm = Alarm(self._dispatch)
        self._bound: tuple[Limit, float] | None = None

    def limits_for(self, url: httpx.URL, *, method: str = "GET", source: str = "") -> tuple[Limit, ...]:
        """All limits that a request is charged to: the host's gap, and what matches, or else the default rate."""
        return self._matcher.charges(url, method, source).limits

    async def acquire(
        self,
        url: httpx.URL,
        *,
        method: str = "GET",
        source: str = "",
        urgent: bool = False,
        patience: float = math.inf,
    ) -> Grant:
        """Wait until a request may be sent, and consume its slots. The caller settles the grant.

        Args:
            url: Where it goes.
            method: How.
            source: For whom, for limits that are for some sources only.
            urgent: Whether it goes before those that came a little earlier.
            patience: Raise ThrottledError, at once, when its limits cool down for longer than so many seconds.
        """
        charges = self._matcher.charges(url, method, source)
        mono = self.clock.mono()
        grant = None if self._queues or self._paused else self._at_once(charges, mono)
        if grant is None:
            grant = await self._queue(
                _Waiter(self._alarm.wakeup(), next(self._seq), charges, mono, patience, urgent=urgent)
            )
        if charges.slow and self._keep is not None:
            try:
                await self._keep()
            except BaseException:
                grant.settle(Verdict.TRANSIENT)
                raise
        return grant

    def _at_once(self, charges: Charges, mono: float) -> Grant | None:
        boot = self.clock.boot()
        ready = self._ready_at(charges, mono, boot)[0]
        return self._grant(charges, mono, boot, mono, None) if ready <= mono else None

    async def _queue(self, waiter: _Waiter) -> Grant:
        if waiter.patience < math.inf and (error := self._out_of_patience(waiter, self.clock.boot())) is not None:
            raise error
        queue = self._queues.get(waiter.key)
        if queue is None:
            queue = self._queues[waiter.key] = OrderedDict()
        queue[waiter.seq] = waiter
        if len(queue) == 1:
            self._dispatch()  # behind others nothing changes
        try:
            await waiter.event.wait()
        except BaseException:
            if waiter.grant is not None:
                # Granted and cancelled in the same step. The slot stays spent: the safe side.
                waiter.grant.settle(Verdict.TRANSIENT)
            elif waiter.throttled is None:
                was_head = next(iter(queue)) == waiter.seq
                self._leave(waiter)
                if was_head:
                    self._dispatch()
            raise
        if waiter.grant is None:
            assert waiter.throttled is not None
            raise waiter.throttled
        return waiter.grant

    def pause(self) -> None:
        """Grant nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._dispatch()

    def override(self, limits: Iterable[Limit]) -> None:
        """End the cool-downs of these limits now: their probes may go."""
        boot = self.clock.boot()
        for limit in limits:
            limit.override(boot)
        self._dispatch()

    # Waiting

    def _dispatch(self) -> None:
        """Grant all that may go now, and set the timer for the rest."""
        due = math.inf
        if not self._paused:
            mono, boot = self.clock.mono(), self.clock.boot()
            waiter, due = self._first(mono, boot)
            while waiter is not None:
                self._leave(waiter)
                waiter.grant = self._grant(waiter.charges, mono, boot, waiter.since, waiter.bound)
                waiter.event.set()
                waiter, due = self._first(mono, boot)
            # A timer stops with the machine, a cool-down does not: look again now and then.
            due = min(due - mono, _RECHECK_SECONDS) if due < math.inf else math.inf
        self._alarm.set(due)

    def _first(self, mono: float, boot: float) -> tuple[_Waiter | None, float]:
        """Who may go now, or else when somebody may."""
        heads = [next(iter(queue.values())) for queue in self._queues.values()]
        if len(heads) > 1:
            heads.sort(key=lambda waiter: (waiter.rank, waiter.seq))
        due = math.inf
        held: _Waiter | None = None
        for waiter in heads:
            ready, limit = self._ready_at(waiter.charges, mono, boot)
            if ready > mono:
                waiter.bound = limit
                if held is None and ready < math.inf:
                    held, due = waiter, ready
                else:
                    due = min(due, ready)
            elif held is None or not self._holds_up(waiter, held, self._ready_at(held.charges, mono, boot)[0], boot):
                return waiter, due
        return None, due

    def _holds_up(self, waiter: _Waiter, held: _Waiter, ready: float, boot: float) -> bool:
        mono = self.clock.mono()
        costs = dict(held.charges.items)
        return any(
            limit.ready_after(cost, mono, boot, costs[limit]) > ready
            for limit, cost in waiter.charges.items
            if limit in costs
        )

    def _ready_at(self, charges: Charges, mono: float, boot: float) -> tuple[float, Limit]:
        """When all limits are ready, and which of them is the last."""
        latest, last = -math.inf, charges.limits[0]
        for limit, cost in charges.items:
            ready = limit.ready_at(mono, boot, cost)
            if ready > latest:
                latest, last = ready, limit
        return latest, last

    def _grant(self, charges: Charges, mono: float, boot: float, since: float, bound: Limit | None) -> Grant:
        grant = Grant(self, charges, mono, bound)
        for limit, cost in charges.items:
            limit.charge(grant, mono, boot, since, cost)
        if bound is not None:
            self._bound = (bound, mono)
        return grant

    def _leave(self, waiter: _Waiter) -> None:
        queue = self._queues[waiter.key]
        del queue[waiter.seq]
        if not queue:
            del self._queues[waiter.key]

    def _out_of_patience(self, waiter: _Waiter, boot: float) -> ThrottledError | None:
        limit = max(waiter.charges.limits, key=lambda limit: limit.shut_until)
        if limit.shut_until - boot <= waiter.patience:
            return None
        return ThrottledError(plain(limit.name, 200), limit.shut_until, limit.cause or limit.why(boot))

    def _send_away(self, boot: float) -> None:
        """Whoever would have to wait longer than it has patience for leaves now."""
        for waiter in [waiter for queue in self._queues.values() for waiter in queue.values()]:
            if (error := self._out_of_patience(waiter, boot)) is not None:
                self._leave(waiter)
                waiter.throttled = error
                waiter.event.set()

    # What became of it

    def _settle(
        self,
        grant: Grant,
        verdict: Verdict,
        hint: float | None,
        cause: str,
        latency: float | None,
        *,
        exact: bool = False,
    ) -> float:
        boot = self.clock.boot()
        wait = self._cool(grant, verdict, hint, cause, boot, exact=exact) if verdict.refused else 0.0
        good = verdict in (Verdict.OK, Verdict.FATAL)
        freed = False
        opened: list[Limit] = []
        for limit, cost in grant._charges.items:  # noqa: SLF001 - two halves of one object
            if limit.in_flight == limit.max_in_flight or limit.probe is grant:
                freed = True
            limit.in_flight -= 1
            if good and limit.kind != "gap":
                limit.answered(cost, boot)
            if limit.probe is grant:
                limit.probe = None
                if good and limit.cool_until <= boot:
                    # A 404 to the probe is an answer too: the limit no longer refuses. A late refusal that came
                    # meanwhile still holds; its end has a probe of its own.
                    opened.append(limit)
        if opened:
            refused = max(limit.attempt for limit in opened)
            names = ", ".join(limit.name for limit in opened)
            self.news.set()
            self.last_cooldown = plain(f"open again after {refused} refused: {names}")
            self._say("info", self.last_cooldown)
            for limit in opened:
                limit.open()
        if latency is not None and verdict is Verdict.OK:
            self._hear(grant, latency, boot)
        if freed and self._queues:
            self._dispatch()
        return wait

    def _hear(self, grant: Grant, latency: float, boot: float) -> None:
        # Where it did not have to wait for one, the tightest is the one that could be too wide.
        limit, cost = grant._charges.tightest  # noqa: SLF001 - two halves of one object
        if grant.bound is not None and grant.bound.kind != "gap":
            limit, cost = grant.bound, next(cost for each, cost in grant._charges.items if each is grant.bound)  # noqa: SLF001
        if limit.throttle.heard(latency, limit.gap * cost, boot):
            limit.changed = True
            self.news.set()
            self._say("warning", f"{limit.throttle.why}: {_learned(limit)}")

    def _cool(
        self, grant: Grant, verdict: Verdict, hint: float | None, cause: str, boot: float, *, exact: bool
    ) -> float:
        # The gap of the host is not what was refused: other limits of the same host go on.
        cooled = [limit for limit in grant.limits if limit.kind != "gap"]
        fresh = [limit for limit in cooled if limit.round <= grant._round or not limit.probe_due]  # noqa: SLF001 - two halves of one object
        self.rounds += bool(fresh)
        for limit in fresh:
            limit.begin(boot, too_short=hint is None and limit.probe is grant)
        attempt = max((limit.attempt for limit in fresh), default=0)
        if verdict is Verdict.BANNED and not exact:
            bans = max((limit.bans for limit in fresh), default=0)
            hint = max(hint or 0.0, min(BAN_SECONDS * 2.0 ** min(bans, 10), MAX_HINT_SECONDS))
        least = max((limit.short for limit in fresh), default=0.0) if hint is None else hint
        wait = wait_after_refusal(min(least, MAX_HINT_SECONDS), self._jitter(attempt))
        for limit in cooled:
            if limit in fresh:
                limit.cool(self.rounds, boot=boot, wait=wait, hint=hint, cause=cause)
                limit.bans += verdict is Verdict.BANNED
            else:
                limit.refused += 1
                limit.extend(boot=boot, wait=wait, hint=hint, cause=cause)
                limit.bans = max(limit.bans, verdict is Verdict.BANNED)
        wait = max(limit.cool_until for limit in cooled) - boot
        if fresh:
            names = ", ".join(limit.name for limit in fresh)
            what = "taken for a ban, waits" if verdict is Verdict.BANNED else "waits"
            self._say("warning", f"{cause}: {what} {wait:.1f} s (refusal {attempt + 1}): {names}")
            if verdict is not Verdict.UNAVAILABLE:
                self._cut(fresh, cause, boot)
        self.news.set()
        self._send_away(boot)
        return wait

    def _extend(self, grant: Grant, verdict: Verdict, hint: float | None, cause: str, *, exact: bool) -> None:
        boot = self.clock.boot()
        banned = verdict is Verdict.BANNED
        wait = wait_after_refusal(hint if exact or not banned else max(hint or 0.0, BAN_SECONDS), self._jitter(0))
        for limit in grant.limits:
            if limit.kind != "gap":
                limit.extend(boot=boot, wait=wait, hint=hint, cause=cause)
                limit.bans = max(limit.bans, banned)
        self.news.set()
        self._say("warning", f"{cause}: waits {wait:.1f} s")
        self._send_away(boot)

    def _jitter(self, attempt: int) -> float:
        return full_jitter(attempt, base=self.backoff.base_seconds, cap=self.backoff.cap_seconds, rng=self._rng)

    def _cut(self, limits: list[Limit], cause: str, boot: float) -> None:
        """Learn from a round of refusals: of several limits, the one nearest to its end was likely meant."""
        mono = self.clock.mono()
        limit = max(limits, key=lambda limit: limit.load(mono))
        if limit.throttle.cut(boot, cause):
            self._say("info", _learned(limit))

    # Over a restart

    def changes(self) -> dict[str, LimitState]:
        """The state of each limit that has changed since the last call, by key."""
        mono, boot = self.clock.mono(), self.clock.boot()
        return {limit.key: limit.dump(mono, boot) for limit in self._matcher if limit.changed and limit.kind != "gap"}

    def restore(self, states: Mapping[str, tuple[LimitState, float]]) -> None:
        """Go on from states of an earlier run, each with the `Clock.boot` at which it was dumped."""
        self._matcher.restore(states)

    # What views see

    @property
    def in_flight(self) -> int:
        return sum(limit.in_flight for limit in self._matcher.hosts)

    def views(self) -> tuple[tuple[LimitView, ...], tuple[CooldownView, ...]]:
        """The state of all limits, and of those that cool down, soonest first."""
        mono, boot = self.clock.mono(), self.clock.boot()
        limits = tuple(self._view(limit, mono, boot) for limit in self._matcher)
        cooling = [limit for limit in self._matcher if limit.probe_due or limit.shut_until > boot]
        return limits, tuple(
            CooldownView(
                limit=plain(limit.name, 200),
                attempt=limit.attempt if limit.probe_due else 0,
                since=limit.shut_since,
                until=limit.shut_until,
                wait=limit.shut_until - limit.shut_since,
                hint=limit.hint,
                cause=limit.cause if limit.probe_due else limit.why(boot),
                long=limit.shut_until - limit.shut_since > self._max_cooldown,
                probing=limit.shut_until <= boot,
                banned=limit.bans > 0,
            )
            for limit in sorted(cooling, key=lambda limit: limit.shut_until)
        )

    def _view(self, limit: Limit, mono: float, boot: float) -> LimitView:
        ready = limit.ready_at(mono, boot)
        bound = self._bound is not None and self._bound[0] is limit and mono - self._bound[1] < _BINDS_SECONDS
        return LimitView(
            name=plain(limit.name, 200),
            kind=limit.kind,
            requests=limit.rate.requests,
            window_seconds=limit.rate.seconds,
            effective_window_seconds=limit.window,
            per_second=1.0 / limit.effective_gap(boot),
            why=plain(limit.why(boot), 200),
            binds=bound,
            used=limit.used(mono),
            granted=limit.granted,
            refused=limit.refused,
            in_flight=limit.in_flight,
            queue=sum(len(queue) for (charges, _), queue in self._queues.items() if limit in charges.limits),
            next_slot=ready if mono < ready < math.inf else None,
        )


def _learned(limit: Limit) -> str:
    return f"learned a lower rate: {limit.name} at {limit.throttle.share / limit.gap:.3g}/s of {1.0 / limit.gap:.3g}/s"
