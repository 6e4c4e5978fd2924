"""Who goes first, how many at a time, what a request costs, and who may end a cool-down before its time."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from engine.backoff import Verdict
from engine.errors import ThrottledError
from engine.hints import Advice
from engine.pacing import HEAD_START_SECONDS, Pacer
from tests.engine.test_pacing import A2, A, B, Log, limit_config, limit_of, pacer_of, refuse
from tests.support.virtual import VirtualClock, run

DEAR = httpx.URL("https://a.example/dear")


async def urgently(pacer: Pacer, log: list[str], name: str, url: httpx.URL = A) -> None:
    (await pacer.acquire(url, urgent=True)).settle(Verdict.OK)
    log.append(name)


def test_what_is_urgent_goes_before_what_came_a_little_earlier() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "1/1s"})
        log: list[str] = []

        async def poll(name: str) -> None:
            (await pacer.acquire(A)).settle(Verdict.OK)
            log.append(name)

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(poll, f"poll {number}")
                await checkpoint()
            await anyio.sleep(0.5)
            group.start_soon(urgently, pacer, log, "urgent")
        assert log[0] == "poll 0"
        assert log[1] == "urgent"
        assert log[2:] == [f"poll {number}" for number in range(1, 5)]

    run(scenario)


def test_a_stream_of_urgent_requests_starves_nobody() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "1/1s"}, clock=clock)
        log: list[str] = []
        (await pacer.acquire(A)).settle(Verdict.OK)
        came = clock.mono()
        waited: list[float] = []

        async def poll() -> None:
            (await pacer.acquire(A)).settle(Verdict.OK)
            waited.append(clock.mono() - came)

        with anyio.move_on_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(poll)
                while True:
                    group.start_soon(urgently, pacer, log, "urgent")
                    await anyio.sleep(0.5)  # twice as many as there are slots
        assert len(waited) == 1
        assert waited[0] <= 2 * HEAD_START_SECONDS + 2.0

    run(scenario)


@pytest.mark.parametrize("crowd", [A, A2])
def test_a_request_that_needs_much_is_not_starved_by_those_who_need_little(crowd: httpx.URL) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        limits = [limit_config("https://a.example/*", "10/10s", cost={str(DEAR): 10}), limit_config(str(A2), "9/1s")]
        pacer = pacer_of(limits, clock=clock)
        came = clock.mono()
        got: list[float] = []

        async def dear() -> None:
            await anyio.sleep(0.1)
            (await pacer.acquire(DEAR)).settle(Verdict.OK)
            got.append(clock.mono() - came)

        async def little() -> None:
            while True:
                (await pacer.acquire(crowd)).settle(Verdict.OK)

        with anyio.move_on_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(dear)
                for _ in range(20):
                    group.start_soon(little)
        # Behind the twenty that came before it; and it takes the whole window, so ten seconds after the last of them.
        assert len(got) == 1
        assert got[0] <= 20 + 10 + 1

    run(scenario)


def test_a_cost_is_that_many_slots_of_the_limit() -> None:
    async def scenario() -> None:
        pacer = pacer_of([limit_config("https://a.example/*", "10/1s", cost={str(A2): 5})])
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number, url in enumerate([A, A2, A, A]):
                group.start_soon(log.call, number, url)
                await checkpoint()
        gaps = [after - before for before, after in pairwise(log.times)]
        assert gaps == pytest.approx([0.1, 0.5, 0.1], abs=1e-6)
        assert limit_of(pacer, A).granted == 8

    run(scenario)


def test_two_limits_that_bound_what_is_in_flight() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        limits = [limit_config(str(A), "100/1s", max_in_flight=1)]
        pacer = pacer_of(limits, clock=clock, max_in_flight=3, default="100/1s")
        flying: dict[httpx.URL, int] = {A: 0, A2: 0}
        most: dict[str, int] = {"A": 0, "host": 0}

        async def one(url: httpx.URL) -> None:
            grant = await pacer.acquire(url)
            flying[url] += 1
            most["A"] = max(most["A"], flying[A])
            most["host"] = max(most["host"], sum(flying.values()))
            await anyio.sleep(1.0)
            flying[url] -= 1
            grant.settle(Verdict.OK)

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(one, A)
                group.start_soon(one, A2)
        assert most == {"A": 1, "host": 3}
        assert clock.mono() - 1000.0 == pytest.approx(6.0, abs=0.2)

    run(scenario)


def test_whose_patience_is_shorter_than_the_cool_down_is_told_at_once() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of(clock=clock)
        wait = await refuse(pacer, A, 60.0)
        before = clock.mono()
        with pytest.raises(ThrottledError) as raised:
            await pacer.acquire(A, patience=30.0)
        assert clock.mono() == before
        assert raised.value.until == pytest.approx(clock.boot() + wait)
        (await pacer.acquire(B, patience=0.0)).settle(Verdict.OK)  # another limit
        await anyio.sleep(wait - 29.0)
        (await pacer.acquire(A, patience=30.0)).settle(Verdict.OK)
        assert clock.mono() >= before + wait

    run(scenario)


def test_an_override_ends_a_cool_down_with_one_probe() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "10/1s"}, clock=clock)
        await refuse(pacer, A, 7_200.0)
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(partial(log.call, number, hold=1.0))
                await checkpoint()
            await anyio.sleep(10)
            assert log.times == []
            pacer.override(pacer.limits_for(A))
            await anyio.sleep(0.5)
            assert log.order == [0]
            assert pacer.views()[1][0].probing
        assert log.order == [0, 1, 2]
        assert pacer.views()[1] == ()

    run(scenario)


def test_after_the_probe_it_goes_on_slowly_and_by_and_by_as_before() -> None:
    async def scenario() -> None:
        pacer = pacer_of({"https://a.example/*": "10/1s"})
        grant = await pacer.acquire(A)
        grant.settle(Verdict.UNAVAILABLE, hint=5.0, cause="503 Retry-After 5s")  # says nothing about the rate
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(log.call, number)
                await checkpoint()
        gaps = [after - before for before, after in pairwise(log.times)]
        assert gaps[0] == pytest.approx(0.2, abs=0.02)
        assert all(after <= before + 1e-6 for before, after in pairwise(gaps))
        assert gaps[-1] == pytest.approx(0.1, abs=1e-6)
        assert limit_of(pacer, A).why(math.inf) == ""

    run(scenario)


def test_a_round_of_refusals_cuts_the_rate_of_the_limit_that_was_nearest_to_its_end() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "100/10s", str(A): "20/10s"}, clock=clock)
        grants = [await pacer.acquire(A) for _ in range(5)]
        for grant in grants:
            grant.settle(Verdict.REFUSED, hint=1.0, cause="429 Retry-After 1s")
        wide, tight = (limit_of(pacer, A, name) for name in ("https://a.example/*", str(A)))
        assert (wide.throttle.share, tight.throttle.share) == (1.0, 0.7)
        view = next(view for view in pacer.views()[0] if view.name == str(A))
        assert view.why == "learned: 429 Retry-After 1s, slow start"
        assert view.per_second == pytest.approx(0.7)
        assert view.binds

    run(scenario)


def test_a_server_that_delays_instead_of_refusing_is_asked_less_often() -> None:
    """A queue at the server, worked off at 5/s, where the config says 10/s."""

    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "10/1s"}, clock=clock)
        free_at = 0.0
        latencies: list[float] = []

        async def caller() -> None:
            nonlocal free_at
            while True:
                grant = await pacer.acquire(A)
                free_at = max(free_at, clock.mono()) + 0.2
                latency = free_at - clock.mono() + 0.05
                await clock.sleep_until(clock.mono() + latency)
                grant.settle(Verdict.OK, latency=latency)
                latencies.append(latency)

        with anyio.move_on_after(600):
            async with anyio.create_task_group() as group:
                for _ in range(40):
                    group.start_soon(caller)
        assert max(latencies) > 1.0
        assert sorted(latencies[-500:])[475] < 1.0
        assert 0.8 < 5.0 / (1.0 / limit_of(pacer, A).effective_gap(clock.boot())) < 1.6

    run(scenario)


def test_what_a_server_says_is_left_is_kept_to() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of({"https://a.example/*": "100/10s"}, clock=clock)
        grant = await pacer.acquire(A)
        grant.advise(Advice(2.0, 30.0, "60 left for 30 s"))
        grant.settle(Verdict.OK)
        log = Log(pacer)
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(log.call, number)
                await checkpoint()
        assert [after - before for before, after in pairwise(log.times)][1:] == pytest.approx([0.5] * 8, abs=1e-6)
        assert pacer.views()[0][0].why == "server: 60 left for 30 s"
        # Nothing left: nothing is sent before it renews, and no refusal was needed.
        grant = await pacer.acquire(A)
        grant.advise(Advice(0.0, 20.0, "0 left for 20 s"))
        grant.settle(Verdict.OK)
        (view,) = pacer.views()[1]
        assert (view.attempt, view.cause) == (0, "server: 0 left for 20 s")
        assert view.wait == pytest.approx(20.0)
        before = clock.mono()
        (await pacer.acquire(A)).settle(Verdict.OK)
        assert clock.mono() - before == pytest.approx(20.0)
        await anyio.sleep(60)
        assert pacer.views()[0][0].why == ""

    run(scenario)


def test_a_wait_that_proved_too_short_is_the_least_of_the_next_where_the_server_gives_none() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of(clock=clock, default="1000/1s", base=1.0, cap=60.0)
        waits = [await refuse(pacer, A) for _ in range(8)]
        assert all(after >= before for before, after in pairwise(waits[1:]))
        assert waits[-1] > waits[0]
        # Long after it, a refusal is a new matter.
        (await pacer.acquire(A)).settle(Verdict.OK)
        await anyio.sleep(3_600)
        assert await refuse(pacer, A) <= 2.0

    run(scenario)
