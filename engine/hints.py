"""What the header fields of an answer say about its rate limits: when to come again, and how much is left.

Read are:
    - `Retry-After` (RFC 9110 10.2.3), and in milliseconds `retry-after-ms` (OpenAI), `x-ms-retry-after-ms` (Azure
      Cosmos DB) and `x-amz-retry-after` (AWS);
    - `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10; also the `limit=, remaining=, reset=`
      of draft 7 and the three fields of draft 6);
    - `X-RateLimit-*` and `X-Rate-Limit-*` (GitHub, Discord, X, Azure), `X-Bapi-Limit-*` (Bybit).

What a body says is read in `engine.bodies`.

A server is believed about waits, never about haste: what cannot be read beyond doubt says nothing, and nothing is
longer than `MAX_HINT_SECONDS`. Nothing here raises, whatever is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from engine.structured import Bare, parse_list

__all__ = [
    "ABSURD_SECONDS",
    "MAX_HINT_SECONDS",
    "Advice",
    "advice",
    "http_date",
    "reset_after",
    "retry_after",
    "seconds_until",
    "sent_at",
]

MAX_HINT_SECONDS = 86_400.0
"""The longest wait that is taken from a server at its word."""

ABSURD_SECONDS = 1e6
"""Eleven days: from here on a number is no delay."""

_DIGITS = re.compile(r"[0-9]{1,10}")
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE = re.compile(  # IMF-fixdate, RFC 850, asctime: what Python's parser takes beyond them is no HTTP-date
    rf"[A-Z][a-z]{{2}}, [0-9]{{1,2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} (?:GMT|UTC)"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} (?:GMT|UTC)"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)
_LEAP_SECOND = re.compile(r"(?<=:[0-9]{2}):60")
_LIST = re.compile(r",(?! [0-9]{1,2}[ -][A-Z])")  # the comma within a date joins no values
_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")


def http_date(text: str) -> float | None:
    """Seconds since the epoch of an HTTP-date in any of the three forms of RFC 9110 5.6.7; None when it is none."""
    if not _DATE.fullmatch(text):
        return None
    # RFC 9110 allows second 60; datetime does not.
    text, leap = _LEAP_SECOND.subn(":59", text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    # The asctime form names no zone, and is UTC.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() + leap


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that `Retry-After` asks for, counted from the receipt of the answer; None without a usable hint.

    Only the two forms of RFC 9110 10.2.3 are read: 1 to 10 ASCII digits, or an HTTP-date, which counts from the
    answer's own `Date` where that can be read, so that a wrong clock here does not matter. Of several values the
    largest holds, and so of this field and those in milliseconds. A date in the past is no hint. At most
    `MAX_HINT_SECONDS`.
    """
    if "retry-after" not in "\n".join(headers):
        return None
    delays = _in_milliseconds(headers)
    base = sent_at(headers, now)
    said: list[float] = []
    for part in _LIST.split(headers.get("retry-after", "")):
        text = part.strip(" \t")
        if _DIGITS.fullmatch(text):
            said.append(float(text))
        elif (when := http_date(text)) is None:
            said = []
            break
        elif when > base:
            said.append(when - base)
    delays += said
    return min(max(delays), MAX_HINT_SECONDS) if delays else None


def _in_milliseconds(headers: Mapping[str, str]) -> list[float]:
    texts = (headers.get(name, "").strip(" \t") for name in _MILLISECONDS)
    return [int(text) / 1000 for text in texts if _DIGITS.fullmatch(text)]


def sent_at(headers: Mapping[str, str], now: float) -> float:
    """When the answer was sent by the clock of its server, where that can be read: its dates are of that clock."""
    sent = http_date(headers.get("date", "").strip(" \t"))
    return now if sent is None else sent


# How much is left

_MOST = 10**9
_FAMILIES = (
    ("ratelimit-remaining", ("ratelimit-reset",)),
    ("x-ratelimit-remaining", ("x-ratelimit-reset-after", "x-ratelimit-reset")),
    ("x-rate-limit-remaining", ("x-rate-limit-reset",)),
    ("x-bapi-limit-status", ("x-bapi-limit-reset-timestamp",)),
)
"""The field with what is left, and those with the time when it renews; the first that can be read holds."""
_DRAFT_7 = re.compile(r"limit=[0-9]{1,10}, *remaining=([0-9]{1,10}), *reset=([0-9]{1,10})")
_NUMBER = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9})?")
_ISO = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}(?:\.[0-9]{{1,9}})?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})")


