"""20 callers, 200 requests, and a server that allows ten a second and bans whoever goes on.

The server is a process of its own. It allows ten requests in any second; one more, and everything is refused for as
long as the ban lasts, which each request within it begins anew. It says how long in seconds, as a date, or not at all.

Ours sends through the client that polltop sends with; the others wrap httpx or aiohttp as their documentation shows,
with more tries than there is time for. The ideal is 20 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from email.utils import formatdate
from typing import Any

import httpx

from engine.clock import SystemClock
from engine.config import Backoff, LimitConfig, Rate
from engine.errors import ThrottledError
from engine.pacing import Pacer
from engine.transport import open_client

__all__ = ["main", "serve"]

ALLOWED = 10
BAN_SECONDS = 2.0
CALLERS, EACH = 20, 10
IDEAL_SECONDS = CALLERS * EACH / ALLOWED
Get = Callable[[str], Awaitable[bool]]
"""Asks once, with all the retries that there are; whether there was a good answer."""


async def serve(hint: str) -> None:
    """Serve until stdin ends, and then say what was seen. The first line is the port."""
    allowed: deque[float] = deque()
    seen = {"good": 0, "refused": 0, "inside a ban": 0}
    banned_until = 0.0

    def judge() -> tuple[int, str]:
        nonlocal banned_until
        now = time.monotonic()
        while allowed and allowed[0] <= now - 1.0:
            allowed.popleft()
        inside = now < banned_until
        if not inside and len(allowed) < ALLOWED:
            allowed.append(now)
            seen["good"] += 1
            return 200, ""
        seen["refused"] += 1
        seen["inside a ban"] += inside
        banned_until = now + BAN_SECONDS
        if hint == "seconds":
            return 429, f"Retry-After: {BAN_SECONDS:.0f}\r\n"
        # A date has whole seconds: the next one after the ban.
        return (
            429,
            f"Retry-After: {formatdate(time.time() + BAN_SECONDS + 1, usegmt=True)}\r\n" if hint == "date" else "",
        )

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                status, header = judge()
                head = f"HTTP/1.1 {status} X\r\n{header}content-type: application/json\r\ncontent-length: 2\r\n\r\n[]"
                writer.write(head.encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(seen), flush=True)


@contextmanager
def serving(hint: str, seen: dict[str, int]) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.throttled", "--serve", hint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/items"
            process.stdin.close()
            seen.update(json.loads(process.stdout.readline()))
        finally:
            process.kill()


# The clients


@asynccontextmanager
async def polltop(per_second: int = ALLOWED) -> AsyncIterator[Get]:
    clock = SystemClock()
    pacer = Pacer(
        [LimitConfig(match="http://127.0.0.1*", rate=Rate(per_second, 1.0))],
        default_rate=Rate(1, 1.0),
        min_interval=0.0,
        headroom=0.05,
        backoff=Backoff(),
        clock=clock,
        rng=random.Random(1),
    )
    async with open_client(pacer, clock) as (client, _):

        async def get(url: str) -> bool:
            while True:
                try:
                    return (await client.get(url)).status_code == 200
                except ThrottledError as error:  # as a source does: it is nobody's failure
                    await clock.sleep_until(clock.mono() + error.until - clock.boot())

        yield get


def raising(client: httpx.AsyncClient, decorate: Callable[[Any], Any]) -> Get:
    @decorate
    async def get(url: str) -> bool:
        (await client.get(url)).raise_for_status()
        return True

    return get  # type: ignore[no-any-return]


@asynccontextmanager
async def tenacity() -> AsyncIterator[Get]:
    from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

    again = retry_if_exception_type(httpx.HTTPError)
    async with httpx.AsyncClient() as client:
        yield raising(
            client, retry(wait=wait_random_exponential(1, 60), stop=stop_after_attempt(50), retry=again, reraise=True)
        )


@asynccontextmanager
async def stamina() -> AsyncIterator[Get]:
    import stamina as library

    library.instrumentation.set_on_retry_hooks([])  # it would log each
    async with httpx.AsyncClient() as client:
        yield raising(client, library.retry(on=httpx.HTTPError, attempts=50, timeout=None))


@asynccontextmanager
async def backoff() -> AsyncIterator[Get]:
    import backoff as library

    async with httpx.AsyncClient() as client:
        yield raising(client, library.on_exception(library.expo, httpx.HTTPError, max_tries=50, max_value=60))


@asynccontextmanager
async def httpx_retries() -> AsyncIterator[Get]:
    from httpx_retries import Retry, RetryTransport

    async with httpx.AsyncClient(transport=RetryTransport(retry=Retry(total=50, backoff_factor=0.5))) as client:

        async def get(url: str) -> bool:
            return (await client.get(url)).status_code == 200

        yield get


@asynccontextmanager
async def aiohttp_retry() -> AsyncIterator[Get]:
    from aiohttp_retry import ExponentialRetry, RetryClient

    options = ExponentialRetry(attempts=50, statuses={429})
    async with RetryClient(retry_options=options) as client:

        async def get(url: str) -> bool:
            async with client.get(url) as response:
                return bool(response.status == 200)

        yield get


async def run(client: Callable[[], Any], url: str, cutoff: float) -> tuple[int, float]:
    """How many good answers came, and after how many seconds the last one."""
    start = time.monotonic()
    done: list[float] = []

    async def caller(get: Get) -> None:
        for _ in range(EACH):
            if await get(url):
                done.append(time.monotonic() - start)

    async with client() as get:
        try:
            async with asyncio.timeout(cutoff):
                await asyncio.gather(*(caller(get) for _ in range(CALLERS)), return_exceptions=True)
        except TimeoutError:
            pass
    return len(done), max(done, default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="cut the others off after 30 s instead of 90 s")
    parser.add_argument("--ours", action="store_true", help="leave the others out")
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
        return
    clients: dict[str, Callable[[], Any]] = {"polltop": polltop, "polltop, told 20/s": lambda: polltop(2 * ALLOWED)}
    if not arguments.ours:
        peers = (tenacity, stamina, backoff, httpx_retries, aiohttp_retry)
        clients |= {peer.__name__: peer for peer in peers}
    print("| | hint | good | refused | inside a ban | of the ideal 20 s |\n|---|---|---|---|---|---|")
    for name, client in clients.items():
        cutoff = 30.0 if arguments.quick and not name.startswith("polltop") else 90.0
        for hint in ("seconds", "date", "none"):
            seen: dict[str, int] = {}
            try:
                with serving(hint, seen) as url:
                    good, took = asyncio.run(run(client, url, cutoff))
            except ImportError as error:
                print(f"| {name} | not measured: {error} |")
                break
            ratio = f"{took / IDEAL_SECONDS:.2f}" if good == CALLERS * EACH else "unfinished"
            print(f"| {name} | {hint} | {good} | {seen['refused']} | {seen['inside a ban']} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
