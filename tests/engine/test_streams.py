"""History, candidates, late arrivals and seeds, on single reads."""

from __future__ import annotations

import math

from engine.signals import Record, digest
from engine.streams import FUTURE_SECONDS, Sorted, StreamState, shared_floor, sort_out

NOW = 10_000.0
LATENESS = 60.0


def record(name: str, time: float | None) -> Record:
    return Record(("ns", name), time, name)


def state(watermark: float | None = None, *, seeded: bool = True, lateness: float = LATENESS) -> StreamState:
    floor = -math.inf if watermark is None else watermark - lateness
    return StreamState("s", "ns", seeded=seeded, watermark=watermark, floor=floor, read_at=watermark)


def sort(
    of: StreamState, *records: Record, act: bool = False, lateness: float = LATENESS, timed: bool = True
) -> Sorted:
    return sort_out(of, records, lateness=lateness, served_at=NOW, act=act, timed=timed)


def names(found: Sorted) -> list[object]:
    return [item.record.identity[1] for item in found.candidates]


def test_history_is_before_the_floor_and_candidates_from_it_on() -> None:
    served = record("new", 1010.0), record("late", 941.0), record("edge", 940.0), record("old", 939.9)
    found = sort(state(1000.0), *served)
    assert names(found) == ["edge", "late", "new"]
    assert found.history == 1
    assert (found.progress.watermark, found.progress.floor) == (1010.0, 950.0)
    assert not found.seeds


def test_the_watermark_never_goes_back() -> None:
    found = sort(state(1000.0), record("a", 990.0))
    assert (found.progress.watermark, found.progress.floor) == (1000.0, 940.0)
    found = sort(state(1000.0))
    assert (found.progress.watermark, found.progress.floor) == (1000.0, 940.0)


def test_the_floor_never_goes_back_when_the_lateness_grows() -> None:
    found = sort(state(1000.0), record("a", 1001.0), record("acted on long ago", 700.0), lateness=600.0)
    assert names(found) == ["a"]
    assert found.progress.floor == 940.0


def test_a_stream_without_a_watermark_has_no_history() -> None:
    found = sort(state(None), record("a", 1.0), record("b", NOW))
    assert names(found) == ["a", "b"]
    assert (found.progress.watermark, found.progress.floor) == (NOW, NOW - LATENESS)


def test_oldest_first_and_ties_as_they_happened() -> None:
    # Newest first is how it was served.
    found = sort(state(1000.0), record("d", 1003.0), record("c", 1002.0), record("b", 1002.0), record("a", 1001.0))
    assert names(found) == ["a", "b", "c", "d"]


def test_records_without_a_time_keep_their_order_and_move_nothing() -> None:
    found = sort(state(None), record("b", None), record("a", None), record("b", None))
    assert names(found) == ["b", "a"]
    assert found.repeats == 1
    assert found.progress.watermark is None
    assert found.progress.floor == -math.inf


def test_the_future_is_quarantined_and_no_watermark() -> None:
    limit = NOW + FUTURE_SECONDS
    found = sort(state(1000.0), record("far", limit + 0.1), record("near", limit), record("a", 1001.0))
    assert names(found) == ["a", "near"]
    assert found.progress.watermark == limit
    assert [(bad.reason, bad.raw) for bad in found.future] == [("its time is in the future", '"far"')]


def test_a_seed_remembers_down_to_newest_minus_lateness() -> None:
    records = record("new", 1000.0), record("edge", 940.0), record("old", 939.0)
    found = sort(state(seeded=False), *records)
    assert found.seeds
    assert names(found) == ["edge", "new"]
    assert found.history == 1
    assert (found.progress.watermark, found.progress.floor) == (1000.0, 940.0)
    looking_back = sort(state(seeded=False), *records, act=True)
    assert not looking_back.seeds
    assert names(looking_back) == ["edge", "new"], "no further, whatever a page holds"


def test_a_first_read_of_nothing_seeds_too() -> None:
    found = sort(state(seeded=False))
    assert found.seeds
    assert found.progress.watermark is None


def test_time_zero_is_a_time() -> None:
    found = sort(state(0.0), record("a", 0.0))
    assert names(found) == ["a"]
    assert found.progress.watermark == 0.0


def test_equal_counted_records_that_straddle_the_future_keep_their_numbers() -> None:
    twin = Record(("ns", "x"), 1001.0, "{}", counted=True)
    found = sort(state(1000.0), twin, record("far", NOW + 100), twin)
    assert [item.key for item in found.candidates] == [("ns", "x", 1), ("ns", "x", 0)]


def held(of: StreamState, *records: Record) -> StreamState:
    of.held = {digest((*item.identity, 0)): item.time for item in records}
    return of


def left(found: Sorted, of: StreamState, shared: float = math.inf, *, known: bool = True) -> set[str]:
    names_of = {digest(("ns", name, 0)): name for name in "abcdef"}
    return {names_of[key] for key in found.left(of, shared, lambda _key: known)}


def test_what_is_served_or_not_yet_history_stays_held() -> None:
    of = held(state(1000.0), record("a", 945.0), record("b", 955.0), record("c", 990.0))
    found = sort(of, record("new", 1010.0), record("c", 990.0))
    # The floor is 950 now: a is history, b is not served and may still come late, c is served.
    assert left(found, of) == {"a"}
    assert left(found, of, shared=946.0) == {"a"}
    assert left(found, of, shared=945.0) == set()
    assert left(found, of, shared=-math.inf) == set()


def test_records_without_a_time_leave_when_they_are_not_served() -> None:
    of = held(state(None), record("a", None), record("b", None))
    found = sort(of, record("b", None))
    assert left(found, of, shared=-math.inf) == {"a"}


def test_what_a_full_window_pushed_out_leaves() -> None:
    of = held(state(1000.0), record("a", 999.0), record("b", 998.0))
    found = sort(of, record("b", 998.0))
    assert left(found, of, known=False) == {"a"}


def test_the_shared_floor_is_that_of_the_stalest_stream() -> None:
    def stream(namespace: str, read_at: float | None, *, seeded: bool = True) -> StreamState:
        return StreamState("s", namespace, seeded=seeded, read_at=read_at)

    streams = [stream("x", 500.0), stream("x", 300.0), stream("y", 1.0), stream("x", None, seeded=False)]
    assert shared_floor(streams, "x", 60.0, act=False) == 240.0
    assert shared_floor(streams, "x", 60.0, act=True) == -math.inf
    assert shared_floor(streams, "z", 60.0, act=False) == math.inf
