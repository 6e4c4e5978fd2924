"""What an answer means for the limit it was sent under, and how long to wait after a refusal.

    wait = max(1 s, hint + uniform(0, min(cap, base * 2**attempt)))

The jitter (full jitter: AWS Architecture Blog, "Exponential Backoff And Jitter") is added to the server's hint, never
taken from it, so that nothing is sent before the hint has passed. `attempt` counts refused rounds from zero.
"""

from __future__ import annotations

import random
from enum import Enum

import httpx

__all__ = ["Verdict", "classify", "full_jitter", "is_safe", "may_send_again", "wait_after_refusal"]

LEAST_WAIT_SECONDS = 1.0
"""Some servers say `Retry-After: 0` while they still refuse (a gateway was seen to count 10 down to 0)."""

BAN_MEMORY_SECONDS = 600.0
"""A 403 or 418 this soon after the cool-down of a 429, or within it, is a ban and not a matter of rights."""

BAN_SECONDS = 900.0
"""The first wait after a ban; it doubles with each further one."""

_HTTP_ERROR = 400
_SERVER_ERROR = 500

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Verdict(Enum):
    """What one try says about the limit it was sent under and about the request."""

    OK = "ok"
    REFUSED = "refused"
    """Too fast: the limit cools down, the request is tried again."""
    BANNED = "banned"
    """Refused for longer, because refusals were not heeded (or so the server thinks)."""
    UNAVAILABLE = "unavailable"
    """The server asks to be left alone for a while: the limit cools down, and learns nothing about its rate."""
    FATAL = "fatal"
    """The request itself is wrong (400, 404, ...): raised at once, never retried as a rate limit."""
    TRANSIENT = "transient"
    """The server or the way to it failed: says nothing about the limit; the source's next beat tries again."""

    @property
    def refused(self) -> bool:
        return self in (Verdict.REFUSED, Verdict.BANNED, Verdict.UNAVAILABLE)


def classify(status: int, *, hint: float | None, since_refusal: float | None) -> Verdict:
    """Judge an answer by its status and header fields; what its body says may make a refusal of it (`body_says`).

    | status                                          | verdict     | sent again, by us                         |
    |-------------------------------------------------|-------------|-------------------------------------------|
    | below 400                                       | OK          | no                                        |
    | 429                                             | REFUSED     | after the cool-down, safe method or not   |
    | 403 with a hint                                 | REFUSED     | after the cool-down, safe method or not   |
    | 403, 418 within ten minutes of a cool-down      | BANNED      | after the ban, by a later poll            |
    | 503 with a hint                                 | UNAVAILABLE | after the cool-down, if the method is safe|
    | 408, 425 and every other 5xx                    | TRANSIENT   | no: the next beat asks again              |
    | every other 4xx                                 | FATAL       | no                                        |

    A refused request was not carried out (RFC 6585 4), so that any method may be sent again. What waits for a cool-down
    does so for `PATIENCE_SECONDS` at most. What became of a request without an answer: `may_send_again`.

    Args:
        status: The HTTP status code.
        hint: Seconds that the answer asks to be left alone, None when it does not (`Retry-After`, a quota used up).
        since_refusal: Seconds since the last cool-down of the same limits was over, None when there was none.
    """
    if status < _HTTP_ERROR:
        return Verdict.OK
    # GitHub answers 403 as well as 429 when a limit is exceeded, with the same hints.
    if status == 429 or (status == 403 and hint is not None):  # noqa: PLR2004 - the table above names them
        return Verdict.REFUSED
    if status in (403, 418) and since_refusal is not None and since_refusal < BAN_MEMORY_SECONDS:
        return Verdict.BANNED
    if status == 503 and hint is not None:  # noqa: PLR2004 - the table above names them
        return Verdict.UNAVAILABLE
    if status >= _SERVER_ERROR or status in (408, 425):
        return Verdict.TRANSIENT
    return Verdict.FATAL


def is_safe(method: str) -> bool:
    """Whether a request may be sent twice without asking whether the first was carried out (RFC 9110 9.2.1)."""
    return method.upper() in _SAFE


def may_send_again(error: httpx.HTTPError, method: str) -> bool:
    """Whether a request that failed without a byte of an answer may be sent again at once, through the pacer.

    | error                                                          | safe method | other |
    |----------------------------------------------------------------|-------------|-------|
    | ReadError, WriteError, CloseError, and RemoteProtocolError     | once        | no    |
    | when the server disconnected                                   |             |       |
    | RemoteProtocolError for an answer that is no HTTP,             | no          | no    |
    | ConnectError, ProxyError, every timeout, LocalProtocolError,   |             |       |
    | UnsupportedProtocol, DecodingError, TooManyRedirects           |             |       |

    The first row is what a connection does that the server closed while it was idle (RFC 9112 9.3.1): the request is
    sent once more on a fresh one. Everything else is for the next beat: a poll is its own retry.
    """
    if isinstance(error, httpx.RemoteProtocolError):
        died = "disconnected" in str(error)  # httpcore has one class for both
    else:
        died = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.CloseError)
    return died and is_safe(method)


def full_jitter(attempt: int, *, base: float, cap: float, rng: random.Random) -> float:
    """A draw of `uniform(0, min(cap, base * 2**attempt))`, in seconds; `attempt` counts failures from zero."""
    # 2.0**1024 overflows; every cap is far below 2**64 bases.
    return rng.uniform(0.0, min(cap, base * 2.0 ** min(attempt, 64)))


def wait_after_refusal(hint: float | None, jitter: float) -> float:
    """Seconds to send nothing after a refusal: the hint plus the jitter, at least one second."""
    return max(LEAST_WAIT_SECONDS, (hint or 0.0) + jitter)
