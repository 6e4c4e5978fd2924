"""A recording: read whole or refused with every fault, then played as if it happened now."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from engine.demo import Demo, Tape
from engine.demo.market import Query, Row
from engine.errors import ConfigError
from tests.engine.demo.demo_support import DAY_ZERO, HandClock, client_of, fills, in_virtual_time, json_lines, tape_row

if TYPE_CHECKING:
    from pathlib import Path


def tape(rows: list[dict[str, Any]], **options: Any) -> Tape:
    return Tape(rows, DAY_ZERO, random.Random(1), **options)


def load(path: Path) -> Tape:
    return Tape.load(path, DAY_ZERO, random.Random(1))


def test_rows_are_restamped_to_the_second_in_which_they_play() -> None:
    rows = [tape_row(1_000_000 + 100 * step) for step in range(10)]
    played = tape(rows, speed=50, history=0.2, delays=(0, 0)).appearances()
    # Two rows of history; the third plays at the start, the others two seconds apart.
    assert [each.row["timestamp"] for each in played] == [int(DAY_ZERO) + 2 * step for step in range(-2, 8)]
    assert [each.row["transaction_hash"] for each in played] == [row["transaction_hash"] for row in rows]
    assert all(list(each.row) == list(Row.__annotations__) for each in played)
    assert rows[0]["timestamp"] == 1_000_000


def test_without_a_speed_the_tape_lasts_ten_minutes() -> None:
    long = tape([tape_row(1_000_000 + 1000 * step) for step in range(601)], history=0)
    assert long.speed == 1000
    assert DAY_ZERO + 599 <= long.ends <= DAY_ZERO + 603


def test_history_is_there_at_the_start_and_the_rest_is_not() -> None:
    demo = tape([tape_row(1_000_000 + step) for step in range(100)], speed=1, history=0.3, delays=(1, 2))
    at_start = demo.visible(DAY_ZERO)
    assert len(at_start) == 30
    assert max(row["timestamp"] for row in at_start) == int(DAY_ZERO) - 1


def test_every_row_appears_after_its_own_seeded_delay() -> None:
    rows = [tape_row(1_000_000 + step) for step in range(300)]
    seen = tape(rows, speed=1, history=0).appearances()
    delays = [each.visible_at - each.anchor.timestamp for each in seen]
    assert min(delays) >= 0
    assert 2.5 < max(delays) <= 3
    assert any(later.anchor < earlier.anchor for earlier, later in itertools.pairwise(seen))
    assert seen == tape(rows, speed=1, history=0).appearances()
    assert seen != Tape(rows, DAY_ZERO, random.Random(2), speed=1, history=0).appearances()
    for each in seen[::40]:
        demo = tape(rows, speed=1, history=0)
        assert each.row not in demo.visible(each.visible_at - 1e-6)
        assert each.row in demo.visible(each.visible_at)


def test_file_order_is_the_sequence_among_rows_of_one_second() -> None:
    rows = [tape_row(1_000_000, transaction_hash=name) for name in ("0xc", "0xa", "0xb")]
    shown = tape(rows, delays=(0, 0)).visible(DAY_ZERO + 10)
    assert [row["transaction_hash"] for row in shown] == ["0xb", "0xa", "0xc"]


def test_a_recording_out_of_order_plays_in_the_order_of_its_times() -> None:
    rows = [tape_row(1_000_000 + step) for step in (5, 3, 4, 0, 1, 2)]
    stamps = [row["timestamp"] for row in tape(rows, speed=1).visible(DAY_ZERO + 100)]
    assert stamps == sorted(stamps, reverse=True)
    assert len(stamps) == 6


def test_a_wallet_is_found_whatever_its_case() -> None:
    rows = [tape_row(1_000_000, proxy_wallet="0x" + "Ab" * 20)]
    assert len(tape(rows).page(DAY_ZERO + 10, Query(user="0x" + "ab" * 20), 10).rows) == 1


def test_a_broken_line_is_named_with_file_line_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    good = tape_row(1_000_000)
    lines = [
        json.dumps(good),
        "{not json",
        "[]",
        "",
        json.dumps({name: value for name, value in good.items() if name != "price"}),
        json.dumps(good | {"timestamp": "yesterday"}),
        json.dumps(good | {"size": float("nan")}),
        json.dumps(good | {"side": "HOLD"}),
        json.dumps(good | {"timestamp": 10**15}),
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n" + b"[" * 100_000)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert [problem.removeprefix(f"{path}:") for problem in caught.value.problems] == [
        "2: not JSON: Expecting property name enclosed in double quotes at column 2",
        "3: not a JSON object",
        "5: price: Field required",
        "6: timestamp: Input should be a valid integer",
        "7: not JSON: NaN is not a number",
        "8: side: Input should be 'BUY' or 'SELL'",
        "9: timestamp: Input should be less than or equal to 253402300799",
        "10: not UTF-8",
        "11: not JSON: nested too deeply",
    ]


def test_at_most_twenty_problems_are_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("?\n" * 100)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert len(caught.value.problems) == 20


@pytest.mark.parametrize("kind", ["missing", "folder", "empty"])
def test_a_file_without_rows_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tape.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_text("\n\n")
    with pytest.raises(ConfigError, match=r"tape\.jsonl: (not a file|cannot be read)|tape\.jsonl:1: holds no rows"):
        load(path)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        tape([tape_row(1_000_000)], speed=speed)


def test_v1_rows_are_served_as_recorded_in_slices(tmp_path: Path) -> None:
    rows = [
        {"proxyWallet": "0xa", "transactionHash": f"0x{n:x}", "timestamp": 1_725_000_000 - n, "odd": None}
        for n in range(60)
    ]
    path = tmp_path / "v1.jsonl"
    path.write_text(json_lines(rows))
    demo = Demo(tape=path, clock=HandClock())
    slices: list[list[dict[str, Any]]] = []

    async def main() -> None:
        async with client_of(demo.app) as client:
            for _ in range(5):
                slices.append((await client.get("/records")).json())
            assert (await client.get("/v2/trades")).json()["data"] == []

    in_virtual_time(main)
    assert slices[0] + slices[1] + slices[2] == rows
    assert [len(each) for each in slices] == [25, 25, 10, 10, 10]
    assert slices[2] == slices[3] == slices[4]


def test_a_v2_tape_is_served_on_both_paths_once_each(tmp_path: Path) -> None:
    rows = [tape_row(1_000_000 + step, title="\ud800 lone surrogate") for step in range(10)]
    path = tmp_path / "v2.jsonl"
    path.write_text(json_lines(rows))
    clock = HandClock()
    demo = Demo(tape=path, tape_speed=1, clock=clock)
    clock.now = 100

    async def main() -> None:
        async with client_of(demo.app) as client:
            served = (await client.get("/v2/trades?limit=1000")).json()["data"]
            assert fills(served) == fills(demo.market.visible(clock.wall()))
            assert len(served) == 10
            assert (await client.get("/records")).json() == rows

    in_virtual_time(main)
