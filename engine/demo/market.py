"""The data behind the demo: rows in the shape of the Data API v2, and what of them a moment shows.

A row is listed by (timestamp, sequence) and becomes visible some time after its timestamp: a later page may hold rows
that are older than those of an earlier page, as the real API does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Anchor", "Appearance", "Entry", "Ledger", "Market", "Page", "Query", "Row", "Side"]

Side = Literal["BUY", "SELL"]


class Row(TypedDict):
    """A trade as `GET /v2/trades` serves it, fields in the documented order."""

    proxy_wallet: str
    side: Side
    token_id: str
    condition_id: str
    size: float
    price: float
    timestamp: int
    title: str
    slug: str
    icon: str
    event_slug: str
    outcome: str
    outcome_index: int
    name: str
    pseudonym: str
    bio: str
    profile_image: str
    profile_image_optimized: str
    transaction_hash: str


class Anchor(NamedTuple):
    """A row's place in the feed."""

    timestamp: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Entry(ABC):
    """A row's place in the feed, and since when it is shown there."""

    timestamp: int
    sequence: int
    visible_at: float
    """Wall time from which on the row is served."""
    taker: bool
    """False for the maker's side of a fill: listed with `taker_only=false` only."""
    wallet: str
    side: Side

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.timestamp, self.sequence)

    @abstractmethod
    def row(self, now: float) -> Row:
        """The row as served at `now`: some fields are filled in later."""


@dataclass(frozen=True, slots=True)
class Query:
    """The filters of one walk, and where it goes on."""

    user: str | None = None
    taker_only: bool = True
    side: Side | None = None
    start: int | None = None
    """First timestamp listed, inclusive."""
    end: int | None = None
    """Last timestamp listed, inclusive."""
    before: Anchor | None = None
    """List only what stands behind this place."""


class Page(NamedTuple):
    """Rows newest first, the place of the last one, and whether more stand behind it."""

    rows: list[Row]
    last: Anchor | None
    has_more: bool


class Appearance(NamedTuple):
    """One line of a market's log: `row` has been served since `visible_at`."""

    visible_at: float
    anchor: Anchor
    taker: bool
    row: Row


class Market(Protocol):
    """Rows as of a moment of wall time. Safe to ask from any thread."""

    start: float
    """Wall time at which the market opened; older rows are its backlog."""

    @property
    def records(self) -> Sequence[dict[str, Any]]:
        """Raw recorded rows for `GET /records`; empty without a recording."""
        ...

    def page(self, now: float, query: Query, limit: int) -> Page:
        """At most `limit` rows visible at `now`, newest first by (timestamp, sequence)."""
        ...

    def visible(self, now: float) -> list[Row]:
        """All rows visible at `now`, maker rows too, newest first."""
        ...

    def appearances(self, now: float) -> list[Appearance]:
        """Every row that a client can have seen up to `now`, in the order in which they became visible."""
        ...

    def busiest(self, count: int) -> list[str]:
        """The wallets that trade most, busiest first."""
        ...


class Ledger:
    """Entries in the order of (timestamp, sequence), with an index by wallet."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._all: list[Entry] = []
        self._of_wallet: dict[str, list[Entry]] = {}
        self.extend(sorted(entries, key=_place))

    def __len__(self) -> int:
        return len(self._all)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Append entries that follow all those held."""
        self._all.extend(entries)
        for entry in entries:
            self._of_wallet.setdefault(entry.wallet, []).append(entry)

    def drop_before(self, timestamp: float) -> None:
        """Forget the entries older than `timestamp`."""
        kept = bisect_left(self._all, timestamp, key=_timestamp)
        for wallet in {entry.wallet for entry in self._all[:kept]}:
            entries = self._of_wallet[wallet]
            del entries[: bisect_left(entries, timestamp, key=_timestamp)]
            if not entries:
                del self._of_wallet[wallet]
        del self._all[:kept]

    def page(self, now: float, query: Query, limit: int, oldest: float = 0.0) -> Page:
        """One page of a walk over entries not older than `oldest`; `has_more` is exact, it looks one entry further."""
        found: list[Entry] = []
        for entry in self._select(now, query, oldest):
            if len(found) == limit:
                return Page([each.row(now) for each in found], found[-1].anchor if found else None, has_more=True)
            found.append(entry)
        return Page([each.row(now) for each in found], None, has_more=False)

    def appearances(self, now: float) -> list[Appearance]:
        """See `Market.appearances`."""
        seen = [entry for entry in self._all if entry.visible_at <= now]
        seen.sort(key=lambda entry: (entry.visible_at, entry.anchor))
        return [Appearance(entry.visible_at, entry.anchor, entry.taker, entry.row(now)) for entry in seen]

    def _select(self, now: float, query: Query, oldest: float) -> Iterator[Entry]:
        entries = self._all if query.user is None else self._of_wallet.get(query.user, [])
        index = len(entries) if query.before is None else bisect_left(entries, query.before, key=_place)
        first = oldest if query.start is None else max(oldest, query.start)
        while index:
            index -= 1
            entry = entries[index]
            if entry.timestamp < first:
                return
            if (
                entry.visible_at <= now
                and (entry.taker or not query.taker_only)
                and (query.side is None or entry.side == query.side)
                and (query.end is None or entry.timestamp <= query.end)
            ):
                yield entry

    def busiest(self, count: int) -> list[str]:
        """The wallets with most entries, the taker's and the maker's side alike."""
        trades = Counter({wallet: len(entries) for wallet, entries in self._of_wallet.items()})
        return [wallet for wallet, _ in trades.most_common(count)]


def _place(entry: Entry) -> Anchor:
    return entry.anchor


def _timestamp(entry: Entry) -> int:
    return entry.timestamp
