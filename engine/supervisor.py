"""`Engine`: starts pollers and deliveries, obeys the four verbs, makes snapshots. The wiring and nothing else."""

from __future__ import annotations

import json
import random
import re
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import anyio
import httpx

from engine import __version__, log
from engine.board import Board
from engine.clock import Clock
from engine.config import Config
from engine.dedup import BoundedDeduplicator
from engine.delivery import Delivery
from engine.errors import StoreError
from engine.gate import Gate
from engine.limits import LimitState
from engine.pacing import Pacer
from engine.plan import plan_of
from engine.poller import Counts, Poller
from engine.signals import Signal, rfc3339
from engine.sinks.base import Sink
from engine.sinks.jsonl import Jsonl
from engine.snapshot import Event, EvictScope, Outcome, SignalView, SinkView, Snapshot, SourceView, WindowView
from engine.sources import source_of
from engine.sources.base import Source
from engine.store import Store
from engine.streams import StreamState
from engine.tally import Tally
from engine.text import plain
from engine.transport import PacedTransport, open_client

__all__ = ["Engine"]

READ_SECONDS = 0.7
"""After `stop`: how long reads under way may take to end; then they are dropped whole."""
DRAIN_SECONDS = 0.7
"""After that: how long deliveries may take. What is still owed is delivered after the next start."""
KEEPALIVE_SECONDS = 60.0
"""Most that an idle connection is kept; less where a source's beat is faster."""
_HOUSEKEEPING_SECONDS = 60.0
_KEEP_SECONDS = 5.0
"""So often what limits have granted is written down; a refusal at once."""


