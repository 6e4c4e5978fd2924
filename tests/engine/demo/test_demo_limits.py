"""The limits: strict to the request, told in every form there is, and logged."""

from __future__ import annotations

import json
import random
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Rate
from engine.demo import (
    Ban,
    LimitRule,
    LoggedRequest,
    Phase,
    RequestLog,
    Scenario,
    SlidingLimit,
    scenario_of,
    worst_window,
)
from engine.demo.gate import Gate, Refusal, Verdict
from tests.engine.demo.demo_support import DAY_ZERO, HandClock

if TYPE_CHECKING:
    from pathlib import Path

    from engine.demo.scenarios import Hint


@given(
    gaps=st.lists(st.integers(0, 8), max_size=80),
    requests=st.integers(1, 6),
    seconds=st.integers(1, 12),
    count_refused=st.booleans(),
)
def test_a_window_is_strict_and_no_stricter(
    gaps: list[int],
    requests: int,
    seconds: int,
    count_refused: bool,
) -> None:
    limit = SlidingLimit(requests, seconds, count_refused=count_refused)
    now = 0
    counted: list[int] = []
    accepted: list[int] = []
    for gap in gaps:
        now += gap
        expected = sum(now - seconds < at for at in counted) < requests
        wait = limit.arrive(now)
        assert (wait == 0) is expected
        if expected:
            accepted.append(now)
        else:
            assert 0 < wait <= seconds
        if expected or count_refused:
            counted.append(now)
    assert worst_window(accepted, seconds) <= requests


def test_the_wait_is_exact_and_the_window_half_open() -> None:
    limit = SlidingLimit(2, 10)
    assert [limit.arrive(0), limit.arrive(4), limit.arrive(5)] == [0, 0, 5]
    assert limit.arrive(9.999) > 0
    assert limit.arrive(10) == 0
    assert limit.arrive(10) == 4


def test_hammering_a_limit_that_counts_refusals_never_gets_in() -> None:
    strict, lenient = SlidingLimit(2, 10, count_refused=True), SlidingLimit(2, 10)
    assert sum(strict.arrive(second) == 0 for second in range(100)) == 2
    assert sum(lenient.arrive(second) == 0 for second in range(100)) == 20


def test_a_tightened_limit_counts_what_has_arrived() -> None:
    limit = SlidingLimit(100, 10)
    for second in range(8):
        assert limit.arrive(second) == 0
    limit.retune(3, 10)
    # The third last arrived at 5.
    assert limit.arrive(8) == 7


@pytest.mark.parametrize(
    ("times", "seconds", "worst"),
    [([], 10, 0), ([1], 10, 1), ([0, 10], 10, 1), ([0, 9.999, 10], 10, 2), ([5, 0, 1, 20, 21, 22, 23], 10, 4)],
)
def test_worst_window(times: list[float], seconds: float, worst: int) -> None:
    assert worst_window(times, seconds) == worst


