"""What an answer means, and how long the wait is."""

from __future__ import annotations

import math
import random

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backoff import (
    BAN_MEMORY_SECONDS,
    LEAST_WAIT_SECONDS,
    Verdict,
    classify,
    full_jitter,
    is_safe,
    may_send_again,
    wait_after_refusal,
)
from engine.hints import MAX_HINT_SECONDS

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
        assert (plain, hinted, soon, late) == (
            Verdict.TRANSIENT,
            Verdict.UNAVAILABLE,
            Verdict.TRANSIENT,
            Verdict.TRANSIENT,
        )
    elif status == 403:
        assert (plain, hinted, soon, late) == (Verdict.FATAL, Verdict.REFUSED, Verdict.BANNED, Verdict.FATAL)
        assert classify(status, hint=5.0, since_refusal=0.0) is Verdict.REFUSED
    elif status == 418:
        assert (plain, hinted, soon, late) == (Verdict.FATAL, Verdict.FATAL, Verdict.BANNED, Verdict.FATAL)
        assert classify(status, hint=5.0, since_refusal=0.0) is Verdict.BANNED
    else:
        assert {plain, hinted, soon, late} == {Verdict.FATAL if status in FATAL else Verdict.TRANSIENT}


def test_only_refusals_are_refusals() -> None:
    assert [verdict for verdict in Verdict if verdict.refused] == [
        Verdict.REFUSED,
        Verdict.BANNED,
        Verdict.UNAVAILABLE,
    ]


def errors_of_httpx() -> list[type[httpx.HTTPError]]:
    """Every kind of error that httpx raises for a request, but the kinds that are only ever a heading."""
    found: list[type[httpx.HTTPError]] = []
    heads = [httpx.HTTPError]
    while heads:
        head = heads.pop()
        heads += head.__subclasses__()
        if not head.__subclasses__() and head.__module__.startswith("httpx"):
            found.append(head)
    return sorted(found, key=lambda kind: kind.__name__)


DIED = {"ReadError", "WriteError", "CloseError"}


@pytest.mark.parametrize("kind", errors_of_httpx())
@pytest.mark.parametrize("method", ["GET", "get", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "X"])
def test_which_failures_a_request_is_sent_again_after(kind: type[httpx.HTTPError], method: str) -> None:
    request = httpx.Request("GET", "https://a.example/")
    if kind is httpx.HTTPStatusError:
        error: httpx.HTTPError = httpx.HTTPStatusError("no", request=request, response=httpx.Response(500))
    else:
        error = kind("what happened")
    safe = method.upper() in {"GET", "HEAD", "OPTIONS", "TRACE"}
    assert is_safe(method) == safe
    assert may_send_again(error, method) == (safe and kind.__name__ in DIED)


def test_httpx_has_the_errors_that_the_matrix_knows() -> None:
    assert {kind.__name__ for kind in errors_of_httpx()} == DIED | {
        *("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "ConnectError", "ProxyError"),
        *("UnsupportedProtocol", "LocalProtocolError", "RemoteProtocolError", "DecodingError"),
        *("TooManyRedirects", "HTTPStatusError"),
    }


def test_a_server_that_hung_up_is_told_from_one_that_talks_nonsense() -> None:
    hung_up = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    assert may_send_again(hung_up, "GET")
    assert not may_send_again(hung_up, "POST")
    assert not may_send_again(httpx.RemoteProtocolError("illegal status line"), "GET")


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
