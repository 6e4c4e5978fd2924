"""Trades of the Polymarket Data API v2: `GET /v2/trades`, docs.polymarket.com/api-reference; a walk, newest first.

No row has an id, and two identical rows can be two real fills: rows are told apart by transaction, wallet, token, side,
size in millionths and the count of equal rows. Titles, names and pictures change, and are no part of identity.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import PolymarketTradesSource
from engine.errors import DriftError
from engine.signals import Bad, Record
from engine.sources.base import Page, date_of, elapsed_of, epoch_seconds, get_json, where_of

__all__ = ["NAMESPACE", "PolymarketTrades"]

NAMESPACE = "polymarket.trade"
PAGE_ROWS = 1000
"""The API's own maximum."""

_FEED = "feed"


class _Row(BaseModel):
    """The fields of a row that make its identity; strict, so that a changed type is noticed."""

    model_config = ConfigDict(strict=True, extra="ignore")

    transaction_hash: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{64}$")]
    proxy_wallet: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
    token_id: Annotated[str, Field(pattern=r"^[0-9]{1,78}$")]
    side: Literal["BUY", "SELL"]
    size: Annotated[int | float, Field(ge=0, le=1e15)]
    timestamp: int


class _Pagination(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    has_more: bool
    next_cursor: str | None = None


class _Envelope(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    data: list[Any]
    pagination: _Pagination


class PolymarketTrades:
    """`polymarket_trades`: a stream for each wallet, both sides of its fills; or the bare feed, taker side only."""

    type = "polymarket_trades"
    namespace = NAMESPACE
    identity = ""
    timed = True

    def __init__(self, config: PolymarketTradesSource) -> None:
        self.name = config.name
        self.interval = config.poll_interval_seconds
        self.max_pages = config.max_pages
        self.streams = tuple(f"{config.name}/{wallet}" for wallet in config.wallets or [_FEED])
        self._endpoint = httpx.URL(config.base_url.rstrip("/") + "/v2/trades")

    def first_url(self, stream: str) -> httpx.URL:
        wallet = stream.rpartition("/")[2]
        params: dict[str, str | int] = {"limit": PAGE_ROWS, "taker_only": "true"}
        if wallet != _FEED:
            # The API's default is true, and hides the maker's side of a wallet's fills.
            params |= {"user": wallet, "taker_only": "false"}
        return self._endpoint.copy_merge_params(params)

    async def page(self, client: httpx.AsyncClient, stream: str, cursor: str | None) -> Page:
        # A cursor carries no filters: they are sent with every page.
        url = self.first_url(stream)
        wallet = stream.rpartition("/")[2]
        data, response = await get_json(client, url if cursor is None else url.copy_merge_params({"cursor": cursor}))
        try:
            envelope = _Envelope.model_validate(data)
        except ValidationError as error:
            raise DriftError(
                f"the answer has changed its shape: {_first(error)} ({where_of(self._endpoint)})"
            ) from None
        if envelope.pagination.has_more and not envelope.pagination.next_cursor:
            raise DriftError(f"the answer says that there is more, and not where ({where_of(self._endpoint)})")
        rows = [_decode(row, wallet) for row in envelope.data]
        pagination = envelope.pagination
        return Page(
            records=[row for row in rows if isinstance(row, Record)],
            bad=[row for row in rows if isinstance(row, Bad)],
            next=pagination.next_cursor if pagination.has_more else None,
            date=date_of(response),
            elapsed=elapsed_of(response),
        )


def _decode(item: Any, wallet: str) -> Record | Bad:
    try:
        row = _Row.model_validate(item)
        time = epoch_seconds(row.timestamp)
    except ValidationError as error:
        return Bad.of(_first(error), item)
    except (ValueError, RecursionError) as error:
        return Bad.of(str(error), item)
    owner = row.proxy_wallet.lower()
    if wallet not in (_FEED, owner):
        return Bad.of("it is of another wallet than was asked for", item)
    identity = (NAMESPACE, row.transaction_hash.lower(), owner, row.token_id, row.side, round(row.size * 1e6))
    return Record(identity, time, item, counted=True)


def _first(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return ": ".join(filter(None, (".".join(str(part) for part in fault["loc"]), fault["msg"])))
