"""P1 to P4 of the design: never faster than configured, in order, fair to who is cancelled, silent in a cool-down.

Virtual time, but for the few at the end that take the clocks and both event loops as they are.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.alarm import Alarm
from engine.backoff import BAN_SECONDS, Verdict
from engine.clock import Clock, SystemClock
from engine.config import Backoff, LimitConfig, Rate
from engine.demo import worst_window
from engine.limits import Limit
from engine.pacing import Grant, Pacer
from tests.support.virtual import VirtualClock, run

A = httpx.URL("https://a.example/items")
A2 = httpx.URL("https://a.example/other")
B = httpx.URL("https://b.example/items")
TOLD = tuple[Literal["info", "warning"], str]


def pacer_of(
    limits: dict[str, str] | Sequence[LimitConfig] | None = None,
    *,
    clock: Clock | None = None,
    default: str = "60/60s",
    min_interval: float = 0.0,
    headroom: float = 0.0,
    base: float = 1.0,
    cap: float = 60.0,
    seed: int = 1,
    told: list[TOLD] | None = None,
    max_in_flight: int = 64,
) -> Pacer:
    heard = [] if told is None else told
    if isinstance(limits, dict):
        limits = [LimitConfig(match=match, rate=Rate.parse(rate)) for match, rate in limits.items()]
    return Pacer(
        limits or [],
        default_rate=Rate.parse(default),
        min_interval=min_interval,
        headroom=headroom,
        backoff=Backoff(base_seconds=base, cap_seconds=cap, max_tries=6),
        clock=clock or VirtualClock(),
        rng=random.Random(seed),
        max_in_flight=max_in_flight,
        say=lambda level, text: heard.append((level, text)),
    )


def limit_of(pacer: Pacer, url: httpx.URL, name: str | None = None) -> Limit:
    return next(limit for limit in pacer.limits_for(url) if (limit.name == name if name else limit.kind != "gap"))


@dataclass
class Log:
    """What callers were granted, in the order of the grants."""

    pacer: Pacer
    grants: list[tuple[float, int]] = field(default_factory=list)

    async def call(self, number: int, url: httpx.URL = A, *, hold: float = 0.0) -> None:
        grant = await self.pacer.acquire(url)
        self.grants.append((grant.at, number))
        if hold:
            await anyio.sleep(hold)
        grant.settle(Verdict.OK)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.grants]

    @property
    def order(self) -> list[int]:
        return [number for _, number in self.grants]


async def refuse(pacer: Pacer, url: httpx.URL, hint: float | None = None, verdict: Verdict = Verdict.REFUSED) -> float:
    return (await pacer.acquire(url)).settle(verdict, hint=hint, cause="429")


async def grants_within(pacer: Pacer, url: httpx.URL, seconds: float) -> list[Grant]:
    """All grants that a crowd of callers gets in `seconds`; none of them is settled."""
    got: list[Grant] = []

    async def one() -> None:
        got.append(await pacer.acquire(url))

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(one)
    return got


# --- P2, P3: the grid, the order, the cancelled


def test_waiters_that_give_up_cost_nobody_a_slot() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "1/1s"})
        log = Log(pacer)
        scopes = [anyio.CancelScope() for _ in range(40)]

        async def one(number: int) -> None:
            with scopes[number]:
                await log.call(number)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
                await checkpoint()
            await anyio.sleep(0.5)
            for number in range(1, 39):
                scopes[number].cancel()
        assert log.order == [0, 39]
        assert log.times[1] - log.times[0] == pytest.approx(1.0, abs=1e-6)
        assert limit_of(pacer, A).granted == 2
        assert pacer.in_flight == 0

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_cancelling_any_of_the_queue_at_any_time_never_delays_the_rest(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        log = Log(pacer_of({"https://a.example/*": "10/1s"}))
        gone = {number for number in range(60) if rng.random() < 0.6}

        async def one(number: int) -> None:
            with anyio.move_on_after(rng.uniform(0, number / 10) if number in gone else 1e9):
                await log.call(number)

        start = log.pacer.clock.mono()
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(one, number)
                await checkpoint()
        assert log.order == sorted(log.order)
        assert set(range(60)) - gone <= set(log.order)
        # A slot each, and none for those who left: the nth grant comes at the nth slot, as if they had never asked.
        assert [round(at - start, 6) for at in log.times] == [round(n / 10, 6) for n in range(len(log.times))]

    run(scenario)


@pytest.mark.parametrize("headroom", [0.0, 0.1])
def test_a_thousand_callers_go_in_order_within_and_up_to_the_limit(headroom: float) -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": "500/10s"}, headroom=headroom))
        async with anyio.create_task_group() as group:
            for number in range(1_000):
                group.start_soon(log.call, number)
                await checkpoint()
        window = 10 / (1 - headroom)
        assert log.order == list(range(1_000))
        assert worst_window(log.times, window) <= 500
        after = [at for at in log.times if at >= log.times[0] + window]
        used = (len(after) - 1) / (after[-1] - after[0]) / (500 / window)
        assert 0.99 <= used <= 1.0 + 1e-9
        # A steady gap, no clumps.
        gaps = [after - before for before, after in pairwise(log.times)]
        assert min(gaps) == pytest.approx(window / 500, rel=1e-6)

    run(scenario)


def test_idling_earns_no_credit() -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": "15/60s"}))
        await log.call(0)
        await anyio.sleep(1_200)
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(log.call, number)
                await checkpoint()
        assert worst_window(log.times, 60.0) <= 15
        assert min(after - before for before, after in pairwise(log.times)) >= 4.0 - 1e-6

    run(scenario)


def test_a_slot_that_nobody_waited_for_is_gone() -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": "25/1s"}))
        async with anyio.create_task_group() as group:
            for number, at in enumerate((0.0, 0.055, 0.06)):
                await log.pacer.clock.sleep_until(1_000.0 + at)
                group.start_soon(log.call, number)
                await checkpoint()
        assert log.times == [1_000.0, 1_000.055, pytest.approx(1_000.095, abs=1e-6)]

    run(scenario)


@pytest.mark.parametrize("away", [0.9, 1.7, 3_600.0])
def test_neither_pausing_nor_suspending_earns_credit(away: float) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "60/60s"}, clock=clock)
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(70):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(2.5)
            pacer.pause()
            await anyio.sleep(away)
            assert len(log.grants) == 3
            pacer.resume()
            clock.suspend(8 * 3_600.0)
        gaps = [after - before for before, after in pairwise(log.times)]
        assert min(gaps) >= 0.95
        assert worst_window(log.times, 60.0) <= 60
        assert log.order == list(range(70))

    run(scenario)


def test_a_pause_holds_whoever_comes_and_whoever_waits() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "10/1s"})
        log = Log(pacer)
        pacer.pause()
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(log.call, number)
                await checkpoint()
                group.start_soon(log.call, 10 + number, B)
                await checkpoint()
            await anyio.sleep(100)
            assert log.grants == []
            resumed = pacer.clock.mono()
            pacer.resume()
        assert log.times[0] == resumed
        assert [number for number in log.order if number < 10] == [0, 1, 2]

    run(scenario)


# --- P3: several limits


def test_all_limits_of_a_request_are_charged_together_or_not_at_all() -> None:
    async def scenario() -> None:
        wide, narrow = "https://a.example/*", "https://a.example/items"
        pacer = pacer_of({wide: "100/1s", narrow: "1/10s"})
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(5)
            # Two wait for `narrow`; the slots of `wide` are all free.
            assert (limit_of(pacer, A, wide).granted, limit_of(pacer, A, narrow).granted) == (1, 1)
            for number in range(100):
                group.start_soon(log.call, 100 + number, A2)
                await checkpoint()
            await anyio.sleep(1.0)
            assert limit_of(pacer, A, wide).granted == 101
        assert limit_of(pacer, A, narrow).granted == 3
        assert [number for number in log.order if number >= 100] == list(range(100, 200))
        assert [round(at - log.times[0], 3) for at, number in log.grants if number < 100] == [0.0, 10.0, 20.0]

    run(scenario)


def test_a_request_under_a_crowded_shared_limit_is_not_starved_by_those_who_need_less() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "10/1s", "https://a.example/items": "1/2s"})
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(log.call, number, A if number % 10 == 0 else A2)
                await checkpoint()
        # Every second request to A waits for its own limit only, as the shared one serves first come first.
        own = [at for at, number in log.grants if number % 10 == 0]
        assert all(1.9 <= after - before <= 2.2 for before, after in pairwise(own[:9]))
        assert worst_window(log.times, 1.0) <= 10

    run(scenario)


def test_burst_and_sustained_hold_both() -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": "30/60s", "https://a.example/i*": "10/1s"}))
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(log.call, number)
                await checkpoint()
        assert worst_window(log.times, 1.0) <= 10
        assert worst_window(log.times, 60.0) <= 30
        assert log.times[-1] - log.times[0] == pytest.approx(99 * 2.0, rel=1e-6)

    run(scenario)


def test_the_least_gap_to_a_host_holds_over_all_its_limits() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/items": "100/1s", "https://a.example/other": "100/1s"}, min_interval=0.05)
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(log.call, number, (A, A2)[number % 2])
                await checkpoint()
                group.start_soon(log.call, 100 + number, B)
                await checkpoint()
        own = [at for at, number in log.grants if number < 100]
        assert min(after - before for before, after in pairwise(own)) >= 0.05
        assert own[-1] - own[0] == pytest.approx(39 * 0.05, rel=1e-6)

    run(scenario)


def test_in_flight_is_bounded_and_a_settled_grant_lets_the_next_go_at_once() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "10000/1s"})
        granted: list[Grant] = []

        async def one() -> None:
            granted.append(await pacer.acquire(A))

        async with anyio.create_task_group() as group:
            for _ in range(64 + 5):
                group.start_soon(one)
            await anyio.sleep(10)
            assert len(granted) == pacer.in_flight == 64
            for number in range(5):
                granted[number].settle(Verdict.TRANSIENT)
                granted[number].settle(Verdict.TRANSIENT)  # only the first call counts
                before = pacer.clock.mono()
                await anyio.sleep(0.001)
                assert len(granted) == 64 + number + 1
                assert granted[-1].at - before < 0.001
        for grant in granted:
            grant.settle(Verdict.OK)
        assert pacer.in_flight == 0

    run(scenario)


# --- Which limits


@pytest.mark.parametrize(
    ("match", "url", "matches"),
    [
        ("https://h.example/*", "https://h.example/", True),
        ("https://h.example/*", "https://h.example", True),
        ("https://H.Example/*", "https://h.example/x", True),
        ("https://h.example:443/*", "https://h.example/x", True),
        ("https://h.example/*", "https://h.example:443/x", True),
        ("http://h.example:80/*", "http://h.example/x", True),
        ("http://h.example/*", "http://h.example:8080/x", False),
        ("http://h.example:8080/*", "http://h.example:8080/x", True),
        ("http://h.example:443/*", "http://h.example:443/x", True),
        ("http://h.example/*", "https://h.example/x", False),
        ("https://h.example/*", "https://h.example.evil/x", False),
        ("https://h.example/*", "https://user:pass@h.example/x", True),
        ("https://h.example/v2/trades", "https://h.example/v2/trades?user=0x1", True),
        ("https://h.example/v2/trades*", "https://h.example/v2/trades?user=0x1", True),
        ("https://h.example/v2/trades?user=*", "https://h.example/v2/trades?user=0x1", True),
        ("https://h.example/v2/trades?user=*", "https://h.example/v2/trades", False),
        ("https://h.example/v2/trades", "https://h.example/v2/trades/1", False),
        ("https://h.example/v2/trades", "https://h.example/V2/trades", False),
        ("https://h.example/v2/trades", "https://h.example/v2%2Ftrades", True),
        ("https://h.example/v2/trades", "https://h.example/v2/tr%61des", True),
        ("https://h.example/a%20b*", "https://h.example/a b?x=1", True),
        ("https://h.example/a b", "https://h.example/a%20b?x=1", True),
        ("https://h.example/ä", "https://h.example/%C3%A4", True),
        ("https://*.example/*", "https://h.example/x", True),
        ("https://*/items", "https://h.example/items?since=1", True),
        ("http://127.0.0.1:8080/*", "http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080/*", "http://[::1]:8080/x", True),
        ("https://h.example/a.b", "https://h.example/axb", False),
    ],
)
def test_which_urls_a_limit_matches(match: str, url: str, matches: bool) -> None:
    pacer = pacer_of({match.replace(" ", "%20"): "1/1s"} if " " in match else {match: "1/1s"}, clock=SystemClock())
    kinds = [limit.kind for limit in pacer.limits_for(httpx.URL(url))]
    assert kinds == ["gap", "limit" if matches else "default"]


def test_what_matches_nothing_has_the_default_rate_per_host() -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/items": "1000/1s"}, default="5/10s"))
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(log.call, number, A2)
                await checkpoint()
                group.start_soon(log.call, 100 + number, B)
                await checkpoint()
        for first in (0, 100):
            times = [at for at, number in log.grants if first <= number < first + 100]
            assert worst_window(times, 10.0) <= 5
            assert times[-1] - times[0] == pytest.approx(22.0, rel=1e-6)

    run(scenario)


def test_two_spellings_of_a_host_share_a_budget() -> None:
    pacer = pacer_of(clock=SystemClock())
    spellings = (
        "https://a.example/x",
        "https://A.EXAMPLE:443/y",
        "HTTPS://a.example:443/",
        "https://me:secret@a.example/z?q=1",
    )
    assert len({pacer.limits_for(httpx.URL(url)) for url in spellings}) == 1
    assert "secret" not in repr(pacer.views())


# --- P4: cool-downs


def test_a_cool_down_is_seen_by_all_who_wait_and_ends_in_one_probe() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "1/1s"})
        log = Log(pacer)
        first = await pacer.acquire(A)
        async with anyio.create_task_group() as group:
            for number in range(7):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(0.5)
            wait = first.settle(Verdict.REFUSED, hint=30.0, cause="429")
            over = pacer.clock.mono() + wait
        assert 30.0 <= wait <= 31.0
        assert log.order == list(range(7))
        assert log.times[0] == pytest.approx(over, abs=1e-6)
        # One probe, then slow start: half the rate, a little more with each answer. And the rate was cut.
        gaps = [later - earlier for earlier, later in pairwise(log.times)]
        assert gaps[0] == pytest.approx(2 / 0.7)
        assert gaps[1] == pytest.approx(1 / 0.7 / 0.5, rel=0.02)  # grown a little meanwhile
        assert all(later < earlier for earlier, later in pairwise(gaps[1:]))

    run(scenario)


def test_only_the_limit_that_was_refused_cools_down() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/items": "100/1s", "https://a.example/other": "100/1s"})
        log = Log(pacer)
        wait = await refuse(pacer, A, hint=60.0)
        start = pacer.clock.mono()
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(log.call, number, A)
                await checkpoint()
                group.start_soon(log.call, 100 + number, A2)
                await checkpoint()
                group.start_soon(log.call, 200 + number, B)
                await checkpoint()
        assert min(at for at, number in log.grants if number < 100) == pytest.approx(start + wait, abs=1e-6)
        assert max(at for at, number in log.grants if 100 <= number < 200) < start + 1.0
        assert max(at for at, number in log.grants if number >= 200) == pytest.approx(start + 49.0, abs=1e-3)

    run(scenario)


def test_a_request_under_two_limits_cools_both() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s", "https://a.example/items": "100/1s"})
        wait = await refuse(pacer, A, hint=20.0)
        refused = pacer.clock.mono()
        grant = await pacer.acquire(A2)
        assert grant.at == pytest.approx(refused + wait, abs=1e-6)
        grant.settle(Verdict.OK)
        # The probe was good for the shared limit only; the other one still wants its own.
        assert limit_of(pacer, A, "https://a.example/*").attempt == 0
        assert limit_of(pacer, A, "https://a.example/items").attempt == 1
        (await pacer.acquire(A)).settle(Verdict.OK)
        assert limit_of(pacer, A, "https://a.example/items").attempt == 0

    run(scenario)


@pytest.mark.parametrize("outcome", [Verdict.OK, Verdict.FATAL, Verdict.REFUSED, Verdict.BANNED, Verdict.TRANSIENT])
def test_one_probe_a_round_whatever_its_outcome(outcome: Verdict) -> None:
    async def scenario() -> None:
        told: list[TOLD] = []
        pacer = pacer_of({"https://a.example/*": "10/1s"}, told=told)
        limit = limit_of(pacer, A)
        await refuse(pacer, A, hint=5.0)
        assert limit.attempt == 1
        (probe,) = await grants_within(pacer, A, 120.0)
        wait = probe.settle(outcome, hint=5.0 if outcome.refused else None, cause="429")
        after = await grants_within(pacer, A, 1.0)
        if outcome in (Verdict.OK, Verdict.FATAL):
            assert limit.attempt == 0
            assert len(after) == 4  # slow start at half of 0.7 of the rate
            assert [text.partition(":")[0] for _, text in told] == [
                "429",
                "learned a lower rate",
                "open again after 1 refused",
            ]
        elif outcome.refused:
            assert limit.attempt == 2
            assert wait >= (BAN_SECONDS if outcome is Verdict.BANNED else 5.0)
            assert after == []
        else:
            # It says nothing about the limit: again one, and again only one.
            assert limit.attempt == 1
            assert len(after) == 1
            after[0].settle(Verdict.OK)
            assert len(await grants_within(pacer, A, 1.0)) == 4

    run(scenario)


def test_a_cancelled_probe_hands_on_to_the_next() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "10/1s"})
        log = Log(pacer)
        await refuse(pacer, A, hint=5.0)
        start = pacer.clock.mono()

        async def dies() -> None:
            grant = await pacer.acquire(A)
            try:
                await anyio.sleep_forever()
            finally:
                grant.settle(Verdict.TRANSIENT)

        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(dies)
                    await checkpoint()
                    for number in range(5):
                        group.start_soon(log.call, number, A)
                        await checkpoint()
                    await anyio.sleep(20.0)
                    assert log.grants == []
                    scope.cancel()
            cancelled = pacer.clock.mono()
        assert cancelled == start + 20.0
        assert log.order == [0, 1, 2, 3, 4]
        assert log.times[0] == cancelled

    run(scenario)


def test_attempts_count_rounds_not_requests() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s"})
        limit = limit_of(pacer, A)
        for round_ in range(1, 5):
            grants = [await pacer.acquire(A) for _ in range(20 if round_ == 1 else 1)]
            for grant in grants:
                grant.settle(Verdict.REFUSED, cause="429")
            assert limit.attempt == round_
        assert limit.refused == 23
        (await pacer.acquire(A)).settle(Verdict.OK)
        assert limit.attempt == 0
        # Refused again at once: that was no new start. After a calm spell it is one.
        await refuse(pacer, A)
        assert limit.attempt == 5
        (await pacer.acquire(A)).settle(Verdict.OK)
        await anyio.sleep(61.0 + limit.wait)
        await refuse(pacer, A)
        assert limit.attempt == 1

    run(scenario)


def test_late_refusals_of_a_round_extend_it_and_never_shorten_it() -> None:
    async def scenario() -> None:
        told: list[TOLD] = []
        pacer = pacer_of({"https://a.example/*": "100/1s"}, told=told)
        limit = limit_of(pacer, A)
        grants = [await pacer.acquire(A) for _ in range(4)]
        start = pacer.clock.mono()
        grants[0].settle(Verdict.REFUSED, hint=10.0, cause="429 Retry-After 10s")
        until = limit.cool_until
        assert grants[1].settle(Verdict.REFUSED, hint=2.0, cause="429") == until - pacer.clock.boot()
        assert limit.cool_until == until
        grants[2].settle(Verdict.OK)  # sent before: says nothing about now
        assert limit.cool_until == until
        assert limit.attempt == 1
        wait = grants[3].settle(Verdict.REFUSED, hint=40.0, cause="429 Retry-After 40s")
        assert 40.0 <= wait <= 41.0
        (view,) = pacer.views()[1]
        assert (view.attempt, view.cause, view.hint) == (1, "429 Retry-After 40s", 40.0)
        assert view.wait == pytest.approx(wait)
        assert [text.partition(":")[0] for _, text in told] == ["429 Retry-After 10s", "learned a lower rate"]
        assert (await pacer.acquire(A)).at == pytest.approx(start + wait, abs=1e-6)

    run(scenario)


def test_a_late_refusal_holds_though_the_probe_was_good() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s"})
        limit = limit_of(pacer, A)
        early, slow, slower = [await pacer.acquire(A) for _ in range(3)]
        early.settle(Verdict.REFUSED, hint=3.0, cause="429")
        probe = await pacer.acquire(A)
        # While the probe is out ...
        wait = slow.settle(Verdict.REFUSED, hint=30.0, cause="429")
        until = limit.cool_until
        probe.settle(Verdict.OK)
        assert await grants_within(pacer, A, wait - 0.01) == []
        (second,) = await grants_within(pacer, A, 5.0)
        assert second.at >= until - 1e-6
        assert limit.attempt == 1
        second.settle(Verdict.OK)
        assert limit.attempt == 0
        # ... and after it was answered: a round of its own.
        wait = slower.settle(Verdict.REFUSED, hint=30.0, cause="429")
        assert limit.attempt == 2
        assert len(pacer.views()[1]) == 1
        assert await grants_within(pacer, A, wait - 0.01) == []
        assert len(await grants_within(pacer, A, 5.0)) == 1

    run(scenario)


def test_jitter_grows_with_the_attempts_up_to_the_cap_and_is_added_to_the_hint() -> None:
    async def scenario(seed: int) -> list[float]:
        pacer = pacer_of({"https://a.example/*": "100/1s"}, base=2.0, cap=20.0, seed=seed)
        return [await refuse(pacer, A, hint=100.0) - 100.0 for _ in range(6)]

    for attempt, jitters in enumerate(zip(*(run(scenario, seed) for seed in range(100)), strict=True)):
        top = min(20.0, 2.0 * 2**attempt)
        assert 0.0 <= min(jitters) < 0.1 * top
        assert 0.9 * top < max(jitters) <= top


def test_a_refusal_without_a_hint_waits_a_second_at_least() -> None:
    async def scenario() -> None:
        for hint in (None, 0.0):
            waits = [
                await refuse(pacer_of({"https://a.example/*": "100/1s"}, seed=seed), A, hint) for seed in range(50)
            ]
            assert set(waits) == {1.0}  # base 1 s: the jitter of a first refusal is below it

    run(scenario)


def test_what_is_said_is_what_is_waited() -> None:
    async def scenario() -> None:
        told: list[TOLD] = []
        pacer = pacer_of({"https://a.example/*": "100/1s"}, told=told)
        wait = await refuse(pacer, A, hint=12.0)
        refused = pacer.clock.mono()
        assert told == [
            ("warning", f"429: waits {wait:.1f} s (refusal 1): https://a.example/*"),
            ("info", "learned a lower rate: https://a.example/* at 70/s of 100/s"),
        ]
        (view,) = pacer.views()[1]
        assert view.wait == pytest.approx(wait)
        assert view.until - view.since == pytest.approx(wait)
        assert not view.probing
        assert (await pacer.acquire(A)).at - refused == pytest.approx(wait, abs=1e-6)
        assert pacer.views()[1][0].probing

    run(scenario)


def test_a_ban_is_long_and_doubles_until_an_answer() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s"})
        assert (await pacer.acquire(A)).since_refusal is None
        await refuse(pacer, A)
        waits = []
        for _ in range(9):
            grant = await pacer.acquire(A)
            # A 403 to the probe is soon after the refusal, however long the wait between them was.
            assert grant.since_refusal == pytest.approx(0.0, abs=1e-3)
            waits.append(grant.settle(Verdict.BANNED, cause="403"))
            assert pacer.views()[1][0].banned
        for number, wait in enumerate(waits):
            least = min(BAN_SECONDS * 2**number, 86_400.0)
            assert least <= wait <= least + 60.0
        (await pacer.acquire(A)).settle(Verdict.OK)
        assert pacer.views()[1] == ()
        await anyio.sleep(700)
        grant = await pacer.acquire(A)
        assert grant.since_refusal is not None
        assert grant.since_refusal > 600
        grant.settle(Verdict.OK)
        await refuse(pacer, A)
        wait = (await pacer.acquire(A)).settle(Verdict.BANNED, cause="403")
        assert BAN_SECONDS <= wait <= BAN_SECONDS + 60.0

    run(scenario)


def test_late_bans_of_one_round_do_not_double() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s"})
        grants = [await pacer.acquire(A) for _ in range(10)]
        grants[0].settle(Verdict.REFUSED, cause="429")
        waits = [grant.settle(Verdict.BANNED, cause="403") for grant in grants[1:]]
        assert max(waits) <= BAN_SECONDS + 60.0
        assert pacer.views()[1][0].banned
        wait = (await pacer.acquire(A)).settle(Verdict.BANNED, cause="403")
        assert 2 * BAN_SECONDS <= wait <= 2 * BAN_SECONDS + 60.0

    run(scenario)


def test_a_longer_hint_than_the_ban_holds() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "100/1s"})
        await refuse(pacer, A)
        wait = (await pacer.acquire(A)).settle(Verdict.BANNED, hint=7_200.0, cause="418 Retry-After 7200s")
        assert 7_200.0 <= wait <= 7_260.0

    run(scenario)


def test_a_cool_down_goes_on_while_the_machine_sleeps() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "100/1s"}, clock=clock)
        log = Log(pacer)
        clock.suspend(10_000.0)
        await refuse(pacer, A, hint=3_600.0)
        start = clock.mono()
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(10)
            clock.suspend(8 * 3_600.0)
        assert start + 10 <= log.times[0] <= start + 10 + 30.1  # its timer slept, too: looked at again within 30 s
        assert 0.04 < log.times[-1] - log.times[0] < 0.04 / 0.7 / 0.5

    run(scenario)


def test_a_machine_that_has_slept_before_waits_for_a_cool_down_no_longer() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        clock.suspend(86_400.0)
        pacer = pacer_of(clock=clock)
        wait = await refuse(pacer, A, 5.0)
        before = clock.mono()
        (await pacer.acquire(A)).settle(Verdict.OK)
        assert clock.mono() - before == pytest.approx(wait)

    run(scenario)


def test_wall_clock_steps_change_nothing() -> None:
    async def scenario(steps: bool) -> list[float]:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "10/1s"}, clock=clock)
        log = Log(pacer)
        await refuse(pacer, A, hint=5.0)
        async with anyio.create_task_group() as group:
            for number in range(300):
                group.start_soon(log.call, number)
                await checkpoint()
            for number in range(6 if steps else 0):
                await anyio.sleep(5)
                clock.step((-3_600.0, 3_600.0)[number % 2])
        return [round(at, 6) for at in log.times]

    assert run(scenario, True) == run(scenario, False)


# --- A property: any arrivals, cancellations, cool-downs, pauses


@dataclass(frozen=True)
class Caller:
    arrives: float
    url: httpx.URL
    patience: float | None
    """Cancelled after so long; None waits for ever."""
    holds: float
    verdict: Verdict
    hint: float | None
    urgent: bool
    latency: float | None


def limit_config(match: str, rate: str, **more: Any) -> LimitConfig:
    return LimitConfig.model_validate({"match": match, "rate": rate, **more})


LIMITS = [
    limit_config("https://a.example/*", "8/2s", cost={"https://a.example/other": 3}),
    limit_config("https://a.example/*", "30/60s"),
    limit_config("https://a.example/items", "3/1s", max_in_flight=2),
    limit_config("https://b.example/*", "2/3s"),
]
callers = st.builds(
    Caller,
    arrives=st.floats(0, 20),
    url=st.sampled_from([A, A2, B, httpx.URL("https://c.example/")]),
    patience=st.one_of(st.none(), st.none(), st.floats(0, 6)),
    holds=st.sampled_from([0.0, 0.01, 0.5, 3.0]),
    verdict=st.sampled_from([Verdict.OK] * 6 + list(Verdict)),
    hint=st.one_of(st.none(), st.floats(0, 8)),
    urgent=st.sampled_from([False, False, False, True]),
    latency=st.one_of(st.none(), st.floats(0, 3)),
)
pauses = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=2)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    who=st.lists(callers, max_size=40),
    pauses=pauses,
    suspends=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 10)), max_size=2),
    headroom=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 99),
)
def test_whatever_happens_the_promises_hold(
    who: list[Caller],
    pauses: list[tuple[float, float]],
    suspends: list[tuple[float, float]],
    headroom: float,
    seed: int,
) -> None:
    # Hypothesis runs an example again: trio's own dice must fall alike.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
        patch.setattr("trio._core._run._r", random.Random(seed))
        run(_whatever_happens, who, pauses, suspends, headroom, seed)


async def _whatever_happens(
    who: Sequence[Caller],
    pauses: Sequence[tuple[float, float]],
    suspends: Sequence[tuple[float, float]],
    headroom: float,
    seed: int,
) -> None:
    clock = VirtualClock()
    pacer = pacer_of(LIMITS, clock=clock, default="5/4s", min_interval=0.05, headroom=headroom, seed=seed)
    log: list[tuple[float, float, int, dict[Limit, int]]] = []
    flying: dict[Limit, int] = defaultdict(int)
    asked: dict[int, int] = {}
    gave_up: set[int] = set()
    cool: dict[Limit, list[tuple[float, float]]] = defaultdict(list)
    paused: list[tuple[float, float]] = []
    probes: dict[Limit, Grant] = {}
    start = clock.mono()

    async def call(number: int, caller: Caller) -> None:
        await anyio.sleep(caller.arrives)
        asked[number] = len(asked)
        grant: Grant | None = None
        with anyio.CancelScope(deadline=anyio.current_time() + (1e9 if caller.patience is None else caller.patience)):
            grant = await pacer.acquire(caller.url, urgent=caller.urgent)
        if grant is None:
            gave_up.add(number)
            return
        log.append((grant.at, clock.boot(), number, dict(grant._charges.items)))
        for limit in grant.limits:
            flying[limit] += 1
            assert limit.max_in_flight is None or flying[limit] <= limit.max_in_flight
            assert 0.0 < limit.throttle.share <= 1.0
            assert limit.effective_gap(clock.boot()) >= limit.gap
            # A probe out means that nothing else goes.
            assert limit not in probes
            if limit.probe is grant:
                probes[limit] = grant
        await anyio.sleep(caller.holds)
        for limit in grant.limits:
            flying[limit] -= 1
        for limit in [limit for limit, probe in probes.items() if probe is grant]:
            del probes[limit]
        wait = grant.settle(caller.verdict, hint=caller.hint, cause="refused", latency=caller.latency)
        assert (wait > 0) == caller.verdict.refused
        if caller.verdict.refused:
            assert wait >= max(1.0, caller.hint or 0.0) - 1e-6  # a difference of two readings of the clock
            for limit in grant.limits:
                if limit.kind != "gap":
                    cool[limit].append((clock.boot(), clock.boot() + max(1.0, caller.hint or 0.0)))

    async def pause(at: float, length: float) -> None:
        await anyio.sleep(at)
        pacer.pause()
        paused.append((clock.mono(), clock.mono() + length))
        await anyio.sleep(length)
        pacer.resume()

    async def suspend(at: float, length: float) -> None:
        await anyio.sleep(at)
        clock.suspend(length)

    # With two pauses that overlap the first resume ends both, so only disjoint ones are made.
    disjoint = [p for i, p in enumerate(pauses) if all(p[0] > q[0] + q[1] or q[0] > p[0] + p[1] for q in pauses[:i])]
    with anyio.fail_after(40 * 86_400.0):  # bans are long; nobody waits for ever
        async with anyio.create_task_group() as group:
            for number, caller in enumerate(who):
                group.start_soon(call, number, caller)
            for at, length in disjoint:
                group.start_soon(pause, at, length)
            for at, length in suspends:
                group.start_soon(suspend, at, length)

    # Everybody who did not give up was granted, once, and nothing is left behind.
    assert sorted([entry[2] for entry in log] + list(gave_up)) == list(range(len(who)))
    assert pacer.in_flight == 0
    assert all(limit.in_flight == 0 for limit in pacer._matcher)
    assert not any(pacer._queues.values())
    by_limit: dict[Limit, list[float]] = defaultdict(list)
    by_set: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, boot, number, charged in log:
        assert at >= start
        assert not any(since < at < until - 1e-6 for since, until in paused)
        by_set[*charged.items(), who[number].urgent].append(asked[number])
        for limit, cost in charged.items():
            by_limit[limit] += [at] * cost
            assert not any(since < boot < until - 1e-6 for since, until in cool[limit])
    for limit in pacer._matcher:
        times = by_limit[limit]
        # Whoever was cancelled in the very step of the grant has spent a slot: it is charged, and not in the log.
        assert 0 <= limit.granted - len(times) <= 3 * len(gave_up)
        assert worst_window(times, limit.rate.seconds / (1 - headroom * (limit.kind != "gap"))) <= limit.rate.requests
    assert all(order == sorted(order) for order in by_set.values())


# --- Loops that wake late, or early


@contextmanager
def waking(monkeypatch: pytest.MonkeyPatch, alter: Callable[[float], float]) -> Iterator[None]:
    """The pacer's timers ring when `alter(delay)` is over and not after `delay`."""
    real = Alarm.set
    altered = 0

    def late(alarm: Alarm, delay: float) -> None:
        nonlocal altered
        altered += delay < math.inf
        real(alarm, alter(delay) if delay < math.inf else delay)

    with monkeypatch.context() as patch:
        patch.setattr(Alarm, "set", late)
        yield
    assert altered


