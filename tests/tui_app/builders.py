"""Crafted states for the tests of the monitor, and an engine that is only told what to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.snapshot import (
    CooldownView,
    Event,
    EvictScope,
    LimitView,
    Outcome,
    Pull,
    SignalView,
    SinkView,
    Snapshot,
    SourceView,
    WindowView,
)

MONO, BOOT, WALL = 5_000.0, 9_000.0, 1_764_537_300.0  # 2025-11-30 21:15:00 UTC
API = "https://data-api.polymarket.com/v2/trades*"


def limit(**change: Any) -> LimitView:
    plain: dict[str, Any] = {
        "name": API,
        "kind": "limit",
        "requests": 300,
        "window_seconds": 10.0,
        "effective_window_seconds": 11.1,
        "per_second": 300 / 11.1,
        "why": "",
        "binds": False,
        "used": 36,
        "granted": 1_204_331,
        "refused": 2,
        "in_flight": 1,
        "queue": 0,
        "next_slot": MONO + 0.31,
    }
    return LimitView(**plain | change)


def cooldown(**change: Any) -> CooldownView:
    plain: dict[str, Any] = {
        "limit": API,
        "attempt": 4,
        "since": BOOT - 9.0,
        "until": BOOT + 23.0,
        "wait": 32.0,
        "hint": 30.0,
        "cause": "429 Retry-After 30",
        "long": False,
        "probing": False,
        "banned": False,
    }
    return CooldownView(**plain | change)


def window(**change: Any) -> WindowView:
    plain: dict[str, Any] = {
        "name": "signals",
        "window_seconds": 90.0,
        "entries": 7_312,
        "capacity": 10_000,
        "held": 512,
        "claims": 0,
        "oldest_age": 41.0,
        "new": 41_204,
        "duplicates": 9_160,
        "expired": 33_892,
        "evicted_early": 0,
        "forced": 0,
    }
    return WindowView(**plain | change)


def source(name: str = "whales", **change: Any) -> SourceView:
    plain: dict[str, Any] = {
        "name": name,
        "type": "polymarket_trades",
        "state": "live",
        "reason": "",
        "since": BOOT - 7_300.0,
        "streams": 3,
        "interval": 5.0,
        "next_poll": MONO + 1.2,
        "reading": False,
        "attempt": 0,
        "last_ok": BOOT - 0.4,
        "last_new": BOOT - 97.0,
        "latency": 0.212,
        "reads": 18_204,
        "failures": 3,
        "skipped": 0,
        "records": 99_120,
        "signals": 1_902,
        "duplicates": 18_204,
        "history": 79_000,
        "late": 4,
        "quarantined": 0,
        "gaps": 0,
    }
    return SourceView(**plain | change)


def signal(seq: int = 1, **change: Any) -> SignalView:
    plain: dict[str, Any] = {
        "seq": seq,
        "id": f"{seq:032x}",
        "source": "whales",
        "summary": "BUY 120 YES @ 0.43  Will it rain in Paris on Sunday?",
        "seen_time": WALL - 3.0 - seq,
        "late": False,
    }
    return SignalView(**plain | change)


NAMES = (
    "whales",
    "feed",
    "kraken",
    "okx",
    "bitfinex",
    "bybit",
    "binance",
    "gemini",
    "deribit",
    "bitstamp",
    "huobi",
    "mexc",
)


def sources() -> tuple[SourceView, ...]:
    return tuple(
        source(name, next_poll=MONO + 0.3 + index / 4, last_ok=BOOT - 0.4 - index / 5, signals=1_902 // (index + 1))
        for index, name in enumerate(NAMES)
    )


def snapshot(**change: Any) -> Snapshot:
    """A healthy engine with twelve sources."""
    plain: dict[str, Any] = {
        "seq": 1,
        "engine_id": "e1",
        "version": "0.4.1",
        "state": "running",
        "started": BOOT - (4 * 86_400 + 2 * 3_600 + 60),
        "mono": MONO,
        "boot": BOOT,
        "wall": WALL,
        "config": "/home/ana/.config/polltop/config.yaml",
        "state_dir": "/home/ana/.local/state/polltop",
        "requests": 1_204_331,
        "responses": {"200": 1_204_000, "429": 31, "error": 2},
        "requests_per_second": tuple((3, 3, 4, 3, 3, 5, 3, 3, 2, 3) * 6),
        "signals_per_minute": tuple((0, 1, 2, 1, 0, 3, 1, 0, 1, 2) * 6),
        "in_flight": 1,
        "limits": (
            limit(),
            limit(name="https://data-api.polymarket.com/*", requests=800, per_second=800 / 11.1, used=36, refused=0),
            limit(
                name="data-api.polymarket.com",
                kind="gap",
                requests=1,
                per_second=20.0,
                used=1,
                effective_window_seconds=0.05,
                refused=0,
            ),
        ),
        "cooldowns": (),
        "last_cooldown": "v2/trades* try 2/6, 4m ago, ok",
        "windows": (window(),),
        "sources": sources(),
        "sinks": (SinkView(name="jsonl", owed=0, delivered=41_204, failures=0, reason=""),),
        "signals": tuple(signal(number) for number in range(1, 31)),
        "records": 99_120,
        "new": 41_204,
        "duplicates": 9_160,
        "history": 790_000,
        "late": 12,
        "quarantined": 2,
    }
    return Snapshot(**plain | change)


def backing_off(**change: Any) -> Snapshot:
    first, second, *others = sources()
    broken = (
        first.model_copy(
            update={"state": "throttled", "reason": "429 Retry-After 30", "attempt": 4, "last_ok": BOOT - 97}
        ),
        second.model_copy(update={"state": "failing", "reason": "ReadTimeout after 10.0 s", "attempt": 2}),
    )
    waits = (
        cooldown(),
        cooldown(
            limit="https://api.example.com/*", attempt=1, since=BOOT, until=BOOT + 2, wait=2.0, cause="429", hint=None
        ),
    )
    learned = limit(per_second=18.9, why="learned: 429 Retry-After 30", binds=True, queue=3)
    plain: dict[str, Any] = {
        "sources": (*broken, *others),
        "cooldowns": waits,
        "limits": (learned, *snapshot().limits[1:]),
    }
    return snapshot(**plain | change)


def paused(**change: Any) -> Snapshot:
    quiet = tuple(each.model_copy(update={"state": "paused", "next_poll": None}) for each in sources())
    plain: dict[str, Any] = {
        "state": "paused",
        "paused_by": "ana",
        "paused_since": BOOT - 134,
        "sources": quiet,
        "in_flight": 0,
    }
    return snapshot(**plain | change)


def empty(**change: Any) -> Snapshot:
    plain: dict[str, Any] = {
        "started": BOOT - 4,
        "sources": (),
        "signals": (),
        "sinks": (),
        "windows": (),
        "limits": (),
        "last_cooldown": "",
        "requests": 0,
        "responses": {},
        "requests_per_second": (0,) * 60,
        "signals_per_minute": (0,) * 60,
        "records": 0,
        "new": 0,
        "duplicates": 0,
        "history": 0,
        "late": 0,
        "quarantined": 0,
        "in_flight": 0,
    }
    return snapshot(**plain | change)


def event(seq: int, text: str = "signal BTC-USDT spread -> jsonl ok", level: Any = "info") -> Event:
    return Event(seq=seq, time=WALL - 40 + 10 * seq, level=level, text=text)


EVENTS = (
    event(1),
    event(2, "okx read 12 new 3 dup"),
    event(3, "data-api.polymarket.com 429 Retry-After 30 -> wait 32.0 s (try 4/6)", "warning"),
)


@dataclass
class FakeClock:
    """Time that only the test moves."""

    at: float = 100.0

    def __call__(self) -> float:
        return self.at


@dataclass
class FakeEngine:
    """Says what it is told to say and writes down what was asked of it."""

    snapshot: Snapshot | None = field(default_factory=snapshot)
    events: Sequence[Event] = EVENTS
    error: Exception | None = None
    missed: int = 0
    outcome: Outcome = field(default_factory=lambda: Outcome(ok=True, text="done"))
    preview: Outcome = field(default_factory=lambda: Outcome(ok=True, text="would forget 7,312", count=7_312))
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    pulls: int = 0

    async def pull(self, after: int) -> Pull | None:
        self.pulls += 1
        if self.error is not None:
            raise self.error
        if self.snapshot is None:
            return None
        news = tuple(each for each in self.events if each.seq > after)
        return Pull(snapshot=self.snapshot, events=news, missed=self.missed)

    async def pause(self, actor: str) -> Outcome:
        self.asked.append(("pause", actor))
        return self.outcome

    async def resume(self, actor: str) -> Outcome:
        self.asked.append(("resume", actor))
        return self.outcome

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome:
        self.asked.append(("preview" if dry_run else "evict", scope.kind, scope.value, actor, expect))
        return self.preview if dry_run else self.outcome

    async def poll_now(self, source: str, actor: str) -> Outcome:
        self.asked.append(("poll", source, actor))
        return self.outcome