class Engine:
    """One engine on one state folder. Everything but `snapshot` data lives in the event loop that runs it.

    Args:
        config: What to poll.
        store: The ledger, open.
        clock: The only reader of time.
        sinks: Further sinks than the config's.
        rng: For jitter.
        inner: What sends in place of the network; for tests in virtual time.
        origin: Where the config came from, for people.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        clock: Clock,
        sinks: Sequence[Sink] = (),
        rng: random.Random | None = None,
        inner: httpx.AsyncBaseTransport | None = None,
        origin: str = "",
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._rng = rng or random.Random()
        self._inner = inner
        self._origin = origin
        self._id = secrets.token_hex(8)
        self._snapshots = 0
        self._started = clock.boot()
        self._state = "starting"
        self._paused: tuple[str, float] | None = None
        self.stopping = anyio.Event()
        """Set by `stop`."""
        self.board = Board(clock)
        self._gate = Gate()
        self._pacer = Pacer(
            config.limits,
            default_rate=config.default_rate,
            min_interval=config.min_interval_seconds,
            headroom=config.headroom,
            backoff=config.backoff,
            clock=clock,
            rng=self._rng,
            max_in_flight=config.max_in_flight,
            max_cooldown=config.max_cooldown_seconds,
            say=self.board.say,
            keep=self._keep_limits,
        )
        self._window = BoundedDeduplicator(config.dedup_window_seconds, config.max_entries, clock)
        self._sinks = [*(Jsonl(sink.path) for sink in config.sinks), *sinks]
        self._sources = [source_of(source) for source in config.sources]
        self._limits = {
            source.name: {
                limit
                for stream in source.streams
                for limit in self._pacer.limits_for(source.first_url(stream), source=source.name)
            }
            for source in self._sources
        }
        self._states = {
            name: StreamState(name, source.namespace, source.identity)
            for source in self._sources
            for name in source.streams
        }
        self._transport: PacedTransport | None = None
        self._pollers: list[Poller] = []
        self._deliveries: list[Delivery] = []
        self._recent: deque[SignalView] = deque(maxlen=50)
        self._per_minute = Tally(clock.mono, seconds=60.0, buckets=60)
        self._evicted_early = 0

    async def run(self) -> None:
        """Poll and deliver until `stop`. Raises StoreError when the ledger cannot be read at the start."""
        beat = min(source.interval for source in self._sources)
        async with open_client(
            self._pacer, self._clock, inner=self._inner, keepalive_seconds=min(KEEPALIVE_SECONDS, beat * 0.9)
        ) as (client, self._transport):
            restored = await self._store.restore(self._states, self._config.dedup_window_seconds)
            self._window.restore(restored.ageing)
            self._pacer.restore(_limit_states(restored.limits))
            for state in self._states.values():
                self._window.hold(state.held)
            self._recent.extend(_view(seq, signal) for seq, signal in restored.recent)
            self._deliveries = [self._delivery(sink, restored.owed_to.get(sink.name, 0)) for sink in self._sinks]
            self._pollers = [self._poller(source, client) for source in self._sources]
            for name in restored.changed:
                self.board.say(
                    "warning", f"{name}: its `id`, `time` or `url` is another now: begins as on a first start"
                )
            for name, count in restored.owed_to.items():
                if name not in {sink.name for sink in self._sinks}:
                    self.board.say(
                        "warning",
                        f"{count} deliveries are owed to {name}, which is not configured: kept until it is again",
                    )
            self._state = "running"
            self.board.say(
                "info", f"started: {_some(len(self._sources), 'source')}, {_some(len(self._states), 'stream')}"
            )
            for warning in plan_of(self._config, self._clock).warnings:
                self.board.say("warning", warning)
            await self._live()
            self._state = "stopped"
            self.board.say("info", "stopped")

    async def _live(self) -> None:
        async with anyio.create_task_group() as deliveries:
            for delivery in self._deliveries:
                deliveries.start_soon(delivery.run)
            async with anyio.create_task_group() as pollers:
                for poller in self._pollers:
                    pollers.start_soon(poller.run)
                pollers.start_soon(self._keep_house)
                pollers.start_soon(self._watch_limits)
                await self.stopping.wait()
                self._state = "stopping"
                for poller in self._pollers:
                    poller.stop()
                # A read may be waiting for its turn for a minute: it has sent nothing yet, and is dropped.
                pollers.cancel_scope.deadline = anyio.current_time() + (READ_SECONDS if self._gate.is_open else 0.0)
            for delivery in self._deliveries:
                delivery.drain()
            deliveries.cancel_scope.deadline = anyio.current_time() + (DRAIN_SECONDS if self._gate.is_open else 0.0)

    async def _keep_house(self) -> None:
        while not self.stopping.is_set():
            try:
                more = await self._store.purge(self._config.dedup_window_seconds)
                more = self._window.sweep() or more
            except StoreError as error:
                # A full disk, most likely: reads and deliveries say so by themselves, and go on trying.
                log.get().warning("nothing could be deleted from the ledger", error=str(error))
                more = False
            early = self._window.evicted_early
            if early > self._evicted_early:
                self.board.say(
                    "warning",
                    f"the window is full: {early - self._evicted_early} identifiers forgotten early; raise max_entries",
                )
                self._evicted_early = early
            with anyio.move_on_after(0.0 if more else _HOUSEKEEPING_SECONDS):
                await self.stopping.wait()

    async def _watch_limits(self) -> None:
        """Write down what limits have come to, at once when one was refused."""
        while True:
            await self._keep_limits()
            with anyio.move_on_after(_KEEP_SECONDS):
                await self._pacer.news.wait()
            self._pacer.news = anyio.Event()

    async def _keep_limits(self) -> None:
        changes = self._pacer.changes()
        if not changes:
            return
        try:
            await self._store.keep_limits({key: state.to_json() for key, state in changes.items()})
        except StoreError as error:
            # A full disk, most likely: what is at stake is a restart, not this run.
            log.get().warning("what limits have learned could not be written down", error=str(error))

    def stop(self) -> None:
        """Begin to stop: no new read, those under way finished or dropped, deliveries drained while time allows."""
        self.stopping.set()

    # The verbs: explicit, each names its actor, says what it did, and becomes an event.

    async def pause(self, actor: str) -> Outcome:
        """Send nothing more, no poll and no delivery; what is in flight ends."""
        actor = plain(actor, 40)
        if self._paused is not None:
            return Outcome(ok=False, text=f"already paused by {self._paused[0]}")
        self._paused = (actor, self._clock.boot())
        self._gate.close()
        self._pacer.pause()
        await self._note(actor, "pause", "")
        return self._did("warning", f"paused by {actor}; {self._pacer.in_flight} in flight")

    async def resume(self, actor: str) -> Outcome:
        """Go on."""
        actor = plain(actor, 40)
        if self._paused is None:
            return Outcome(ok=False, text="not paused")
        seconds = self._clock.boot() - self._paused[1]
        self._paused = None
        self._pacer.resume()
        self._gate.open()
        await self._note(actor, "resume", "")
        return self._did("info", f"resumed by {actor} after {seconds:.0f} s")

    async def poll_now(self, source: str, actor: str) -> Outcome:
        """Let a source read now, as fast as its limits allow, and not at its next beat."""
        actor = plain(actor, 40)
        found = [poller for poller in self._pollers if poller.source.name == source]
        if not found:
            return Outcome(ok=False, text=f"no source is called {plain(source, 80)}")
        if self._paused is not None:
            return Outcome(ok=False, text="the engine is paused: resume it first")
        outcome = self._override(found[0])
        if outcome is not None:
            return outcome
        woken = found[0].poll_now()
        if not woken:
            return Outcome(ok=False, text=f"{source} is being read already")
        return self._did("info", f"{source}: asked by {actor} to poll now", woken)

    def _override(self, poller: Poller) -> Outcome | None:
        """End the long cool-downs of a source; an Outcome when there is a short one, which is waited out."""
        boot = self._clock.boot()
        shut = [limit for limit in self._limits[poller.source.name] if limit.shut_until > boot]
        short = [limit for limit in shut if limit.shut_until - limit.shut_since <= self._config.max_cooldown_seconds]
        if short:
            left = max(limit.shut_until for limit in short) - boot
            return Outcome(
                ok=False,
                text=f"{poller.source.name} is throttled for {left:.0f} s more, which is waited out: "
                "only what is longer than max_cooldown_seconds may be overridden",
            )
        self._pacer.override(shut)
        return None

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome:
        """Forget identifiers by force; see `EngineHandle.evict`. A record that is already history stays history."""
        try:
            return await self._evict(scope, plain(actor, 40), expect, dry_run=dry_run)
        except StoreError as error:
            return Outcome(ok=False, text=f"nothing was forgotten: {plain(error)}")

    async def _evict(self, scope: EvictScope, actor: str, expect: int | None, *, dry_run: bool) -> Outcome:
        keys, what = await self._in_scope(scope)
        if keys is None:
            return Outcome(ok=False, text=what)
        known = [key for key in keys if self._window.seen(key) or self._window.in_flight(key)]
        if dry_run:
            return Outcome(ok=True, text=f"would forget {len(known)} identifiers of {what}", count=len(known))
        if expect is not None and len(known) > expect * 1.1:
            return Outcome(
                ok=False, text=f"there are {len(known)} identifiers now, not {expect}: look again", count=len(known)
            )
        text = f"{len(known)} identifiers of {what} forgotten by {actor}"
        with anyio.CancelScope(shield=True):
            await self._store.forget(keys, actor, text)
            self._window.evict(keys)
            for state in self._states.values():
                for key in keys & state.held.keys():
                    del state.held[key]
        return self._did("warning", text, len(known))

    async def _in_scope(self, scope: EvictScope) -> tuple[set[bytes] | None, str]:
        if scope.kind == "id":
            if not re.fullmatch(r"[0-9a-fA-F]{32}", scope.value):
                return None, f"{plain(scope.value, 40)!r} is not an id: 32 hex digits"
            return {bytes.fromhex(scope.value)}, f"id {scope.value}"
        if scope.kind == "all":
            return await self._store.keys(None), "all sources"
        streams = [name for source in self._sources if source.name == scope.value for name in source.streams]
        if not streams:
            return None, f"no source is called {plain(scope.value, 80)}"
        return await self._store.keys(streams), scope.value

    async def _note(self, actor: str, verb: str, detail: str) -> None:
        try:
            await self._store.audit(actor, verb, detail)
        except StoreError as error:
            # Whoever must stop the engine can do so with a full disk, too.
            self.board.say("error", f"{verb} by {actor} is not in the audit log: {error}")

    def _did(self, level: Any, text: str, count: int = 0) -> Outcome:
        self.board.say(level, text)
        return Outcome(ok=True, text=text, count=count)

    # What views see.

    def events(self, after: int) -> tuple[tuple[Event, ...], int]:
        """Events after a sequence number, and how many of them are no longer kept."""
        return self.board.after(after)

    def summary(self) -> dict[str, Any]:
        """Totals since the start."""
        total = self._totals()
        return {
            "requests": self._transport.requests if self._transport else 0,
            "responses": dict(self._transport.responses) if self._transport else {},
            "records": total.records,
            "signals": total.signals,
            "duplicates": total.duplicates,
            "history": total.history,
            "late": total.late,
            "quarantined": total.quarantined,
            "owed": sum(delivery.owed for delivery in self._deliveries),
            "seconds": round(self._clock.boot() - self._started, 3),
        }

    def snapshot(self) -> Snapshot:
        """The whole state now. Call it in the engine's loop."""
        self._snapshots += 1
        limits, cooldowns = self._pacer.views()
        total = self._totals()
        state = self._state
        if self._paused is not None and state == "running":
            state = "pausing" if self._pacer.in_flight else "paused"
        return Snapshot(
            seq=self._snapshots,
            engine_id=self._id,
            version=__version__,
            state=state,
            paused_by=self._paused[0] if self._paused else None,
            paused_since=self._paused[1] if self._paused else None,
            started=self._started,
            mono=self._clock.mono(),
            boot=self._clock.boot(),
            wall=self._clock.wall(),
            config=plain(self._origin, 200),
            state_dir=plain(self._store.path.parent, 200),
            requests=self._transport.requests if self._transport else 0,
            responses=dict(self._transport.responses) if self._transport else {},
            requests_per_second=self._transport.per_second.counts() if self._transport else (),
            signals_per_minute=self._per_minute.counts(),
            in_flight=self._pacer.in_flight,
            limits=limits,
            cooldowns=cooldowns,
            last_cooldown=self._pacer.last_cooldown,
            windows=(
                WindowView(
                    name="signals", window_seconds=self._window.window_seconds, **asdict(self._window.occupancy())
                ),
            ),
            sources=tuple(self._source_view(poller) for poller in self._pollers),
            sinks=tuple(
                SinkView(
                    name=plain(delivery.sink.name, 120),
                    owed=delivery.owed,
                    delivered=delivery.delivered,
                    failures=delivery.failures,
                    reason=plain(delivery.reason, 200),
                )
                for delivery in self._deliveries
            ),
            signals=tuple(reversed(self._recent)),
            records=total.records,
            new=total.signals,
            duplicates=total.duplicates,
            history=total.history,
            late=total.late,
            quarantined=total.quarantined,
        )

    def _totals(self) -> Counts:
        total = Counts()
        for poller in self._pollers:
            for stream in poller.streams:
                total += stream.counts
        return total

    def _source_view(self, poller: Poller) -> SourceView:
        source = poller.source
        streams = poller.streams
        total = Counts()
        for stream in streams:
            total += stream.counts
        worst = max(streams, key=lambda stream: stream.attempt)
        failing = sum(stream.attempt > 0 for stream in streams)
        beats = [stream.next_poll for stream in streams if stream.next_poll is not None]
        oks = [stream.last_ok for stream in streams if stream.last_ok is not None]
        news = [stream.last_new for stream in streams if stream.last_new is not None]
        boot = self._clock.boot()
        cooling = [limit for limit in self._limits[poller.source.name] if limit.probe_due or limit.shut_until > boot]
        reason, since, attempt = "", max(stream.changed for stream in streams), worst.attempt
        if self._state in ("stopping", "stopped"):
            state = "stopped"
        elif self._paused is not None:
            state, reason, since = "paused", f"by {self._paused[0]}", self._paused[1]
        elif cooling:
            limit = max(cooling, key=lambda limit: limit.shut_until)
            reason = limit.cause if limit.probe_due else limit.why(boot)
            if limit.shut_until - limit.shut_since > self._config.max_cooldown_seconds:
                until = rfc3339(self._clock.wall() + limit.shut_until - boot)
                reason = f"until {until}, poll now to override: {reason}"
            state, since, attempt = "throttled", limit.shut_since, max(attempt, limit.attempt)
            # Whatever the beat says: nothing is sent before.
            beats = [self._clock.mono() + max(0.0, limit.shut_until - boot)]
        elif worst.attempt:
            share = f"{failing} of {len(streams)} streams: " if len(streams) > 1 else ""
            state, reason = "failing", f"{share}{worst.error}"
        else:
            state = "live" if oks else "starting"
        return SourceView(
            name=source.name,
            type=source.type,
            state=state,
            reason=plain(reason, 300),
            since=since,
            streams=len(streams),
            interval=source.interval,
            next_poll=None if self._paused else min(beats, default=None),
            reading=any(stream.reading for stream in streams),
            attempt=attempt,
            # The stalest stream speaks for its source.
            last_ok=min(oks) if len(oks) == len(streams) else None,
            last_new=max(news, default=None),
            latency=max((stream.latency for stream in streams if stream.latency is not None), default=None),
            reads=total.reads,
            failures=total.failures,
            skipped=total.skipped,
            records=total.records,
            signals=total.signals,
            duplicates=total.duplicates,
            history=total.history,
            late=total.late,
            quarantined=total.quarantined,
            gaps=total.gaps,
        )

    # The parts.

    def _poller(self, source: Source, client: httpx.AsyncClient) -> Poller:
        return Poller(
            source,
            self._states,
            config=self._config,
            client=client,
            window=self._window,
            store=self._store,
            sinks=[sink.name for sink in self._sinks],
            gate=self._gate,
            board=self.board,
            clock=self._clock,
            rng=self._rng,
            accepted=self._accepted,
        )

    def _delivery(self, sink: Sink, owed: int) -> Delivery:
        return Delivery(
            sink,
            store=self._store,
            owed=owed,
            backoff=self._config.backoff,
            gate=self._gate,
            board=self.board,
            clock=self._clock,
            rng=self._rng,
            closed=self.stop,
        )

    def _accepted(self, signals: list[Signal], first: int) -> None:
        self._recent.extend(_view(first + index, signal) for index, signal in enumerate(signals))
        self._per_minute.add(len(signals))
        due = sum(not signal.late for signal in signals)
        if due:
            for delivery in self._deliveries:
                delivery.expect(due)


