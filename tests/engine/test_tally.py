"""Counts by time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine.tally import Tally


@given(st.floats(0, 1e6), st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5)), max_size=50))
def test_it_counts_as_a_list_of_all_that_happened_would(start: float, steps: list[tuple[float, int]]) -> None:
    now = start
    tally = Tally(lambda: now, seconds=2.0, buckets=8)
    happened: Counter[int] = Counter()
    for wait, amount in steps:
        now += wait
        tally.add(amount)
        happened[int(now // 2)] += amount
        last = int(now // 2)
        assert tally.counts() == tuple(happened[bucket] for bucket in range(last - 7, last + 1))


def test_silence_empties_it() -> None:
    now = 100.0
    tally = Tally(lambda: now, seconds=1.0, buckets=3)
    tally.add(7)
    assert tally.counts() == (0, 0, 7)
    now = 102.9
    assert tally.counts() == (7, 0, 0)
    now = 103.0
    assert tally.counts() == (0, 0, 0)
    now = 1e9
    assert tally.counts() == (0, 0, 0)
