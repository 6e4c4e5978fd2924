"""A made-up market, the same for the same seed and start, however often and whenever it is asked.

Each second has a random generator of its own, so that generation can be lazy and the past forgotten.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.demo.catalogue import Contract, Wallet, make_contracts, make_wallets
from engine.demo.market import Appearance, Entry, Ledger, Page, Query, Row, Side

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SyntheticMarket"]

_SLACK_SECONDS = 60.0
"""Rows are kept this much longer than they are shown, so that a wall clock stepping back changes nothing."""
_WALLETS = 240
_SWELL_SECONDS = 90.0
_LATE_ALONE = 0.12
"""Share of rows that are indexed apart from the rest of their transaction."""
_ENRICHED_LATER = 0.15
_SAME_TOKEN = 0.7
"""Share of maker rows that hold the taker's token; the others were matched by minting: other token, same side."""


@dataclass(frozen=True, slots=True)
class _Trade(Entry):
    """One side of a fill; its row is composed when it is asked for, which keeps two hours of them small."""

    who: Wallet
    contract: Contract
    outcome: int
    size: float
    price: float
    enriched_at: float
    transaction_hash: str

    def row(self, now: float) -> Row:
        known = now >= self.enriched_at
        return {
            "proxy_wallet": self.wallet,
            "side": self.side,
            "token_id": self.contract.tokens[self.outcome],
            "condition_id": self.contract.condition_id,
            "size": self.size,
            "price": self.price,
            "timestamp": self.timestamp,
            "title": self.contract.title if known else "",
            "slug": self.contract.slug if known else "",
            "icon": "",
            "event_slug": self.contract.slug if known else "",
            "outcome": self.contract.outcomes[self.outcome] if known else "",
            "outcome_index": self.outcome if known else 999,
            "name": self.who.name,
            "pseudonym": self.who.pseudonym,
            "bio": "",
            "profile_image": "",
            "profile_image_optimized": "",
            "transaction_hash": self.transaction_hash,
        }


class _Leg(NamedTuple):
    """One row of a transaction before it has its place."""

    who: Wallet
    taker: bool
    outcome: int
    side: Side
    size: float
    price: float


