"""The only door to the network: every request, with each page, redirect, auth hop and retry, asks the pacer first.

Each answer goes back to the pacer: whether it was a refusal, what it asks for, and what it says is left. httpx hands on
a decompression bomb as one chunk: here only gzip is asked for, read raw, and inflated in bounded steps.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import cast

import anyio
import httpx
from anyio.lowlevel import checkpoint_if_cancelled

from engine import __version__
from engine.backoff import Verdict, classify, is_safe, may_send_again
from engine.bodies import body_says
from engine.clock import Clock
from engine.hints import advice, reset_after, retry_after
from engine.network import CONNECT_SECONDS, TOTAL_SECONDS, Network
from engine.pacing import Grant, Pacer
from engine.tally import Tally

__all__ = ["DECODED_CAP", "PATIENCE_SECONDS", "RAW_CAP", "PacedTransport", "on_behalf_of", "open_client"]

RAW_CAP = 8 * 2**20
"""Most bytes of a body as sent."""
DECODED_CAP = 32 * 2**20
"""Most bytes of a body once inflated."""
PATIENCE_SECONDS = 30.0
"""How long a request waits for cool-downs, all in all; for a longer one its source is throttled until it is over."""

_STEP = 64 * 2**10


@dataclass(frozen=True, slots=True)
class _Asker:
    source: str = ""
    urgent: bool = False


_NOBODY = _Asker()
_asker: ContextVar[_Asker] = ContextVar("asker", default=_NOBODY)


@contextmanager
def on_behalf_of(source: str, *, urgent: bool = False) -> Iterator[None]:
    """All requests within are the source's: for limits that are for some sources only, and for whom goes first."""
    token = _asker.set(_Asker(source, urgent))
    try:
        yield
    finally:
        _asker.reset(token)


