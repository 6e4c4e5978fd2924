"""The outbox to its sinks: order, at least once, and what a file or a pipe can do to it."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import signal as signals
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from engine.board import Board
from engine.clock import Clock, SystemClock
from engine.config import Backoff
from engine.delivery import _BATCH, Delivery
from engine.errors import StoreError
from engine.gate import Gate
from engine.signals import Signal
from engine.sinks.base import Sink
from engine.sinks.jsonl import Jsonl
from engine.sinks.stdout import Stdout
from engine.store import Owed, ReadCommit, Store
from tests.support.engines import Api, ListSink, config_of, items_source, repeated, running, wait
from tests.support.virtual import VirtualClock, run


def signal(number: int, payload: str = "{}") -> Signal:
    return Signal(f"{number:032x}", "a", f'["a", {number}, 0]', None, 1_790_000_000.0, payload, late=False)


def numbers(lines: Sequence[str]) -> list[int]:
    return [int(json.loads(line)["id"], 16) for line in lines]


class Bench:
    """A store, and deliveries on it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = clock
        self.store = Store(folder, clock, inline=True)
        self.store._db.execute("PRAGMA synchronous=OFF")
        self.board = Board(clock)
        self.gate = Gate()
        self.closed = 0

    async def owe(self, *owed: Signal, sink: str = "list") -> None:
        await self.store.commit(ReadCommit("a", list(owed), (sink,)))

    def delivery(self, sink: Sink, owed: int = 0) -> Delivery:
        def closed() -> None:
            self.closed += 1

        return Delivery(
            sink, store=self.store, owed=owed, backoff=Backoff(), gate=self.gate, board=self.board,
            clock=self.clock, rng=random.Random(1), closed=closed,
        )  # fmt: skip

    async def drain(self, sink: Sink, owed: int = 0) -> Delivery:
        delivery = self.delivery(sink, owed)
        delivery.drain()
        await delivery.run()
        return delivery

    async def left(self, sink: str = "list") -> list[int]:
        return [int(owed.signal.id, 16) for owed in await self.store.owed(sink, 10_000)]

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


@asynccontextmanager
async def at_work(delivery: Delivery) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delivery.run)
        yield
        tasks.cancel_scope.cancel()


# Any sink.


def test_oldest_first_over_many_batches(tmp_path: Path) -> None:
    async def scenario() -> None:
        with Bench(tmp_path / "s", VirtualClock()) as bench:
            await bench.owe(*(signal(number) for number in range(2 * _BATCH + 7)))
            sink = ListSink()
            delivery = await bench.drain(sink, 2 * _BATCH + 7)
            assert numbers(sink.lines) == list(range(2 * _BATCH + 7))
            assert (delivery.owed, delivery.delivered, await bench.left()) == (0, 2 * _BATCH + 7, [])
            assert sink.tries == 3

    run(scenario)


def test_a_sink_that_fails_gets_the_same_lines_again_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        with Bench(tmp_path / "s", clock) as bench:
            sink = ListSink()
            sink.broken = 5
            delivery = bench.delivery(sink)
            for number in range(3):
                await bench.owe(signal(number))
                delivery.expect(1)
            async with at_work(delivery):
                await wait(clock, 0.001)
                assert (delivery.owed, delivery.failures, delivery.reason) == (3, 1, "it is broken")
                await wait(clock, 120)
            assert numbers(sink.lines) == [0, 1, 2]
            assert (sink.tries, delivery.failures, delivery.owed, delivery.reason) == (6, 5, 0, "")
            assert [event.text for event in bench.board.after(0)[0]] == [
                "list: it is broken; deliveries wait",
                "list: delivers again after 5 failed",
            ]

    run(scenario)


def test_a_sink_that_raises_what_it_should_not_is_tried_again_too(tmp_path: Path) -> None:
    class Odd(ListSink):
        async def write(self, lines: Sequence[str]) -> None:
            if not self.tries:
                self.tries += 1
                raise KeyError("odd")
            await super().write(lines)

    async def scenario() -> None:
        clock = VirtualClock()
        with Bench(tmp_path / "s", clock) as bench:
            await bench.owe(signal(1))
            sink = Odd()
            await bench.drain(sink, 1)
            assert numbers(sink.lines) == [1]

    run(scenario)


