"""What an answer means for the limit it was sent under, and how long to wait after a refusal.

    wait = max(1 s, hint + uniform(0, min(cap, base * 2**attempt)))

The jitter (full jitter: AWS Architecture Blog, "Exponential Backoff And Jitter") is added to the server's hint, never
taken from it, so that nothing is sent before the hint has passed. `attempt` counts refused rounds from zero.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = ["MAX_HINT_SECONDS", "Verdict", "classify", "full_jitter", "http_date", "retry_after", "wait_after_refusal"]

MAX_HINT_SECONDS = 86_400.0
"""A longer hint is taken as a day: by then a person has looked."""

LEAST_WAIT_SECONDS = 1.0
"""Some servers say `Retry-After: 0` while they still refuse (a gateway was seen to count 10 down to 0)."""

BAN_MEMORY_SECONDS = 600.0
"""A 403 or 418 this soon after the cool-down of a 429, or within it, is a ban and not a matter of rights."""

BAN_SECONDS = 900.0
"""The first wait after a ban; it doubles with each further one."""

_DIGITS = re.compile(r"[0-9]{1,10}")
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE = re.compile(  # IMF-fixdate, RFC 850, asctime: what Python's parser takes beyond them is no HTTP-date
    rf"[A-Z][a-z]{{2}}, [0-9]{{1,2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} (?:GMT|UTC)"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} (?:GMT|UTC)"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)
_LEAP_SECOND = re.compile(r"(?<=:[0-9]{2}):60")
_LIST = re.compile(r",(?! [0-9]{1,2}[ -][A-Z])")  # the comma within a date joins no values
_HTTP_ERROR = 400
_SERVER_ERROR = 500


class Verdict(Enum):
    """What one try says about the limit it was sent under and about the request."""

    OK = "ok"
    REFUSED = "refused"
    """Too fast: the limit cools down, the request is tried again."""
    BANNED = "banned"
    """Refused for longer, because refusals were not heeded (or so the server thinks)."""
    FATAL = "fatal"
    """The request itself is wrong (400, 404, ...): raised at once, never retried as a rate limit."""
    TRANSIENT = "transient"
    """The server or the way to it failed: says nothing about the limit; the source's next beat tries again."""

    @property
    def refused(self) -> bool:
        return self in (Verdict.REFUSED, Verdict.BANNED)


def classify(status: int, *, hint: float | None, since_refusal: float | None) -> Verdict:
    """Judge an answer by its status.

    | status                                            | verdict   |
    |---------------------------------------------------|-----------|
    | below 400                                         | OK        |
    | 429; 503 with Retry-After                         | REFUSED   |
    | 403, 418 within ten minutes of a cool-down        | BANNED    |
    | 408, 425 and every other 5xx                      | TRANSIENT |
    | every other 4xx                                   | FATAL     |

    Args:
        status: The HTTP status code.
        hint: Seconds of Retry-After, None without one.
        since_refusal: Seconds since the last cool-down of the same limits was over, None when there was none.
    """
    if status < _HTTP_ERROR:
        return Verdict.OK
    if status == 429 or (status == 503 and hint is not None):  # noqa: PLR2004 - the table above names them
        return Verdict.REFUSED
    if status in (403, 418) and since_refusal is not None and since_refusal < BAN_MEMORY_SECONDS:
        return Verdict.BANNED
    if status >= _SERVER_ERROR or status in (408, 425):
        return Verdict.TRANSIENT
    return Verdict.FATAL


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
    largest holds. A date in the past is no hint. At most `MAX_HINT_SECONDS`.
    """
    sent = http_date(headers.get("date", "").strip(" \t"))
    delays: list[float] = []
    for part in _LIST.split(headers.get("retry-after", "")):
        text = part.strip(" \t")
        if _DIGITS.fullmatch(text):
            delays.append(float(text))
        elif (when := http_date(text)) is None:
            return None
        elif (delay := when - (now if sent is None else sent)) > 0:
            delays.append(delay)
    return min(max(delays), MAX_HINT_SECONDS) if delays else None


def full_jitter(attempt: int, *, base: float, cap: float, rng: random.Random) -> float:
    """A draw of `uniform(0, min(cap, base * 2**attempt))`, in seconds; `attempt` counts failures from zero."""
    # 2.0**1024 overflows; every cap is far below 2**64 bases.
    return rng.uniform(0.0, min(cap, base * 2.0 ** min(attempt, 64)))


def wait_after_refusal(hint: float | None, jitter: float) -> float:
    """Seconds to send nothing after a refusal: the hint plus the jitter, at least one second."""
    return max(LEAST_WAIT_SECONDS, (hint or 0.0) + jitter)