@dataclass(frozen=True, slots=True)
class Advice:
    """What a good answer says about the rate."""

    per_second: float
    """Requests; 0.0 when none is left."""
    seconds: float
    """For how long it holds."""
    said: str
    """The same for people: `12 left for 30 s`."""


@dataclass(frozen=True, slots=True)
class _Quota:
    left: int | None
    """None when the answer does not say."""
    seconds: float
    """Until it renews."""
    policy: tuple[int, int] | None = None
    """So many, in so many seconds."""
    of_requests: bool = True


def reset_after(headers: Mapping[str, str], now: float, *, refused: bool) -> float | None:
    """Seconds until a quota that is used up renews, the longest of several; None when none is.

    Args:
        headers: Of the answer.
        now: Seconds since the epoch; dates count from the answer's own `Date` where that can be read.
        refused: The answer is a refusal: then a reset counts also where what is left is not said.
    """
    if "limit" not in "\n".join(headers):
        return None
    used_up = [quota.seconds for quota in _quotas(headers, now) if quota.left == 0 or (quota.left is None and refused)]
    return min(max(used_up), MAX_HINT_SECONDS) if used_up else None


def advice(headers: Mapping[str, str], now: float) -> Advice | None:
    """What the header fields of a good answer say about the rate: of all quotas the slowest.

    A quota allows what is left, over the time until it renews, and not more than its policy does on average: `r=10000`
    with `t=10` under `q=10000;w=1000` is 10 a second, not 1,000. What comes out of a cache says nothing (so
    the draft on caching), nor does what cannot be meant: no time, more than a day, more than 1e9 requests.
    """
    if "limit" not in "\n".join(headers) or headers.get("age", "0").strip() != "0":
        return None
    slowest: Advice | None = None
    for quota in _quotas(headers, now):
        if quota.left is None or quota.seconds > MAX_HINT_SECONDS or not quota.of_requests:
            continue
        rate, said = quota.left / quota.seconds, f"{quota.left} left for {round(quota.seconds, 1):g} s"
        if quota.policy is not None and quota.policy[0] / quota.policy[1] < rate:
            rate, said = quota.policy[0] / quota.policy[1], "{} per {} s".format(*quota.policy)
        if slowest is None or (rate, -quota.seconds) < (slowest.per_second, -slowest.seconds):
            slowest = Advice(rate, quota.seconds, said)
    return slowest


def _quotas(headers: Mapping[str, str], now: float) -> Iterator[_Quota]:
    yield from _structured(headers.get("ratelimit", ""), headers.get("ratelimit-policy", ""))
    for remaining, resets in _FAMILIES:
        left = headers.get(remaining)
        if left is not None and (not _DIGITS.fullmatch(left) or int(left) > _MOST):
            continue
        base = sent_at(headers, now)
        times = (seconds_until(headers.get(reset, ""), base) for reset in resets)
        if (seconds := next((time for time in times if time is not None), None)) is not None:
            yield _Quota(None if left is None else int(left), seconds)


def _structured(limit: str, policy: str) -> Iterator[_Quota]:
    if (draft_7 := _DRAFT_7.fullmatch(limit.strip(" "))) is not None:
        remaining, reset = map(int, draft_7.groups())
        if reset and remaining <= _MOST:
            yield _Quota(remaining, float(reset))
        return
    policies = {name: parameters for name, parameters in parse_list(policy) or [] if isinstance(name, str)}
    for name, parameters in parse_list(limit) or []:
        left, seconds = _count(parameters.get("r")), _count(parameters.get("t"))
        if isinstance(name, str) and left is not None and seconds:
            terms = policies.get(name, {})
            quota, window = _count(terms.get("q")), _count(terms.get("w"))
            usable = (quota, window) if quota and window and window <= MAX_HINT_SECONDS else None
            yield _Quota(left, float(seconds), usable, terms.get("qu", "requests") == "requests")


def _count(value: Bare | None) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST else None


def seconds_until(text: str, base: float) -> float | None:
    """Seconds from `base` until a reset, whose unit its size tells: a delay, seconds or milliseconds of the epoch.

    An HTTP-date or an ISO 8601 time with a zone is as good. None for the past, and for what could be either.
    """
    text = text.strip(" \t")
    when: float | None = None
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number < ABSURD_SECONDS:
            return number or None
        if 1e9 <= number < 1e10:  # noqa: PLR2004 - seconds from 2001 to 2286
            when = number
        elif 1e12 <= number < 1e13:  # noqa: PLR2004 - the same in milliseconds
            when = number / 1000
    elif _ISO.fullmatch(text):
        try:
            when = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            return None
    else:
        when = http_date(text)
    return when - base if when is not None and when > base else None
