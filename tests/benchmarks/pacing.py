"""How evenly, how fully and how cheaply permits are given, next to other limiters, each as its documentation has it.

Callers loop on "wait for leave" with nothing between. The steady state of a cell is measured, all limiters of it after
each other in one process, in another order each time; the medians of the runs are shown. Windows are half-open.

CPU is that of the whole process for each permit: the callers' loop is in it, for everybody alike.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import httpx

from engine.backoff import Verdict
from engine.clock import SystemClock
from engine.config import Backoff, LimitConfig, Rate
from engine.demo import worst_window
from engine.pacing import Pacer

__all__ = ["Cell", "main", "measure"]

URL = httpx.URL("https://api.example/items")
Acquire = Callable[[], Awaitable[Any]]


def polltop(rate: int, limits: int = 1) -> Acquire:
    pacer = Pacer(
        [LimitConfig(match=f"https://api.example/{'*' * (n + 1)}", rate=Rate(rate, 1.0)) for n in range(limits)],
        default_rate=Rate(1, 1.0),
        min_interval=0.0,
        headroom=0.0,
        backoff=Backoff(),
        clock=SystemClock(),
        rng=random.Random(1),
        max_in_flight=10_000,
    )

    async def acquire() -> None:
        (await pacer.acquire(URL)).settle(Verdict.OK)

    return acquire


def aiolimiter(rate: int) -> Acquire:
    from aiolimiter import AsyncLimiter

    acquire: Acquire = AsyncLimiter(rate, 1).acquire
    return acquire


def aiolimiter_smooth(rate: int) -> Acquire:
    from aiolimiter import AsyncLimiter

    acquire: Acquire = AsyncLimiter(1, 1 / rate).acquire
    return acquire


def pyrate(rate: int) -> Acquire:
    from pyrate_limiter import Duration, Limiter
    from pyrate_limiter import Rate as PyrateRate

    limiter = Limiter(PyrateRate(rate, Duration.SECOND))
    return lambda: limiter.try_acquire_async("key")


def limits_moving(rate: int) -> Acquire:
    from limits import RateLimitItemPerSecond
    from limits.aio.storage import MemoryStorage
    from limits.aio.strategies import MovingWindowRateLimiter

    limiter, item = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerSecond(rate)

    async def acquire() -> None:
        while not await limiter.hit(item, "key"):
            reset = (await limiter.get_window_stats(item, "key")).reset_time
            await asyncio.sleep(max(0.0, reset - time.time()))

    return acquire


def asyncio_throttle(rate: int) -> Acquire:
    from asyncio_throttle import Throttler

    throttler = Throttler(rate_limit=rate, period=1)

    async def acquire() -> None:
        async with throttler:
            pass

    return acquire


def throttler(rate: int) -> Acquire:
    from throttler import Throttler

    limiter = Throttler(rate_limit=rate, period=1.0)

    async def acquire() -> None:
        async with limiter:
            pass

    return acquire


LIMITERS: dict[str, Callable[[int], Acquire]] = {
    "polltop": polltop,
    "aiolimiter (r, 1 s)": aiolimiter,
    "aiolimiter (1, 1/r)": aiolimiter_smooth,
    "pyrate-limiter": pyrate,
    "limits, moving window": limits_moving,
    "asyncio-throttle": asyncio_throttle,
    "throttler": throttler,
}


@dataclass(frozen=True)
class Cell:
    """What was seen of one limiter at one rate with so many callers."""

    used: float
    """Permits, of the budget."""
    second: float
    """Most permits in any second, of the budget."""
    tenth: float
    """Most permits in any 100 ms, of a tenth of the budget."""
    gaps: tuple[float, float, float]
    """Milliseconds that a gap is longer than the interval: p1, p50, p99."""
    overtaken: int
    cpu: float
    """Microseconds a permit."""


async def measure(make: Callable[[int], Acquire], rate: int, callers: int, seconds: float) -> Cell:
    """Let `callers` loop for half a second, and then look for `seconds`."""
    acquire = make(rate)
    grants: list[tuple[float, int]] = []
    arrivals = iter(range(10**9))

    async def caller() -> None:
        while True:
            number = next(arrivals)
            await acquire()
            grants.append((time.monotonic(), number))

    tasks = [asyncio.create_task(caller()) for _ in range(callers)]
    await asyncio.sleep(0.5 if rate > 1 else 1.0)
    since, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    until, cpu = time.monotonic(), time.process_time() - cpu
    await leave(tasks)
    seen = [(at, number) for at, number in grants if since <= at < until]
    times = [at for at, _ in grants]
    within = [at for at, _ in seen]
    gaps = sorted((after - before - 1 / rate) * 1000 for before, after in pairwise(within)) or [math.nan]
    highest, overtaken = -1, 0
    for _, number in seen:
        overtaken += number < highest
        highest = max(highest, number)
    return Cell(
        used=len(seen) / (rate * (until - since)),
        second=worst_window(times, 1.0) / rate,
        tenth=worst_window(within, 0.1) / max(1.0, rate / 10),
        gaps=(gaps[len(gaps) // 100], median(gaps), gaps[-1 - len(gaps) // 100]),
        overtaken=overtaken,
        cpu=cpu / max(1, len(seen)) * 1e6,
    )


async def leave(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def give_ups(make: Callable[[int], Acquire], seconds: float) -> tuple[float, float]:
    """Under 200/s, with 20 callers that stay and 1,600 a second that leave after 10 ms: the part used, and give-ups."""
    rate, acquire = 200, make(200)
    grants: list[float] = []
    left = 0

    async def caller() -> None:
        while True:
            await acquire()
            grants.append(time.monotonic())

    async def passer_by() -> None:
        nonlocal left
        try:
            await asyncio.wait_for(acquire(), 0.01)
        except TimeoutError:
            left += 1
        else:
            grants.append(time.monotonic())

    tasks = [asyncio.create_task(caller()) for _ in range(20)]
    start = time.monotonic()
    passing: set[asyncio.Task[None]] = set()
    spawned = 0
    while (now := time.monotonic() - start) < seconds:
        while spawned < now * 1_600:
            task = asyncio.create_task(passer_by())
            passing.add(task)
            task.add_done_callback(passing.discard)
            spawned += 1
        await asyncio.sleep(0.004)
    until = time.monotonic()
    used = sum(start + 0.5 <= at < until for at in grants) / (rate * (until - start - 0.5))
    await leave([*tasks, *passing])
    return used, left / (until - start)


async def uncontended() -> dict[str, float]:
    """Microseconds for a pass through three limits that nobody else uses."""
    ours = polltop(10**9, limits=3)
    each = [aiolimiter(10**9) for _ in range(3)]

    async def theirs() -> None:
        for acquire in each:
            await acquire()

    found: dict[str, list[float]] = {"polltop": [], "aiolimiter": []}
    for _ in range(7):
        for name, acquire in (("polltop", ours), ("aiolimiter", theirs)):
            start = time.process_time()
            for _ in range(5_000):
                await acquire()
            found[name].append((time.process_time() - start) / 5_000 * 1e6)
    return {name: median(values) for name, values in found.items()}


def installed() -> dict[str, Callable[[int], Acquire]]:
    there = {}
    for name, make in LIMITERS.items():
        try:
            make(10)
        except ImportError as error:
            print(f"{name}: not measured: {error}")
        else:
            there[name] = make
    return there


def measure_cell(rate: int, callers: int, runs: int, there: dict[str, Callable[[int], Acquire]]) -> dict[str, Cell]:
    cells: dict[str, list[Cell]] = {name: [] for name in there}
    for run in range(runs):
        for name in random.Random(run).sample(sorted(there), len(there)):
            cells[name].append(asyncio.run(measure(there[name], rate, callers, 5.0 if rate == 1 else 2.0)))
    return {
        name: Cell(
            used=median(cell.used for cell in seen),
            second=max(cell.second for cell in seen),
            tenth=median(cell.tenth for cell in seen),
            gaps=(
                median(cell.gaps[0] for cell in seen),
                median(cell.gaps[1] for cell in seen),
                median(cell.gaps[2] for cell in seen),
            ),
            overtaken=max(cell.overtaken for cell in seen),
            cpu=median(cell.cpu for cell in seen),
        )
        for name, seen in cells.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run, 100 callers")
    quick = parser.parse_args().quick
    there = installed()
    for rate in (1, 10, 50, 200, 1000):
        for callers in (100,) if quick else (1, 100, 1000):
            print(f"\n{rate}/s, {callers} callers\n")
            print("| | used | worst second | worst 100 ms | gap error ms p1 / p50 / p99 | overtaken | CPU us |")
            print("|---|---|---|---|---|---|---|")
            for name, cell in measure_cell(rate, callers, 1 if quick else 3, there).items():
                gaps = " / ".join(f"{gap:.2f}" for gap in cell.gaps)
                print(
                    f"| {name} | {cell.used:.3f} | {cell.second:.2f} | {cell.tenth:.2f} | {gaps} "
                    f"| {cell.overtaken} | {cell.cpu:.0f} |",
                    flush=True,
                )
    print("\n200/s, 20 callers, and 1,600 a second that give up after 10 ms\n")
    print("| | used | give-ups a second |\n|---|---|---|")
    for name, make in there.items():
        used, left = asyncio.run(give_ups(make, 2.5))
        print(f"| {name} | {used:.3f} | {left:.0f} |")
    print("\nA pass through three limits that nobody else uses, us: ", asyncio.run(uncontended()))


if __name__ == "__main__":
    main()
