"""What the header fields of an answer say: when to come again, how much is left."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NoReturn

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.hints import MAX_HINT_SECONDS, Advice, advice, http_date, reset_after, retry_after

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


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"])
def test_milliseconds_say_as_much(name: str) -> None:
    assert retry_after({name: "1500"}, NOW) == 1.5
    assert retry_after({name: " 33\t"}, NOW) == 0.033
    assert retry_after({name: "9999999999"}, NOW) == MAX_HINT_SECONDS
    assert retry_after({"retry-after": "1", name: "503"}, NOW) == 1.0  # OpenAI sends both
    assert retry_after({"retry-after": "1", name: "1703"}, NOW) == 1.703
    assert retry_after({"retry-after": "soon", name: "1703"}, NOW) == 1.703
    assert retry_after({"retry-after": "7", name: "soon"}, NOW) == 7.0


@pytest.mark.parametrize(
    "value", ["", "-1", "+5", "1_000", "\uff11", "1e3", "nan", "inf", "1.5", "9" * 5_000, "00:00:00.033", "5ms", "5,6"]
)
def test_other_milliseconds_are_none(value: str) -> None:
    assert retry_after({"retry-after-ms": value}, NOW) is None


def reset(fields: dict[str, str], *, refused: bool = False) -> float | None:
    headers = httpx.Headers([(name.encode(), value.encode()) for name, value in fields.items()])
    return reset_after(headers, NOW, refused=refused)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        pytest.param({"RateLimit": '"default";r=0;t=30'}, 30.0, id="draft 10, Cloudflare's API"),
        pytest.param({"RateLimit": '"resolvers";r=0;t=52'}, 52.0, id="Hugging Face"),
        pytest.param({"RateLimit": '"burst";r=3;t=1, "daily";r=0;t=69076'}, 69076.0, id="one of two"),
        pytest.param({"RateLimit": '"burst";r=0;t=1, "daily";r=0;t=600'}, 600.0, id="the longest of two"),
        pytest.param({"RateLimit": '"bytes";r=0;t=100000'}, MAX_HINT_SECONDS, id="not over a day"),
        pytest.param({"RateLimit": "limit=100, remaining=0, reset=30"}, 30.0, id="draft 7, express-rate-limit"),
        pytest.param({"RateLimit-Remaining": "0", "RateLimit-Reset": "42"}, 42.0, id="draft 6"),
        pytest.param({"RateLimit-Remaining": "0", "RateLimit-Reset": "1824103680"}, 60.0, id="GitLab: epoch"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1824103920"}, 300.0, id="GitHub"),
        pytest.param({"x-rate-limit-remaining": "0", "x-rate-limit-reset": "1824104520"}, 900.0, id="X"),
        pytest.param({"X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": "2027-10-21T07:27:23.7468234Z"}, 23.746823,
                     id="Azure"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1824103621.5",
                      "X-RateLimit-Reset-After": "1.25"}, 1.25, id="Discord"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1824103629000"}, 9.0, id="Rocket.Chat: ms"),
        pytest.param({"X-Bapi-Limit": "10", "X-Bapi-Limit-Status": "0",
                      "X-Bapi-Limit-Reset-Timestamp": "1824103622000"}, 2.0, id="Bybit"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": IMF}, 60.0, id="HTTP-date"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2027-10-21T09:28:00+02:00"}, 60.0, id="ISO"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "999999"}, MAX_HINT_SECONDS, id="11 days"),
        pytest.param({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9000000000"}, MAX_HINT_SECONDS, id="2255"),
    ],
)  # fmt: skip
def test_a_quota_that_is_used_up_renews(fields: dict[str, str], seconds: float) -> None:
    assert reset(fields) == pytest.approx(seconds, abs=1e-5)
    assert reset(fields, refused=True) == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"RateLimit": '"default";r=1;t=30'},
        {"RateLimit": '"default";r=0'},
        {"RateLimit": '"default";r=0;t=0'},
        {"RateLimit": '"default";r=0;t=-5'},
        {"RateLimit": '"default";r=0;t=30.0'},
        {"RateLimit": '"default";r=0;t="30"'},
        {"RateLimit": '"default";r=?0;t=30'},
        {"RateLimit": "7;r=0;t=30"},
        {"RateLimit": '"default";r=0;t=30, "broken'},
        {"RateLimit": "limit=100, remaining=0, reset=0"},
        {"RateLimit": "limit=100, remaining=3, reset=30"},
        {"RateLimit": "limit=100, remaining=0, reset=30, x"},
        {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "\uff10", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "0.0", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "0"},
        *(
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": text}
            for text in (
                "0", "0.0", "-60", "+60", "1e3", "nan", "inf", "1_0", "\uff11", "60s", "6m0s", "1000000", "999999999",
                "10000000000", "999999999999", "10000000000000", "1824103620", "1824103619", "1824103619000",
                "9" * 5_000,
                "2027-10-21", "2027-10-21T07:28:00", "2027-13-21T07:28:00Z", "0000-00-00T00:00:00Z",
                "2027-10-21T07:26:00Z", "Thu, 21 Oct 2027 07:26:00 GMT", "soon", "60, 60",
            )
        ),
    ],
)  # fmt: skip
def test_no_other_reset_is_one(fields: dict[str, str]) -> None:
    assert reset(fields) is None
    assert reset(fields, refused=True) is None


def test_a_reset_by_itself_counts_for_a_refusal_only() -> None:
    assert reset({"X-RateLimit-Reset": "60"}) is None
    assert reset({"X-RateLimit-Reset": "60"}, refused=True) == 60.0


@pytest.mark.parametrize("skew", [-86_400.0, 0.0, 600.0])
def test_an_epoch_counts_from_the_answers_own_date(skew: float) -> None:
    headers = {"date": IMF, "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1824103710"}
    assert reset_after(headers, NOW + skew, refused=False) == 30.0
    headers["x-ratelimit-reset"] = "12"
    assert reset_after(headers, NOW + skew, refused=False) == 12.0


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
                     Advice(100 / 60, 30.0, "50 left for 30 s"), id="the draft's own example"),
        pytest.param({"RateLimit": '"default";r=12;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
                     Advice(0.4, 30.0, "12 left for 30 s"), id="less left than the policy gives"),
        pytest.param({"RateLimit": '"default";r=10000;t=10', "RateLimit-Policy": '"default";q=10000;w=1000'},
                     Advice(10.0, 10.0, "10000 per 1000 s"), id="the draft's trap"),
        pytest.param({"RateLimit": '"burst";r=8;t=1, "daily";r=4998;t=69076',
                      "RateLimit-Policy": '"burst";q=10;w=10, "daily";q=5000;w=86400'},
                     Advice(5000 / 86400, 69076.0, "5000 per 86400 s"), id="the slowest of two"),
        pytest.param({"RateLimit": '"api";r=495;t=140', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'},
                     Advice(495 / 140, 140.0, "495 left for 140 s"), id="Hugging Face, whose policy is malformed"),
        pytest.param({"RateLimit": '"100-in-15min"; r=99; t=900',
                      "RateLimit-Policy": '"100-in-15min"; q=100; w=900; pk=:YWI=:'},
                     Advice(0.11, 900.0, "99 left for 900 s"), id="express-rate-limit, draft 8"),
        pytest.param({"RateLimit": "limit=300, remaining=297, reset=42", "RateLimit-Policy": "300;w=60"},
                     Advice(297 / 42, 42.0, "297 left for 42 s"), id="express-rate-limit, draft 7"),
        pytest.param({"RateLimit": "peer;r=0;t=2"}, Advice(0.0, 2.0, "0 left for 2 s"), id="nothing left"),
        pytest.param({"RateLimit": "a;r=0;t=2, b;r=0;t=9"}, Advice(0.0, 9.0, "0 left for 9 s"), id="nothing twice"),
        pytest.param({"RateLimit": "a;r=9;t=3, b;r=9;t=90", "RateLimit-Policy": 'b;q=1;w=60;qu="content-bytes"'},
                     Advice(3.0, 3.0, "9 left for 3 s"), id="bytes are not requests"),
        pytest.param({"RateLimit": "a;r=9;t=3", "RateLimit-Policy": 'a;q=60;w=60;qu="requests"'},
                     Advice(1.0, 3.0, "60 per 60 s"), id="requests are"),
        pytest.param({"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4500", "X-RateLimit-Reset": "1824105420"},
                     Advice(2.5, 1800.0, "4500 left for 1800 s"), id="GitHub"),
        pytest.param({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset-After": "0.5"},
                     Advice(2.0, 0.5, "1 left for 0.5 s"), id="Discord"),
        pytest.param({"RateLimit": "a;r=90;t=30", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "30"},
                     Advice(0.1, 30.0, "3 left for 30 s"), id="both kinds"),
        *(
            pytest.param({"RateLimit": "a;r=9;t=3", "RateLimit-Policy": policy},
                         Advice(3.0, 3.0, "9 left for 3 s"), id=f"policy {policy}")
            for policy in ("a;q=1", "a;q=1;w=0", "a;q=1;w=86401", "a;q=0;w=9", "a;q=-1;w=9", "a;q=1.0;w=9",
                           "a;q=1;w=9,", "a;q=1000000001;w=9", "b;q=1;w=9", "a;q=1;w=?1", "(a);q=1;w=9", "a;Q=1;w=9")
        ),
    ],
)  # fmt: skip
def test_what_is_left_is_a_rate(fields: dict[str, str], told: Advice) -> None:
    got = advice(httpx.Headers(fields), NOW)
    assert got is not None
    assert (got.seconds, got.said) == (told.seconds, told.said)
    assert got.per_second == pytest.approx(told.per_second)
    assert advice(httpx.Headers({**fields, "Age": "0"}), NOW) == got


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"RateLimit-Policy": '"default";q=100;w=60'},
        {"RateLimit": '"default";r=50;t=30', "Age": "12"},
        {"X-RateLimit-Limit": "60"},
        {"X-RateLimit-Remaining": "60"},
        {"X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "1000000001", "X-RateLimit-Reset": "60"},
        {"X-RateLimit-Remaining": "60", "X-RateLimit-Reset": "86401"},
        {"X-Bapi-Limit": "50", "X-Bapi-Limit-Status": "49", "X-Bapi-Limit-Reset-Timestamp": "1824103620000"},
        *(
            {"RateLimit": text}
            for text in (
                "", ",", "a", "a;r=1", "a;t=1", "a;r=1;t=0", "a;r=1;t=86401", "a;r=-1;t=5", "a;r=1.5;t=5",
                "a;r=1;t=5.0", "a;r=1000000001;t=5", "a;r=1;t=5,", "a;r=1;t=5 b", 'a;r="1";t=5', "a;r=1;t", "5;r=1;t=5",
                "A-b=c;r=1;t=5", "(a b);r=1;t=5", '"a;r=1;t=5', "limit=5", "remaining=5, reset=5",
                "limit=1, remaining=1000000001, reset=5", "limit=1, remaining=1, reset=86401",
            )
        ),
    ],
)  # fmt: skip
def test_anything_else_is_no_advice(fields: dict[str, str]) -> None:
    assert advice(httpx.Headers(fields), NOW) is None


NAMES = st.sampled_from(
    ["ratelimit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset", "x-ratelimit-remaining", "date", "age",
     "x-ratelimit-reset", "x-ratelimit-reset-after", "x-rate-limit-remaining", "x-rate-limit-reset", "retry-after-ms",
     "x-bapi-limit-status", "x-bapi-limit-reset-timestamp", "retry-after"]
)  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=40),
    st.integers(-10, 10**14).map(str),
    st.floats().map(str),
    st.sampled_from([IMF, "0", '"a";r=0;t=9', '"a";r=9;t=9', '"a";q=9;w=9', "2027-10-21T07:28:00Z", "9" * 5_000]),
    st.from_regex(r'(?:"a"|b)(?:;[rtqw]=[0-9]{1,12}){2}', fullmatch=True),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})", fullmatch=True),
)


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.booleans())
@example({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "0001-01-01T00:00:00+23:59"}, True)
def test_no_fields_raise_or_are_out_of_bounds(fields: dict[str, str], refused: bool) -> None:
    wait = reset_after(fields, NOW, refused=refused)
    assert wait is None or 0.0 < wait <= MAX_HINT_SECONDS
    hinted = retry_after(fields, NOW)
    assert hinted is None or 0.0 <= hinted <= MAX_HINT_SECONDS
    told = advice(fields, NOW)
    assert told is None or (0.0 <= told.per_second < float("inf") and 0.0 < told.seconds <= MAX_HINT_SECONDS)


class NamesOnly(dict[str, str]):
    def get(self, *_: object) -> NoReturn:
        raise AssertionError("looked up")


def test_an_answer_without_such_fields_costs_one_look_at_its_names() -> None:
    headers = NamesOnly({"date": IMF, "content-type": "application/json", "server": "cloudflare", "age": "1"})
    assert retry_after(headers, NOW) is None
    assert reset_after(headers, NOW, refused=True) is None
    assert advice(headers, NOW) is None
    with pytest.raises(AssertionError, match="looked up"):
        advice(NamesOnly({"x-ratelimit-reset": "1"}), NOW)
