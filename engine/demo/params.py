"""The query of `/v2/trades`: what is accepted, and how the rest is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.demo.market import Side

__all__ = ["BadRequestError", "TradesParams"]

_MOST_ROWS = 1000
_ABSENT_HERE = ("condition", "event_id", "filter_type", "filter_amount")


class BadRequestError(Exception):
    """Answered with 400 and this text."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class TradesParams:
    """A query that holds."""

    user: str | None
    limit: int | None
    cursor: str | None
    taker_only: bool
    side: Side | None
    start: int | None
    end: int | None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read snake_case and camelCase names. Raises BadRequestError."""
        query = {re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name): given[name] for name in given}
        if "offset" in query:
            raise _fault("offset", "unknown field `offset`, pages are walked with `cursor`")
        for name in _ABSENT_HERE:
            if name in query:
                raise _fault(name, "this filter is not part of the demo")
        user = _user(query.get("user"))
        start, end = _seconds("start", query.get("start")), _seconds("end", query.get("end"))
        return cls(
            user=user,
            limit=_limit(query.get("limit")),
            cursor=query.get("cursor"),
            taker_only=_flag("taker_only", query.get("taker_only"), default=True),
            side=_side(query.get("side")),
            # Documented: honoured only with `user`.
            start=start if user is not None else None,
            end=end if user is not None else None,
        )


def _fault(name: str, reason: str) -> BadRequestError:
    return BadRequestError(f"Failed to deserialize query string: {name}: {reason}", name)


def _user(value: str | None) -> str | None:
    if value is None:
        return None
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", value):
        raise _fault("user", "a wallet is 0x and 40 hex digits")
    return value.lower()


def _limit(value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) > _MOST_ROWS:
        raise _fault("limit", f"limit must be between 0 and {_MOST_ROWS}")
    return int(value)


def _seconds(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,12}", value):
        raise _fault(name, "not a time in whole seconds")
    return int(value)


def _flag(name: str, value: str | None, *, default: bool) -> bool:
    if value is None:
        return default
    if value not in {"true", "false"}:
        raise _fault(name, "neither true nor false")
    return value == "true"


def _side(value: str | None) -> Side | None:
    match value:
        case None | "BUY" | "SELL":
            return value
        case _:
            raise _fault("side", "neither BUY nor SELL")
