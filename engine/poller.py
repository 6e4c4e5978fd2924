"""One source's life: the beat of its streams, each read from first page to commit, and what became of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Literal

import anyio
import httpx

from engine import log
from engine.backoff import full_jitter
from engine.board import Board
from engine.clock import Clock
from engine.config import Config
from engine.dedup import BoundedDeduplicator, Verdict
from engine.errors import DriftError, ReadError, StoreError, ThrottledError
from engine.gate import Gate
from engine.signals import Bad, Named, Record, Signal, to_json
from engine.sources.base import Source
from engine.store import ReadCommit, Store
from engine.streams import FUTURE_SECONDS, StreamState, shared_floor, sort_out
from engine.transport import on_behalf_of

__all__ = ["Counts", "Poller", "Stream"]

_RECHECK_SECONDS = 30.0


@dataclass(slots=True)
class Counts:
    """What a stream's reads have brought since the start."""

    reads: int = 0
    failures: int = 0
    skipped: int = 0
    records: int = 0
    signals: int = 0
    duplicates: int = 0
    history: int = 0
    late: int = 0
    quarantined: int = 0
    gaps: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(slots=True)
class Stream:
    """A stream and how its polling goes. Times: `Clock.boot`, but `next_poll`, which is `Clock.mono`."""

    state: StreamState
    counts: Counts = field(default_factory=Counts)
    attempt: int = 0
    """Failed reads in a row."""
    error: str = ""
    """Why the last read failed; empty when it did not."""
    told: str = ""
    """Of what kind it was: what the server said may differ each time."""
    gap: bool = False
    """The last read left one: said once, counted each time."""
    changed: float = 0.0
    """Since when it fails, or does not."""
    throttled: float = 0.0
    """`Clock.boot` before which its limits let nothing through."""
    urgent: bool = False
    """Somebody has asked for the next read."""
    next_poll: float | None = None
    reading: bool = False
    last_ok: float | None = None
    last_new: float | None = None
    latency: float | None = None
    wake: anyio.Event = field(default_factory=anyio.Event)


@dataclass(frozen=True, slots=True)
class _Read:
    """All pages of one poll of a stream."""

    records: list[Record]
    bad: list[Bad]
    served_at: float
    gap: bool
    """More may have been served than was read."""
    elapsed: float


