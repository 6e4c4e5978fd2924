"""The outbox to one sink: oldest first, at least once, always with the same line."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio

from engine import log
from engine.backoff import full_jitter
from engine.board import Board
from engine.clock import Clock
from engine.config import Backoff
from engine.errors import StoreError
from engine.gate import Gate
from engine.sinks.base import Sink, SinkClosedError
from engine.store import Owed, Store

__all__ = ["Delivery"]

_BATCH = 200
"""Deliveries made, and settled, in one step; a crash repeats at most these."""


class Delivery:
    """Delivers what is owed to one sink, until told to drain."""

    def __init__(
        self,
        sink: Sink,
        *,
        store: Store,
        owed: int,
        backoff: Backoff,
        gate: Gate,
        board: Board,
        clock: Clock,
        rng: random.Random,
        closed: Callable[[], None],
    ) -> None:
        self.sink = sink
        self.owed = owed
        self.delivered = 0
        self.failures = 0
        self.attempt = 0
        self.reason = ""
        self._recovered = False
        self._made: list[Owed] = []
        """Written, and not yet settled because the store failed: to be settled, not written again."""
        self._draining = False
        self._store = store
        self._backoff = backoff
        self._gate = gate
        self._board = board
        self._clock = clock
        self._rng = rng
        self._closed = closed
        self._more = anyio.Event()

    def expect(self, count: int) -> None:
        """So many more deliveries are owed now."""
        self.owed += count
        self._more.set()

    def drain(self) -> None:
        """Return from `run` once nothing is owed."""
        self._draining = True
        self._more.set()

    async def run(self) -> None:
        while True:
            await self._gate.passed()
            self._more = anyio.Event()
            try:
                if await self._step():
                    continue
            except SinkClosedError:
                self._closed()
                return
            except (OSError, StoreError) as error:
                await self._failed(getattr(error, "strerror", None) or str(error))
                continue
            except Exception as error:  # noqa: BLE001 - a fault in one sink (ours, too) stops nothing else
                log.get().error("a delivery failed in a way that it should not", sink=self.sink.name, exc_info=True)
                await self._failed(f"{type(error).__name__}: {error}")
                continue
            if self._draining:
                return
            await self._more.wait()

    async def _step(self) -> bool:
        """Deliver one batch; whether there may be more."""
        if not self._made:
            batch = await self._store.owed(self.sink.name, _BATCH)
            lines = [owed.signal.line() for owed in batch]
            if not self._recovered:
                had = await self.sink.recover(lines)
                self._recovered = True
                self._made = batch[:had]
        if not self._made:
            if not batch:
                return False
            await self.sink.write(lines)
            self._made = batch
        with anyio.CancelScope(shield=True):
            # Written is delivered: a stop that comes now must not have them written again.
            await self._store.settle(self._made)
        self.owed -= len(self._made)
        self.delivered += len(self._made)
        self._made = []
        if self.attempt:
            self._board.say("info", f"{self.sink.name}: delivers again after {self.attempt} failed")
        self.attempt, self.reason = 0, ""
        return True

    async def _failed(self, reason: str) -> None:
        self.failures += 1
        if reason != self.reason:
            self._board.say("error", f"{self.sink.name}: {reason}; deliveries wait")
        self.reason = reason
        backoff = self._backoff
        wait = full_jitter(self.attempt, base=backoff.base_seconds, cap=backoff.cap_seconds, rng=self._rng)
        self.attempt += 1
        await self._clock.sleep_until(self._clock.mono() + wait)
