"""The state folder: a lock, and the SQLite ledger. The only file that knows SQL.

One connection, WAL with `synchronous=FULL`: what is committed survives kill -9 and power loss. `locking_mode=EXCLUSIVE`
keeps it the only one: SQLite before 3.51.3 can corrupt a WAL database that two connections checkpoint at once, and
other processes ask the engine, not the file. Everything a read changes is one `BEGIN IMMEDIATE` transaction.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread

from engine.clock import Clock
from engine.errors import StateHeldError, StoreError
from engine.signals import Bad, Signal, digest, rfc3339
from engine.streams import Progress, StreamState
from engine.text import plain

__all__ = ["Owed", "ReadCommit", "Restored", "StateFolder", "Store"]

T = TypeVar("T")

_VERSION = 2
_LIMITS = """
CREATE TABLE limits (               -- what each limit goes on from
    key TEXT PRIMARY KEY,
    state TEXT NOT NULL,            -- JSON, its times relative to the moment of writing
    wall REAL NOT NULL,
    boot REAL NOT NULL,
    boot_id TEXT NOT NULL
) WITHOUT ROWID;
"""
_MIGRATIONS = {1: _LIMITS}
"""By the version that they lead on from."""
_SCHEMA = f"""
CREATE TABLE signals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,               -- hex digest of the key
    source TEXT NOT NULL,
    key TEXT NOT NULL,              -- JSON list
    event_time REAL,
    seen_time REAL NOT NULL,
    late INTEGER NOT NULL,
    payload TEXT NOT NULL           -- JSON as served
);
CREATE INDEX signals_seen ON signals (seen_time);
CREATE TABLE outbox (               -- deliveries still owed
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    signal INTEGER NOT NULL REFERENCES signals (seq)
);
CREATE INDEX outbox_sink ON outbox (sink, seq);
CREATE INDEX outbox_signal ON outbox (signal);
CREATE TABLE keys (                 -- the window: held while `left` is null, ageing since then
    stream TEXT NOT NULL,
    key BLOB NOT NULL,
    time REAL,
    left_wall REAL,
    left_boot REAL,
    boot_id TEXT,
    PRIMARY KEY (key, stream)
) WITHOUT ROWID;
CREATE INDEX keys_left ON keys (left_wall) WHERE left_wall IS NOT NULL;
CREATE TABLE streams (
    name TEXT PRIMARY KEY,          -- whose first read is done
    identity TEXT NOT NULL,
    watermark REAL,
    floor REAL NOT NULL,            -- -Inf where nothing is history
    seeded_to REAL NOT NULL,
    read_at REAL NOT NULL
);
CREATE TABLE quarantine (
    digest BLOB PRIMARY KEY,
    stream TEXT NOT NULL,
    seen_time REAL NOT NULL,
    reason TEXT NOT NULL,
    raw TEXT NOT NULL
);
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    detail TEXT NOT NULL
);
{_LIMITS}
"""

RETENTION_SECONDS = 30 * 86_400.0
"""Delivered signals are kept this long."""
QUARANTINE_ROWS = 10_000
AUDIT_ROWS = 10_000
_PURGE_ROWS = 500
"""Rows that one step deletes at most of each kind: keeping the disk bounded must not hold up a read."""
_PURGE_KEYS = """
DELETE FROM keys WHERE (key, stream) IN (SELECT key, stream FROM keys WHERE left_wall < ? ORDER BY left_wall LIMIT ?)
"""
_PURGE_SIGNALS = """
DELETE FROM signals WHERE seq IN (SELECT seq FROM signals WHERE seen_time < ?
AND NOT EXISTS (SELECT 1 FROM outbox WHERE signal = signals.seq) ORDER BY seen_time LIMIT ?)
"""
_PURGE_QUARANTINE = """
DELETE FROM quarantine WHERE digest IN (SELECT digest FROM quarantine ORDER BY seen_time DESC LIMIT ? OFFSET ?)
"""
_PURGE_MARGIN_SECONDS = 3600.0
"""Aged keys stay this much longer on disk, so that a wall clock set forward for a moment drops none."""


class StateFolder:
    """A folder that belongs to one engine for as long as this object is open.

    Raises:
        StateHeldError: Another engine holds it; the text names its process.
        StoreError: It cannot be created or written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self._lock(clock)
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be the state folder: {error.strerror}; choose one with --state-dir"
            ) from error

    def _lock(self, clock: Clock) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = plain(os.read(self._fd, 1024).decode("utf-8", "replace"), 200) or "an engine that is just starting"
            raise StateHeldError(
                f"{self.path}: held by {holder}; stop it first, or choose another folder with --state-dir"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"pid {os.getpid()} on {socket.gethostname()} since {rfc3339(clock.wall())}".encode())

    def close(self) -> None:
        """Let go of the folder. The lock file stays; what counts is the lock on it."""
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Owed:
    """A delivery still to be made."""

    seq: int
    signal: Signal