class TestGate:
    def gate(self, *phases: Phase, general: Rate | None = None) -> Gate:
        rules = [LimitRule("/v2/trades*", phases)]
        if general is not None:
            rules.append(LimitRule("*", (Phase(general),)))
        return Gate(Scenario("test", tuple(rules)), HandClock(), random.Random(1))

    def refusal(self, gate: Gate, now: float) -> Refusal:
        refusal = self.judge(gate, now).refusal
        assert refusal is not None
        return refusal

    def judge(self, gate: Gate, now: float) -> Verdict:
        return gate.judge("/v2/trades", now)

    def test_all_limits_are_charged_together_or_not_at_all(self) -> None:
        gate = self.gate(Phase(Rate(1, 10.0)), general=Rate(3, 10.0))
        assert self.judge(gate, 0) == Verdict("/v2/trades* 1/10s", 0, None)
        for second in (1, 2, 3, 4):
            assert self.refusal(gate, second).wait_seconds == 10 - second
        assert [gate.judge("/ok", second).refusal is None for second in (5, 6, 7)] == [True, True, False]
        assert gate.judge("/ok", 8).limit == "* 3/10s"

    def test_a_ban_starts_at_a_refusal_and_grows_when_hit(self) -> None:
        gate = self.gate(Phase(Rate(1, 1.0), ban=Ban(4, growth=2, cap_seconds=20)))
        assert self.judge(gate, 0).refusal is None
        assert self.refusal(gate, 0.5).wait_seconds == 4
        assert self.refusal(gate, 2).wait_seconds == 8
        # Without the hit at 2 the ban would have been over at 4.5.
        assert self.refusal(gate, 5).wait_seconds == 16
        assert self.refusal(gate, 20).wait_seconds == 20
        assert self.judge(gate, 40).refusal is None

    def test_a_ban_left_alone_ends_by_itself(self) -> None:
        gate = self.gate(Phase(Rate(1, 1.0), ban=Ban(4)))
        self.judge(gate, 0)
        self.refusal(gate, 0.5)
        assert self.judge(gate, 4.5).refusal is None

    def test_a_ban_may_answer_403(self) -> None:
        gate = self.gate(Phase(Rate(1, 1.0), ban=Ban(4, status=403)))
        self.judge(gate, 0)
        assert self.refusal(gate, 0.5).status == 429
        blocked = self.refusal(gate, 1).response("t", DAY_ZERO)
        assert blocked.status_code == 403
        assert b"Attention Required" in bytes(blocked.body)

    def test_phases_follow_each_other_and_repeat(self) -> None:
        gate = self.gate(Phase(Rate(100, 1.0), 10), Phase(Rate(1, 1.0), 5, hints=("date", "none"), html_share=1))
        assert [self.judge(gate, 9.9).limit, self.judge(gate, 9.9).refusal] == ["/v2/trades* 100/1s", None]
        first = self.refusal(gate, 10)
        assert first == Refusal(first.wait_seconds, 429, "date", html=True)
        assert first.wait_seconds == pytest.approx(0.9)
        assert self.refusal(gate, 10.1).hint == "none"
        assert self.judge(gate, 15).limit == "/v2/trades* 100/1s"
        assert self.judge(gate, 25).limit == "/v2/trades* 1/1s"


@pytest.mark.parametrize(
    ("hint", "wait", "told"),
    [("seconds", 0.01, "1"), ("seconds", 2.0, "2"), ("seconds", 2.01, "3"), ("none", 2.0, None)],
)
def test_the_hint_in_seconds_covers_the_wait(hint: Hint, wait: float, told: str | None) -> None:
    assert Refusal(wait, 429, hint, html=False).response("t", DAY_ZERO).headers.get("retry-after") == told


@pytest.mark.parametrize("wait", [0.01, 0.7, 0.75, 0.8, 60.0])
def test_the_hint_as_a_date_is_never_too_early(wait: float) -> None:
    told = Refusal(wait, 429, "date", html=False).response("t", DAY_ZERO).headers["retry-after"]
    late = parsedate_to_datetime(told).timestamp() - (DAY_ZERO + wait)
    assert 0 <= late < 1


def test_a_refusal_has_the_documented_body_or_html() -> None:
    answer = Refusal(1, 429, "seconds", html=False).response("trace", DAY_ZERO)
    assert json.loads(bytes(answer.body)) == {
        "error": "rate limit exceeded",
        "code": "rate_limited",
        "retryable": True,
        "trace_id": "trace",
    }
    page = Refusal(1, 429, "seconds", html=True).response("trace", DAY_ZERO)
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["retry-after"] == "1"


def test_an_unknown_scenario_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match="no scenario 'hurricane'; there are calm, storm"):
        scenario_of("hurricane")


def test_the_log_is_bounded_in_memory_and_whole_in_its_file(tmp_path: Path) -> None:
    log = RequestLog(capacity=3, file=tmp_path / "log.jsonl")
    for second in range(5):
        log.add(LoggedRequest(second, "/ok" if second % 2 else "/x", "q=\x1b", 200 + second, None))
    # Written through, not on close: a process that is killed leaves it behind.
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    log.close()
    log.add(LoggedRequest(5, "/ok", "", 200, None))
    assert lines[4] == {"mono": 4, "path": "/x", "query": "q=\x1b", "status": 204, "limit": None}
    assert len(lines) == 5
    assert [request.mono for request in log.requests()] == [3, 4, 5]
    assert log.total == 6
    assert log.arrivals("/ok") == [3, 5]
    assert log.arrivals("/ok", 200) == [5]
