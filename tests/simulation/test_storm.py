"""The storm scenario in virtual time: the upstream tightens its limits under us, and bans whoever does not listen."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from engine.config import Config
from engine.demo import Demo
from engine.hints import retry_after
from engine.store import StateFolder, Store
from engine.supervisor import Engine
from tests.support.virtual import VirtualClock, run

MINUTES = 3


@dataclass
class Exchange:
    sent: float
    answered: float
    status: int
    hint: float | None
    form: str


class Recorder(httpx.AsyncBaseTransport):
    """What went over the wire, as the wire saw it."""

    def __init__(self, inner: httpx.AsyncBaseTransport, clock: VirtualClock) -> None:
        self.exchanges: list[Exchange] = []
        self._inner = inner
        self._clock = clock

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = self._clock.mono()
        response = await self._inner.handle_async_request(request)
        hint = retry_after(response.headers, self._clock.wall())
        form = "seconds" if response.headers.get("retry-after", "").isdigit() else "date"
        self.exchanges.append(Exchange(sent, self._clock.mono(), response.status_code, hint, form))
        return response


class Kept:
    """A sink in memory."""

    name = "kept"

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def recover(self, owed: Any) -> int:
        return 0

    async def write(self, lines: Any) -> None:
        self.lines += lines


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_sent_inside_a_cool_down_and_one_probe_goes_first(tmp_path: Path, seed: int) -> None:
    exchanges, signals = run(_storm, tmp_path, seed)
    refused = [exchange for exchange in exchanges if exchange.status == 429]
    assert len(refused) >= 10
    assert {exchange.form for exchange in refused} == {"seconds", "date"}
    rounds = 0
    for refusal in refused:
        until = refusal.answered + max(refusal.hint or 0.0, 1.0)
        inside = [other for other in exchanges if refusal.answered < other.sent < until]
        assert not inside, "sent inside a cool-down"
        # What comes after the wait: one probe, and nothing beside it until it is answered.
        after = sorted((other for other in exchanges if other.sent >= until), key=lambda other: other.sent)
        if after:
            probe = after[0]
            rounds += 1
            assert not [other for other in after[1:] if other.sent < probe.answered], "a second one beside the probe"
    assert rounds >= 10
    # A client that heeds its hints makes no ban grow, and is soon served again.
    assert len(refused) < 0.15 * len(exchanges)
    assert max(Counter(signals).values()) == 1
    assert len(signals) > 500


async def _storm(folder: Path, seed: int) -> tuple[list[Exchange], list[str]]:
    clock = VirtualClock()
    demo = Demo("storm", clock=clock, seed=seed)
    recorder = Recorder(httpx.ASGITransport(app=demo.app), clock)
    held = StateFolder(folder, clock)
    store = Store(folder, clock, inline=True)
    sink = Kept()
    config = Config.model_validate(demo.config("http://demo.example"))
    engine = Engine(config, store, clock=clock, sinks=[sink], rng=random.Random(seed), inner=recorder)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run)
            await clock.sleep_until(clock.mono() + MINUTES * 60.0)
            engine.stop()
    finally:
        store.close()
        held.close()
    return recorder.exchanges, sink.lines
