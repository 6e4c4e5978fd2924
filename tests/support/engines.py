"""An engine on a folder, in virtual time, over a scripted API; and what the tests of it share."""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx

from engine.clock import Clock
from engine.config import Config
from engine.sinks.base import Sink
from engine.store import StateFolder, Store
from engine.supervisor import Engine
from tests.support.virtual import WALL, VirtualClock

WALLET = "0x" + "ab" * 20
OTHER = "0x" + "cd" * 20


class ListSink:
    """Keeps what it is given; fails while `broken`."""

    name = "list"

    def __init__(self, name: str = "list") -> None:
        self.name = name
        self.lines: list[str] = []
        self.broken = 0
        self.tries = 0

    async def recover(self, owed: Sequence[str]) -> int:
        return 0

    async def write(self, lines: Sequence[str]) -> None:
        self.tries += 1
        if self.broken:
            self.broken -= 1
            raise OSError(5, "it is broken")
        self.lines += lines

    @property
    def ids(self) -> list[str]:
        return [json.loads(line)["id"] for line in self.lines]

    @property
    def payloads(self) -> list[Any]:
        return [json.loads(line)["payload"] for line in self.lines]


class StuckSink(ListSink):
    """Never returns from a write."""

    async def write(self, lines: Sequence[str]) -> None:
        self.tries += 1
        await anyio.sleep_forever()


Answer = httpx.Response | Exception


class Api:
    """A scripted API: `/items` is a bare list, `/v2/trades` pages of rows, newest first.

    It stamps `Date` by its own clock.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.items: list[Any] = []
        self.rows: list[tuple[float, int, dict[str, Any]]] = []
        """Since when a row is served, its sequence number, and the row."""
        self._seq = count()
        self.page_rows = 1000
        self.faults: deque[Answer] = deque()
        """Answered first, in turn."""
        self.broken_paths: dict[str, Callable[[], Answer]] = {}
        self.log: list[tuple[float, httpx.URL]] = []
        self.latency = 0.0

    @property
    def now(self) -> float:
        """Server time: no step of the client's clock moves it."""
        return WALL + self.clock.boot() - 1000.0

    def add(self, *rows: dict[str, Any], after: float = 0.0) -> None:
        self.rows += [(self.now + after, next(self._seq), row) for row in rows]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.log.append((self.clock.mono(), request.url))
        if self.latency:
            await anyio.sleep(self.latency)
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        answer.headers.setdefault("date", formatdate(self.now, usegmt=True))
        return answer

    def _answer(self, request: httpx.Request) -> Answer:
        if self.faults:
            return self.faults.popleft()
        if request.url.path in self.broken_paths:
            return self.broken_paths[request.url.path]()
        if request.url.path != "/v2/trades":
            # ASCII: lone surrogates, too.
            return httpx.Response(200, content=json.dumps(self.items), headers={"content-type": "application/json"})
        return httpx.Response(200, json=self._page(request.url.params))

    def _page(self, params: httpx.QueryParams) -> dict[str, Any]:
        shown = [(row["timestamp"], seq, row) for since, seq, row in self.rows if since <= self.now]
        shown.sort(key=lambda entry: entry[:2], reverse=True)
        if "user" in params:
            shown = [entry for entry in shown if entry[2]["proxy_wallet"] == params["user"]]
        if "cursor" in params:
            time, seq = map(int, params["cursor"].split("."))
            shown = [entry for entry in shown if entry[:2] < (time, seq)]
        limit = min(int(params["limit"]), self.page_rows)
        page, more = shown[:limit], len(shown) > limit
        cursor = f"{page[-1][0]}.{page[-1][1]}" if more else None
        return {"data": [entry[2] for entry in page], "pagination": {"has_more": more, "next_cursor": cursor}}

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)


def trade(number: int, time: float, wallet: str = WALLET, **changes: Any) -> dict[str, Any]:
    """A row of `/v2/trades`; equal numbers are equal rows."""
    return {
        "proxy_wallet": wallet,
        "side": "BUY",
        "token_id": str(10**70 + number),
        "size": 10.5 + number,
        "price": 0.4,
        "timestamp": int(time),
        "title": f"Market {number}",
        "outcome": "Yes",
        "transaction_hash": f"0x{number:064x}",
        **changes,
    }


def items_source(name: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "http_json",
        "url": "http://api.example/items",
        "id": ["id"],
        "poll_interval_seconds": 5.0,
        **changes,
    }


def trades_source(name: str = "trades", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "polymarket_trades",
        "base_url": "http://api.example",
        "poll_interval_seconds": 5.0,
        **changes,
    }


def config_of(*sources: dict[str, Any], **changes: Any) -> Config:
    return Config.model_validate({"default_rate": "600/60s", "sources": list(sources), **changes})


@asynccontextmanager
async def running(
    folder: Path,
    config: Config,
    clock: Clock,
    inner: httpx.AsyncBaseTransport | None,
    *sinks: Sink,
    kill: bool = False,
    inline: bool = True,
    seed: int = 1,
) -> AsyncIterator[Engine]:
    """An engine that runs for as long as this context; `kill` ends it without any goodbye."""
    held = StateFolder(folder, clock)
    try:
        store = Store(folder, clock, inline=inline)
        # No test here cuts the power; waiting for the disk would be most of its time.
        store._db.execute("PRAGMA synchronous=OFF")
        try:
            engine = Engine(config, store, clock=clock, sinks=sinks, rng=random.Random(seed), inner=inner)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.run)
                yield engine
                if kill:
                    tasks.cancel_scope.cancel()
                else:
                    engine.stop()
        finally:
            store.close()
    finally:
        held.close()


async def wait(clock: Clock, seconds: float) -> None:
    await clock.sleep_until(clock.mono() + seconds)


def texts(engine: Engine) -> list[str]:
    return [event.text for event in engine.events(0)[0]]


def repeated(values: Sequence[Any]) -> list[Any]:
    """What comes more than once."""
    return [value for value, times in Counter(values).items() if times > 1]
