"""The ledger: what is committed, what comes back, and what happens when the disk does not want to."""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from engine import store as store_module
from engine.clock import SystemClock
from engine.errors import StateHeldError, StoreError
from engine.signals import Bad, Signal
from engine.store import ReadCommit, Restored, StateFolder, Store
from engine.streams import Progress, StreamState

W = 90.0
_COUNTS = "SELECT (SELECT count(*) FROM signals), (SELECT count(*) FROM outbox), count(*) FROM keys"


class HandClock(SystemClock):
    """Boot and wall time, moved by hand."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self.now = 5000.0
        self.walled = 1_790_000_000.0

    def mono(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.walled

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.walled += seconds


def signal(number: int, *, late: bool = False, seen: float = 1_790_000_000.0) -> Signal:
    return Signal(f"{number:032x}", "a", f'["a", {number}, 0]', 1.5, seen, f'{{"id": {number}}}', late)


@asynccontextmanager
async def opened(folder: Path, clock: HandClock, *, inline: bool = True) -> AsyncIterator[Store]:
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - pathlib would block as much
    store = Store(folder, clock, inline=inline)
    try:
        yield store
    finally:
        store.close()


async def restored(store: Store, *names: str) -> Restored:
    return await store.restore({name: StreamState(name, "ns") for name in names}, W)


def rows(store: Store, query: str) -> list[Any]:
    return store._db.execute(query).fetchall()


def test_a_read_comes_back_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            read = ReadCommit("a", [signal(1), signal(2, late=True), signal(3)], ("x", "y"))
            read.held = [(b"k1", 1.5), (b"k2", None), (b"k3", 2.5)]
            read.bad = [Bad("why", "raw"), Bad("why", "raw"), Bad("why", "other")]
            read.progress = Progress(2.5, -math.inf, 7.0, 100.0)
            assert await store.commit(read) == (1, 2)
            assert await store.commit(ReadCommit("a", bad=read.bad)) == (0, 0)
            clock.pass_(5)
            await store.commit(ReadCommit("a", left=[b"k1"], progress=Progress(9.0, 8.0, -math.inf, 101.0)))
            clock.pass_(10)
        async with opened(tmp_path / "s", clock) as store:
            found = await restored(store, "a", "b")
            a, b = found.streams["a"], found.streams["b"]
            assert (a.seeded, a.watermark, a.floor, a.read_at) == (True, 9.0, 8.0, 101.0)
            assert (b.seeded, b.watermark, b.floor, b.read_at) == (False, None, -math.inf, None)
            assert a.held == {b"k2": None, b"k3": 2.5}
            assert found.ageing == [(b"k1", 5005.0)]
            assert [(seq, item) for seq, item in found.recent] == [
                (1, signal(1)),
                (2, signal(2, late=True)),
                (3, signal(3)),
            ]
            assert found.owed_to == {"x": 2, "y": 2}
            owed = await store.owed("x", 10)
            assert [item.signal for item in owed] == [signal(1), signal(3)]
            assert [item.signal for item in await store.owed("x", 1)] == [signal(1)]
            await store.settle(owed[:1])
            assert [item.signal for item in await store.owed("x", 10)] == [signal(3)]
            assert len(await store.owed("y", 10)) == 2
            assert await store.keys(None) == {b"k1", b"k2", b"k3"}
            assert await store.keys(["b"]) == set()
            await store.forget([b"k2"], "ana", "one")
            assert await store.keys(["a"]) == {b"k1", b"k3"}
            assert rows(store, "SELECT actor, verb, detail FROM audit") == [("ana", "evict", "one")]

    anyio.run(scenario)


@pytest.mark.parametrize(
    ("boot_id", "wall_step", "alive", "since"),
    [
        ("boot-1", 0.0, True, 5000.0),
        ("boot-1", 86_400.0, True, 5000.0),  # one boot: its own clock is exact
        ("boot-1", -3600.0, True, 5000.0),
        ("boot-2", 0.0, True, 5000.0),
        ("boot-2", 49.0, True, 4951.0),
        ("boot-2", 50.0, False, None),  # half open
        ("boot-2", -30.0, True, 5030.0),
        ("boot-2", -3600.0, True, 5040.0),  # never longer than from now on
    ],
)
def test_ages_across_a_restart(
    tmp_path: Path, boot_id: str, wall_step: float, alive: bool, since: float | None
) -> None:
    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            await store.commit(ReadCommit("a", held=[(b"k", None)]))
            await store.commit(ReadCommit("a", left=[b"k"]))
        clock.pass_(40)
        clock.boot_id = boot_id
        clock.walled += wall_step
        async with opened(tmp_path / "s", clock) as store:
            assert (await restored(store, "a")).ageing == ([(b"k", since)] if alive else [])

    anyio.run(scenario)


def test_ages_come_oldest_first_whatever_boot_they_are_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            await store.commit(ReadCommit("a", held=[(bytes([n]), None) for n in range(3)]))
            for number in (2, 0, 1):
                await store.commit(ReadCommit("a", left=[bytes([number])]))
                clock.pass_(10)
                clock.boot_id = f"boot-{number}"
            assert [key for key, _ in (await restored(store, "a")).ageing] == [bytes([2]), bytes([0]), bytes([1])]

    anyio.run(scenario)


def test_a_key_that_comes_back_is_held_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            for read in ({"held": [(b"k", 1.0)]}, {"left": [b"k"]}, {"held": [(b"k", 2.0)]}):
                await store.commit(ReadCommit("a", **read))
            found = await restored(store, "a")
            assert found.streams["a"].held == {b"k": 2.0}
            assert found.ageing == []

    anyio.run(scenario)


def test_streams_that_left_the_config(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            await store.commit(
                ReadCommit("gone", held=[(b"k", 1.0)], progress=Progress(1.0, 0.0, -math.inf, clock.wall()))
            )
            clock.pass_(1000)
            found = await restored(store, "a")
            assert found.ageing == [(b"k", clock.now)]
            assert list(found.streams) == ["a"]
            clock.pass_(1000)
            # Back in the config: as if it had never been away.
            found = await restored(store, "a", "gone")
            assert found.streams["gone"].held == {b"k": 1.0}
            assert found.streams["gone"].watermark == 1.0
            assert found.ageing == []
            clock.pass_(store_module.RETENTION_SECONDS)
            await restored(store, "a")
            assert await store.keys(None) == set()
            assert not (await restored(store, "gone")).streams["gone"].seeded

    anyio.run(scenario)


def test_purge_is_bounded_and_keeps_what_is_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PURGE_ROWS", 10)
    monkeypatch.setattr(store_module, "QUARANTINE_ROWS", 5)

    async def scenario() -> None:
        clock = HandClock()
        async with opened(tmp_path / "s", clock) as store:
            keys = [bytes([number]) for number in range(25)]
            read = ReadCommit("a", [signal(number, seen=clock.wall()) for number in range(25)], ())
            read.held = [(key, None) for key in [*keys, b"held"]]
            read.bad = [Bad("why", str(number)) for number in range(25)]
            await store.commit(read)
            await store.commit(ReadCommit("a", [signal(99, seen=clock.wall())], ("x",), left=keys))
            steps = [await store.purge(W) for _ in range(3)]
            assert steps == [True, True, False]
            assert len(rows(store, "SELECT 1 FROM quarantine")) == 5
            clock.pass_(W + 3600)
            assert not await store.purge(W)
            clock.pass_(1)
            before = len(await store.keys(None))
            assert await store.purge(W)
            assert before - len(await store.keys(None)) == 10
            while await store.purge(W):
                pass
            assert await store.keys(None) == {b"held"}
            assert len(rows(store, "SELECT 1 FROM signals")) == 26
            clock.pass_(store_module.RETENTION_SECONDS)
            while await store.purge(W):
                pass
            assert rows(store, "SELECT id FROM signals") == [(f"{99:032x}",)]

    anyio.run(scenario)


def test_the_audit_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "AUDIT_ROWS", 3)

    async def scenario() -> None:
        async with opened(tmp_path / "s", HandClock()) as store:
            for number in range(6):
                await store.audit("ana", "pause", str(number))
            assert rows(store, "SELECT detail FROM audit ORDER BY seq") == [("3",), ("4",), ("5",)]

    anyio.run(scenario)


def test_what_survives_the_power_is_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "s", HandClock()) as store:
            found = [rows(store, f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "locking_mode")]
            assert found == ["wal", 2, "exclusive"]

    anyio.run(scenario)


# The folder.


def test_the_folder_and_its_files_are_ours_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = tmp_path / "deep" / "state"
        clock = HandClock()
        held = StateFolder(folder, clock)

        async def scenario() -> None:
            async with opened(folder, clock) as store:
                await store.audit("a", "b", "c")
                modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
                assert modes.pop("polltop.sqlite3-wal") == 0o600
                assert modes == {"lock": 0o600, "polltop.sqlite3": 0o600}
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700

        anyio.run(scenario)
        held.close()
    finally:
        os.umask(old)


def test_a_second_engine_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    clock = HandClock()
    held = StateFolder(tmp_path, clock)
    with pytest.raises(StateHeldError, match=rf"held by pid {os.getpid()} on .+ since 2026-09-21T.+Z; stop it first"):
        StateFolder(tmp_path, clock)
    held.close()
    StateFolder(tmp_path, clock).close()


def test_a_holder_that_writes_escapes_is_made_harmless(tmp_path: Path) -> None:
    clock = HandClock()
    held = StateFolder(tmp_path, clock)
    (tmp_path / "lock").write_bytes(b"\x1b]52;c;x\x07 \xff")
    with pytest.raises(StateHeldError) as caught:
        StateFolder(tmp_path, clock)
    assert "\x1b" not in str(caught.value)
    held.close()


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    clock = HandClock()
    (tmp_path / "file").write_text("")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "lock").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "linked", Path("/proc/polltop")):
        with pytest.raises(StoreError, match=r"cannot be the state folder: .+; choose one with --state-dir"):
            StateFolder(path, clock)
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_file_that_cannot_be_written_is_told_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(StoreError, match="No space left on device"):
        StateFolder(tmp_path, HandClock())
    monkeypatch.undo()
    StateFolder(tmp_path, HandClock()).close()


def test_files_that_are_no_ledger(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "polltop.sqlite3"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path, clock)
    assert path.read_text().startswith("Dear diary")
    path.unlink()
    for script in ("CREATE TABLE photos (name)", "CREATE TABLE signals (name)"):
        with sqlite3.connect(path) as db:
            db.execute(script)
        db.close()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="not of polltop"):
            Store(tmp_path, clock)
        assert path.read_bytes()[100:] == before[100:]
        path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=r"polltop\.sqlite3: Is a directory"):
        Store(tmp_path, clock)
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        Store(tmp_path, clock)


def test_a_ledger_of_a_later_version_is_refused_in_words(tmp_path: Path) -> None:
    clock = HandClock()
    Store(tmp_path, clock).close()
    with sqlite3.connect(tmp_path / "polltop.sqlite3") as db:
        db.execute("PRAGMA user_version=9")
    db.close()
    words = r"another version of polltop \(format 9, this one reads 2\); use that version"
    with pytest.raises(StoreError, match=words):
        Store(tmp_path, clock)


def test_a_ledger_of_the_version_before_is_led_on_and_keeps_what_it_holds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, HandClock()) as store:
            await store.audit("ana", "pause", "before")
        with sqlite3.connect(tmp_path / "polltop.sqlite3") as db:
            db.execute("DROP TABLE limits")
            db.execute("PRAGMA user_version=1")
        db.close()
        async with opened(tmp_path, HandClock()) as store:
            await store.keep_limits({"key": "state"})
            restored = await store.restore({}, 90.0)
            assert [text for text, _ in restored.limits.values()] == ["state"]
        with sqlite3.connect(tmp_path / "polltop.sqlite3") as db:
            assert db.execute("PRAGMA user_version").fetchone() == (2,)
            assert "before" in str(db.execute("SELECT * FROM audit").fetchall())
        db.close()

    anyio.run(scenario)


def test_a_ledger_that_another_process_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **{**options, "timeout": 0}))

    async def scenario() -> None:
        async with opened(tmp_path, HandClock()) as store:
            await store.audit("a", "b", "c")
            with pytest.raises(StoreError, match="locked"):
                Store(tmp_path, HandClock())
            await store.audit("a", "b", "c")

    anyio.run(scenario)


# Failing and cancelling.


def test_a_failing_step_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, HandClock()) as store:
            store._db.execute("CREATE TRIGGER no BEFORE INSERT ON streams BEGIN SELECT RAISE(ABORT, 'no more'); END")
            read = ReadCommit("a", [signal(1)], ("x",), held=[(b"k", None)], bad=[Bad("why", "raw")])
            read.progress = Progress(1.0, 1.0, 1.0, 1.0)
            with pytest.raises(StoreError, match=r"polltop\.sqlite3: no more"):
                await store.commit(read)
            for table in ("signals", "outbox", "keys", "streams", "quarantine"):
                assert rows(store, f"SELECT * FROM {table}") == []
            assert not store._db.in_transaction
            store._db.execute("DROP TRIGGER no")
            assert await store.commit(read) == (1, 1)

    anyio.run(scenario)


def test_an_error_that_is_not_of_the_database_leaves_no_transaction_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, HandClock()) as store:
            with pytest.raises(UnicodeEncodeError):
                await store.audit("\ud800", "b", "c")
            assert not store._db.in_transaction
            await store.audit("a", "b", "c")

    anyio.run(scenario)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_caller_leaves_no_transaction_open(tmp_path: Path, backend: str) -> None:
    """jaylfc/taOS#2771, opensquilla#1586, omnilib/aiosqlite#259: cancelled at each moment of a transaction."""

    async def scenario() -> None:
        async with opened(tmp_path, HandClock(), inline=False) as store:
            real = store._commit

            def slow(read: ReadCommit) -> tuple[int, int]:
                done = real(read)
                time.sleep(0.002)
                return done

            store._commit = slow  # type: ignore[method-assign]
            for number in range(60):
                async with anyio.create_task_group() as tasks:
                    for other in range(3):
                        read = ReadCommit("a", [signal(number * 10 + other)], ("x",))
                        read.held = [(bytes([number, other]), None)]
                        tasks.start_soon(store.commit, read)
                    await anyio.sleep(number * 0.0001)
                    tasks.cancel_scope.cancel()
                assert not store._db.in_transaction
                await store.audit("a", "b", str(number))
                whole = rows(store, _COUNTS)
                assert len(set(whole[0])) == 1
            # Some were, some were not.
            assert 0 < whole[0][0] < 180

    anyio.run(scenario, backend=backend)


