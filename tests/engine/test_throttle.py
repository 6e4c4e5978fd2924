"""The learned rate: cut once a round, grown back by use, never above what is configured, and not fooled by latency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.throttle import CUT, FORGET_SECONDS, LEAST_SHARE, Throttle


def test_it_is_cut_once_until_something_was_answered() -> None:
    throttle = Throttle()
    assert throttle.cut(0.0, "429")
    assert not throttle.cut(1.0, "429"), "the ban still stands: it says nothing about the new rate"
    assert throttle.share == CUT
    throttle.answered(0.1, 2.0)
    assert throttle.cut(3.0, "429")
    assert throttle.share == pytest.approx(CUT * CUT, abs=0.01)
    assert throttle.why == "429"


def test_it_grows_back_by_use_and_not_by_time() -> None:
    throttle = Throttle()
    throttle.cut(0.0, "429")
    throttle.answered(0.1, 3_600.0)
    assert throttle.share == pytest.approx(CUT, abs=0.001)
    seconds, last = 0.0, 0.0
    while throttle.share < 1.0:
        last = throttle.share
        throttle.answered(1.0, 0.0)
        seconds += 1.0
        assert last <= throttle.share <= 1.0
        assert seconds < 600
    assert throttle.why == ""
    # Slowly where it was refused: a third of all the time within a hundredth of there.
    assert 60 < seconds < 300


def test_it_is_forgotten_after_a_day_though_it_was_not_used() -> None:
    throttle = Throttle()
    throttle.cut(0.0, "429")
    throttle.answered(0.001, FORGET_SECONDS - 1.0)
    assert throttle.share < 1.0
    throttle.answered(0.001, FORGET_SECONDS + 1.0)
    assert (throttle.share, throttle.why) == (1.0, "")


@given(
    st.lists(
        st.one_of(
            st.just("cut"), st.tuples(st.just("ok"), st.floats(0, 1e4)), st.tuples(st.just("heard"), st.floats(0, 1e4))
        ),
        max_size=200,
    )
)
def test_it_is_never_above_what_is_configured_nor_nothing(events: list[str | tuple[str, float]]) -> None:
    throttle = Throttle()
    for at, event in enumerate(events):
        if event == "cut":
            throttle.cut(float(at), "429")
        elif event[0] == "ok":
            throttle.answered(float(event[1]), float(at))
        else:
            throttle.heard(float(event[1]), 0.1, at / 100)
        assert LEAST_SHARE <= throttle.share <= 1.0
        assert bool(throttle.why) == (throttle.share < 1.0)


def hear(throttle: Throttle, latency: float, rounds: int = 1, *, per_second: float = 20.0) -> int:
    """How often rounds of answers of this latency, so many a second under a limit of 20/s, led to a cut."""
    cuts = 0
    for number in range(10 * rounds):
        throttle.answered(0.05, number / per_second)
        cuts += throttle.heard(latency * (1.0 + number % 3 / 100), 0.05, number / per_second)
    return cuts


def test_answers_that_take_much_longer_than_they_did_are_a_refusal() -> None:
    throttle = Throttle()
    assert hear(throttle, 0.1, 5) == 0
    assert hear(throttle, 0.12, 5) == 0, "a little longer is nothing"
    # They came at 10/s: that is what the server bears, and the cut is from there.
    assert hear(throttle, 0.5, per_second=10.0) == 1
    assert throttle.share == pytest.approx(CUT / 2, abs=0.01)
    assert throttle.why.startswith("answers took 0.5")


def test_a_request_that_takes_long_for_itself_is_nobody_s_queue() -> None:
    throttle = Throttle()
    hear(throttle, 0.1, 5, per_second=0.2)
    assert hear(throttle, 3.0, 5, per_second=0.2) == 0
    assert throttle.share == 1.0


def test_a_cut_that_brought_no_relief_is_not_repeated() -> None:
    """The server is slow today: that is its own affair, and no rate of ours changes it."""
    throttle = Throttle()
    hear(throttle, 0.1, 5)
    assert hear(throttle, 0.5, 400) == 1
    assert throttle.share == 1.0, "grown back"


def test_it_goes_on_after_a_restart_under_another_configured_rate() -> None:
    throttle = Throttle()
    throttle.cut(5.0, "429")
    throttle.answered(7.0, 6.0)
    same, half, double = Throttle(), Throttle(), Throttle()
    same.load(throttle.dump(), 5.0, 1.0)
    assert (same.share, same.used, same.why, same.cut_at) == (throttle.share, throttle.used, "429", 5.0)
    half.load(throttle.dump(), 5.0, 2.0)  # half of what was configured: what was learned is more than that
    assert (half.share, half.why) == (1.0, "")
    double.load(throttle.dump(), 5.0, 0.5)
    assert double.share == pytest.approx(throttle.share / 2)
