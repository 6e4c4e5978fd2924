"""What the tests of the demo share: clocks to drive it, and a client inside virtual time."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import trio
import trio.testing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.types import ASGIApp

DAY_ZERO = 1_790_000_000.25


class HandClock:
    """Stands still until it is moved."""

    boot_id = "by hand"

    def __init__(self) -> None:
        self.now = 0.0

    def mono(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now

    def wall(self) -> float:
        return DAY_ZERO + self.now

    async def sleep_until(self, mono: float) -> None:
        self.now = max(self.now, mono)


class TrioClock:
    """The virtual time of trio's MockClock."""

    boot_id = "virtual"

    def mono(self) -> float:
        return trio.current_time()

    boot = mono

    def wall(self) -> float:
        return DAY_ZERO + trio.current_time()

    async def sleep_until(self, mono: float) -> None:
        await trio.sleep_until(mono)


def in_virtual_time(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://demo")


async def walk(client: httpx.AsyncClient, **params: Any) -> list[list[dict[str, Any]]]:
    """All pages of one walk."""
    pages = []
    while True:
        answer = (await client.get("/v2/trades", params=params)).raise_for_status().json()
        pages.append(answer["data"])
        if not answer["pagination"]["has_more"]:
            assert answer["pagination"]["next_cursor"] is None
            return pages
        params["cursor"] = answer["pagination"]["next_cursor"]


def fills(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, by what never changes of them."""
    fixed = ("transaction_hash", "proxy_wallet", "token_id", "side", "size", "timestamp")
    return Counter(tuple(row[field] for field in fixed) for row in rows)


def tape_row(timestamp: int, **fields: Any) -> dict[str, Any]:
    row = {
        "proxy_wallet": "0x" + "a" * 40,
        "side": "BUY",
        "token_id": "161132094870884752744724485333194906930530131426911582716222657711657085945",
        "condition_id": "0x" + "c" * 64,
        "size": 99.78,
        "price": 0.5512,
        "timestamp": timestamp,
        "title": "georgia governor",
        "slug": "georgia-governor",
        "icon": "",
        "event_slug": "midterms-2022",
        "outcome": "Republican",
        "outcome_index": 0,
        "name": "trader-da1f",
        "pseudonym": "",
        "bio": "",
        "profile_image": "",
        "profile_image_optimized": "",
        "transaction_hash": f"0x{timestamp:064x}",
    }
    return row | fields


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
