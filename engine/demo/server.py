"""A real server on a free loopback port: uvicorn in the caller's asyncio loop, or in a thread with its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import anyio
import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractContextManager

    from starlette.types import ASGIApp

__all__ = ["serve", "serve_in_thread"]

_THREAD_SECONDS = 5.0


class _Server(uvicorn.Server):
    """Leaves the process's signals alone and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer nothing more: requests in flight are cancelled, connections closed."""
        await super().shutdown(sockets)
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


@asynccontextmanager
async def serve(app: ASGIApp, *, port: int = 0) -> AsyncIterator[str]:
    """Serve `app` under asyncio while the context is open, and give the base URL. Port 0: any that is free."""
    listener = _bound(port)
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL + 1,
            access_log=False,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=0,
        ),
    )
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    running = asyncio.create_task(server.serve(sockets=[listener]), name="demo server")
    try:
        await server.listening.wait()
        yield url
    finally:
        with anyio.CancelScope(shield=True):
            server.should_exit = True
            await running


@contextmanager
def serve_in_thread(app: ASGIApp, *, port: int = 0) -> Iterator[str]:
    """The same from any code, in a daemon thread; `app` must then be driven by a clock that works on asyncio."""
    served = _Thread(app, port)
    served.start()
    try:
        yield served.url()
    finally:
        served.stop()


class _Thread(threading.Thread):
    def __init__(self, app: ASGIApp, port: int) -> None:
        super().__init__(name="demo server", daemon=True)
        self._app = app
        self._port = port
        self._ready = threading.Event()
        self._url = ""
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._error = error
        finally:
            self._ready.set()

    def url(self) -> str:
        """Wait until the server listens."""
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._url

    def stop(self) -> None:
        if self._loop is not None and self._left is not None:
            with suppress(RuntimeError):  # the loop has closed: it has ended already
                self._loop.call_soon_threadsafe(self._left.set)
        self.join(_THREAD_SECONDS)
        if self._error is not None:
            raise self._error

    async def _serve(self) -> None:
        self._loop, self._left = asyncio.get_running_loop(), asyncio.Event()
        async with serve(self._app, port=self._port) as self._url:
            self._ready.set()
            await self._left.wait()


def _bound(port: int) -> socket.socket:
    # With the protocol named: asyncio sets TCP_NODELAY only then, and without it an answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
