"""How well a limit is found that nobody has told: in virtual time, an hour in a few seconds.

Three servers, each asked by callers that never rest:
    - one refuses what is over a hidden limit at 60 % of the configured rate (sliding window, `Retry-After: 1`);
    - one never refuses: it works a queue off at 20 requests a second, where 50 are configured;
    - one steps up tenfold after a quarter of an hour.

`no learning` is the same pacer with a throttle that is never cut: what a client does that only waits and goes on.
`AIMD` halves at a refusal and adds 1 % of the configured rate for each second of use.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import httpx
import pytest

from engine.backoff import Verdict
from engine.config import Backoff, LimitConfig, Rate
from engine.pacing import Pacer
from engine.throttle import LEAST_SHARE, Throttle
from tests.support.virtual import VirtualClock, run

__all__ = ["Outcome", "compare", "main", "run_delaying", "run_hidden", "run_step"]

URL = httpx.URL("https://api.example/items")
LATENCY = 0.05


class Aimd(Throttle):
    """Additive increase, multiplicative decrease: the comparison."""

    __slots__ = ()

    def cut(self, boot: float, why: str, *, borne: float = 1.0) -> bool:
        if not self._answered:
            return False
        self._answered = False
        self.share = max(LEAST_SHARE, min(self.share, borne) * 0.5)
        self.used, self.why, self.cut_at = 0.0, why, boot
        self._latencies.clear()
        return True

    def answered(self, seconds: float, boot: float) -> None:
        del boot
        self._answered = True
        self.used += seconds
        self.share = min(1.0, self.share + 0.01 * seconds)
        self.why = self.why if self.share < 1.0 else ""


class Never(Throttle):
    """No learning at all."""

    __slots__ = ()

    def cut(self, boot: float, why: str, *, borne: float = 1.0) -> bool:
        del boot, why, borne
        return False


RULES: dict[str, type[Throttle]] = {"polltop (CUBIC)": Throttle, "AIMD": Aimd, "no learning": Never}


@contextmanager
def learning_by(rule: type[Throttle]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.limits.Throttle", rule)
        yield


@dataclass
class Outcome:
    """What came of it."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)

    @property
    def refused_part(self) -> float:
        return len(self.refused) / (len(self.refused) + len(self.answered))

    def used(self, per_second: float, since: float, until: float) -> float:
        return sum(since <= at < until for at in self.answered) / (per_second * (until - since))

    def p95(self, since: float, until: float) -> float:
        taken = sorted(latency for at, latency in self.latencies if since <= at < until)
        return taken[int(len(taken) * 0.95)]


Serve = Callable[[float], tuple[bool, float]]


def drive(configured: float, serve: Serve, seconds: float, callers: int, seed: int) -> Outcome:
    """`callers` that never rest, under one limit of `configured` a second, for `seconds`."""
    outcome = Outcome()

    async def scenario() -> None:
        clock = VirtualClock()
        start = clock.mono()
        pacer = Pacer(
            [LimitConfig(match="https://api.example/*", rate=Rate(round(configured * 10), 10.0))],
            default_rate=Rate(1, 1.0),
            min_interval=0.0,
            headroom=0.0,
            backoff=Backoff(),
            clock=clock,
            rng=random.Random(seed),
        )

        async def caller() -> None:
            while True:
                grant = await pacer.acquire(URL)
                good, latency = serve(clock.mono() - start)
                await anyio.sleep(latency)
                at = clock.mono() - start
                if good:
                    grant.settle(Verdict.OK, latency=latency)
                    outcome.answered.append(at)
                    outcome.latencies.append((at, latency))
                else:
                    grant.settle(Verdict.REFUSED, hint=1.0, cause="429 Retry-After 1s")
                    outcome.refused.append(at)

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for _ in range(callers):
                    group.start_soon(caller)

    run(scenario)
    return outcome


def refusing(limit: Callable[[float], float]) -> Serve:
    """Refuses what is over `limit(now)` a second in any ten seconds."""
    taken: deque[float] = deque()

    def serve(now: float) -> tuple[bool, float]:
        while taken and taken[0] <= now - 10.0:
            taken.popleft()
        if len(taken) >= limit(now) * 10.0:
            return False, LATENCY
        taken.append(now)
        return True, LATENCY

    return serve


def delaying(per_second: float) -> Serve:
    """Works a queue off, and never refuses."""
    free_at = 0.0

    def serve(now: float) -> tuple[bool, float]:
        nonlocal free_at
        free_at = max(free_at, now) + 1.0 / per_second
        return True, free_at - now + LATENCY

    return serve


def run_hidden(configured: float, seconds: float = 3_600.0, seed: int = 1) -> Outcome:
    return drive(configured, refusing(lambda _: 0.6 * configured), seconds, 20, seed)


def run_delaying(seconds: float = 3_600.0, seed: int = 1) -> Outcome:
    return drive(50.0, delaying(20.0), seconds, 200, seed)


def run_step(seconds: float = 1_800.0, seed: int = 1) -> Outcome:
    return drive(50.0, refusing(lambda now: 5.0 if now < 900.0 else 50.0), seconds, 20, seed)


def reached(outcome: Outcome, per_second: float, since: float) -> float:
    """Seconds from `since` until ten seconds in a row had 0.9 of the rate."""
    for second in range(3_600):
        if outcome.used(per_second, since + second, since + second + 10.0) >= 0.9:
            return float(second)
    return float("inf")


def compare(*, quick: bool) -> list[str]:
    hour = 900.0 if quick else 3_600.0
    lines = [
        "| | refused at 10/s | used | refused at 50/s | used | p95 s, delayed | used | 0.9 of a tenfold step after s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rule in RULES.items():
        with learning_by(rule):
            slow, fast = run_hidden(10.0, hour), run_hidden(50.0, hour)
            late, step = run_delaying(hour), run_step()
        lines.append(
            f"| {name} | {slow.refused_part:.2%} | {slow.used(6.0, 0, hour):.2f} | {fast.refused_part:.2%} "
            f"| {fast.used(30.0, 0, hour):.2f} | {late.p95(hour - 600.0, hour):.3f} "
            f"| {late.used(20.0, hour - 600.0, hour):.2f} | {reached(step, 50.0, 900.0):.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of an hour instead of one")
    print("\n".join(compare(quick=parser.parse_args().quick)))
    print(f"\nTo reach: refused under 0.50%, used 0.90, p95 {LATENCY + 0.05:.3f} (its baseline), within 300 s")


if __name__ == "__main__":
    main()
