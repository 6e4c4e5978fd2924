"""Identity and lines: ids must never change between versions."""

from __future__ import annotations

import json

import pytest

from engine.signals import MAX_TIME, Named, Record, Signal, digest, name_all, rfc3339, to_json


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ((), "cae66941d9efbd404e4d88758ea67670"),
        (("a", 3, 0), "94a4306efe1cc5473edaae89415d2b34"),
        (("a", "3", 0), "d8f2c5badceaca95b7ceefb95feeeb6a"),
        (("a", True, 0), "f99d2212242a3e64e23f2137b267f869"),
        (("a", -1, 0), "e13b05cffd29f65f2d9a5ff9b786cab2"),
        (("a", 10**30, 0), "00cf752cb3b4c403880027ab39e75d11"),
        (("", "", 0), "ce25e38664a32b8e8ff1921924875a5b"),
        (("é", "\U0001f4c8", 0), "78914bb7e5eea8d838070f7d101af569"),
        (("\ud800", 0), "256d2cafc1ae6b5df39e0f58770116f7"),
        (
            (
                "polymarket.trade",
                "0xd6e5bb17fc754c3f27f1c3d1467e8e8650dfcd55229b2eba42e3d0b2be606d9f",
                "0xc912b737c263609cba9940d72ef98c5841f32ff7",
                "84757366440098301426530610616217983251057323529958745541991207115084628755708",
                "BUY",
                10294118,
                0,
            ),
            "5587862046b5d60c30822502c6a1fea5",
        ),
    ],
)
def test_ids_never_change(key: tuple[str | int | bool, ...], expected: str) -> None:
    assert digest(key).hex() == expected


def test_parts_are_told_apart_by_type_length_and_place() -> None:
    keys: list[tuple[str | int | bool, ...]] = [
        ("1",), (1,), (True,), ("True",), (False,), (0,), ("0",),
        ("a", "bc"), ("ab", "c"), ("abc",), ("", "abc"), ("abc", ""), ("a", "b", "c"),
        ("a", "s\0\0\0\1b"), ("as\0\0\0\1b",),
        (12, 3), (1, 23), (123,), (-1,), ("-1",),
        ("\ud800",), ("\ufffd",), ("?",), ("\udc00",), ("\ud83d\udcc8",), ("\U0001f4c8",),
        ("é",), ("e\u0301",), ("a\0",), ("a",),
    ]  # fmt: skip
    assert len({digest(key) for key in keys}) == len(keys)


def counted(*identity: str | int, time: float | None = None) -> Record:
    return Record(("ns", *identity), time, "{}", counted=True)


def numbers(named: list[Named]) -> list[tuple[object, ...]]:
    return [item.key[1:] for item in named]


def test_equal_counted_records_are_numbered_over_the_whole_read() -> None:
    named = name_all([counted("x"), counted("y"), counted("x"), counted("x"), counted("y")])
    assert numbers(named) == [("x", 0), ("y", 0), ("x", 1), ("x", 2), ("y", 1)]
    assert len({item.digest for item in named}) == 5
    # One more in front takes the next number and moves none of the keys seen before.
    more = name_all([counted("x"), *(item.record for item in named)])
    assert {item.digest for item in named} < {item.digest for item in more}


def test_other_equal_records_are_one() -> None:
    named = name_all([Record(("a", 1), 5.0, "{}"), Record(("a", 1), 6.0, "{}")])
    assert named[0].digest == named[1].digest
    assert named[0].key == ("a", 1, 0)


def test_one_and_true_are_counted_apart() -> None:
    """Python says that 1 == True; the two are different keys."""
    named = name_all([counted(1), Record(("ns", True), None, "{}", counted=True), counted(1)])
    assert len({item.digest for item in named}) == 3


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1790620238.0, "2026-09-28T18:30:38.000Z"),
        (1790620238.9996, "2026-09-28T18:30:39.000Z"),
        (1.0005, "1970-01-01T00:00:01.000Z"),
        (MAX_TIME, "9999-12-31T00:00:00.000Z"),
    ],
)
def test_rfc3339(seconds: float, expected: str) -> None:
    # Truncated to the millisecond or rounded: at most one apart, and always 24 characters.
    got = rfc3339(seconds)
    assert len(got) == 24
    assert got in (expected, expected.replace("39.000", "38.999"))


def test_the_line_is_one_line_of_ascii_json() -> None:
    payload = to_json({"title": "a\nb\u2028\ud800 <é>", "n": 1.5})
    signal = Signal("ab" * 16, "whales", '["ns", "x", 0]', 1790620238.0, 1790620240.25, payload, late=False)
    line = signal.line()
    assert line == (
        '{"id": "abababababababababababababababab", "source": "whales", "key": ["ns", "x", 0], '
        '"event_time": "2026-09-28T18:30:38.000Z", "seen_time": "2026-09-28T18:30:40.250Z", '
        '"payload": {"title": "a\\nb\\u2028\\ud800 <\\u00e9>", "n": 1.5}}'
    )
    assert json.loads(line)["payload"]["title"] == "a\nb\u2028\ud800 <é>"
    timeless = Signal("ab" * 16, "a", "[]", None, 0.0, "null", late=True).line()
    assert json.loads(timeless)["event_time"] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json(value)


def test_too_deep_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RecursionError):
        to_json(value)
    while value:
        value = value[0]  # type: ignore[assignment]
