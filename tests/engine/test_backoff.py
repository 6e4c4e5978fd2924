"""What an answer means, what Retry-After says, and how long the wait is."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.backoff import (
    BAN_MEMORY_SECONDS,
    LEAST_WAIT_SECONDS,
    MAX_HINT_SECONDS,
    Verdict,
    classify,
    full_jitter,
    http_date,
    retry_after,
    wait_after_refusal,
)

NOW = datetime(2027, 10, 21, 7, 27, 0, tzinfo=UTC).timestamp()
IMF = "Thu, 21 Oct 2027 07:28:00 GMT"


def hint(*values: str, date: str | None = None, now: float = NOW) -> float | None:
    lines = [(b"Retry-After", value.encode()) for value in values]
    if date is not None:
        lines.append((b"Date", date.encode()))
    return retry_after(httpx.Headers(lines), now)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("007", 7.0),
        (" 5 ", 5.0),
        ("\t5\t", 5.0),
        ("2027", 2027.0),
        ("2513", 2513.0),
        ("86400", 86_400.0),
        ("86401", MAX_HINT_SECONDS),
        ("9999999999", MAX_HINT_SECONDS),
        (IMF, 60.0),
        (f"  {IMF}\t", 60.0),
        ("Thu, 21 Oct 2027 07:28:60 GMT", 120.0),
        ("Thursday, 21-Oct-27 07:28:00 GMT", 60.0),
        ("Thursday, 21-Oct-27 07:28:60 GMT", 120.0),
        ("Thu Oct 21 07:28:00 2027", 60.0),
        ("Thu Oct 21 07:28:60 2027", 120.0),
        ("Mon Nov  1 00:00:00 2027", MAX_HINT_SECONDS),
        ("Wednesday, 03-Nov-27 00:00:00 GMT", MAX_HINT_SECONDS),
        ("Sat, 21 Oct 2028 07:28:00 GMT", MAX_HINT_SECONDS),
    ],
)
def test_legal_forms(value: str, seconds: float) -> None:
    assert hint(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", " ", ",", "-1", "-5", "5-5", "+5", "1_000", "7.5", "1e3", "1e9", "nan", "NaN", "inf", "-inf", "Infinity",
        "5 s", "5s", "0x10", "\uff11\uff12", "\u0661\u0662", "9" * 11, "9" * 5_000, "120,", ",60", "120, soon", "soon",
        "120; 60", "now+60", "2027-10-21", "2027-10-21T07:28:00Z", "Thu", "Thu,", "Thu, x", "Thu, 21 Oct 2027",
        "21 Oct 2027 07:28:00 GMT", "Thu, 21 Oct 2027 07:28:00", "Thu, 21 Oct 2027 07:28:00 EST",
        "Thu, 21 Oct 2027 07:28:00 +9999", "Thu, 32 Oct 2027 07:28:00 GMT", "Thu, 21 Foo 2027 07:28:00 GMT",
        "Thu, 21 Oct 2027 24:28:00 GMT", "Thu, 21 Oct 2027 07:60:00 GMT", "Thu, 21 Oct 2027 07:28:61 GMT",
        "Thu, \uff12\uff11 Oct 2027 07:28:00 GMT",
        f"Thu, 21 Oct {'9' * 20} 07:28:00 GMT", f"Thu, 21 Oct {'9' * 5_000} 07:28:00 GMT",
        "Thu, 21 Oct 2027 07:28:00 GMT 60", "Thu Oct 21 07:28:00 99999999999",
        # Past, or just now.
        "Wed, 21 Oct 2015 07:28:00 GMT", "Thu, 21 Oct 2027 07:27:00 GMT", "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Thursday, 21-Oct-99 07:28:00 GMT", "Thu Jan  1 00:00:00 1970",
    ],
)  # fmt: skip
def test_everything_else_is_no_hint(value: str) -> None:
    assert hint(value) is None


def test_no_header_is_no_hint() -> None:
    assert hint() is None
    assert hint(date=IMF) is None


def test_of_several_values_the_largest_holds() -> None:
    assert hint("60", "120") == hint("120", "60") == hint("120, 60") == 120.0
    assert hint("30", IMF) == hint(IMF, "30") == hint(IMF, "Thursday, 21-Oct-27 07:27:30 GMT") == 60.0
    assert hint("90", IMF) == 90.0
    assert hint("Wed, 21 Oct 2015 07:28:00 GMT", "5") == 5.0
    assert hint("5", "-1") is None


@pytest.mark.parametrize("skew", [-86_400.0, -600.0, 0.0, 600.0, 1e9])
def test_a_date_counts_from_the_answers_own_date(skew: float) -> None:
    assert hint(IMF, date="Thu, 21 Oct 2027 07:26:30 GMT", now=NOW + skew) == 90.0
    assert hint(IMF, date="Thu Oct 21 07:26:30 2027", now=NOW + skew) == 90.0
    assert hint("30", date="Thu, 21 Oct 2027 07:26:30 GMT", now=NOW + skew) == 30.0
    assert hint(IMF, date=IMF, now=NOW + skew) is None


@pytest.mark.parametrize("date", ["", "yesterday", "-1", "1824103680"])
def test_a_date_that_cannot_be_read_leaves_our_clock(date: str) -> None:
    assert hint(IMF, date=date) == 60.0


@given(st.datetimes(datetime(1971, 1, 1), datetime(2068, 12, 31)))  # noqa: DTZ001 - made aware below
def test_all_three_date_forms_say_the_same(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    forms = [
        format_datetime(moment, usegmt=True),
        f"{moment:%A}, {moment:%d-%b-%y %H:%M:%S} GMT",
        f"{moment:%a %b} {moment.day:2} {moment:%H:%M:%S} {moment.year}",
    ]
    assert [http_date(form) for form in forms] == [moment.timestamp()] * 3


@given(st.text(max_size=60), st.text(max_size=40))
@example("Thu, 21 Oct 99999999999999999999 07:28:00 GMT", "")
@example("Thu, 21 Oct 0000 07:28:00 GMT", "Thu, 00 Oct 2027 07:28:00 GMT")
def test_no_header_raises_or_is_out_of_bounds(value: str, date: str) -> None:
    got = retry_after({"retry-after": value, "date": date}, NOW)
    assert got is None or 0.0 <= got <= MAX_HINT_SECONDS


@given(st.from_regex(r"[A-Z][a-z]{2,8},? ?[0-9A-Za-z :+-]{0,40}", fullmatch=True))
def test_no_near_date_raises(value: str) -> None:
    got = retry_after({"retry-after": value}, NOW)
    assert got is None or 0.0 < got <= MAX_HINT_SECONDS


FATAL = {*range(400, 500)} - {408, 425, 429}


@pytest.mark.parametrize("status", range(200, 600))
def test_what_each_status_means(status: int) -> None:
    plain = classify(status, hint=None, since_refusal=None)
    hinted = classify(status, hint=0.0, since_refusal=None)
    soon = classify(status, hint=None, since_refusal=BAN_MEMORY_SECONDS - 1e-6)
    late = classify(status, hint=None, since_refusal=BAN_MEMORY_SECONDS)
    if status < 400:
        assert {plain, hinted, soon, late} == {Verdict.OK}
    elif status == 429:
        assert {plain, hinted, soon, late} == {Verdict.REFUSED}
    elif status == 503:
        assert (plain, hinted, soon, late) == (Verdict.TRANSIENT, Verdict.REFUSED, Verdict.TRANSIENT, Verdict.TRANSIENT)
    elif status in (403, 418):
        assert (plain, hinted, soon, late) == (Verdict.FATAL, Verdict.FATAL, Verdict.BANNED, Verdict.FATAL)
        assert classify(status, hint=5.0, since_refusal=0.0) is Verdict.BANNED
    else:
        assert {plain, hinted, soon, late} == {Verdict.FATAL if status in FATAL else Verdict.TRANSIENT}


def test_only_refusals_are_refusals() -> None:
    assert [verdict for verdict in Verdict if verdict.refused] == [Verdict.REFUSED, Verdict.BANNED]


@pytest.mark.parametrize("attempt", [0, 1, 3, 6, 40, 2_000])
def test_full_jitter_is_uniform_from_zero_to_the_doubled_base(attempt: int) -> None:
    draws = 2_000
    rng = random.Random(attempt)
    top = min(60.0, 1.0 * 2.0 ** min(attempt, 64))
    drawn = sorted(full_jitter(attempt, base=1.0, cap=60.0, rng=rng) / top for _ in range(draws))
    distance = max(max(rank / draws - x, x - (rank - 1) / draws) for rank, x in enumerate(drawn, 1))
    assert distance < 1.63 / math.sqrt(draws)  # Kolmogorov-Smirnov, 1 %
    assert 0.0 <= drawn[0] < 0.01
    assert 0.99 < drawn[-1] <= 1.0


@given(
    st.one_of(st.none(), st.floats(0.0, MAX_HINT_SECONDS)),
    st.integers(0, 10_000),
    st.floats(0.001, 3_600.0),
    st.floats(0.001, 86_400.0),
    st.integers(),
)
def test_a_wait_is_the_hint_and_more_and_never_under_a_second(
    hint: float | None, attempt: int, base: float, cap: float, seed: int
) -> None:
    jitter = full_jitter(attempt, base=base, cap=cap, rng=random.Random(seed))
    wait = wait_after_refusal(hint, jitter)
    assert 0.0 <= jitter <= cap
    assert max(LEAST_WAIT_SECONDS, hint or 0.0) <= wait <= max(LEAST_WAIT_SECONDS, (hint or 0.0) + cap)