def _limit_states(kept: dict[str, tuple[str, float]]) -> dict[str, tuple[LimitState, float]]:
    states = {}
    for key, (text, dumped) in kept.items():
        try:
            states[key] = LimitState.from_json(text), dumped
        except ValueError as error:
            # Of another version, or damaged: pacing begins anew, as after a long rest.
            log.get().warning("what a limit has learned cannot be read", error=plain(error, 200))
    return states


def _view(seq: int, signal: Signal) -> SignalView:
    return SignalView(
        seq=seq,
        id=signal.id,
        source=signal.source,
        summary=_summary(signal),
        seen_time=signal.seen_time,
        late=signal.late,
    )


def _summary(signal: Signal) -> str:
    """A line for people: what a trade says about itself, else the identity."""
    try:
        payload = json.loads(signal.payload)
    except RecursionError:
        payload = None
    if isinstance(payload, dict) and {"side", "size", "price"} <= payload.keys():
        what = payload.get("title") or payload.get("slug") or payload.get("token_id") or ""
        numbers = f"{_short(payload['size'])} @ {_short(payload['price'])}"
        return plain(f"{payload['side']} {numbers} {payload.get('outcome') or ''} {what}", 200)
    return plain(" ".join(str(part) for part in json.loads(signal.key)[1:-1]), 200)


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