class Poller:
    """Polls the streams of one source until it is cancelled or told to stop.

    Args:
        source: What to ask.
        states: The state of each of its streams, by name; and in `everyone` that of all streams of the engine.
        accepted: Called with the signals of each committed read and the sequence number of the first.
        done: Set when no new read may begin.
    """

    def __init__(
        self,
        source: Source,
        everyone: dict[str, StreamState],
        *,
        config: Config,
        client: httpx.AsyncClient,
        window: BoundedDeduplicator,
        store: Store,
        sinks: Sequence[str],
        gate: Gate,
        board: Board,
        clock: Clock,
        rng: random.Random,
        accepted: Callable[[list[Signal], int], None],
    ) -> None:
        self.source = source
        self.streams = [Stream(everyone[name], changed=clock.boot()) for name in source.streams]
        self.stopping = False
        self._everyone = everyone
        self._config = config
        self._act = config.start == "lookback"
        self._client = client
        self._window = window
        self._store = store
        self._sinks = sinks
        self._gate = gate
        self._board = board
        self._clock = clock
        self._rng = rng
        self._accepted = accepted

    async def run(self) -> None:
        """Poll every stream on its own beat; returns after `stop`, when the reads under way have ended."""
        async with anyio.create_task_group() as tasks:
            for stream in self.streams:
                tasks.start_soon(self._beat, stream)

    def poll_now(self) -> int:
        """Let every stream that waits for its beat read at once. Returns how many there were."""
        waiting = [stream for stream in self.streams if not stream.reading]
        for stream in waiting:
            stream.urgent = True
            stream.wake.set()
        return len(waiting)

    def stop(self) -> None:
        """Begin no further read."""
        self.stopping = True
        for stream in self.streams:
            stream.wake.set()

    async def _beat(self, stream: Stream) -> None:
        interval = self.source.interval
        due = self._clock.mono()
        while not self.stopping:
            if await self._gate.passed():
                due = self._clock.mono()
                continue
            stream.next_poll, stream.reading = None, True
            try:
                await self._poll(stream)
            finally:
                stream.reading = False
            now = self._clock.mono()
            if now >= due:
                # A beat that passed meanwhile is skipped, never queued. A poll out of turn leaves the beat as it is.
                missed = math.floor((now - due) / interval)
                stream.counts.skipped += missed
                due += (missed + 1) * interval
            if stream.attempt:
                backoff = self._config.backoff
                wait = full_jitter(
                    stream.attempt - 1, base=backoff.base_seconds, cap=backoff.cap_seconds, rng=self._rng
                )
                due = max(due, now + wait)
            await self._sleep(stream, due)

    async def _sleep(self, stream: Stream, until: float) -> None:
        """Wait until `until` and until its limits are open again, or until woken."""
        stream.wake = anyio.Event()
        while not stream.wake.is_set() and not self.stopping:
            mono, shut = self._clock.mono(), stream.throttled - self._clock.boot()
            left = max(until - mono, shut)
            if left <= 0:
                return
            stream.next_poll = mono + left
            # A timer stops with the machine, a cool-down does not: look again now and then.
            with anyio.move_on_after(min(left, _RECHECK_SECONDS) if shut > 0 else left):
                await stream.wake.wait()

    async def _poll(self, stream: Stream) -> None:
        urgent, stream.urgent = stream.urgent, False
        try:
            with on_behalf_of(self.source.name, urgent=urgent):
                read = await self._walk(stream)
            await self._take(stream, read)
        except ThrottledError as error:
            # Nobody's failure: it is waited out, and the beats that pass meanwhile are counted.
            stream.throttled = error.until
        except (ReadError, StoreError) as error:
            self._failed(stream, error, "error" if isinstance(error, DriftError | StoreError) else "warning")
        except Exception as error:  # noqa: BLE001 - a fault in one source (ours, too) stops no other
            log.get().error("a read failed in a way that it should not", stream=stream.state.name, exc_info=True)
            self._failed(stream, error, "error")
        else:
            self._succeeded(stream, read)

    def _failed(self, stream: Stream, error: Exception, level: Literal["warning", "error"]) -> None:
        stream.counts.failures += 1
        stream.attempt += 1
        text = str(error) or type(error).__name__
        if not stream.error:
            stream.changed = self._clock.boot()
        kind = error.kind if isinstance(error, ReadError) else text
        if kind != stream.told:
            # One line for a change of state, not for each poll that fails alike.
            self._board.say(level, f"{stream.state.name}: {text}", source=self.source.name)
        stream.error, stream.told = text, kind

    def _succeeded(self, stream: Stream, read: _Read) -> None:
        if stream.attempt:
            self._board.say("info", f"{stream.state.name}: reads again after {stream.attempt} failed")
            stream.changed = self._clock.boot()
        stream.attempt, stream.error, stream.told = 0, "", ""
        stream.counts.reads += 1
        stream.last_ok = self._clock.boot()
        stream.latency = read.elapsed

    async def _walk(self, stream: Stream) -> _Read:
        """Ask for pages, newest first, until one reaches back to what is known."""
        state = stream.state
        lateness = self._config.lateness_seconds
        records: list[Record] = []
        bad: list[Bad] = []
        cursors: set[str] = set()
        cursor: str | None = None
        served_at = 0.0
        elapsed = 0.0
        floor = state.floor
        for _ in range(self.source.max_pages):
            page = await self.source.page(self._client, state.name, cursor)
            if page.bad and not page.records:
                raise DriftError("every record of a page is bad", f"{page.bad[0].reason} ({len(page.bad)} records)")
            if not cursors:
                served_at = page.date if page.date is not None else self._clock.wall()
            elapsed = max(elapsed, page.elapsed)
            records += page.records
            bad += page.bad
            # A time in the future is no more a mark here than it will be as a watermark.
            times = [
                record.time
                for record in page.records
                if record.time is not None and record.time <= served_at + FUTURE_SECONDS
            ]
            if not state.seeded and times and floor == -math.inf:
                floor = max(times) - lateness
            # Out of order, the last record says nothing about those before it.
            in_order = all(later >= earlier for later, earlier in pairwise(times))
            reached = bool(times) and (min(times) if in_order else max(times)) < floor
            if page.next is None or reached:
                return _Read(records, bad, served_at, gap=False, elapsed=elapsed)
            if page.next in cursors:
                raise DriftError("the API repeats a page cursor")
            cursors.add(page.next)
            cursor = page.next
        # A first read that is cut short has nothing before it to miss.
        return _Read(records, bad, served_at, gap=state.seeded, elapsed=elapsed)

    async def _take(self, stream: Stream, read: _Read) -> None:
        """Claim what is new, record it, and let the window go on from there."""
        config, state, counts = self._config, stream.state, stream.counts
        found = sort_out(
            state,
            read.records,
            lateness=config.lateness_seconds,
            served_at=read.served_at,
            act=self._act,
            timed=self.source.timed,
        )
        if found.future and len(found.future) == len(read.records):
            raise DriftError("every record is stamped in the future: a wrong clock, or local times without a zone?")
        self._check_capacity(state, len(found.candidates))
        # Where there are no pages to walk, what was served before must be in sight still.
        gap = read.gap or (self.source.max_pages == 1 and bool(read.records) and not found.overlaps(state))
        bad = read.bad + found.future
        pending = found.candidates
        unknown = 0
        while True:
            claim = self._window.claim([item.digest for item in pending])
            try:
                judged = list(zip(pending, claim.verdicts, strict=True))
                fresh = [item for item, verdict in judged if verdict is Verdict.NEW]
                waiting = [item for item, verdict in judged if verdict is Verdict.IN_FLIGHT]
                signals = [] if found.seeds else self._signals(fresh, read.served_at, bad)
                commit = ReadCommit(state.name, signals=signals, sinks=self._sinks)
                # A key that is new although this stream holds it was pushed out of a full window: hold it again.
                commit.held = [
                    (item.digest, item.record.time)
                    for item, verdict in judged
                    if verdict is Verdict.NEW or (verdict is Verdict.DUPLICATE and item.digest not in state.held)
                ]
                if not waiting:
                    commit.left = found.left(state, self._shared_floor(state), self._window.seen)
                    commit.bad = bad
                    commit.progress, commit.identity = found.progress, state.identity
                with anyio.CancelScope(shield=True):
                    # From the first byte written to the last mark in memory nothing may come between.
                    first, unknown = await self._store.commit(commit)
                    self._window.commit(claim, hold=True)
                    self._apply(state, commit, {item.digest for item in fresh})
            finally:
                # Without effect once committed; else the next sighting of each key is new.
                self._window.release(claim)
            if found.seeds:
                counts.history += len(fresh)
            counts.signals += len(signals)
            counts.late += sum(signal.late for signal in signals)
            counts.duplicates += sum(verdict is Verdict.DUPLICATE for verdict in claim.verdicts)
            if signals:
                stream.last_new = self._clock.boot()
                self._accepted(signals, first)
            if not waiting:
                break
            # Holding nothing, wait for whoever records these; if that fails they are ours to record.
            for item in waiting:
                other = self._window.in_flight(item.digest)
                if other is not None:
                    await other.settled.wait()
            pending = waiting
        counts.records += len(read.records) + len(read.bad)
        counts.duplicates += found.repeats + len(found.seeded)
        counts.history += found.history
        self._report(stream, gap, bad, unknown)

    def _apply(self, state: StreamState, commit: ReadCommit, fresh: set[bytes]) -> None:
        # What was evicted, by force or early, while the transaction ran is not held: its next sighting acts again.
        self._window.hold([key for key, _ in commit.held if key not in fresh and self._window.seen(key)])
        state.held.update(commit.held)
        self._window.let_go(commit.left)
        for key in commit.left:
            state.held.pop(key, None)
        if commit.progress is not None:
            state.advance(commit.progress)

    def _shared_floor(self, state: StreamState) -> float:
        others = (other for other in self._everyone.values() if other is not state)
        return shared_floor(others, state.namespace, self._config.lateness_seconds, act=self._act)

    def _signals(self, fresh: list[Named], served_at: float, bad: list[Bad]) -> list[Signal]:
        """The signals that new records become; one that cannot be written joins the `bad`."""
        seen_time, oldest = self._clock.wall(), served_at - self._config.max_age_seconds
        signals = []
        for named in fresh:
            time = named.record.time
            try:
                payload = to_json(named.record.item)
            except (ValueError, RecursionError) as error:
                bad.append(Bad.of(str(error), named.record.item))
                continue
            signals.append(
                Signal(
                    id=named.digest.hex(),
                    source=self.source.name,
                    key=to_json(list(named.key)),
                    event_time=time,
                    seen_time=seen_time,
                    payload=payload,
                    late=time is not None and time < oldest,
                )
            )
        return signals

    def _check_capacity(self, state: StreamState, page: int) -> None:
        """A window smaller than what a page serves would forget the page's own records, and act on them for ever."""
        if self.source.timed:
            return
        state.page = page
        need = 2 * sum(other.page for other in self._everyone.values())
        if need > self._config.max_entries:
            raise ReadError(
                f"max_entries is {self._config.max_entries}, but sources without a `time` serve pages of {need // 2} "
                f"records in all: set it to {need} or more, else records would be acted on again and again"
            )

    def _report(self, stream: Stream, gap: bool, bad: list[Bad], unknown: int) -> None:  # noqa: FBT001
        name = stream.state.name
        stream.counts.gaps += gap
        if gap and not stream.gap:
            self._board.say(
                "warning", f"{name}: records may be missing: this read did not reach back to the one before"
            )
        stream.gap = gap
        if unknown:
            stream.counts.quarantined += unknown
            self._board.say("warning", f"{name}: {unknown} bad records quarantined: {bad[-1].reason}")