@pytest.mark.parametrize("kind", ["late", "early", "both"])
@pytest.mark.parametrize("rate", ["200/1s", "2000/10s"])
def test_a_loop_that_wakes_late_or_early_loses_little_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str, rate: str
) -> None:
    rng = random.Random(kind)

    def alter(delay: float) -> float:
        late = rng.uniform(0.0, 0.003) if kind != "early" else 0.0
        early = rng.uniform(0.0, 0.0014) if kind != "late" else 0.0
        return max(1e-4, delay + late - early)

    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": rate}))
        async with anyio.create_task_group() as group:
            for number in range(4_000):
                group.start_soon(log.call, number)
                await checkpoint()
        limit = Rate.parse(rate)
        assert worst_window(log.times, limit.seconds) <= limit.requests
        assert (len(log.times) - 1) / (log.times[-1] - log.times[0]) >= 0.98 * 200
        assert log.order == list(range(4_000))

    with waking(monkeypatch, alter):
        run(scenario)


def test_who_comes_while_a_slot_is_due_and_the_timer_late_does_not_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = Log(pacer_of({"https://a.example/*": "1/1s"}))
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(1.001)
            group.start_soon(log.call, 3)
        assert log.order == [0, 1, 2, 3]

    with waking(monkeypatch, lambda delay: delay + 0.003):
        run(scenario)


