"""What is polled: one module a type, and which one a config means."""

from __future__ import annotations

from engine.config import HttpJsonSource, SourceConfig
from engine.sources.base import Source
from engine.sources.http_json import HttpJson
from engine.sources.polymarket import PolymarketTrades

__all__ = ["source_of"]


def source_of(config: SourceConfig) -> Source:
    """The source that a config describes."""
    return HttpJson(config) if isinstance(config, HttpJsonSource) else PolymarketTrades(config)
