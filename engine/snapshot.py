"""The state that a view may see: frozen models, and the handle through which every view gets them.

Deadlines are carried, not countdowns, with the engine's clocks at the time of the snapshot beside them: a view counts
down by itself. Every string here has passed `text.plain`.
"""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

__all__ = [
    "CooldownView",
    "EngineHandle",
    "Event",
    "EvictScope",
    "LimitView",
    "Outcome",
    "Pull",
    "SignalView",
    "SinkView",
    "Snapshot",
    "SourceView",
    "WindowView",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class LimitView(_Frozen):
    """One rate limit as the pacer keeps it."""

    name: str
    """The pattern of URLs it matches, or the host for the default rate and the least gap."""
    kind: Literal["limit", "default", "gap"]
    requests: int
    window_seconds: float
    """`requests` per `window_seconds`, as configured."""
    effective_window_seconds: float
    """The window after headroom: at most `requests` grants in any span this long."""
    per_second: float
    """The rate in use now: never above `requests / effective_window_seconds`, and below it while `why` says so."""
    why: str
    """Why it is below: learned from refusals or latency, slow start, or what the server says is left. Else empty."""
    binds: bool
    """Whether it is what requests have had to wait for lately."""
    used: int
    """Grants in the last `effective_window_seconds`."""
    granted: int
    """Grants since the start."""
    refused: int
    """Answers 429 (or alike) since the start."""
    in_flight: int
    queue: int
    """Callers waiting for a set of limits that this one is in."""
    next_slot: float | None
    """`Clock.mono` of the earliest next grant; None when nothing holds it back."""


class CooldownView(_Frozen):
    """A limit that waits out a refusal, or whose probe is under way."""

    limit: str
    attempt: int
    """Refused rounds without a calm spell between, from 1 here: the first refusal shows 1. 0: the server has said
    beforehand that nothing is left."""
    since: float
    """`Clock.boot` of the refusal."""
    until: float
    """`Clock.boot` before which nothing is sent."""
    wait: float
    """Seconds drawn for this wait: the hint plus the jitter."""
    hint: float | None
    """Seconds the server asked for; None when it did not say."""
    cause: str
    """For instance `429 Retry-After 12`."""
    long: bool
    """Longer than `max_cooldown_seconds`: polling the source by hand overrides it."""
    probing: bool
    """The wait is over and the one probe is in flight (or is the next request)."""
    banned: bool


class WindowView(_Frozen):
    """Occupancy of one window of identifiers."""

    name: str
    window_seconds: float
    entries: int
    capacity: int
    held: int
    """Entries still served by their source, which do not age."""
    claims: int
    """Entries being recorded at this moment."""
    oldest_age: float | None
    """Seconds the oldest ageing entry has aged; None when none ages."""
    new: int
    duplicates: int
    expired: int
    evicted_early: int
    """Entries pushed out by `max_entries` before their time: each may be acted on again."""
    forced: int


SourceState = Literal["starting", "live", "throttled", "failing", "paused", "stopped"]


class SourceView(_Frozen):
    """One source, its streams taken together."""

    name: str
    type: str
    state: SourceState
    reason: str
    """Why it is in this state, in a few words; empty when live."""
    since: float
    """`Clock.boot` since when it is in this state."""
    streams: int
    interval: float
    next_poll: float | None
    """`Clock.mono` of the next beat of its earliest stream; None while a read is under way or it is paused."""
    reading: bool
    attempt: int
    """Failed reads in a row (of the worst stream)."""
    last_ok: float | None
    """`Clock.boot` of the last good read; None before the first."""
    last_new: float | None
    """`Clock.boot` of the last new record."""
    latency: float | None
    """Seconds of the last read, waiting for the pacer left out."""
    reads: int
    failures: int
    skipped: int
    """Beats not polled because the read before had not ended."""
    records: int
    signals: int
    duplicates: int
    history: int
    late: int
    quarantined: int
    gaps: int


class SinkView(_Frozen):
    """One place that signals are delivered to."""

    name: str
    owed: int
    delivered: int
    failures: int
    reason: str
    """Why the last delivery failed; empty when it did not."""


class SignalView(_Frozen):
    """One accepted signal, newest first in a snapshot."""

    seq: int
    id: str
    source: str
    summary: str
    """A line for people, from the record's own fields."""
    """The record's own time, seconds since the epoch."""
    seen_time: float
    late: bool


class Event(_Frozen):
    """One line of what happened, for the events pane and the log."""

    seq: int
    time: float
    """Seconds since the epoch."""
    level: Literal["info", "warning", "error"]
    text: str


class Snapshot(_Frozen):
    """The whole state at one moment."""

    seq: int
    engine_id: str
    version: str
    state: Literal["starting", "running", "pausing", "paused", "stopping", "stopped", "dead"]
    reason: str = ""
    """Why it is dead; empty otherwise."""
    paused_by: str | None = None
    paused_since: float | None = None
    """`Clock.boot`."""
    started: float
    """`Clock.boot` of the start."""
    mono: float
    boot: float
    wall: float
    """The engine's three clocks when this snapshot was made."""
    config: str
    """Where the config came from."""
    state_dir: str
    requests: int
    responses: dict[str, int]
    """Answers by status code; `error` counts those that never came."""
    requests_per_second: tuple[int, ...]
    """Requests in each of the last 60 seconds, oldest first; the last one is still filling."""
    signals_per_minute: tuple[int, ...]
    """Signals in each of the last 60 minutes, oldest first; the last one is still filling."""
    in_flight: int
    limits: tuple[LimitView, ...]
    cooldowns: tuple[CooldownView, ...]
    last_cooldown: str = ""
    """The last cool-down that ended, in words; empty when there was none."""
    windows: tuple[WindowView, ...]
    sources: tuple[SourceView, ...]
    sinks: tuple[SinkView, ...]
    signals: tuple[SignalView, ...]
    records: int
    new: int
    duplicates: int
    history: int
    late: int
    quarantined: int


class Pull(_Frozen):
    """What one pull of a view brings."""

    snapshot: Snapshot
    events: tuple[Event, ...]
    """Events after the sequence number asked for, oldest first."""
    missed: int
    """Events after that number which are no longer kept."""


class EvictScope(_Frozen):
    """Which identifiers to forget: all, those of one source, or one id."""

    kind: Literal["all", "source", "id"]
    value: str = ""


class Outcome(_Frozen):
    """What a verb did, in words; `ok` is False when it was refused."""

    ok: bool
    text: str
    count: int = 0


class EngineHandle(Protocol):
    """How any view reaches an engine: one pull and four verbs. No call blocks on the engine's own work."""

    async def pull(self, after: int) -> Pull | None:
        """The newest snapshot and the events after `after`; None before the first. Raises ConnectionError."""
        ...

    async def pause(self, actor: str) -> Outcome: ...

    async def resume(self, actor: str) -> Outcome: ...

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome:
        """Forget identifiers: the next sighting of each acts again.

        `count` of the outcome is how many were, or with `dry_run` would be, forgotten. With `expect` (the count of a
        preview) it is refused when the set has grown by more than a tenth since.
        """
        ...

    async def poll_now(self, source: str, actor: str) -> Outcome: ...