def test_what_is_written_is_not_written_again_when_only_the_store_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        with Bench(tmp_path / "s", clock) as bench:
            await bench.owe(*(signal(number) for number in range(3)))
            real, failures = bench.store.settle, [True] * 20

            async def settle(deliveries: Sequence[Owed]) -> None:
                if failures:
                    failures.pop()
                    raise StoreError("disk full")
                await real(deliveries)

            bench.store.settle = settle  # type: ignore[method-assign]
            sink = ListSink()
            delivery = await bench.drain(sink, 3)
            assert numbers(sink.lines) == [0, 1, 2]
            assert (delivery.owed, await bench.left()) == (0, [])

    run(scenario)


def test_nothing_passes_a_closed_gate(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        with Bench(tmp_path / "s", clock) as bench:
            bench.gate.close()
            sink = ListSink()
            await bench.owe(signal(1))
            async with at_work(bench.delivery(sink, 1)):
                await wait(clock, 3600)
                assert sink.lines == []
                bench.gate.open()
                await wait(clock, 1)
                assert numbers(sink.lines) == [1]

    run(scenario)


def test_one_stuck_sink_holds_up_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        clock.mono()
        api = Api(clock)
        good, bad = ListSink("good"), ListSink("bad")
        bad.broken = 10**9
        async with running(tmp_path / "s", config_of(items_source()), clock, api.transport, bad, good) as engine:
            await wait(clock, 1)
            api.items = [{"id": number} for number in range(10)]
            await wait(clock, 600)
            assert len(good.lines) == 10
            view = {sink.name: sink for sink in engine.snapshot().sinks}
            assert (view["bad"].owed, view["good"].owed) == (10, 0)
            assert view["bad"].reason == "it is broken"
            bad.broken = 0
            await wait(clock, 70)
            assert bad.lines == good.lines

    run(scenario)


# jsonl.


def lines_of(*items: int) -> list[str]:
    return [signal(number).line() for number in items]


def text(*items: int) -> str:
    return "".join(f"{line}\n" for line in lines_of(*items))


async def written(path: Path, owed: list[str]) -> int:
    """What a start makes of a file: recover, then write what it had not."""
    sink = Jsonl(path)
    had = await sink.recover(owed)
    if owed[had:]:
        await sink.write(owed[had:])
    return had


@pytest.mark.parametrize(
    ("before", "after", "had"),
    [
        ("", text(1, 2, 3), 0),
        (text(0), text(0, 1, 2, 3), 0),
        (text(0, 1), text(0, 1, 2, 3), 1),
        (text(1, 2, 3), text(1, 2, 3), 3),
        (text(0) + text(1)[:-1], text(0, 1, 2, 3), 0),  # all of it but the line end
        (text(0, 1) + text(2)[:40], text(0, 1, 2, 3), 1),
        (text(0) + text(1)[:1], text(0, 1, 2, 3), 0),
        ("foreign", "foreign\n" + text(1, 2, 3), 0),
        ("foreign\nmore", "foreign\nmore\n" + text(1, 2, 3), 0),
        (text(7)[:50], text(7)[:50] + "\n" + text(1, 2, 3), 0),  # a line that is not owed
        ("\n\n", "\n\n" + text(1, 2, 3), 0),
        (text(2, 3), text(2, 3, 1, 2, 3), 0),  # only what was written in order is known to be ours
    ],
)
def test_what_a_start_makes_of_a_file(tmp_path: Path, before: str, after: str, had: int) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(before)
    assert anyio.run(written, path, lines_of(1, 2, 3)) == had
    assert path.read_text() == after


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xff\xfe\0")
    anyio.run(written, path, lines_of(1))
    assert path.read_bytes() == b"\xff\xfe\0\n" + text(1).encode()


def test_nothing_owed_touches_little(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    assert anyio.run(written, path, []) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("torn")
    anyio.run(written, path, [])
    assert path.read_text() == "torn\n"


def test_a_tail_larger_than_what_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sinks.jsonl._TAIL", 400)
    path = tmp_path / "x.jsonl"
    path.write_text(text(*range(10, 30), 1, 2))
    assert anyio.run(written, path, lines_of(1, 2, 3)) == 2
    assert path.read_text() == text(*range(10, 30), 1, 2, 3)


def test_a_crash_between_write_and_settle_writes_no_second_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "x.jsonl"
        count = 2 * _BATCH + 5
        with Bench(tmp_path / "s", SystemClock()) as bench:
            sink = Jsonl(path)
            await bench.owe(*(signal(number) for number in range(count)), sink=sink.name)
            # The crash: a batch is in the file, and nothing is settled.
            await sink.write([owed.signal.line() for owed in await bench.store.owed(sink.name, _BATCH)])
            delivery = await bench.drain(Jsonl(path), count)
            assert numbers(path.read_text().splitlines()) == list(range(count))
            assert (delivery.owed, await bench.left(sink.name)) == (0, [])

    anyio.run(scenario)


@pytest.mark.parametrize("moment", ["before write", "half written", "written", "settled"])
def test_a_crash_at_each_moment_of_a_delivery(tmp_path: Path, moment: str) -> None:
    class Crash(BaseException):
        pass

    class Crashing(Jsonl):
        def _write(self, data: bytes) -> None:
            if moment == "before write":
                raise Crash
            if moment == "half written":
                with path.open("ab") as file:
                    file.write(data[: len(data) // 2])
                raise Crash
            super()._write(data)
            if moment == "written":
                raise Crash

    path = tmp_path / "x.jsonl"

    async def scenario() -> None:
        with Bench(tmp_path / "s", SystemClock()) as bench:
            name = Jsonl(path).name
            await bench.owe(*(signal(number) for number in range(9)), sink=name)
            if moment == "settled":
                await bench.drain(Crashing(path), 9)
            else:
                with pytest.raises(Crash):
                    await bench.drain(Crashing(path), 9)
            await bench.owe(signal(9), sink=name)
            await bench.drain(Jsonl(path), 10)
            assert numbers(path.read_text().splitlines()) == list(range(10))
            assert await bench.left(name) == []

    anyio.run(scenario)


@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "folder", "device"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "x.jsonl", tmp_path / "other"
    if kind == "symlink":
        other.write_text("secret")
    match kind:
        case "symlink" | "dangling":
            path.symlink_to(other)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/null")
    sink = Jsonl(path)
    for attempt in (sink.recover, sink.write):
        with pytest.raises(OSError, match=r"."):
            anyio.run(attempt, lines_of(1))
    assert not other.exists() or other.read_text() == "secret"


def test_a_full_disk_takes_the_half_line_back(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text(0))
    sink = Jsonl(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signals.signal(signals.SIGXFSZ, signals.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(text(0)) + 70, before[1]))
        with pytest.raises(OSError, match="File too large"):
            anyio.run(sink.write, lines_of(1, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signals.signal(signals.SIGXFSZ, handler)
    assert path.read_text() == text(0)
    anyio.run(sink.write, lines_of(1, 2))
    assert path.read_text() == text(0, 1, 2)


def test_a_sync_that_fails_takes_the_lines_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.jsonl"

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        anyio.run(Jsonl(path).write, lines_of(1))
    assert path.read_text() == ""


def test_a_new_file_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    path = tmp_path / "x.jsonl"
    for number in range(2):
        anyio.run(Jsonl(path).write, lines_of(number))
    assert synced == [False, True, False]


# stdout: a real pipe.


def pipe(size: int = 4096) -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    return reader, writer


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_closed_pipe_ends_the_delivery_and_what_is_owed_stays_owed(tmp_path: Path, backend: str) -> None:
    async def scenario() -> None:
        reader, writer = pipe()
        with Bench(tmp_path / "s", SystemClock()) as bench:
            await bench.owe(signal(1), signal(2), sink="stdout")
            os.close(reader)
            await bench.drain(Stdout(writer), 2)
            assert bench.closed == 1
            assert await bench.left("stdout") == [1, 2]
            assert bench.board.seq == 0
        os.close(writer)

    anyio.run(scenario, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_reader_that_stalls_stops_nothing_and_loses_nothing(tmp_path: Path, backend: str) -> None:
    async def scenario() -> None:
        reader, writer = pipe()
        with Bench(tmp_path / "s", SystemClock()) as bench:
            await bench.owe(*(signal(number, f'"{"x" * 300}"') for number in range(100)), sink="stdout")
            async with at_work(bench.delivery(Stdout(writer), 100)):
                ticks = 0
                with anyio.move_on_after(0.1):
                    while True:
                        await anyio.sleep(0.002)
                        ticks += 1
                assert ticks > 10
            assert os.get_blocking(writer)
            assert len(await bench.left("stdout")) == 100
            os.close(writer)
            first = b"".join(iter(lambda: os.read(reader, 65536), b"")).decode()
            os.close(reader)
            # Whole lines, although nobody read on.
            assert first.endswith("\n")
            assert numbers(first.splitlines())[0] == 0

            # The next start, with a reader: all of it.
            reader, writer = pipe()
            got = bytearray()

            async def read() -> None:
                while len(got.splitlines()) < 100 or not got.endswith(b"\n"):
                    await anyio.wait_readable(reader)
                    got.extend(os.read(reader, 65536))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await bench.drain(Stdout(writer), 100)
            assert numbers(got.decode().splitlines()) == list(range(100))
            assert await bench.left("stdout") == []
        os.close(reader)
        os.close(writer)

    anyio.run(scenario, backend=backend)


def test_a_line_longer_than_a_pipe(tmp_path: Path) -> None:
    async def scenario() -> None:
        reader, writer = pipe()
        line = signal(1, f'"{"x" * 50_000}"').line()
        got = bytearray()

        async def read() -> None:
            while not got.endswith(b"\n"):
                await anyio.wait_readable(reader)
                got.extend(os.read(reader, 1000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await Stdout(writer).write([line])
        assert got.decode() == line + "\n"
        os.close(reader)
        os.close(writer)

    anyio.run(scenario)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("target", ["file", "/dev/null", "terminal"])
def test_other_kinds_of_output(tmp_path: Path, target: str, backend: str) -> None:
    other = -1
    if target == "terminal":
        other, fd = os.openpty()
    else:
        fd = os.open(tmp_path / "out" if target == "file" else target, os.O_WRONLY | os.O_CREAT)
    anyio.run(Stdout(fd).write, lines_of(1, 2), backend=backend)
    os.close(fd)
    if target == "file":
        assert (tmp_path / "out").read_text() == text(1, 2)
    if target == "terminal":
        assert os.read(other, 4096).decode().replace("\r\n", "\n") == text(1, 2)
        os.close(other)


def test_what_a_broken_sink_was_owed_comes_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        clock.mono()
        api = Api(clock)
        config: Any = config_of(items_source())
        sink = ListSink()
        sink.broken = 10**9
        async with running(tmp_path / "s", config, clock, api.transport, sink):
            await wait(clock, 1)
            api.items = [{"id": number} for number in range(10)]
            await wait(clock, 60)
        assert sink.lines == []
        sink.broken = 0
        async with running(tmp_path / "s", config, clock, api.transport) as engine:
            await wait(clock, 10)
            assert "10 deliveries are owed to list, which is not configured: kept until it is again" in [
                event.text for event in engine.events(0)[0]
            ]
        async with running(tmp_path / "s", config, clock, api.transport, sink) as engine:
            assert engine.snapshot().sinks == ()
            await wait(clock, 10)
            assert engine.snapshot().sinks[0].owed == 0
        assert len(sink.ids) == 10
        assert repeated(sink.ids) == []

    run(scenario)
