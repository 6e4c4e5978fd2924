"""An engine that only beats, for the tests of its host; run as a script: the monitor around it.

`python -m tests.tui_app.toy BEATS [how]` writes a line to BEATS every 50 ms from the engine's loop, and `stopped` when
it has stopped cleanly. `how`: `slow` takes a second to stop, `stuck` never stops, `dies` fails soon, `busy` has every
row of the screen moving.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from engine.errors import PolltopError
from engine.snapshot import Outcome
from tests.tui_app import builders as b

if TYPE_CHECKING:
    from engine.snapshot import Event, EvictScope, Snapshot


class Toy:
    def __init__(self, beats: Path | None = None, how: str = "") -> None:
        self.how = how
        self.beats = beats
        self.done: list[str] = []
        self.made = 0
        self.ended = False
        self.stopping = anyio.Event()
        self.error: BaseException | None = None

    async def run(self) -> None:
        began = time.monotonic()
        while not self.stopping.is_set():
            self._note(f"{time.monotonic():.3f}")
            with anyio.move_on_after(0.05):
                await self.stopping.wait()
            if self.error is not None:
                raise self.error
            if self.how == "dies" and time.monotonic() - began > 0.8:
                raise PolltopError("the disk is full [/]")
        if self.how == "slow":
            await anyio.sleep(1.0)
        if self.how == "stuck":
            await anyio.sleep(60)
        self.ended = True
        self._note("stopped")

    def _note(self, text: str) -> None:
        if self.beats is not None:
            with self.beats.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")

    def stop(self) -> None:
        self.stopping.set()

    def snapshot(self) -> Snapshot:
        self.made += 1
        now = time.monotonic()
        moving = tuple((int(now) * 7 + at * 5) % 9 for at in range(60))
        plain = b.snapshot(seq=self.made, mono=now, boot=now, requests_per_second=moving)
        return self._busy(plain) if self.how == "busy" else plain

    def _busy(self, plain: Snapshot) -> Snapshot:
        """The most that can change in a second."""
        turn = self.made
        waits = tuple(
            b.cooldown(limit=f"https://{turn}{at}.example.com/", since=plain.boot, until=plain.boot + 9 + at)
            for at in (1, 2)
        )
        sources = tuple(
            b.source(
                f"{at}-{turn}", state="failing", reason=f"{turn} times", signals=turn, duplicates=turn * 7, attempt=turn
            )
            for at in range(12)
        )
        change = {
            "cooldowns": waits,
            "sources": sources,
            "signals": tuple(b.signal(turn + at, source=f"s{turn}", summary=f"{turn} " * 30) for at in range(9)),
            "signals_per_minute": plain.requests_per_second,
            "windows": (b.window(entries=turn * 700, held=turn, new=turn * 13, duplicates=turn * 17),),
            "limits": (b.limit(used=turn * 20 % 300, refused=turn),),
            **dict.fromkeys(("new", "duplicates", "history", "late", "quarantined"), turn * 11),
        }
        return plain.model_copy(update=change)

    def events(self, after: int) -> tuple[tuple[Event, ...], int]:
        if self.how == "busy":
            return tuple(b.event(after + at, f"{after + at} " * 20, "warning") for at in (1, 2, 3)), 0
        return tuple(event for event in b.EVENTS if event.seq > after), 0

    async def pause(self, actor: str) -> Outcome:
        return self._did(f"paused by {actor}")

    async def resume(self, actor: str) -> Outcome:
        return self._did(f"resumed by {actor}")

    async def evict(
        self, scope: EvictScope, actor: str, *, expect: int | None = None, dry_run: bool = False
    ) -> Outcome:
        return self._did(f"evicted {scope.kind} {expect} {dry_run} by {actor}")

    async def poll_now(self, source: str, actor: str) -> Outcome:
        if source == "never":
            await anyio.sleep(60)
        raise ValueError(source)

    def _did(self, text: str) -> Outcome:
        self.done.append(text)
        return Outcome(ok=True, text=text)


if __name__ == "__main__":
    from tui_app.host import run_monitor

    run_monitor(lambda: Toy(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
