"""What a limit has come to outlives the process: cool-down, attempt, learned rate, and the releases of its window."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from engine.backoff import Verdict
from engine.demo import worst_window
from engine.limits import LimitState
from engine.pacing import Pacer
from engine.store import Store
from tests.engine.test_pacing import A, Log, limit_of, pacer_of, refuse
from tests.support.engines import Api, ListSink, config_of, items_source, running, wait
from tests.support.virtual import VirtualClock, run


def restarted(pacer: Pacer, limits: dict[str, str], clock: VirtualClock, away: float = 0.0) -> Pacer:
    """A pacer that goes on from what another one would have written down `away` seconds ago, by text."""
    states = {key: state.to_json() for key, state in pacer.changes().items()}
    after = pacer_of(limits, clock=clock)
    after.restore({key: (LimitState.from_json(text), clock.boot() - away) for key, text in states.items()})
    return after


@pytest.mark.parametrize("limits", [{"https://a.example/*": "10/1s"}, {}])
def test_a_cool_down_and_its_attempt_go_on(limits: dict[str, str]) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        pacer = pacer_of(limits, clock=clock)
        for _ in range(3):
            wait = await refuse(pacer, A, 60.0)
        until = clock.boot() + wait
        after = restarted(pacer, limits, clock)
        after.limits_for(A)
        (view,) = after.views()[1]
        assert view.attempt == 3
        assert view.until == pytest.approx(until)
        assert (view.cause, view.hint) == ("429", 60.0)
        log = Log(after)
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(log.call, number)
                await checkpoint()
            await anyio.sleep(wait - 1.0)
            assert log.times == []
        assert log.times[0] == pytest.approx(until, abs=0.01)

    run(scenario)


def test_a_learned_rate_is_kept_with_its_age() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        limits = {"https://a.example/*": "10/1s"}
        pacer = pacer_of(limits, clock=clock)
        await refuse(pacer, A, 1.0)
        (await pacer.acquire(A)).settle(Verdict.OK)
        share = limit_of(pacer, A).throttle.share
        assert 0.7 <= share < 0.71
        soon = restarted(pacer, limits, clock)
        assert limit_of(soon, A).throttle.share == pytest.approx(share)
        # Twice the requests in the config: the server still bears what it bore.
        pacer = restarted(soon_changed(soon), {"https://a.example/*": "20/1s"}, clock)
        assert limit_of(pacer, A).throttle.share == pytest.approx(share / 2)
        # A day later it is forgotten with the first good answer.
        late = restarted(soon_changed(soon), limits, clock, away=90_000.0)
        (await late.acquire(A)).settle(Verdict.OK)
        assert limit_of(late, A).throttle.share == 1.0

    run(scenario)


def soon_changed(pacer: Pacer) -> Pacer:
    for limit in pacer._matcher:
        limit.changed = True
    return pacer


@given(
    st.lists(st.floats(0, 12), min_size=1, max_size=40),
    st.integers(1, 20),
    st.floats(0, 15),
)
def test_no_window_is_over_whenever_it_is_restarted(sleeps: list[float], requests: int, away: float) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        limits = {"https://a.example/*": f"{requests}/10s"}
        pacer = pacer_of(limits, clock=clock)
        times: list[float] = []
        for number, sleep in enumerate(sleeps):
            await anyio.sleep(sleep)
            grant = await pacer.acquire(A)
            times.append(grant.at)
            grant.settle(Verdict.OK)
            if number % 3 == 2:
                await anyio.sleep(away)
                pacer = restarted(soon_changed(pacer), limits, clock)
        assert worst_window(times, 10.0) <= requests

    run(scenario)


def test_what_was_sent_counts_under_a_lower_rate_too() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        before = pacer_of({"https://a.example/*": "10/10s"}, clock=clock)
        log = Log(before)
        for number in range(10):
            await log.call(number)
        after = restarted(before, {"https://a.example/*": "3/10s"}, clock)
        times = [*log.times]
        for _ in range(4):
            grant = await after.acquire(A)
            grant.settle(Verdict.OK)
            times.append(grant.at)
            assert sum(grant.at - 10.0 < at <= grant.at for at in times) <= 3

    run(scenario)


def test_what_cannot_be_read_is_no_state() -> None:
    for text in ("", "{}", "[]", '{"cooled":"x"}', "null"):
        with pytest.raises(ValueError, match=r".+"):
            LimitState.from_json(text)


# The whole engine


@pytest.mark.parametrize("kill", [False, True])
def test_an_engine_that_is_restarted_in_a_cool_down_sends_nothing_before_its_end(tmp_path: Path, kill: bool) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        api, config = Api(clock), config_of(items_source())
        async with running(tmp_path, config, clock, api.transport, ListSink(), kill=kill):
            await wait(clock, 12)
            api.faults.append(httpx.Response(429, headers={"retry-after": "600"}))
            await wait(clock, 6)
        sent = len(api.log)
        refused_at = api.log[-1][0]
        async with running(tmp_path, config, clock, api.transport, ListSink()) as engine:
            await wait(clock, 1)
            assert engine.snapshot().sources[0].state == "throttled"
            await clock.sleep_until(refused_at + 599.0)
            assert len(api.log) == sent
            await wait(clock, 12)
            assert len(api.log) > sent
            assert engine.snapshot().sources[0].state == "live"

    run(scenario)


def test_a_crash_loop_does_not_use_a_slow_limit_up(tmp_path: Path) -> None:
    """2 requests a minute, and a supervisor that restarts what dies: each slot is written down before it is used."""

    async def scenario() -> None:
        clock = VirtualClock()
        api = Api(clock)
        config = config_of(items_source(), limits=[{"match": "http://api.example/*", "rate": "2/60s"}])
        for seed in range(30):
            async with running(tmp_path, config, clock, api.transport, ListSink(), kill=True, seed=seed):
                await wait(clock, 7)
        times = [at for at, _ in api.log]
        assert worst_window(times, 60.0) <= 2
        assert len(times) >= 4, "it goes on all the same"
        assert min(after - before for before, after in pairwise(times)) >= 29.0

    run(scenario)


def test_a_state_that_is_damaged_costs_the_state_and_not_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        api, config = Api(clock), config_of(items_source())
        async with running(tmp_path, config, clock, api.transport, ListSink()):
            await wait(clock, 12)
        store = Store(tmp_path, clock, inline=True)
        await store.keep_limits(dict.fromkeys(("a", "b"), "{rubbish"))
        store.close()
        async with running(tmp_path, config, clock, api.transport, ListSink()) as engine:
            await wait(clock, 12)
            assert engine.snapshot().sources[0].state == "live"

    run(scenario)
