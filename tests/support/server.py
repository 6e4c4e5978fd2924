"""A scripted HTTP server on loopback, on the loop of the test: it says what it is told and notes what arrives."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

import anyio
import trustme
from anyio.abc import AnyByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream

__all__ = ["Reply", "Seen", "Server", "authority", "serving"]


@cache
def authority() -> trustme.CA:
    """Who signs the server's certificate: made anew in each run."""
    return trustme.CA()


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    at: float
    """`time.monotonic` of its last header."""
    method: str
    target: str
    headers: dict[str, str]

    @property
    def path(self) -> str:
        return urlsplit(self.target).path


@dataclass(frozen=True)
class Reply:
    """What to answer, and how badly."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"[]"
    delay: float = 0.0
    """Seconds before the first byte."""
    drip: float = 0.0
    """Seconds between single bytes of the body."""
    length: int | None = None
    """Content-Length, where it is not the truth; -1: none, the end of the connection ends the body."""
    stall: bool = False
    """Say nothing more after the body and hold the line."""
    silent: bool = False
    """Close without an answer."""


@dataclass
class Server:
    """Where it listens, and what it has seen."""

    port: int
    tls: bool
    seen: list[Seen] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    """When each connection was taken up; its handshake came `handshake_delay` later."""
    tunnels: int = 0

    @property
    def url(self) -> str:
        return f"http{'s' * self.tls}://{'localhost' if self.tls else '127.0.0.1'}:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]


@asynccontextmanager
async def serving(
    script: Callable[[Seen], Reply], *, tls: bool = False, handshake_delay: float = 0.0
) -> AsyncIterator[Server]:
    """Serve while the context is open. Asked to CONNECT, or for a whole URL, it is a forward proxy."""
    context: ssl.SSLContext | None = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority().issue_cert("localhost", "127.0.0.1").configure_cert(context)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Server(listener.extra(SocketAttribute.local_port), tls)

    async def connection(raw: SocketStream) -> None:
        try:
            async with raw:
                server.accepted.append(time.monotonic())
                await anyio.sleep(handshake_delay)
                stream: AnyByteStream = raw
                if context is not None:
                    stream = await TLSStream.wrap(raw, server_side=True, ssl_context=context, standard_compatible=False)
                await _converse(server, stream, script)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # the client left: its business

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, connection)
        yield server
        group.cancel_scope.cancel()


async def _converse(server: Server, stream: AnyByteStream, script: Callable[[Seen], Reply]) -> None:
    buffered = BufferedByteReceiveStream(stream)
    while True:
        head = (await buffered.receive_until(b"\r\n\r\n", 65_536)).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        if method == "CONNECT":
            server.tunnels += 1
            await _tunnel(stream, buffered, target)
            return
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        seen = Seen(time.monotonic(), method, target, headers)
        server.seen.append(seen)
        if not await _answer(stream, script(seen)):
            return


async def _answer(stream: AnyByteStream, reply: Reply) -> bool:
    """Send it; whether the connection goes on."""
    await anyio.sleep(reply.delay)
    if reply.silent:
        return False
    length = len(reply.body) if reply.length is None else reply.length
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in reply.headers)]
    if length >= 0 and reply.status not in (204, 304):
        lines.append(f"content-length: {length}")
    await stream.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if reply.drip:
        for byte in reply.body:
            await stream.send(bytes([byte]))
            await anyio.sleep(reply.drip)
    elif reply.body and reply.status not in (204, 304):
        await stream.send(reply.body)
    if reply.stall:
        await anyio.sleep_forever()
    return length == len(reply.body)


async def _tunnel(client: AnyByteStream, buffered: BufferedByteReceiveStream, target: str) -> None:
    host, _, port = target.rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as upstream:
        await client.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        async with anyio.create_task_group() as group:

            async def copy(source: AnyByteStream, sink: AnyByteStream) -> None:
                try:
                    while True:
                        await sink.send(await source.receive())
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    group.cancel_scope.cancel()

            assert not buffered.buffer
            group.start_soon(copy, client, upstream)
            group.start_soon(copy, upstream, client)
