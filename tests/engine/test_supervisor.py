"""The engine as a whole: its verbs, what a view sees of it, and how it stops."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from engine.clock import SystemClock
from engine.config import Config
from engine.demo import Demo
from engine.errors import StateHeldError, StoreError
from engine.snapshot import EvictScope
from engine.store import ReadCommit, StateFolder, Store
from engine.supervisor import Engine
from tests.support.engines import (
    OTHER,
    WALLET,
    Api,
    ListSink,
    StuckSink,
    config_of,
    items_source,
    repeated,
    running,
    texts,
    trade,
    trades_source,
    wait,
)
from tests.support.virtual import VirtualClock, run


def world() -> tuple[VirtualClock, Api, ListSink]:
    clock = VirtualClock()
    clock.mono()
    return clock, Api(clock), ListSink()


def test_verbs_say_what_they_did_and_become_events(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        async with running(tmp_path, config_of(items_source()), clock, api.transport, sink) as engine:
            await wait(clock, 1)
            api.items = [{"id": 1}, {"id": 2}]
            await wait(clock, 10)
            seq = engine.board.seq
            outcomes = [
                await engine.poll_now("a", "ana"),
                await engine.evict(EvictScope(kind="source", value="a"), "ana\x1b[2J", dry_run=True),
                await engine.evict(EvictScope(kind="source", value="a"), "ana", expect=2),
                await engine.pause("ana"),
                await engine.pause("bob"),
            ]
            await wait(clock, 61)
            outcomes += [await engine.resume("bob"), await engine.resume("bob")]
            assert [(outcome.ok, outcome.text, outcome.count) for outcome in outcomes] == [
                (True, "a: asked by ana to poll now", 1),
                (True, "would forget 2 identifiers of a", 2),
                (True, "2 identifiers of a forgotten by ana", 2),
                (True, "paused by ana; 0 in flight", 0),
                (False, "already paused by ana", 0),
                (True, "resumed by bob after 61 s", 0),
                (False, "not paused", 0),
            ]
            events, missed = engine.events(seq)
            assert missed == 0
            assert [(event.level, event.text) for event in events] == [
                ("info", "a: asked by ana to poll now"),
                ("warning", "2 identifiers of a forgotten by ana"),
                ("warning", "paused by ana; 0 in flight"),
                ("info", "resumed by bob after 61 s"),
            ]
            assert [event.seq for event in events] == list(range(seq + 1, seq + 5))
        with sqlite3.connect(tmp_path / "polltop.sqlite3") as db:
            assert list(db.execute("SELECT actor, verb FROM audit ORDER BY seq")) == [
                ("ana", "evict"),
                ("ana", "pause"),
                ("bob", "resume"),
            ]
        db.close()

    run(scenario)


def test_the_snapshot_in_each_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        folder = StateFolder(tmp_path, clock)
        store = Store(tmp_path, clock, inline=True)
        sources = items_source(), items_source("b", url="http://b.example/items")
        engine = Engine(config_of(*sources), store, clock=clock, sinks=[sink], inner=api.transport, origin="c.yaml")
        fresh = engine.snapshot()
        assert (fresh.state, fresh.sources, fresh.requests, fresh.config) == ("starting", (), 0, "c.yaml")
        api.latency = 0.5
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run)
            await wait(clock, 0.25)
            first = engine.snapshot()
            assert (first.state, first.in_flight, first.seq) == ("running", 2, 2)
            assert {source.state for source in first.sources} == {"starting"}
            assert all(source.reading and source.next_poll is None for source in first.sources)
            await wait(clock, 1)
            a = engine.snapshot().sources[0]
            assert (a.state, a.reason, a.reads, a.reading, a.latency, a.last_new) == ("live", "", 1, False, 0.5, None)
            assert a.next_poll == 1005.0
            assert a.last_ok == pytest.approx(1000.5)
            api.items = [{"id": "x", "side": "BUY", "size": 5, "price": 0.5, "outcome": "Yes", "title": "T\x1b[1m"}]
            await wait(clock, 5)
            live = engine.snapshot()
            assert (live.new, live.records, live.requests, live.responses) == (2, 2, 4, {"200": 4})
            assert [view.summary for view in live.signals] == ["BUY 5 @ 0.5 Yes T\ufffd[1m"] * 2
            assert live.sinks[0].delivered == 2
            assert sum(live.signals_per_minute) == 2
            assert (live.windows[0].entries, live.windows[0].held, live.windows[0].new) == (2, 2, 2)
            await wait(clock, 3.9)  # a read is under way
            await engine.pause("ana")
            assert engine.snapshot().state == "pausing"
            await wait(clock, 1)
            paused = engine.snapshot()
            assert (paused.state, paused.paused_by) == ("paused", "ana")
            assert [(s.state, s.reason, s.next_poll) for s in paused.sources] == [("paused", "by ana", None)] * 2
            await engine.resume("ana")
            api.faults.append(httpx.Response(429, headers={"retry-after": "20"}))
            await wait(clock, 5)
            states = sorted(source.state for source in engine.snapshot().sources)
            assert states == ["live", "throttled"]
            held = next(source for source in engine.snapshot().sources if source.state == "throttled")
            assert "429" in held.reason
            assert held.attempt == 1
            assert held.next_poll is not None
            assert held.next_poll - clock.mono() > 10, "whatever its beat says"
            api.faults.append(httpx.Response(404))
            await wait(clock, 5.5)
            failing = [source for source in engine.snapshot().sources if source.state == "failing"]
            assert len(failing) == 1
            assert failing[0].reason == f"HTTP 404 (http://{'api' if failing[0].name == 'a' else 'b'}.example/items)"
            assert failing[0].attempt >= 1
            await wait(clock, 5)  # a read may be under way
            api.latency = 0.5
            await engine.poll_now("a", "ana")
            await wait(clock, 0.1)
            engine.stop()
            await wait(clock, 0.1)
            assert engine.snapshot().state == "stopping"
        assert engine.snapshot().state == "stopped"
        assert {source.state for source in engine.snapshot().sources} == {"stopped"}
        assert texts(engine)[-1] == "stopped"
        store.close()
        folder.close()

    run(scenario)


def test_events_are_bounded_and_say_how_many_were_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, _ = world()
        async with running(tmp_path, config_of(items_source()), clock, api.transport) as engine:
            await wait(clock, 1)
            start = engine.board.seq
            for _ in range(600):
                await engine.poll_now("a", "ana")
            events, missed = engine.events(start)
            assert (len(events), missed) == (500, 100)
            assert engine.events(engine.board.seq) == ((), 0)

    run(scenario)


def test_a_full_disk_stops_neither_engine_nor_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tinyhumansai/openhuman#3909, victronenergy/venus#402: ten minutes of ENOSPC."""

    async def scenario() -> None:
        clock, api, sink = world()
        config = config_of(items_source(), backoff={"base_seconds": 1.0, "cap_seconds": 60.0})
        async with running(tmp_path, config, clock, api.transport, sink) as engine:
            await wait(clock, 1)
            store: Any = engine._store
            real = store._run
            broken = [True]

            async def failing(work: Any) -> Any:
                if broken[0]:
                    raise StoreError(f"{store.path}: database or disk is full")
                return await real(work)

            store._run = failing
            api.items = [{"id": 1}]
            before = len(api.log)
            await wait(clock, 600)
            assert engine.snapshot().state == "running"
            assert "disk is full" in engine.snapshot().sources[0].reason
            assert sink.lines == []
            assert len(api.log) - before < 60
            assert len([text for text in texts(engine) if text.startswith("a: ")]) == 1
            assert not (await engine.evict(EvictScope(kind="id", value="00" * 16), "ana")).ok
            assert not (await engine.evict(EvictScope(kind="all"), "ana")).ok
            assert (await engine.pause("ana")).ok
            assert engine.snapshot().state == "paused"
            assert (await engine.resume("ana")).ok
            assert any("not in the audit log" in text for text in texts(engine))
            broken[0] = False
            await wait(clock, 70)
            assert sink.payloads == [{"id": 1}]
            assert engine.snapshot().sources[0].state == "live"

    run(scenario)