_FULL = """
import resource, signal, sys, anyio
from pathlib import Path
from engine.clock import SystemClock
from engine.errors import StoreError
from engine.signals import Signal
from engine.store import ReadCommit, Store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    store = Store(Path(sys.argv[1]), SystemClock())
    good = failed = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    for number in range(60):
        signal_ = Signal(f"{number:032x}", "a", "[]", None, 0.0, '"' + "x" * 20_000 + '"', False)
        read = ReadCommit("a", [signal_], ("x",), held=[(str(number).encode(), None)])
        try:
            await store.commit(read)
            good += 1
        except StoreError as error:
            failed += 1
            text = str(error)
    assert good and failed, (good, failed)
    counts = [store._db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("signals", "outbox", "keys")]
    assert counts == [good] * 3, (counts, good)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.commit(read)
    store.close()
    store = Store(Path(sys.argv[1]), SystemClock())
    counts = [store._db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("signals", "outbox", "keys")]
    assert counts == [good + 1] * 3, (counts, good)
    print(text)

anyio.run(main)
"""


def test_a_full_disk_fails_whole_and_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FULL), str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "polltop.sqlite3: " in done.stdout


_KILL = """
import math, os, sys, anyio
from pathlib import Path
from engine.clock import SystemClock
from engine.signals import Signal
from engine.store import ReadCommit, Store
from engine.streams import Progress

async def main():
    store = Store(Path(sys.argv[1]), SystemClock())
    first = store._db.execute("SELECT count(*) FROM signals").fetchone()[0]
    for number in range(first, 10_000):
        signal = Signal(f"{number:032x}", "a", "[]", None, 0.0, "{}", False)
        held = [(str(number).encode(), None)]
        await store.commit(ReadCommit("a", [signal], ("x",), held=held, progress=Progress(number, 0.0, -math.inf, 0.0)))
        os.write(1, f"{number}\\n".encode())

anyio.run(main)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = -1
    for round_ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_KILL), str(tmp_path)],
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert child.stdout is not None
        for _ in range(10 + 7 * round_):
            acknowledged = int(child.stdout.readline())
        child.kill()
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.stdout.close()
        child.wait()
    store = Store(tmp_path, HandClock())
    count = rows(store, _COUNTS)[0]
    (watermark,) = rows(store, "SELECT watermark FROM streams")[0]
    store.close()
    assert len(set(count)) == 1
    assert count[0] == watermark + 1 >= acknowledged + 1
