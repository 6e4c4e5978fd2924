"""Text that fits, whatever it holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui_app import format as f


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (-3.0, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (134, "2m14s"),
        (3_600, "1h00m"),
        (86_399, "23h59m"),
        (4 * 86_400 + 2 * 3_600, "4d02h"),
    ],
)
def test_duration(value: float | None, said: str) -> None:
    assert f.duration(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0, "0.0s"), (0.05, "50ms"), (0.31, "0.3s"), (9.96, "9s"), (12, "12s"), (-1, "0.0s"), (97, "1m37s")],
)
def test_seconds(value: float | None, said: str) -> None:
    assert f.seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1_902, "1,902"),
        (9_999, "9,999"),
        (10_000, "10k"),
        (18_204, "18.2k"),
        (104_400, "104k"),
        (999_600, "1M"),
        (1_204_331, "1.2M"),
        (10**20, "lots"),
    ],
)
def test_brief(value: int, said: str) -> None:
    assert f.brief(value) == said


@given(st.integers(0, 10**18))
def test_a_brief_count_takes_five_cells_at_most(value: int) -> None:
    assert len(f.brief(value)) <= 5


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0.0"), (0.05, "0.05"), (3.21, "3.2"), (99.96, "100"), (1234.5, "1,234"), (math.nan, "-")]
)
def test_rate(value: float, said: str) -> None:
    assert f.rate(value) == said


def test_percent() -> None:
    assert f.percent(73, 100) == "73%"
    assert f.percent(4, 1_000) == "0.4%"
    assert f.percent(1, 1_000_000) == "<0.1%"
    assert f.percent(0, 10) == "0%"
    assert f.percent(1, 0) == "-"


def test_clock_says_utc_and_survives_absurd_times() -> None:
    assert f.clock(1_764_537_300.0) == "21:15:00Z"
    assert f.clock(1e30) == f.clock(math.nan) == "--:--:--Z"


def test_a_bar_is_full_only_when_it_is_full_and_empty_only_when_it_is_empty() -> None:
    assert f.bar(0, 10, 5) == "░░░░░"
    assert f.bar(0.001, 10, 5) == "█░░░░"
    assert f.bar(9.999, 10, 5) == "████░"
    assert f.bar(10, 10, 5) == f.bar(99, 10, 5) == "█████"
    assert f.bar(1, 0, 3) == f.bar(math.nan, 1, 3) == f.bar(-1, 1, 3) == "░░░"
    assert f.bar(1, 2, 0) == ""


def test_a_spark_shows_the_newest_at_the_right() -> None:
    assert f.spark([9, 0, 1, 2], 3) == "▁▅█"
    assert f.spark([0, 0], 5) == "▁▁"
    assert f.spark([], 5) == f.spark([1], 0) == ""
    assert f.spark([math.nan, 1], 2) == "▁█"


ANY = st.text(max_size=60)


@given(ANY, st.integers(0, 40))
def test_cut_never_takes_more_cells_than_given(text: str, width: int) -> None:
    assert cell_len(f.cut(text, width)) <= width


@given(ANY, st.integers(0, 40), st.booleans())
def test_pad_takes_exactly_the_cells_given(text: str, width: int, right: bool) -> None:
    assert cell_len(f.pad(text, width, right=right)) == width


@given(st.lists(st.tuples(ANY, st.sampled_from(["", "dim", "bad"])), max_size=6), st.integers(1, 60))
def test_a_fitted_line_is_exactly_as_wide_as_asked_and_holds_no_control(spans: list[f.Span], width: int) -> None:
    fitted = f.fit(tuple(spans), width)
    text = "".join(part for part, _ in fitted)
    assert cell_len(text) == width
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in text)


def test_wide_and_combining_characters_are_cut_between_cells() -> None:
    assert f.cut("漢字漢字", 4) == "漢…"
    assert f.cut("漢字", 4) == "漢字"
    assert f.cut("e\u0301e\u0301e\u0301", 2) == "e\u0301…"
    assert f.pad("漢", 4) == "漢  "


def test_spans_that_look_the_same_become_one() -> None:
    assert f.fit(f.line("a", "b", ("c", "bad"), "  "), 6) == (("ab", ""), ("c   ", "bad"))


def test_words_that_do_not_fit_go_whole() -> None:
    assert f.words(["12 src ok", "", "3.2 req/s", "41 sig/h"], 20) == "12 src ok  3.2 req/s"
    assert f.words(["reason"], 4) == "rea…"
    assert f.words([], 4) == ""


def test_join_is_words_for_spans() -> None:
    assert f.join([("ab", "ok"), ("", ""), ("cd", "bad")], 6) == (("ab", "ok"), ("  ", ""), ("cd", "bad"))
    assert f.join([("ab", "ok"), ("cd", "bad")], 5) == (("ab", "ok"),)
    assert f.join([("abcdef", "ok")], 3) == (("ab…", "ok"),)


@given(ANY, st.integers(4, 40), ANY)
def test_a_rule_goes_all_the_way_across(title: str, width: int, note: str) -> None:
    assert sum(cell_len(part) for part, _ in f.rule(title, width, note=note)) == width


def test_a_limit_is_told_by_its_host_and_the_end_of_its_path() -> None:
    pattern = "https://data-api.polymarket.com/v2/trades*"
    assert f.short_name(pattern, 40) == "data-api.polymarket.com/v2/trades*"
    short = f.short_name(pattern, 20)
    assert short == "data-api…/v2/trades*"
    assert f.short_name(pattern, 5) == "data…"


@given(ANY, st.integers(1, 40))
def test_a_short_name_fits(name: str, width: int) -> None:
    assert cell_len(f.short_name(name, width)) <= width
