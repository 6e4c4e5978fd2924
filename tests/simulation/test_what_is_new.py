"""Promise P5, a whole engine in virtual time: a record is acted on once, through all that a night can bring."""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import text
from engine.errors import StoreError
from engine.snapshot import EvictScope
from engine.store import ReadCommit, Store
from tests.support.engines import (
    OTHER,
    WALLET,
    Api,
    ListSink,
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

DAY = 86_400.0


class World:
    """A clock, an API and a sink, as most scenarios start with."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "state"
        self.clock = VirtualClock()
        self.clock.mono()
        self.api = Api(self.clock)
        self.sink = ListSink()

    def engine(self, config: Any, *sinks: Any, **options: Any) -> Any:
        return running(self.folder, config, self.clock, self.api.transport, *(sinks or (self.sink,)), **options)

    async def wait(self, seconds: float) -> None:
        await wait(self.clock, seconds)

    @property
    def acted(self) -> list[Any]:
        """What was acted on: the ids of items, or the last digits of the transactions."""
        return [row["id"] if "id" in row else int(row["transaction_hash"], 16) for row in self.sink.payloads]


def items(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in numbers]


# A page goes on serving old records long after any window.


@pytest.mark.parametrize("timed", [False, True])
def test_a_page_that_stays_the_same_for_a_day_is_acted_on_once(tmp_path: Path, timed: bool) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        source = items_source(poll_interval_seconds=60.0, **({"time": "t"} if timed else {}))
        world.api.items = [{"id": 0, "t": world.api.now - 100}]
        async with world.engine(config_of(source, dedup_window_seconds=90.0)) as engine:
            await world.wait(70)
            world.api.items = [{"id": number, "t": world.api.now - number} for number in range(1, 21)]
            await world.wait(DAY)
            assert sorted(world.acted) == list(range(1, 21))
            assert engine.snapshot().windows[0].evicted_early == 0
            assert engine.summary()["requests"] > 1400

    run(scenario)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("gap", ["cool-down", "pause", "restart", "crash", "errors", "suspend"])
def test_a_window_of_five_seconds_over_two_minutes_without_a_poll(tmp_path: Path, gap: str, timed: bool) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        source = items_source(poll_interval_seconds=1.0, **({"time": "t"} if timed else {}))
        config = config_of(source, dedup_window_seconds=5.0, lateness_seconds=10.0)
        world.api.items = [{"id": 0, "t": world.api.now}]
        async with world.engine(config, kill=gap == "crash") as engine:
            await world.wait(2.5)
            world.api.items = [{"id": number, "t": world.api.now} for number in (1, 2, 3)]
            await world.wait(2)
            assert sorted(world.acted) == [1, 2, 3]
            match gap:
                case "cool-down":
                    world.api.faults.append(httpx.Response(429, headers={"retry-after": "120"}))
                    await world.wait(119)
                    assert engine.snapshot().cooldowns
                case "pause":
                    await engine.pause("test")
                    await world.wait(120)
                    await engine.resume("test")
                case "errors":
                    world.api.broken_paths["/items"] = lambda: httpx.Response(500)
                    await world.wait(120)
                    world.api.broken_paths.clear()
                case "suspend":
                    world.clock.suspend(120)
            await world.wait(60 if gap != "crash" else 0)
        if gap in ("restart", "crash"):
            await world.wait(120)
            async with world.engine(config):
                await world.wait(60)
        world_after = sorted(world.acted)
        assert world_after == [1, 2, 3]
        # And it is still awake.
        async with world.engine(config):
            world.api.items = [*world.api.items, {"id": 4, "t": world.api.now}]
            await world.wait(3)
        assert sorted(world.acted) == [1, 2, 3, 4]

    run(scenario)


def test_a_key_without_a_time_is_new_again_once_it_was_gone_for_a_window(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(poll_interval_seconds=5.0), dedup_window_seconds=60.0)
        async with world.engine(config):
            await world.wait(1)
            world.api.items = items(1)
            await world.wait(300)
            assert world.acted == [1]
            # Gone from t; the first good read without it is at most 5 s later, and the window runs from there.
            world.api.items = []
            await world.wait(50)
            world.api.items = items(1)
            await world.wait(300)
            assert world.acted == [1]
            world.api.items = []
            await world.wait(70)
            world.api.items = items(1)
            await world.wait(300)
            assert world.acted == [1, 1]

    run(scenario)


@pytest.mark.parametrize("reboot", [False, True])
def test_a_window_runs_on_over_a_restart(tmp_path: Path, reboot: bool) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(), dedup_window_seconds=60.0)
        async with world.engine(config):
            await world.wait(1)
            world.api.items = items(1)
            await world.wait(10)
            world.api.items = []
            await world.wait(20)
        if reboot:
            world.clock.boot_id = "boot-2"
        async with world.engine(config):
            await world.wait(20)
            world.api.items = items(1)
            await world.wait(10)
            assert world.acted == [1]
            world.api.items = []
            await world.wait(10)
        await world.wait(60)
        async with world.engine(config):
            world.api.items = items(1)
            await world.wait(10)
        assert world.acted == [1, 1]

    run(scenario)


def test_failed_reads_do_not_let_a_window_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(), dedup_window_seconds=10.0)
        async with world.engine(config):
            await world.wait(1)
            world.api.items = items(1)
            await world.wait(10)
            world.api.broken_paths["/items"] = lambda: httpx.Response(200, text="<html>maintenance</html>")
            await world.wait(600)
            world.api.broken_paths.clear()
            await world.wait(60)
            assert world.acted == [1]

    run(scenario)


# Late and early times.


def test_late_within_the_lateness_is_new_and_beyond_it_is_history(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(trades_source(), lateness_seconds=60.0)
        world.api.add(trade(0, world.api.now))
        async with world.engine(config) as engine:
            await world.wait(100)
            world.api.add(trade(1, world.api.now))
            await world.wait(10)
            world.api.add(trade(2, world.api.now - 50), trade(3, world.api.now - 75))
            await world.wait(600)
            assert world.acted == [1, 2]
            assert engine.summary()["history"] > 0

    run(scenario)


def test_a_record_stamped_before_the_start_is_new_within_the_lateness(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        world.api.add(trade(1, world.api.now - 20), after=7.0)
        async with world.engine(config_of(trades_source())):
            await world.wait(30)
            assert world.acted == [1]

    run(scenario)


def test_older_than_max_age_is_recorded_and_not_delivered(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(trades_source(), lateness_seconds=600.0, max_age_seconds=120.0)
        world.api.add(trade(0, world.api.now))
        async with world.engine(config) as engine:
            await world.wait(300)
            world.api.add(trade(1, world.api.now - 110), trade(2, world.api.now - 130))
            await world.wait(60)
            assert world.acted == [1]
            assert (engine.summary()["signals"], engine.summary()["late"]) == (2, 1)
            assert [view.late for view in engine.snapshot().signals] == [False, True]
            assert [view.owed for view in engine.snapshot().sinks] == [0]

    run(scenario)


def test_a_row_from_the_future_hides_nothing_and_costs_no_walk(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 10
        world.api.add(*(trade(number, world.api.now - 100 + number) for number in range(50)))
        world.api.add(trade(99, world.api.now + 3600))
        async with world.engine(config_of(trades_source(), lateness_seconds=60.0)) as engine:
            await world.wait(31)
            # The first read went down to the newest true row minus the lateness: nothing of it is acted on later.
            assert world.acted == []
            world.api.add(trade(100, world.api.now))
            await world.wait(30)
            assert world.acted == [100]
            snapshot = engine.snapshot()
            assert snapshot.quarantined == 1
            assert snapshot.sources[0].gaps == 0
            assert [text for text in texts(engine) if "future" in text] == [
                "trades/feed: 1 bad records quarantined: its time is in the future"
            ]
            # Once its time has come it is a record like any other.
            await world.wait(3600)
            assert world.acted == [100, 99]

    run(scenario)


def test_a_row_from_the_future_in_the_middle_of_a_page_costs_no_walk(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(time="t"))
        offsets = {1: 0, 9: 900, 2: -90}
        world.api.items = [{"id": name, "t": world.api.now + offset} for name, offset in offsets.items()]
        async with world.engine(config) as engine:
            await world.wait(60)
            assert engine.snapshot().sources[0].gaps == 0
            assert engine.snapshot().quarantined == 1

    run(scenario)


# The first read.


def test_the_first_read_only_remembers(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 20
        world.api.add(*(trade(number, world.api.now - 3 * number) for number in range(200)))
        async with world.engine(config_of(trades_source())) as engine:
            await world.wait(300)
            assert world.acted == []
            assert engine.summary()["signals"] == 0
            # Down to newest minus lateness, and not to the end: page 2 holds the first older row.
            assert len([url for at, url in world.api.log if at < 1004.0]) == 2

    run(scenario)


def test_lookback_acts_on_the_first_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(*(trade(number, world.api.now - 10 * number) for number in range(60)))
        config = config_of(trades_source(), start="lookback")
        async with world.engine(config):
            await world.wait(60)
        # Newest last; down to newest minus lateness, however much a page holds.
        assert world.acted == list(range(6, -1, -1))
        async with world.engine(config) as engine:
            await world.wait(60)
            assert engine.summary()["signals"] == 0

    run(scenario)


# Identical rows.


def test_identical_rows_are_two_fills_over_many_polls(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now - 100))
        async with world.engine(config_of(trades_source())):
            await world.wait(1)
            world.api.add(trade(1, world.api.now), trade(1, world.api.now))
            await world.wait(20)
            assert world.acted == [1, 1]
            # The index adds a third one later.
            world.api.add(trade(1, world.api.now - 20))
            await world.wait(400)
            assert world.acted == [1, 1, 1]
            assert len(set(world.sink.ids)) == 3

    run(scenario)


def test_identical_rows_split_over_two_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now - 300))
        world.api.page_rows = 2
        async with world.engine(config_of(trades_source(), lateness_seconds=30.0)):
            await world.wait(1)
            now = world.api.now
            world.api.add(*[trade(1, now)] * 3, trade(2, now + 1))  # page 1: 2 1, page 2: 1 1
            await world.wait(20)
            assert sorted(world.acted) == [1, 1, 1, 2]
            world.api.add(trade(3, world.api.now), trade(4, world.api.now))  # now: 4 3, 2 1, 1 1
            await world.wait(100)
            assert sorted(world.acted) == [1, 1, 1, 2, 3, 4]
            assert repeated(world.sink.ids) == []

    run(scenario)


# Sources that share a namespace.


def test_what_a_new_stream_only_remembers_another_still_acts_on(tmp_path: Path) -> None:
    """A wallet is added beside the feed while the engine is down: its first read must not swallow what came then."""

    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(1, world.api.now))
        feed = trades_source("feed")
        wallet = trades_source("wallet", wallets=[WALLET])
        async with world.engine(config_of(feed)):
            await world.wait(12)
        world.api.add(trade(2, world.api.now))
        # The wallet reads first: the feed finds its host failing, once.
        world.api.faults.append(httpx.Response(500))
        async with world.engine(config_of(feed, wallet), seed=3):
            await world.wait(30)
            world.api.add(trade(3, world.api.now))
            await world.wait(300)
        async with world.engine(config_of(wallet)):
            await world.wait(12)
        assert sorted(world.acted) == [2, 3]

    run(scenario)


def test_what_a_first_read_remembers_is_not_acted_on_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(*(trade(number, world.api.now - number) for number in range(5)))
        async with world.engine(config_of(trades_source()), kill=True):
            await world.wait(2)
        async with world.engine(config_of(trades_source())):
            await world.wait(12)
            world.api.add(trade(9, world.api.now))
            await world.wait(300)
        assert world.acted == [9]

    run(scenario)


def test_an_empty_first_answer_makes_no_old_record_new(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        async with world.engine(config_of(trades_source())):
            await world.wait(2)
            world.api.add(trade(1, world.api.now - 200), trade(2, world.api.now - 50))
            await world.wait(30)
        assert world.acted == [2], "one is older than the start by more than the lateness"

    run(scenario)


_TWO = (trades_source("feed"), trades_source("whales", wallets=[WALLET]))


def test_two_sources_meet_a_record_at_the_same_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        async with world.engine(config_of(*_TWO, min_interval_seconds=0.0, default_rate="10000/1s")) as engine:
            await world.wait(12)
            for number in range(1, 30):
                world.api.add(trade(number, world.api.now))
                await world.wait(5)
            assert world.acted == list(range(1, 30))
            assert engine.snapshot().windows[0].claims == 0

    run(scenario)


def test_if_the_first_commit_fails_the_other_source_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        real = Store.commit
        failed: list[str] = []
        written: list[str] = []

        async def commit(self: Store, read: ReadCommit) -> tuple[int, int]:
            # Slow enough for the other source to meet the claim of the first.
            await world.wait(2.0)
            if read.signals and not failed:
                failed.append(read.stream)
                raise StoreError("disk full")
            if read.signals:
                written.append(read.stream)
            return await real(self, read)

        monkeypatch.setattr(Store, "commit", commit)
        async with world.engine(config_of(*_TWO, default_rate="10000/1s")) as engine:
            await world.wait(12)
            world.api.add(trade(1, world.api.now))
            await world.wait(30)
            assert world.acted == [1]
            assert len(failed) == 1
            assert set(written).isdisjoint(failed)
            assert any("disk full" in text for text in texts(engine))

    run(scenario)


def test_a_stalled_stream_does_not_act_on_what_another_acted_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now), trade(1, world.api.now, OTHER))
        mirror = trades_source("mirror", base_url="http://mirror.example")
        stalled = [False]
        ours = world.api

        async def both(request: httpx.Request) -> httpx.Response:
            if request.url.host == "mirror.example" and stalled[0]:
                return httpx.Response(503)
            return await ours(request)

        config = config_of(trades_source("feed"), mirror, dedup_window_seconds=30.0, backoff={"cap_seconds": 5.0})
        async with running(world.folder, config, world.clock, httpx.MockTransport(both), world.sink) as engine:
            await world.wait(10)
            stalled[0] = True
            for number in range(10, 30):
                world.api.add(trade(number, world.api.now))
                await world.wait(60)
            stalled[0] = False
            await world.wait(300)
            assert world.acted == list(range(10, 30))
            # What both have read past is let go.
            assert engine.snapshot().windows[0].held <= 5

    run(scenario)


def test_a_dead_stream_does_not_make_the_others_hold_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        mirror = trades_source("mirror", base_url="http://mirror.example")

        async def both(request: httpx.Request) -> httpx.Response:
            return httpx.Response(404) if request.url.host == "mirror.example" else await world.api(request)

        config = config_of(trades_source("feed"), mirror, start="lookback", max_entries=100, lateness_seconds=10.0)
        async with running(world.folder, config, world.clock, httpx.MockTransport(both), world.sink) as engine:
            for number in range(1, 160):
                world.api.add(trade(number, world.api.now))
                await world.wait(20)
            assert world.acted == list(range(160))
            assert engine.snapshot().windows[0].entries <= 100
            assert len(engine._states["feed/feed"].held) <= 101
            assert any("the window is full" in text for text in texts(engine))

    run(scenario)


# Pages.


def test_a_burst_larger_than_a_page_is_walked(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 10
        world.api.add(trade(0, world.api.now - 100))
        async with world.engine(config_of(trades_source(max_pages=20))) as engine:
            await world.wait(1)
            world.api.add(*(trade(number, world.api.now) for number in range(1, 151)))
            await world.wait(30)
            assert world.acted == list(range(1, 151))
            assert engine.snapshot().sources[0].gaps == 0

    run(scenario)


def test_a_walk_to_max_pages_is_a_counted_gap(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 10
        world.api.add(trade(0, world.api.now - 100))
        async with world.engine(config_of(trades_source(max_pages=3), lateness_seconds=2.0)) as engine:
            await world.wait(1)
            world.api.add(*(trade(number, world.api.now) for number in range(1, 101)))
            await world.wait(4.5)
            assert world.acted == list(range(71, 101))
            assert engine.snapshot().sources[0].gaps == 1
            world.api.add(trade(200, world.api.now + 2))
            await world.wait(5)
            assert world.acted[-1] == 200
            assert any("may be missing" in text for text in texts(engine))

    run(scenario)


def test_a_single_page_that_shares_nothing_with_the_one_before_is_a_gap(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = items(1, 2, 3)
        async with world.engine(config_of(items_source())) as engine:
            await world.wait(6)
            world.api.items = items(2, 3, 4)
            await world.wait(5)
            assert engine.snapshot().sources[0].gaps == 0
            world.api.items = items(7, 8, 9)
            await world.wait(5)
            assert engine.snapshot().sources[0].gaps == 1
            assert sorted(world.acted) == [4, 7, 8, 9]

    run(scenario)


def test_a_repeated_cursor_ends_the_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        page = {"data": [trade(1, world.api.now)], "pagination": {"has_more": True, "next_cursor": "same"}}
        world.api.broken_paths["/v2/trades"] = lambda: httpx.Response(200, json=page)
        async with world.engine(config_of(trades_source(max_pages=1000))) as engine:
            await world.wait(4)
            assert len(world.api.log) == 2
            assert "repeats a page cursor" in engine.snapshot().sources[0].reason

    run(scenario)


# Faults.


def test_a_failing_source_stops_no_other_and_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        # What the server says of a failure may differ each time; it is told once all the same.
        world.api.broken_paths["/bad"] = lambda: httpx.Response(500, text=f"oops {len(world.api.log)}")
        bad = items_source("bad", url="http://api.example/bad", poll_interval_seconds=1.0)
        config = config_of(bad, items_source("good"), backoff={"base_seconds": 1.0, "cap_seconds": 20.0})
        async with world.engine(config) as engine:
            await world.wait(400)
            snapshot = engine.snapshot()
            assert [source.state for source in snapshot.sources] == ["failing", "live"]
            assert snapshot.sources[0].reason.startswith("HTTP 500 (http://api.example/bad): oops ")
            assert snapshot.sources[1].reads >= 80
            times = [at for at, url in world.api.log if url.path == "/bad"]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            # The beat while the draw is below it, then full jitter up to the cap.
            # (The default rate, shared with the other source, may set back the very first poll.)
            assert gaps[0] == pytest.approx(1.0, abs=0.15)
            assert max(gaps) > 8.0
            assert all(gap <= 21.0 for gap in gaps)
            assert len({round(gap, 3) for gap in gaps[5:]}) > len(gaps[5:]) // 2
            assert len([text for text in texts(engine) if "HTTP 500" in text]) == 1
            world.api.broken_paths.clear()
            await world.wait(30)
            assert engine.snapshot().sources[0].state == "live"
            assert any("reads again after" in text for text in texts(engine))

    run(scenario)


def test_the_first_wait_after_a_failure_is_at_most_the_base(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        source = items_source(poll_interval_seconds=0.5)
        config = config_of(source, default_rate="10000/1s", backoff={"base_seconds": 4.0, "cap_seconds": 64.0})
        async with world.engine(config):
            waits = []
            for _ in range(25):
                world.api.faults.append(httpx.Response(500))
                await world.wait(0.51)
                before = len(world.api.log)
                failed_at = world.api.log[-1][0]
                await world.wait(9)
                waits.append(world.api.log[before][0] - failed_at)
            assert max(waits) <= 4.6
            assert max(waits) > 2.5

    run(scenario)


def test_a_bad_record_is_quarantined_once_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        async with world.engine(config_of(items_source(time="t"))) as engine:
            await world.wait(1)
            now = world.api.now
            huge = int("9" * 400)
            world.api.items = [
                {"id": 1, "t": now},
                {"id": 1.5, "t": now},
                {"t": now},
                {"id": 2, "t": "\ud800"},
                {"id": 3, "t": huge},
                "nonsense",
                {"id": 4, "t": now},
            ]
            await world.wait(60)
            assert sorted(world.acted) == [1, 4]
            snapshot = engine.snapshot()
            assert snapshot.quarantined == 5
            assert snapshot.sources[0].state == "live"
            assert len([text for text in texts(engine) if "quarantined" in text]) == 1

    run(scenario)


def test_a_page_of_only_bad_records_is_drift(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        async with world.engine(config_of(items_source())) as engine:
            await world.wait(1)
            world.api.items = [{"ident": 1}, {"ident": 2}]
            await world.wait(20)
            source = engine.snapshot().sources[0]
            assert source.state == "failing"
            why = "every record of a page is bad: id `id` finds nothing, not text or a whole number (2 records)"
            assert source.reason == why
            assert engine.snapshot().quarantined == 0
            assert [event.level for event in engine.events(0)[0]][-1] == "error"

    run(scenario)


def test_429_is_no_empty_page_and_pages_wait_under_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 5
        world.api.add(trade(0, world.api.now - 100))
        async with world.engine(config_of(trades_source())) as engine:
            await world.wait(1)
            world.api.add(*(trade(number, world.api.now) for number in range(1, 13)))
            for _ in range(2):
                world.api.faults.append(httpx.Response(429, headers={"retry-after": "30"}, text="<html>"))
            await world.wait(200)
            assert world.acted == list(range(1, 13))
            assert engine.snapshot().sources[0].failures == 0

    run(scenario)


# A config that changes.


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        ({"id": ["id"]}, {"id": ["id", "n"]}, True),
        ({"id": ["id"], "time": "t"}, {"id": ["id", "n"], "time": "t"}, True),
        ({"time": "t"}, {}, True),
        ({"url": "http://api.example/items"}, {"url": "http://api.example/other"}, True),
        ({"time": "t", "url": "http://api.example/items"}, {"time": "t", "url": "http://api.example/other"}, False),
        ({}, {}, False),
    ],
)
def test_another_identity_begins_as_on_a_first_start(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], anew: bool
) -> None:
    """Under another identity nothing that is known is known: all that is served would be acted on again."""

    async def scenario() -> None:
        world = World(tmp_path)
        async with world.engine(config_of(items_source(**before))):
            await world.wait(1)
            world.api.items = [{"id": number, "n": -number, "t": world.api.now} for number in range(5)]
            await world.wait(10)
            assert sorted(world.acted) == list(range(5))
        async with world.engine(config_of(items_source(**after))) as engine:
            await world.wait(1)
            assert sorted(world.acted) == list(range(5))
            assert any("begins as on a first start" in text for text in texts(engine)) == anew
            world.api.items.append({"id": 9, "n": 9, "t": world.api.now})
            await world.wait(10)
            assert world.acted[5:] == [9]
        async with world.engine(config_of(items_source(**after))) as engine:
            await world.wait(10)
            assert world.acted[6:] == []
            assert not any("begins as on a first start" in text for text in texts(engine))

    run(scenario)


# The window's bound.


def test_a_window_too_small_for_pages_without_times_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = items(*range(51))
        async with world.engine(config_of(items_source(), max_entries=100)) as engine:
            await world.wait(60)
            assert "set it to 102 or more" in engine.snapshot().sources[0].reason
        world.api.items = items(*range(50))
        async with world.engine(config_of(items_source(), max_entries=100)) as engine:
            await world.wait(60)
            world.api.items = items(*range(25, 75))
            await world.wait(60)
            assert sorted(world.acted) == list(range(50, 75))

    run(scenario)


def test_a_full_window_evicts_its_oldest_key_and_warns(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = items(0)
        config = config_of(items_source(), max_entries=20, dedup_window_seconds=DAY)
        async with world.engine(config) as engine:
            await world.wait(1)
            for number in range(1, 60):
                world.api.items = items(number, number + 1)
                await world.wait(5)
            assert world.acted == list(range(1, 61))
            await world.wait(60)
            view = engine.snapshot().windows[0]
            assert (view.entries, view.evicted_early) == (20, 41)
            assert any("the window is full: " in text and "raise max_entries" in text for text in texts(engine))

    run(scenario)


def test_a_key_pushed_out_while_served_is_acted_on_once_more_and_held_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(time="t"), max_entries=1000, dedup_window_seconds=20.0)
        async with world.engine(config) as engine:
            await world.wait(1)
            world.api.items = [{"id": 1, "t": world.api.now}]
            await world.wait(10)
            (key,) = engine._states["a"].held
            engine._window._held.pop(key)  # as a full window does
            await world.wait(600)
            assert world.acted == [1, 1]
            assert engine.snapshot().windows[0].held == 1

    run(scenario)


@pytest.mark.parametrize("timed", [False, True])
def test_force_evict_makes_the_next_sighting_act(tmp_path: Path, timed: bool) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(items_source(**({"time": "t"} if timed else {})), items_source("b"))
        async with world.engine(config) as engine:
            await world.wait(1)
            world.api.items = [{"id": number, "t": world.api.now} for number in (1, 2, 3)]
            await world.wait(10)
            assert sorted(world.acted) == [1, 1, 2, 2, 3, 3]
            one = next(json.loads(line) for line in world.sink.lines if json.loads(line)["key"] == ["a", 2, 0])
            preview = await engine.evict(EvictScope(kind="id", value=one["id"]), "ana", dry_run=True)
            assert (preview.ok, preview.count) == (True, 1)
            await world.wait(60)
            assert len(world.acted) == 6
            assert (await engine.evict(EvictScope(kind="id", value=one["id"]), "ana", expect=1)).count == 1
            await world.wait(60)
            assert world.acted[6:] == [2]
            assert (await engine.evict(EvictScope(kind="source", value="a"), "ana")).count == 3
            await world.wait(60)
            assert sorted(world.acted[7:]) == [1, 2, 3]
            assert (await engine.evict(EvictScope(kind="all"), "ana", expect=6)).count == 6
            await world.wait(60)
            assert sorted(world.acted[10:]) == [1, 1, 2, 2, 3, 3]
            assert not (await engine.evict(EvictScope(kind="all"), "ana", expect=5)).ok
            assert not (await engine.evict(EvictScope(kind="id", value="ab"), "ana")).ok
            assert not (await engine.evict(EvictScope(kind="source", value="c"), "ana")).ok
        async with world.engine(config):
            await world.wait(60)
        assert len(world.acted) == 16
        with sqlite3.connect(world.folder / "polltop.sqlite3") as db:
            assert [row[0] for row in db.execute("SELECT actor FROM audit WHERE verb = 'evict'")] == ["ana"] * 3
        db.close()

    run(scenario)


# Verbs and clocks.


def test_poll_now_reads_at_once_and_keeps_the_beat(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        async with world.engine(config_of(items_source(poll_interval_seconds=60.0))) as engine:
            await world.wait(20)
            assert (await engine.poll_now("a", "ana")).ok
            assert not (await engine.poll_now("b", "ana")).ok
            await world.wait(50)
            assert [round(at - 1000.0) for at, _ in world.api.log] == [0, 20, 60]

    run(scenario)


def test_a_paused_engine_sends_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.sink.broken = 1_000_000
        async with world.engine(config_of(items_source(), backoff={"cap_seconds": 2.0})) as engine:
            await world.wait(1)
            world.api.items = items(1, 2)
            await world.wait(20)
            assert world.sink.tries > 1
            assert engine.snapshot().sinks[0].owed == 2
            await engine.pause("ana")
            assert not (await engine.pause("bob")).ok
            assert not (await engine.poll_now("a", "bob")).ok
            sent, tries = len(world.api.log), world.sink.tries
            world.sink.broken = 0
            await world.wait(DAY)
            assert (len(world.api.log), world.sink.tries, world.acted) == (sent, tries, [])
            assert engine.snapshot().state == "paused"
            assert engine.snapshot().sources[0].next_poll is None
            await engine.resume("ana")
            assert not (await engine.resume("ana")).ok
            await world.wait(3)
            assert len(world.api.log) == sent + 1
            assert sorted(world.acted) == [1, 2]

    run(scenario)


def test_a_pause_in_the_middle_of_a_walk(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 10
        world.api.latency = 0.5
        world.api.add(trade(0, world.api.now - 100))
        async with world.engine(config_of(trades_source(max_pages=20), max_age_seconds=DAY)) as engine:
            await world.wait(1)
            world.api.add(*(trade(number, world.api.now) for number in range(1, 96)))
            await world.wait(6)
            await engine.pause("ana")
            await world.wait(1)
            sent = len(world.api.log)
            assert engine.snapshot().state == "paused"
            world.api.add(*(trade(number, world.api.now) for number in range(96, 101)))
            await world.wait(3600)
            assert len(world.api.log) == sent
            await engine.resume("ana")
            await world.wait(60)
            assert sorted(world.acted) == list(range(1, 101))

    run(scenario)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_steps_of_the_wall_clock_repeat_and_lose_nothing(tmp_path: Path, step: float, restart: bool) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        config = config_of(trades_source(), items_source(), dedup_window_seconds=30.0)
        world.api.add(trade(0, world.api.now))
        number = 0

        async def trading(rounds: int) -> None:
            nonlocal number
            for _ in range(rounds):
                number += 1
                world.api.add(trade(number, world.api.now))
                world.api.items = items(*range(1000 + number, 1005 + number))
                await world.wait(7)

        async with world.engine(config):
            await world.wait(1)
            await trading(10)
            if not restart:
                world.clock.step(step)
                await trading(10)
                world.clock.step(-step)
                await trading(10)
        if restart:
            world.clock.step(step)
            async with world.engine(config):
                await trading(10)
            if step < 0:
                world.clock.boot_id = "boot-2"
            async with world.engine(config):
                await trading(10)
        trades = [found for found in world.acted if found < 1000]
        assert trades == list(range(1, 31))
        assert repeated(world.sink.ids) == []
        assert {found for found in world.acted if found > 1000} >= set(range(1006, 1035))

    run(scenario)


def test_a_night_with_the_lid_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 50
        config = config_of(trades_source(max_pages=40), lateness_seconds=60.0)
        world.api.add(trade(0, world.api.now))
        async with world.engine(config) as engine:
            await world.wait(1)
            world.api.add(trade(1, world.api.now))
            await world.wait(10)
            start = world.api.now
            world.clock.suspend(8 * 3600.0)
            world.api.add(*(trade(number, start + 32 * number) for number in range(2, 900)))
            await world.wait(30)
            # All recorded; those from within max_age delivered.
            assert engine.summary()["signals"] == 899
            assert engine.snapshot().sources[0].gaps == 0
            assert repeated(world.sink.ids) == []
            recent = [number for number in range(2, 900) if start + 32 * number >= world.api.now - 340]
            assert set(world.acted) <= {1, *recent}
            assert world.acted[0] == 1
            assert world.acted[-1] == 899

    run(scenario)


def test_a_longer_lateness_after_a_restart_makes_nothing_new_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        async with world.engine(config_of(trades_source(), lateness_seconds=10.0, dedup_window_seconds=10.0)):
            for number in range(1, 20):
                await world.wait(10)
                world.api.add(trade(number, world.api.now))
            await world.wait(6)
        await world.wait(20)
        longer = config_of(trades_source(), lateness_seconds=250.0, dedup_window_seconds=10.0)
        async with world.engine(longer):
            await world.wait(300)
        assert world.acted == list(range(1, 20))

    run(scenario)


def test_a_source_taken_out_and_put_back_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.add(trade(0, world.api.now))
        both = config_of(trades_source(), items_source(), dedup_window_seconds=10.0)
        async with world.engine(both):
            await world.wait(1)
            world.api.add(trade(1, world.api.now))
            await world.wait(10)
        async with world.engine(config_of(items_source(), dedup_window_seconds=10.0)):
            world.api.add(trade(2, world.api.now))
            await world.wait(120)
        async with world.engine(both):
            await world.wait(30)
        assert world.acted == [1, 2]

    run(scenario)


# Bounds.


def test_nothing_grows_over_a_day(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.page_rows = 40
        config = config_of(trades_source(poll_interval_seconds=90.0), items_source(poll_interval_seconds=90.0))
        sizes = []
        world.api.add(trade(0, world.api.now))
        async with world.engine(config) as engine:
            for number in range(1, 24 * 20 + 1):
                world.api.rows = world.api.rows[-10:]
                world.api.add(trade(number, world.api.now), trade(number, world.api.now))
                world.api.items = items(*range(number, number + 30))
                await world.wait(180)
                if number % 20 == 0:
                    view = engine.snapshot().windows[0]
                    sizes.append(
                        (
                            view.held,
                            view.entries - view.held,
                            view.claims,
                            sum(len(state.held) for state in engine._states.values()),
                            len(engine._window._ageing),
                            sum(limit.queue for limit in engine.snapshot().limits),
                            len(engine.snapshot().signals),
                            len(await engine._store.keys(None)) < 200,
                        )
                    )
            # The first of each was there at the first read.
            assert len(world.acted) == 479 * 3
            most = [max(size[at] for size in sizes) for at in range(7)]
            assert most[0] == most[3] <= 34
            assert most[1] == most[4] <= 4
            assert (most[2], most[6]) == (0, 50)
            assert most[5] <= 2
            assert all(size[7] for size in sizes)

    run(scenario)


def test_a_page_of_the_future_only_is_no_good_read(tmp_path: Path) -> None:
    """Local times without a zone, say: nothing would ever be new, and nobody would know."""

    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = [{"id": number, "t": world.api.now + 7200} for number in range(3)]
        async with world.engine(config_of(items_source(time="t"))) as engine:
            await world.wait(30)
            source = engine.snapshot().sources[0]
            assert source.state == "failing"
            assert "a wrong clock, or local times without a zone?" in source.reason

    run(scenario)


def test_a_page_that_stays_as_its_first_read_saw_it_is_no_gap(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = [{"id": number, "t": world.api.now - number} for number in range(3)]
        async with world.engine(config_of(items_source(time="t"))) as engine:
            await world.wait(60)
            assert engine.snapshot().sources[0].gaps == 0
            assert engine.summary()["history"] + engine.summary()["duplicates"] == engine.summary()["records"]

    run(scenario)


def test_a_source_that_is_being_read_is_not_polled_once_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.latency = 3.0
        async with world.engine(config_of(items_source())) as engine:
            await world.wait(1)
            outcome = await engine.poll_now("a", "ana")
            assert (outcome.ok, outcome.text) == (False, "a is being read already")

    run(scenario)


def test_no_secret_of_a_pattern_is_on_the_screen(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        text.conceal("sup3rsecret-99")
        limits = [{"match": "http://api.example/items?key=sup3rsecret-99*", "rate": "600/60s"}]
        url = "http://api.example/items?key=sup3rsecret-99"
        world.api.faults.extend(httpx.Response(429) for _ in range(3))
        async with world.engine(config_of(items_source(url=url), limits=limits)) as engine:
            await world.wait(1)
            shown = engine.snapshot().model_dump_json()
            assert engine.snapshot().cooldowns
            assert engine.snapshot().sources[0].state == "throttled"
            await world.wait(60)
            shown += engine.snapshot().model_dump_json() + " ".join(texts(engine))
            assert "sup3rsecret" not in shown

    run(scenario)


def test_gaps_in_a_row_are_counted_each_and_said_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.api.items = items(0)
        async with world.engine(config_of(items_source())) as engine:
            await world.wait(2)
            for number in range(1, 7):
                world.api.items = items(number)
                await world.wait(5)
            assert engine.snapshot().sources[0].gaps == 6
            assert len([each for each in texts(engine) if "may be missing" in each]) == 1

    run(scenario)
