"""The only door to the network: every request, with each page, redirect, auth hop and retry, asks the pacer first.

httpx 0.28 has two faults that the rules here avoid. A cancelled request that is still queued for a connection can lose
its pool slot for good (encode/httpcore#1093): the pool here is unbounded and the pacer bounds what is in flight, so
nothing ever queues there; requests are cancelled by anyio scopes only. And a decompression bomb arrives as one chunk:
only gzip is asked for, read raw, and inflated in bounded steps.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, cast
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx

from engine import __version__
from engine.backoff import Verdict, classify, retry_after
from engine.clock import Clock
from engine.pacing import Grant, Pacer
from engine.tally import Tally

__all__ = ["DECODED_CAP", "RAW_CAP", "TOTAL_SECONDS", "PacedTransport", "open_client"]

RAW_CAP = 8 * 2**20
"""Most bytes of a body as sent."""
DECODED_CAP = 32 * 2**20
"""Most bytes of a body once inflated."""
TOTAL_SECONDS = 30.0
"""From the grant to the last byte of the body; a server that delays instead of refusing stays within it."""
CONNECT_SECONDS = 10.0

_STEP = 64 * 2**10
_SEND_EVENTS = ("http11.send_request_headers.started", "http2.send_request_headers.started")


class PacedTransport(httpx.AsyncBaseTransport):
    """Sends each request when the pacer grants it, and again after a refusal, until `max_tries` were refused.

    An answer comes back read whole and inflated. It raises httpx's own errors: `ReadTimeout` when the answer is not
    complete within `TOTAL_SECONDS`, `DecodingError` for a body over its bounds, cut short, or in another encoding.
    """

    def __init__(self, pacer: Pacer, clock: Clock, *, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self.responses: Counter[str] = Counter()
        """Answers by status; `error` counts requests that were sent, or tried to be, and got none."""
        self.requests = 0
        """Requests granted."""
        self.per_second = Tally(clock.mono, seconds=1.0, buckets=60)
        self._pacer = pacer
        self._clock = clock
        self._given = inner
        self._inner: dict[str, httpx.AsyncBaseTransport] = {}
        self._opened: dict[str, anyio.Event] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(self._pacer.backoff.max_tries - 1):
            verdict, response = await self._try(request)
            if not verdict.refused:
                return response
        return (await self._try(request))[1]

    async def _try(self, request: httpx.Request) -> tuple[Verdict, httpx.Response]:
        send = _Send(self, request)
        verdict = Verdict.TRANSIENT
        try:
            with anyio.CancelScope() as scope:
                response = await self._exchange(request, send, scope)
                grant = send.grant
                if grant is None:
                    raise RuntimeError("a request was sent without a grant: the connection library has changed")
                verdict, hint = self._judge(grant, response)
                if verdict.refused:
                    # At once: whoever waits under these limits must not go while this body is still coming.
                    cause = f"{response.status_code}" + (f" Retry-After {hint:g}s" if hint is not None else "")
                    grant.settle(verdict, hint=hint, cause=cause)
                whole = self._whole(response, await _read(response, request), grant)
            if scope.cancelled_caught:
                raise httpx.ReadTimeout(f"no complete answer within {TOTAL_SECONDS:g} s", request=request)
        except httpx.HTTPError:
            self.responses["error" if send.grant is not None else "no connection"] += 1
            raise
        finally:
            # Settled as it stands, whatever ended it: an error, a cancellation, or the last byte.
            if send.grant is not None:
                send.grant.settle(verdict)
        self.responses[str(whole.status_code)] += 1
        return verdict, whole

    async def _exchange(self, request: httpx.Request, send: _Send, scope: anyio.CancelScope) -> httpx.Response:
        inner = self._given
        if inner is None:
            inner = self._inner_for(request.url)
            host = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            opened = self._opened.get(host)
            if opened is None:
                return await self._open_and_send(host, inner, request, send, scope)
            await opened.wait()
        await send.acquire(scope)
        return await inner.handle_async_request(request)

    async def _open_and_send(
        self, host: str, inner: httpx.AsyncBaseTransport, request: httpx.Request, send: _Send, scope: anyio.CancelScope
    ) -> httpx.Response:
        """Open the first connection to a host before the first slot is spent.

        The set-up of a connection delays the first request and so shortens the gap to the second as the server sees it.
        The others wait for the connection; when it fails they go on their own way, and the next request tries again.
        """
        opened = self._opened[host] = anyio.Event()

        async def before_headers(name: str, info: dict[str, Any]) -> None:
            # CONNECT goes to a proxy: it is part of opening the connection.
            if name in _SEND_EVENTS and info["request"].method != b"CONNECT" and send.grant is None:
                opened.set()
                await send.acquire(scope)

        scope.deadline = anyio.current_time() + TOTAL_SECONDS
        extensions = request.extensions
        request.extensions = {**extensions, "trace": before_headers}
        try:
            return await inner.handle_async_request(request)
        finally:
            request.extensions = extensions
            if not opened.is_set():
                del self._opened[host]
                opened.set()

    def _inner_for(self, url: httpx.URL) -> httpx.AsyncBaseTransport:
        proxies = getproxies()
        proxy = proxies.get(url.scheme) or proxies.get("all") or ""
        if proxy and proxy_bypass(url.host):
            proxy = ""
        if proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
        if proxy not in self._inner:
            try:
                # retries=0: httpcore's own would be sent without a grant. The pool is unbounded: see the docstring.
                self._inner[proxy] = httpx.AsyncHTTPTransport(
                    retries=0,
                    proxy=proxy or None,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0),
                )
            except (ImportError, ValueError) as error:  # SOCKS wants a package that is not among ours
                raise httpx.ProxyError(f"the proxy that the environment names cannot be used: {error}") from error
        return self._inner[proxy]

    def _judge(self, grant: Grant, response: httpx.Response) -> tuple[Verdict, float | None]:
        hint = retry_after(response.headers, self._clock.wall())
        return classify(response.status_code, hint=hint, since_refusal=grant.since_refusal), hint

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
        for inner in self._inner.values():
            await inner.aclose()
        if self._given is not None:
            await self._given.aclose()


class _Send:
    """A request, sent once: takes its grant at the last moment before bytes go out; the deadline runs from there."""

    def __init__(self, transport: PacedTransport, request: httpx.Request) -> None:
        self.grant: Grant | None = None
        self._transport = transport
        self._request = request

    async def acquire(self, scope: anyio.CancelScope) -> None:
        # Waiting for leave is not waiting for the server.
        scope.deadline = float("inf")
        self.grant = await self._transport._pacer.acquire(self._request.url)  # noqa: SLF001 - its helper
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
    pacer: Pacer, clock: Clock, *, inner: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, PacedTransport]]:
    """The client that everything here sends with, and its transport (for its counts).

    Args:
        pacer: Who may send, when.
        clock: The engine's clock.
        inner: What sends in place of the network; for tests in virtual time.
    """
    transport = PacedTransport(pacer, clock, inner=inner)
    client = httpx.AsyncClient(
        transport=transport,
        trust_env=False,  # the transport itself reads the proxies
        follow_redirects=False,
        timeout=httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        headers={"user-agent": f"polltop/{__version__}", "accept": "application/json", "accept-encoding": "gzip"},
    )
    async with client:
        yield client, transport
