"""The body of `/v2/status`, a background snapshot that says how far behind the data is."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.demo.market import Query

if TYPE_CHECKING:
    from engine.demo.market import Market

__all__ = ["status_of"]

_REFRESH_SECONDS = 30
_BLOCK_SECONDS = 2
_FIRST_BLOCK = 94_610_052
_FIRST_BLOCK_AT = 1_790_620_219


def status_of(market: Market, now: float) -> dict[str, Any]:
    """Describe `market` as of the newest snapshot, taken every half minute."""
    computed_at = max(now - now % _REFRESH_SECONDS, min(now, market.start))
    newest = market.page(computed_at, Query(taker_only=False), 1).rows
    lag = math.ceil(computed_at - (newest[0]["timestamp"] if newest else market.start))
    block = _FIRST_BLOCK + math.floor((computed_at - _FIRST_BLOCK_AT) / _BLOCK_SECONDS)
    lagging = {"source": "auto_redeem_binary_redemption", "block": block - 1, "behind_max": 1}
    return {
        "computed_at": datetime.fromtimestamp(math.floor(computed_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "age_seconds": math.floor(now - computed_at),
        "serving": {
            "lag_seconds": lag,
            "worst": "activity_feed",
            "mechanisms": [
                {"name": "activity_feed", "age_seconds": lag},
                {"name": "trades_feed", "age_seconds": lag, "blocks_behind": lag // _BLOCK_SECONDS},
            ],
        },
        "ingestion": {
            "cursors": 175,
            "network": "polygon",
            "chain_id": 137,
            "max_synced_block": block,
            "min_synced_block": block - 1,
            "most_lagged": lagging,
            "lagging": [lagging],
        },
    }
