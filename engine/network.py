"""How a request reaches the network: the proxies of the environment, connections, and when a slot is spent on one.

A cancelled request that is still queued for a connection can lose its pool slot for good in httpcore 1.0
(encode/httpcore#1093). The pools here are unbounded and the pacer bounds what is in flight, so nothing ever queues
there; requests are cancelled by anyio scopes only; and a pool is replaced by a fresh one every now and then, so that
what leaks nevertheless, or is connected to an address of last month, does not stay for weeks.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx

from engine.clock import Clock

__all__ = ["CONNECT_SECONDS", "TOTAL_SECONDS", "Network"]

TOTAL_SECONDS = 30.0
"""From the grant to the last byte of the body; a server that delays instead of refusing stays within it."""
CONNECT_SECONDS = 10.0

RECYCLE_SECONDS = 3600.0
"""A pool takes new requests for so long."""

_SEND_EVENTS = ("http11.send_request_headers.started", "http2.send_request_headers.started")


class _Send(Protocol):
    grant: Any

    async def acquire(self, scope: anyio.CancelScope) -> None:
        """Spend a slot on it: nothing is sent before."""
        ...


class Network:
    """The connections of one engine.

    Args:
        clock: The engine's.
        keepalive_seconds: How long an idle connection is kept.
    """

    def __init__(self, clock: Clock, keepalive_seconds: float) -> None:
        self._clock = clock
        self._keepalive = keepalive_seconds
        self._pools: dict[str, httpx.AsyncBaseTransport] = {}
        self._opened_at = clock.mono()
        self._retired: list[httpx.AsyncBaseTransport] = []
        self._connected: dict[str, anyio.Event] = {}
        self._last: dict[str, float] = {}

    async def send(self, request: httpx.Request, send: _Send, scope: anyio.CancelScope) -> httpx.Response:
        """Send `request`, with `send.acquire` at the last moment before its bytes go out.

        Raises:
            httpx.TransportError: As httpx does; ProxyError also for a proxy of a kind that is not known.
        """
        await self._recycle()
        pool = self._pool(request.url)
        host = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        if self._clock.mono() - self._last.get(host, 0.0) >= self._keepalive:
            self._connected.pop(host, None)  # what was open is closed by now
        connected = self._connected.get(host)
        if connected is None:
            return await self._connect_and_send(host, pool, request, send, scope)
        await connected.wait()
        await send.acquire(scope)
        self._last[host] = self._clock.mono()
        return await pool.handle_async_request(request)

    async def _connect_and_send(
        self, host: str, pool: httpx.AsyncBaseTransport, request: httpx.Request, send: _Send, scope: anyio.CancelScope
    ) -> httpx.Response:
        """Open the first connection to a host before the first slot is spent.

        The set-up of a connection delays the first request and so shortens the gap to the second as the server sees it.
        The others wait for the connection; when it fails they go on their own way, and the next request tries again.
        """
        connected = self._connected[host] = anyio.Event()
        self._last[host] = float("inf")

        async def before_headers(name: str, info: dict[str, Any]) -> None:
            # CONNECT goes to a proxy: it is part of opening the connection.
            if name in _SEND_EVENTS and info["request"].method != b"CONNECT" and send.grant is None:
                self._last[host] = self._clock.mono()
                connected.set()
                await send.acquire(scope)
                self._last[host] = self._clock.mono()

        scope.deadline = anyio.current_time() + TOTAL_SECONDS
        extensions = request.extensions
        request.extensions = {**extensions, "trace": before_headers}
        try:
            return await pool.handle_async_request(request)
        finally:
            request.extensions = extensions
            if not connected.is_set():
                del self._connected[host]
                connected.set()

    async def _recycle(self) -> None:
        if self._clock.mono() - self._opened_at < RECYCLE_SECONDS:
            return
        # Whatever was under way on those that were retired an hour ago has ended long since.
        old, self._retired = self._retired, list(self._pools.values())
        self._pools, self._opened_at = {}, self._clock.mono()
        self._last.clear()
        for pool in old:
            await pool.aclose()

    def _pool(self, url: httpx.URL) -> httpx.AsyncBaseTransport:
        proxies = getproxies()
        proxy = proxies.get(url.scheme) or proxies.get("all") or ""
        if proxy and proxy_bypass(url.host):
            proxy = ""
        if proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
        if proxy not in self._pools:
            self._pools[proxy] = self._open(proxy)
        return self._pools[proxy]

    def _open(self, proxy: str) -> httpx.AsyncBaseTransport:
        try:
            # retries=0: httpcore's own would be sent without a grant. The pool is unbounded: see the docstring.
            return httpx.AsyncHTTPTransport(
                retries=0,
                proxy=proxy or None,
                limits=httpx.Limits(
                    max_connections=None, max_keepalive_connections=64, keepalive_expiry=self._keepalive
                ),
            )
        except (ImportError, ValueError) as error:  # SOCKS wants a package that is not among ours
            raise httpx.ProxyError(f"the proxy that the environment names cannot be used: {error}") from error

    async def aclose(self) -> None:
        for pool in (*self._pools.values(), *self._retired):
            await pool.aclose()