class PacedTransport(httpx.AsyncBaseTransport):
    """Sends each request when the pacer grants it, and again after a refusal, until `max_tries` were refused.

    An answer comes back read whole and inflated. It raises httpx's own errors: `ReadTimeout` when the answer is not
    complete within `TOTAL_SECONDS`, `DecodingError` for a body over its bounds, cut short, or in another encoding.
    And ThrottledError when the limits cool down for longer than `PATIENCE_SECONDS`, or `max_tries` were refused.
    """

    def __init__(
        self,
        pacer: Pacer,
        clock: Clock,
        *,
        inner: httpx.AsyncBaseTransport | None = None,
        keepalive_seconds: float = 60.0,
    ) -> None:
        self.responses: Counter[str] = Counter()
        """Answers by status; `error` counts requests that were sent, or tried to be, and got none."""
        self.requests = 0
        """Requests granted."""
        self.per_second = Tally(clock.mono, seconds=1.0, buckets=60)
        self._pacer = pacer
        self._clock = clock
        self._network = None if inner is not None else Network(clock, keepalive_seconds)
        self._given = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        refused = 0
        first_refused = math.inf
        sent_again = False
        while True:
            # A poll is its own retry: what it waits for, from its first refusal on, it waits for so long and no longer.
            patience = PATIENCE_SECONDS - max(0.0, self._clock.boot() - first_refused)
            send = _Send(self, request, patience)
            try:
                verdict, response = await self._try(request, send)
            except httpx.HTTPError as error:
                if send.answered or send.grant is None or sent_again or not may_send_again(error, request.method):
                    raise
                sent_again = True
                continue
            if not verdict.refused:
                return response
            refused += 1
            first_refused = min(first_refused, self._clock.boot())
            again = is_safe(request.method) if verdict is Verdict.UNAVAILABLE else True
            if refused >= self._pacer.backoff.max_tries or not again:
                assert send.grant is not None
                raise send.grant.throttled()

    async def _try(self, request: httpx.Request, send: _Send) -> tuple[Verdict, httpx.Response]:
        verdict = Verdict.TRANSIENT
        whole = response = httpx.Response(0)
        latency: float | None = None
        try:
            with anyio.CancelScope() as scope:
                response = await self._exchange(request, send, scope)
                send.answered = True
                grant = send.grant
                if grant is None:
                    raise RuntimeError("a request was sent without a grant: the connection library has changed")
                latency = self._clock.mono() - grant.at
                verdict, hint = self._judge(grant, response)
                body = await self._body(response, request, verdict)
                verdict = self._judge_body(grant, response, body, verdict, hint)
                whole = self._whole(response, body, grant)
            if scope.cancelled_caught and not verdict.refused:
                raise httpx.ReadTimeout(f"no complete answer within {TOTAL_SECONDS:g} s", request=request)
        except httpx.HTTPError:
            self.responses["error" if send.grant is not None else "no connection"] += 1
            raise
        finally:
            # Settled as it stands, whatever ended it: an error, a cancellation, or the last byte.
            if send.grant is not None:
                send.grant.settle(verdict, latency=latency)
        self.responses[str(response.status_code)] += 1
        return verdict, whole

    async def _exchange(self, request: httpx.Request, send: _Send, scope: anyio.CancelScope) -> httpx.Response:
        if self._network is not None:
            return await self._network.send(request, send, scope)
        assert self._given is not None
        await send.acquire(scope)
        return await self._given.handle_async_request(request)

    def _judge(self, grant: Grant, response: httpx.Response) -> tuple[Verdict, float | None]:
        """What the head of an answer means, at once: whoever waits must not go while a refusal's body still comes."""
        status, now = response.status_code, self._clock.wall()
        said = " Retry-After"
        hint = retry_after(response.headers, now)
        if hint is None and status >= 400:  # noqa: PLR2004 - an error
            said = " quota resets in"
            hint = reset_after(response.headers, now, refused=status == 429)  # noqa: PLR2004 - too many requests
        verdict = classify(status, hint=hint, since_refusal=grant.since_refusal)
        if verdict.refused:
            grant.settle(verdict, hint=hint, cause=f"{status}" + (f"{said} {hint:g}s" if hint is not None else ""))
        elif (told := advice(response.headers, now)) is not None:
            grant.advise(told)
        return verdict, hint

    def _judge_body(
        self, grant: Grant, response: httpx.Response, body: bytes, verdict: Verdict, hint: float | None
    ) -> Verdict:
        """What the body adds: a refusal inside a 200, a ban, a longer wait."""
        says = body_says(response.status_code, response.headers, body, self._clock.wall())
        if says is None or not (verdict.refused or says.refused or says.banned):
            return verdict
        longer = says.wait is not None and says.wait > (hint or 0.0)
        if verdict.refused and not longer and not (says.banned and verdict is not Verdict.BANNED):
            return verdict
        verdict = Verdict.BANNED if says.banned else verdict if verdict.refused else Verdict.REFUSED
        cause = f"{response.status_code}, its body" + (
            f" asks for {says.wait:g}s" if says.wait is not None else " says so"
        )
        grant.settle_or_extend(
            verdict, hint=max(hint or 0.0, says.wait or 0.0) or None, cause=cause, exact=says.wait is not None
        )
        return verdict

    async def _body(self, response: httpx.Response, request: httpx.Request, verdict: Verdict) -> bytes:
        try:
            return await _read(response, request)
        except httpx.HTTPError:
            if not verdict.refused:
                raise
            return b""  # a refusal is one, however its body ends

    def _whole(self, response: httpx.Response, body: bytes, grant: Grant) -> httpx.Response:
        dropped = ("content-encoding", "content-length", "transfer-encoding")
        return httpx.Response(
            response.status_code,
            headers=[pair for pair in response.headers.multi_items() if pair[0].lower() not in dropped],
            content=body,
            extensions={**response.extensions, "elapsed": self._clock.mono() - grant.at},
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._network is not None:
            await self._network.aclose()
        if self._given is not None:
            await self._given.aclose()


class _Send:
    """A request, sent once: takes its grant at the last moment before bytes go out; the deadline runs from there."""

    def __init__(self, transport: PacedTransport, request: httpx.Request, patience: float) -> None:
        self.grant: Grant | None = None
        self.answered = False
        self._transport = transport
        self._request = request
        self._patience = patience

    async def acquire(self, scope: anyio.CancelScope) -> None:
        # Who was cancelled, or is too late, as the connection stood spends no slot.
        await checkpoint_if_cancelled()
        # Waiting for leave is not waiting for the server.
        scope.deadline = float("inf")
        asker = _asker.get()
        self.grant = await self._transport._pacer.acquire(  # noqa: SLF001 - its helper
            self._request.url,
            method=self._request.method,
            source=asker.source,
            urgent=asker.urgent,
            patience=self._patience,
        )
        self._transport.requests += 1
        self._transport.per_second.add()
        scope.deadline = anyio.current_time() + TOTAL_SECONDS


async def _read(response: httpx.Response, request: httpx.Request) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        await response.aclose()
        raise httpx.DecodingError(f"the answer is encoded as {encoding!r}, which was not asked for", request=request)
    inflate = None if encoding in ("", "identity") else _Inflate(request)
    body = bytearray()
    raw = 0
    # Closed here and not when the garbage is collected, also when this side breaks off.
    async with aclosing(_raw(response)) as chunks:
        async for chunk in chunks:
            raw += len(chunk)
            if raw > RAW_CAP:
                raise httpx.DecodingError(f"the answer is larger than {RAW_CAP >> 20} MiB", request=request)
            if inflate is None:
                body += chunk
            else:
                inflate.feed(chunk, body)
    if inflate is not None and raw:  # a 304 or 204 may name an encoding, and has no body
        inflate.finish()
    return bytes(body)


async def _raw(response: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        async for chunk in cast(httpx.AsyncByteStream, response.stream):
            yield chunk
    finally:
        await response.aclose()


class _Inflate:
    """gzip, in steps of 64 KiB, up to `DECODED_CAP` bytes."""

    def __init__(self, request: httpx.Request) -> None:
        self._request = request
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes, body: bytearray) -> None:
        try:
            while chunk:
                if self._stream.eof:
                    # RFC 1952: members may follow each other.
                    self._stream = zlib.decompressobj(wbits=31)
                body += self._stream.decompress(chunk, _STEP)
                if len(body) > DECODED_CAP:
                    raise httpx.DecodingError(
                        f"the answer inflates to more than {DECODED_CAP >> 20} MiB", request=self._request
                    )
                chunk = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error as error:
            raise httpx.DecodingError(
                f"the answer is not the gzip it says it is: {error}", request=self._request
            ) from error

    def finish(self) -> None:
        if not self._stream.eof:
            raise httpx.DecodingError("the answer was cut short", request=self._request)


@asynccontextmanager
async def open_client(
    pacer: Pacer, clock: Clock, *, inner: httpx.AsyncBaseTransport | None = None, keepalive_seconds: float = 60.0
) -> AsyncIterator[tuple[httpx.AsyncClient, PacedTransport]]:
    """The client that everything here sends with, and its transport (for its counts).

    Args:
        pacer: Who may send, when.
        clock: The engine's clock.
        inner: What sends in place of the network; for tests in virtual time.
        keepalive_seconds: How long an idle connection is kept: less than the beat of what is polled, or each poll
            meets a connection that the server is about to close.
    """
    transport = PacedTransport(pacer, clock, inner=inner, keepalive_seconds=keepalive_seconds)
    client = httpx.AsyncClient(
        transport=transport,
        trust_env=False,  # the transport itself reads the proxies
        follow_redirects=False,
        timeout=httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        headers={"user-agent": f"polltop/{__version__}", "accept": "application/json", "accept-encoding": "gzip"},
    )
    async with client:
        yield client, transport