class SyntheticMarket:
    """`rate` transactions a second on average, each a taker and one to three makers."""

    records: Sequence[dict[str, Any]] = ()

    def __init__(
        self,
        rng: random.Random,
        start: float,
        *,
        rate: float = 3.0,
        backlog_seconds: float = 1800.0,
        retention_seconds: float = 7200.0,
        twin_share: float = 0.02,
    ) -> None:
        """Open a market at wall time `start`.

        Args:
            rng: Where the market's own seed is drawn from; it is not used afterwards.
            start: Wall time; rows of `backlog_seconds` before it exist as well.
            rate: Transactions a second, on average.
            backlog_seconds: How far back the market has traded when it opens.
            retention_seconds: Rows older than this are no longer served, and forgotten.
            twin_share: Share of transactions that hold two byte-identical rows which are two fills.
        """
        self.start = start
        self._seed = rng.getrandbits(64)
        people = random.Random(f"{self._seed}/people")
        self._wallets = make_wallets(people, _WALLETS)
        self._wallet_weights = _zipf(len(self._wallets), flatness=0)
        self._contracts = make_contracts(people)
        self._contract_weights = _zipf(len(self._contracts), flatness=6)
        self._rate = rate
        self._twin_share = twin_share
        self._retention = retention_seconds
        self._ledger = Ledger()
        self._next_second = math.floor(start - min(backlog_seconds, retention_seconds))
        self._lock = Lock()

    def __len__(self) -> int:
        """Rows held in memory."""
        return len(self._ledger)

    def page(self, now: float, query: Query, limit: int) -> Page:
        with self._lock:
            self._grow(now)
            return self._ledger.page(now, query, limit, now - self._retention)

    def visible(self, now: float) -> list[Row]:
        return self.page(now, Query(taker_only=False), 2**62).rows

    def appearances(self, now: float) -> list[Appearance]:
        with self._lock:
            self._grow(now)
            return self._ledger.appearances(now)

    def busiest(self, count: int) -> list[str]:
        return [wallet.address for wallet in self._wallets[:count]]

    def _grow(self, now: float) -> None:
        oldest = math.floor(now - self._retention - _SLACK_SECONDS)
        for second in range(max(self._next_second, oldest), math.floor(now) + 1):
            self._ledger.extend(self._trades_of(second))
            self._next_second = second + 1
        self._ledger.drop_before(oldest)

    def _trades_of(self, second: int) -> list[_Trade]:
        rng = random.Random(f"{self._seed}/{second}")
        rate = self._rate * (1 + 0.5 * math.sin(second * math.tau / _SWELL_SECONDS))
        trades: list[_Trade] = []
        at = rng.expovariate(rate)
        while at < 1:
            trades += self._transaction(rng, second, len(trades))
            at += rng.expovariate(rate)
        return trades

    def _transaction(self, rng: random.Random, second: int, position: int) -> list[_Trade]:
        [contract] = rng.choices(self._contracts, cum_weights=self._contract_weights)
        legs = self._legs(rng, contract, second)
        transaction_hash = f"0x{rng.getrandbits(256):064x}"
        indexed_after = _index_delay(rng)
        enriched_after = rng.uniform(1, 30) if rng.random() < _ENRICHED_LATER else 0.0
        trades = []
        for index, leg in enumerate(legs, start=position):
            delay = _index_delay(rng) if rng.random() < _LATE_ALONE else indexed_after
            trades.append(
                _Trade(
                    timestamp=second,
                    sequence=second * 100_000 + index,
                    visible_at=second + delay,
                    taker=leg.taker,
                    wallet=leg.who.address,
                    side=leg.side,
                    who=leg.who,
                    contract=contract,
                    outcome=leg.outcome,
                    size=leg.size,
                    price=leg.price,
                    enriched_at=second + indexed_after + enriched_after,
                    transaction_hash=transaction_hash,
                ),
            )
        return trades

    def _legs(self, rng: random.Random, contract: Contract, second: int) -> list[_Leg]:
        taker, *makers = self._parties(rng)
        outcome = rng.randrange(2)
        side: Side = "BUY" if rng.random() < 0.6 else "SELL"  # noqa: PLR2004
        price = _price(rng, contract, outcome, second)
        sizes = [round(min(rng.lognormvariate(3.2, 1.3), 50_000), 6) for _ in makers]
        if rng.random() < self._twin_share:
            # Two orders of one wallet, matched at one price and size: two fills whose rows cannot be told apart.
            makers, sizes = [makers[0]] * 2, [sizes[0]] * 2
            takes = list(sizes)
        else:
            takes = [round(sum(sizes), 6)]
        legs = []
        for maker, size in zip(makers, sizes, strict=True):
            if takes[1:] or rng.random() < _SAME_TOKEN:
                legs.append(_Leg(maker, False, outcome, "SELL" if side == "BUY" else "BUY", size, price))
            else:
                legs.append(_Leg(maker, False, 1 - outcome, side, size, round(1 - price, 10)))
        return legs + [_Leg(taker, True, outcome, side, size, price) for size in takes]

    def _parties(self, rng: random.Random) -> list[Wallet]:
        """A taker and one to three makers, all different."""
        wanted = 1 + rng.choices((1, 2, 3), (5, 3, 2))[0]
        parties: list[Wallet] = []
        while len(parties) < wanted:
            [wallet] = rng.choices(self._wallets, cum_weights=self._wallet_weights)
            if wallet not in parties:
                parties.append(wallet)
        return parties


def _zipf(count: int, flatness: int) -> list[float]:
    return list(accumulate(1 / (rank + 1 + flatness) for rank in range(count)))


def _index_delay(rng: random.Random) -> float:
    """Block to API: 0.7 to 20 s, median 8, as measured on the real API."""
    return min(20.0, max(0.7, rng.lognormvariate(math.log(8.0), 0.42)))


def _price(rng: random.Random, contract: Contract, outcome: int, second: int) -> float:
    """A ratio of two integers on chain, so slightly off the tick."""
    wave = contract.swing * math.sin(second * math.tau / contract.period_seconds + contract.phase)
    fair = contract.mean_price + wave + rng.gauss(0, 0.01)
    tick = round(min(0.99, max(0.01, fair if outcome == 0 else 1 - fair)), 2)
    return round(tick + rng.uniform(-5e-8, 5e-8), 10)