def test_a_payload_that_cannot_be_read_again_is_shown_by_its_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        async with running(tmp_path, config_of(items_source()), clock, api.transport, sink) as engine:
            await wait(clock, 1)
            deep: Any = []
            for _ in range(900):
                deep = [deep]
            api.items = [{"id": number, "deep": deep if number == 1 else 0} for number in range(3)]
            await wait(clock, 20)
            assert len(engine.snapshot().signals) + engine.snapshot().quarantined == 3
            assert len(sink.lines) >= 2

    run(scenario)


# Stopping.


@pytest.mark.parametrize(
    "case", ["idle", "reading", "stuck sink", "broken sink", "cool-down", "queue", "paused", "at once"]
)
def test_it_stops_in_less_than_two_seconds(tmp_path: Path, case: str) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        if case == "stuck sink":
            sink = StuckSink()
        config = config_of(items_source(), default_rate="1/60s" if case == "queue" else "600/60s")
        folder = StateFolder(tmp_path, clock)
        store = Store(tmp_path, clock, inline=True)
        engine = Engine(config, store, clock=clock, sinks=[sink], rng=random.Random(1), inner=api.transport)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run)
            if case != "at once":
                await wait(clock, 2)
            api.items = [{"id": 1}]
            match case:
                case "reading":
                    api.latency = 20.0
                case "broken sink":
                    sink.broken = 10**9
                case "cool-down":
                    api.faults.append(httpx.Response(429, headers={"retry-after": "3600"}))
                case "paused":
                    await engine.pause("ana")
            await wait(clock, 0 if case == "at once" else 4)
            engine.stop()
            before = clock.mono()
        assert clock.mono() - before < 2.0
        assert engine.snapshot().state == "stopped"
        assert engine.snapshot().in_flight == 0
        store.close()
        folder.close()
        # What was owed or not read comes after the next start.
        api.latency, api.faults = 0.0, type(api.faults)()
        late = ListSink()
        async with running(tmp_path, config_of(items_source()), clock, api.transport, late):
            # A cool-down lasts, whoever was restarted meanwhile.
            await wait(clock, 3700 if case == "cool-down" else 30)
        assert len(sink.lines) + len(late.lines) == (0 if case == "at once" else 1)

    run(scenario)


