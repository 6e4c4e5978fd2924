"""The synthetic market: deterministic, late, with twins, and never larger than its retention."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from statistics import median

import pytest

from engine.demo import SyntheticMarket
from engine.demo.catalogue import HOSTILE_TITLES
from engine.demo.market import Query, Row
from tests.engine.demo.demo_support import DAY_ZERO, fills


def market(seed: int = 1, **options: float) -> SyntheticMarket:
    return SyntheticMarket(random.Random(seed), DAY_ZERO, **options)


def test_a_row_has_the_documented_fields_in_their_order() -> None:
    for row in market().visible(DAY_ZERO)[:200]:
        assert list(row) == list(Row.__annotations__)
        assert row["timestamp"] == int(row["timestamp"]) <= DAY_ZERO
        assert 0 < row["price"] < 1
        assert row["size"] > 0
        assert len(row["proxy_wallet"]) == 42
        assert len(row["transaction_hash"]) == len(row["condition_id"]) == 66
        assert row["token_id"].isdecimal()


def test_a_moment_shows_the_same_however_the_market_was_asked() -> None:
    asked_often, asked_once = market(), market()
    moment = DAY_ZERO + 300
    for second in range(0, 300, 7):
        asked_often.visible(DAY_ZERO + second)
    asked_often.visible(moment + 100)
    assert asked_often.visible(moment) == asked_once.visible(moment)
    assert market(seed=2).visible(moment) != asked_once.visible(moment)


def test_rows_are_newest_first_and_there_is_a_backlog_at_the_start() -> None:
    rows = market(backlog_seconds=600).visible(DAY_ZERO)
    stamps = [row["timestamp"] for row in rows]
    assert stamps == sorted(stamps, reverse=True)
    assert DAY_ZERO - 601 <= stamps[-1] < DAY_ZERO - 580


def test_rows_appear_late_and_behind_rows_already_served() -> None:
    demo = market()
    demo.visible(DAY_ZERO)
    seen = [each for each in demo.appearances(DAY_ZERO + 600) if each.visible_at > DAY_ZERO]
    delays = [each.visible_at - each.anchor.timestamp for each in seen]
    assert min(delays) >= 0.7
    assert max(delays) <= 20
    assert 7 < median(delays) < 9
    overtaken = sum(later.anchor < earlier.anchor for earlier, later in itertools.pairwise(seen))
    assert overtaken > len(seen) / 10
    for each in seen[:: len(seen) // 10]:
        before, after = fills(demo.visible(each.visible_at - 1e-6)), fills(demo.visible(each.visible_at))
        assert fills([each.row]) <= after - before


def test_some_transactions_hold_two_identical_rows_that_are_two_fills() -> None:
    rows = [each.row for each in market(twin_share=0.02).appearances(DAY_ZERO) if each.taker]
    twins = [line for line, count in Counter(json.dumps(row) for row in rows).items() if count == 2]
    assert 0.005 < len(twins) / len(rows) < 0.05
    without = market(twin_share=0).appearances(DAY_ZERO)
    assert max(Counter(json.dumps(each.row) for each in without).values()) == 1


def test_maker_rows_share_the_transaction_and_show_only_when_asked_for() -> None:
    demo = market()
    takers = demo.page(DAY_ZERO, Query(), 10**9).rows
    everybody = demo.visible(DAY_ZERO)
    assert fills(takers) < fills(everybody)
    makers = fills(everybody) - fills(takers)
    hashes = {row["transaction_hash"] for row in takers}
    shared = sum(transaction in hashes for transaction, *_ in makers)
    assert shared > 0.95 * makers.total()
    taker_of = {(row["transaction_hash"], row["proxy_wallet"]) for row in takers}
    assert not any((transaction, wallet) in taker_of for transaction, wallet, *_ in makers)


def test_titles_may_be_filled_in_later() -> None:
    demo = market()
    appearances = demo.appearances(DAY_ZERO + 200)
    blank = [
        each
        for each in appearances
        if each.visible_at > DAY_ZERO and _shown(demo, each.visible_at, each.row)["title"] == ""
    ]
    assert 0.05 < len(blank) / sum(each.visible_at > DAY_ZERO for each in appearances) < 0.3
    assert _shown(demo, blank[0].visible_at, blank[0].row)["outcome_index"] == 999
    later = _shown(demo, blank[0].visible_at + 51, blank[0].row)
    assert later["title"]
    assert later["outcome_index"] in (0, 1)


def _shown(demo: SyntheticMarket, now: float, wanted: Row) -> Row:
    query = Query(
        user=wanted["proxy_wallet"],
        taker_only=False,
        start=wanted["timestamp"],
        end=wanted["timestamp"],
    )
    [shown, *_] = [row for row in demo.page(now, query, 1000).rows if fills([row]) == fills([wanted])]
    return shown


def test_every_hostile_title_is_traded() -> None:
    titles = {row["title"] for row in market().visible(DAY_ZERO)}
    assert titles >= set(HOSTILE_TITLES)


def test_four_busy_wallets_trade_much_of_it() -> None:
    demo = market()
    rows = demo.visible(DAY_ZERO)
    busy = demo.busiest(4)
    assert len(set(busy)) == 4
    assert sum(row["proxy_wallet"] in busy for row in rows) > len(rows) / 5


@pytest.mark.parametrize("rate", [1.0, 5.0])
def test_the_mean_rate_is_as_configured(rate: float) -> None:
    rows = market(rate=rate, twin_share=0, backlog_seconds=1800).visible(DAY_ZERO + 30)
    assert 0.9 < len({row["transaction_hash"] for row in rows}) / (1800 * rate) < 1.1


def test_memory_is_bounded_through_days_of_asking_and_a_long_sleep() -> None:
    demo = market(retention_seconds=60, backlog_seconds=3600)
    sizes = []
    for now in (0, 30, 60, 600, 86_400, 86_430, 10 * 86_400):
        rows = demo.visible(DAY_ZERO + now)
        sizes.append(len(demo))
        assert min(row["timestamp"] for row in rows) >= DAY_ZERO + now - 60
    assert 100 < max(sizes) < 2 * 120 * 3 * 3
    assert all(demo._ledger._of_wallet.values())
    assert sum(len(entries) for entries in demo._ledger._of_wallet.values()) == len(demo)