@dataclass(slots=True)
class ReadCommit:
    """All that one read changes."""

    stream: str
    signals: list[Signal] = field(default_factory=list)
    sinks: Sequence[str] = ()
    """Who is owed each signal that is not late."""
    held: list[tuple[bytes, float | None]] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    progress: Progress | None = None
    """Where the stream stands, when this completes the read."""
    identity: str = ""
    """`StreamState.identity`, to be kept with it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What an earlier run left."""

    streams: dict[str, StreamState]
    ageing: list[tuple[bytes, float]]
    """Keys that age, with `Clock.boot` since when, oldest first."""
    recent: list[tuple[int, Signal]]
    """The newest signals, oldest first."""
    owed_to: dict[str, int]
    changed: list[str]
    """Streams that begin anew: their records are told apart by something else now."""
    limits: dict[str, tuple[str, float]]
    """State of each limit by its key, and the `Clock.boot` at which it was written."""


class Store:
    """The ledger in a state folder. Every method is one transaction; StoreError when one fails: nothing has changed.

    Args:
        folder: The folder, held.
        clock: For stamps.
        inline: Run SQLite in the event loop: for virtual time, which would race past a thread.
    """

    def __init__(self, folder: Path, clock: Clock, *, inline: bool = False) -> None:
        self.path = folder / "polltop.sqlite3"
        self._clock = clock
        self._inline = inline
        self._one_at_a_time = anyio.Lock()
        with self._words():
            # Created by us first, so that nobody else can read it, nor its -wal.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self._db.execute(f"PRAGMA {pragma}")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(
                    f"{self.path}: a database, but not of polltop; move it aside, or choose another --state-dir"
                )
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={_VERSION}; COMMIT;")
        elif version in _MIGRATIONS:
            self._db.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[version]} PRAGMA user_version={_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise StoreError(
                f"{self.path}: written by another version of polltop (format {version}, this one reads {_VERSION}); "
                "use that version, or move the file aside to start afresh"
            )

    def close(self) -> None:
        """Close the file. No call may be under way."""
        self._db.close()

    async def restore(self, streams: dict[str, StreamState], window_seconds: float) -> Restored:
        """Read the state of `streams` (by name) and the window.

        What other streams still hold ages from now in the window; on disk it stays held, for the day when they are
        configured again (within `RETENTION_SECONDS`): they then go on from where they were.
        """
        return await self._run(lambda: self._restore(streams, window_seconds))

    async def commit(self, read: ReadCommit) -> tuple[int, int]:
        """Write a read. Returns the sequence number of its first signal and how many bad records were not yet known."""
        return await self._run(lambda: self._commit(read))

    async def owed(self, sink: str, most: int) -> list[Owed]:
        """The oldest deliveries owed to `sink`."""
        return await self._run(lambda: self._owed(sink, most))

    async def settle(self, deliveries: Sequence[Owed]) -> None:
        """Strike out deliveries that were made."""
        rows = [(owed.seq,) for owed in deliveries]
        await self._run(lambda: self._db.executemany("DELETE FROM outbox WHERE seq = ?", rows))

    async def keys(self, streams: Sequence[str] | None) -> set[bytes]:
        """All keys stored for these streams, or for all."""

        def read() -> set[bytes]:
            if streams is None:
                return {row[0] for row in self._db.execute("SELECT key FROM keys")}
            found: set[bytes] = set()
            for stream in streams:
                found.update(row[0] for row in self._db.execute("SELECT key FROM keys WHERE stream = ?", (stream,)))
            return found

        return await self._run(read)

    async def forget(self, keys: Iterable[bytes], actor: str, detail: str) -> None:
        """Drop keys, and write down who wanted it."""
        rows = [(key,) for key in keys]

        def write() -> None:
            self._db.executemany("DELETE FROM keys WHERE key = ?", rows)
            self._note(actor, "evict", detail)

        await self._run(write)

    async def audit(self, actor: str, verb: str, detail: str) -> None:
        """Write down what somebody did."""
        await self._run(lambda: self._note(actor, verb, detail))

    async def keep_limits(self, states: Mapping[str, str]) -> None:
        """Write the states of limits down, by key."""
        now = (self._clock.wall(), self._clock.boot(), self._clock.boot_id)
        rows = [(key, state, *now) for key, state in states.items()]
        await self._run(lambda: self._db.executemany("INSERT OR REPLACE INTO limits VALUES (?,?,?,?,?)", rows))

    async def purge(self, window_seconds: float) -> bool:
        """Delete, in one bounded step, what is past its time. Returns whether there is more."""
        wall = self._clock.wall()

        def write() -> bool:
            full = 0
            for what, *values in (
                (_PURGE_KEYS, wall - window_seconds - _PURGE_MARGIN_SECONDS, _PURGE_ROWS),
                (_PURGE_SIGNALS, wall - RETENTION_SECONDS, _PURGE_ROWS),
                (_PURGE_QUARANTINE, _PURGE_ROWS, QUARANTINE_ROWS),
            ):
                full += self._db.execute(what, values).rowcount == _PURGE_ROWS
            return full > 0

        return await self._run(write)

    async def _run(self, work: Callable[[], T]) -> T:
        def transaction() -> T:
            with self._words():
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    result = work()
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
                return result

        async with self._one_at_a_time:
            if self._inline:
                return transaction()
            # Never abandoned: a cancelled caller would return while the transaction is still open.
            return await to_thread.run_sync(transaction, abandon_on_cancel=False)

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            damaged = getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
            advice = "; restore it, or move it (and its -wal) aside to start afresh" if damaged else ""
            raise StoreError(f"{self.path}: {error}{advice}") from error
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error

    def _restore(self, streams: dict[str, StreamState], window_seconds: float) -> Restored:
        wall, boot, boot_id = self._clock.wall(), self._clock.boot(), self._clock.boot_id
        stored = self._db.execute("SELECT name, identity, watermark, floor, seeded_to, read_at FROM streams").fetchall()
        changed: list[str] = []
        for name, identity, *values in stored:
            progress = Progress(*values)
            if name in streams and streams[name].identity == identity:
                streams[name].advance(progress)
            elif name in streams or progress.read_at < wall - RETENTION_SECONDS:
                changed += [name] if name in streams else []
                self._db.execute("DELETE FROM keys WHERE stream = ?", (name,))
                self._db.execute("DELETE FROM streams WHERE name = ?", (name,))
        ageing: list[tuple[bytes, float]] = []
        for stream, key, time in self._db.execute("SELECT stream, key, time FROM keys WHERE left_wall IS NULL"):
            if stream in streams:
                streams[stream].held[key] = time
            else:
                ageing.append((key, boot))
        rows = self._db.execute("SELECT key, left_wall, left_boot, boot_id FROM keys WHERE left_wall IS NOT NULL")
        for key, left_wall, left_boot, left_boot_id in rows:
            # Within one boot the boot clock is exact; across boots there is only wall time, which may have stepped.
            age = boot - left_boot if left_boot_id == boot_id else wall - left_wall
            if age < window_seconds:
                ageing.append((key, boot - max(age, 0.0)))
        ageing.sort(key=lambda pair: pair[1])
        recent = [
            (row[0], _signal(row[1:]))
            for row in self._db.execute(f"SELECT seq, {_SIGNAL} FROM signals s ORDER BY seq DESC LIMIT 50")  # noqa: S608
        ]
        owed = dict(self._db.execute("SELECT sink, count(*) FROM outbox GROUP BY sink"))
        self._db.execute("DELETE FROM limits WHERE wall < ?", (wall - RETENTION_SECONDS,))
        limits = {
            key: (state, at_boot if at_boot_id == boot_id else boot - max(wall - at_wall, 0.0))
            for key, state, at_wall, at_boot, at_boot_id in self._db.execute("SELECT * FROM limits")
        }
        return Restored(streams, ageing, recent[::-1], owed, changed, limits)

    def _commit(self, read: ReadCommit) -> tuple[int, int]:
        wall, boot, boot_id = self._clock.wall(), self._clock.boot(), self._clock.boot_id
        first = 0
        for signal in read.signals:
            cursor = self._db.execute(
                "INSERT INTO signals (id, source, key, event_time, seen_time, late, payload) VALUES (?,?,?,?,?,?,?)",
                (
                    signal.id,
                    signal.source,
                    signal.key,
                    signal.event_time,
                    signal.seen_time,
                    signal.late,
                    signal.payload,
                ),
            )
            seq = cursor.lastrowid or 0
            first = first or seq
            if not signal.late:
                self._db.executemany("INSERT INTO outbox (sink, signal) VALUES (?,?)", [(s, seq) for s in read.sinks])
        self._db.executemany(
            "INSERT OR REPLACE INTO keys (stream, key, time) VALUES (?,?,?)",
            [(read.stream, key, time) for key, time in read.held],
        )
        self._db.executemany(
            "UPDATE keys SET left_wall = ?, left_boot = ?, boot_id = ? WHERE key = ? AND stream = ?",
            [(wall, boot, boot_id, key, read.stream) for key in read.left],
        )
        unknown = 0
        for item in read.bad:
            name = digest((read.stream, item.reason, item.raw))
            cursor = self._db.execute(
                "INSERT OR IGNORE INTO quarantine VALUES (?,?,?,?,?)", (name, read.stream, wall, item.reason, item.raw)
            )
            unknown += cursor.rowcount
        if read.progress is not None:
            row = (read.stream, read.identity, *read.progress)
            self._db.execute("INSERT OR REPLACE INTO streams VALUES (?,?,?,?,?,?)", row)
        return first, unknown

    def _owed(self, sink: str, most: int) -> list[Owed]:
        rows = self._db.execute(
            f"SELECT o.seq, {_SIGNAL} FROM outbox o JOIN signals s ON s.seq = o.signal "  # noqa: S608 - constant columns
            "WHERE o.sink = ? ORDER BY o.seq LIMIT ?",
            (sink, most),
        )
        return [Owed(row[0], _signal(row[1:])) for row in rows]

    def _note(self, actor: str, verb: str, detail: str) -> None:
        self._db.execute(
            "INSERT INTO audit (time, actor, verb, detail) VALUES (?,?,?,?)", (self._clock.wall(), actor, verb, detail)
        )
        self._db.execute("DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?", (AUDIT_ROWS,))


_SIGNAL = "s.id, s.source, s.key, s.event_time, s.seen_time, s.payload, s.late"


def _signal(row: tuple[str, str, str, float | None, float, str, int]) -> Signal:
    return Signal(*row[:6], late=bool(row[6]))