def test_a_read_under_way_that_can_end_is_finished_and_delivered(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        api.latency = 0.5
        async with running(tmp_path, config_of(items_source()), clock, api.transport, sink):
            await wait(clock, 2)
            api.items = [{"id": 1}]
            await wait(clock, 3.2)
        assert sink.payloads == [{"id": 1}]

    run(scenario)


def test_stopping_at_two_hundred_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        rng = random.Random(7)
        api.latency = 0.1
        api.page_rows = 5
        api.add(trade(0, api.now), trade(1, api.now, OTHER))
        config = config_of(
            trades_source("feed", poll_interval_seconds=0.5, max_pages=200),
            trades_source("whales", wallets=[WALLET, OTHER], poll_interval_seconds=0.7, max_pages=200),
            dedup_window_seconds=5.0,
            lateness_seconds=3.0,
            min_interval_seconds=0.0,
            default_rate="10000/10s",
        )
        number, expected = 2, 0
        async with running(tmp_path, config, clock, api.transport, sink):
            await wait(clock, 5)
        for round_ in range(200):
            # As kill -9 does, each second time.
            async with running(tmp_path, config, clock, api.transport, sink, kill=round_ % 2 == 1, seed=round_):
                for _ in range(2):
                    twins = [trade(number, api.now, rng.choice([WALLET, OTHER]))] * rng.choice([1, 1, 2])
                    api.rows = [entry for entry in api.rows if entry[0] > api.now - 100]
                    api.add(*twins, after=rng.random())
                    expected += len(twins)
                    number += 1
                    await wait(clock, rng.uniform(0.0, 1.6))
        async with running(tmp_path, config, clock, api.transport, sink):
            await wait(clock, 30)
        with sqlite3.connect(tmp_path / "polltop.sqlite3") as db:
            ids = [row[0] for row in db.execute("SELECT id FROM signals")]
            assert db.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        db.close()
        assert repeated(ids) == []
        assert len(ids) == expected
        # At least once; with the same id.
        assert set(sink.ids) == set(ids)

    run(scenario)


def test_against_the_demo_everything_is_acted_on_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        clock.mono()
        demo = Demo("calm", clock=clock, seed=3)
        config = Config.model_validate({**demo.config("http://demo"), "max_age_seconds": 3600.0})
        sink = ListSink()
        transport = httpx.ASGITransport(app=demo.app)
        async with running(tmp_path, config, clock, transport, sink) as engine:
            await wait(clock, 5)
            started = clock.wall()
            await wait(clock, 20)
            await engine.pause("ana")
            await wait(clock, 40)
            await engine.resume("ana")
            await wait(clock, 20)
        async with running(tmp_path, config, clock, httpx.ASGITransport(app=demo.app), sink) as engine:
            await wait(clock, 20)
            ended = clock.wall() - 5
            assert engine.summary()["quarantined"] == 0
        assert repeated(sink.ids) == []
        wallets = {wallet for source in demo.config("http://demo")["sources"] for wallet in source.get("wallets", [])}
        due = [
            seen.row["transaction_hash"]
            for seen in demo.market.appearances(clock.wall())
            if started < seen.visible_at < ended and (seen.taker or seen.row["proxy_wallet"] in wallets)
        ]
        acted = [row["transaction_hash"] for row in sink.payloads]
        assert len(due) > 50
        for transaction in set(due):
            assert acted.count(transaction) >= due.count(transaction)

    run(scenario)


def test_a_ledger_that_cannot_be_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def restore(self: Store, *args: Any) -> Any:
        raise StoreError("no")

    monkeypatch.setattr(Store, "restore", restore)

    async def scenario() -> None:
        clock, api, _ = world()
        store = Store(tmp_path, clock, inline=True)
        with pytest.raises(StoreError):
            await Engine(config_of(items_source()), store, clock=clock, inner=api.transport).run()
        store.close()

    run(scenario)


def test_two_engines_on_one_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, api, _ = world()
        async with running(tmp_path, config_of(items_source()), clock, api.transport):
            with pytest.raises(StateHeldError):
                async with running(tmp_path, config_of(items_source()), clock, api.transport):
                    pass

    run(scenario)


def test_a_forced_eviction_while_the_record_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, api, sink = world()
        real = Store.commit

        async def commit(self: Store, read: ReadCommit) -> tuple[int, int]:
            if read.signals:
                await wait(clock, 2)
            return await real(self, read)

        monkeypatch.setattr(Store, "commit", commit)
        async with running(tmp_path, config_of(items_source()), clock, api.transport, sink) as engine:
            await wait(clock, 1)
            api.items = [{"id": 1}]
            await wait(clock, 5)
            (key,) = engine._window._claims
            assert (await engine.evict(EvictScope(kind="id", value=key.hex()), "ana")).count == 1
            await wait(clock, 60)
            assert sink.payloads == [{"id": 1}, {"id": 1}]
            assert engine.snapshot().windows[0].held == 1

    run(scenario)


# For real.


@contextmanager
def loopback(items: Sequence[Any]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = repr(list(items)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/items"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_over_a_real_server(tmp_path: Path, backend: str) -> None:
    items: list[Any] = [1, 2]

    async def scenario(url: str) -> None:
        clock = SystemClock()
        path = tmp_path / "out.jsonl"
        source = items_source(url=url, id=["@"], poll_interval_seconds=0.1)
        config = config_of(source, sinks=[{"type": "jsonl", "path": str(path)}], min_interval_seconds=0.0)
        for _ in range(2):
            async with running(tmp_path / "s", config, clock, None, inline=False) as engine:
                with anyio.fail_after(5):
                    while engine.snapshot().sources == () or engine.snapshot().sources[0].reads < 1:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                    items.append(len(items) + 1)
                    while not engine.snapshot().sinks[0].delivered:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
        assert [json.loads(line)["payload"] for line in path.read_text().splitlines()] == [3, 4]

    with loopback(items) as url:
        anyio.run(scenario, url, backend=backend)