# --- Real clocks, both loops


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_real_loops_order_windows_and_cancellation() -> None:
    log = Log(pacer_of({"https://a.example/*": "20/0.1s"}, clock=SystemClock()))
    scopes = [anyio.CancelScope() for _ in range(60)]

    async def one(number: int) -> None:
        with scopes[number]:
            await log.call(number)

    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(one, number)
            await checkpoint()
        for number in range(60):
            if number % 3:
                scopes[number].cancel()
    survivors = [number for number in log.order if number % 3 == 0]
    assert survivors == list(range(0, 60, 3))
    assert log.order == sorted(log.order)
    assert worst_window(log.times, 0.1) <= 20
    assert log.pacer.in_flight == 0


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_real_loops_a_grant_and_a_cancel_in_one_step_settle_the_grant() -> None:
    pacer = pacer_of({"https://a.example/*": "10/0.01s"}, clock=SystemClock())
    rng = random.Random(3)
    got = 0

    async def one() -> None:
        nonlocal got
        with anyio.move_on_after(rng.uniform(0.0, 0.1)):
            grant = await pacer.acquire(A)
            got += 1
            grant.settle(Verdict.OK)

    async with anyio.create_task_group() as group:
        for _ in range(200):
            group.start_soon(one)
    assert got > 20
    assert pacer.in_flight == 0
    assert not any(pacer._queues.values())
    with anyio.fail_after(0.1):
        (await pacer.acquire(A)).settle(Verdict.OK)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("probing", [False, True])
async def test_real_loops_who_is_cancelled_and_then_granted_holds_nothing(probing: bool) -> None:
    pacer = pacer_of({"https://a.example/*": "100/1s"}, clock=SystemClock())
    log = Log(pacer)
    limit_of(pacer, A).probe_due = probing
    async with anyio.create_task_group() as group:
        pacer.pause()
        scope = anyio.CancelScope()

        async def dies() -> None:
            with scope:
                await log.call(0)

        group.start_soon(dies)
        await checkpoint()
        await checkpoint()
        group.start_soon(log.call, 1)
        await anyio.sleep(0.001)
        scope.cancel()
        pacer.resume()  # in the same step: it still stands in the queue
    assert log.order == [1]
    assert limit_of(pacer, A).granted == 2
    assert pacer.in_flight == 0


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_pause_and_its_end_on_real_loops() -> None:
    pacer = pacer_of({"https://a.example/*": "1000/1s"}, clock=SystemClock())
    log = Log(pacer)
    async with anyio.create_task_group() as group:
        pacer.pause()
        group.start_soon(log.call, 0)
        await anyio.sleep(0.03)
        assert log.grants == []
        pacer.resume()
    assert log.order == [0]
