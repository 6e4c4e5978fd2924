"""The real monitor on a real pty, over the real engine on a real server."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from engine.clock import SystemClock
from engine.demo import Demo, serve_in_thread
from tests.support import command
from tests.support.tapes import trades, write_tape
from tests.support.until import until
from tests.test_end_to_end import until_polled, write_config

HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07clipboard",
    "\x1b[31mred\x1b[2J",
    "[/] [bold] [@click=app.exit]x[/] [BTC-USD]",
    "\u202egnp.exe \u2066hidden\u2069",
    "\x9b31m \x00 \x07 \x85",
    "\U000e0041 tag, 漢字, e\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301",
)


class Terminal:
    """A monitor on a pty of 80x24."""

    def __init__(self, *arguments: object, controlling: bool = True) -> None:
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command.command(*arguments),
            stdin=side, stdout=side, stderr=side, cwd=command.REPO, env=command.environment(), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) if controlling else None,  # noqa: PLW1509
        )  # fmt: skip
        os.close(side)
        self.output = b""

    def read(self, seconds: float, until: bytes = b"") -> bytes:
        """Read what comes for so long, or until `until` was seen."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (until and until in self.output):
            ready, _, _ = select.select([self.main], [], [], left)
            if ready:
                try:
                    data = os.read(self.main, 65536)
                except OSError:
                    break
                if not data:
                    break
                self.output += data
        return self.output

    def press(self, keys: str) -> None:
        os.write(self.main, keys.encode())

    def close(self) -> None:
        if self.main >= 0:
            os.close(self.main)
            self.main = -1


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[tuple[Demo, Path]]:
    rows = trades(1500)
    for index, row in enumerate(rows):
        row["title"] = row["outcome"] = row["name"] = HOSTILE[index % len(HOSTILE)]
    span = write_tape(tmp_path / "tape.jsonl", rows)
    demo = Demo(clock=SystemClock(), tape=tmp_path / "tape.jsonl", tape_speed=span / 40)
    with serve_in_thread(demo.app) as url:
        yield demo, write_config(tmp_path, url)


@pytest.fixture
def controlling() -> bool:
    """Whether it is the terminal of the monitor's own session."""
    return True


@pytest.fixture
def terminal(upstream: tuple[Demo, Path], tmp_path: Path, controlling: bool) -> Iterator[Terminal]:
    terminal = Terminal("--config", upstream[1], "--state-dir", tmp_path / "state", controlling=controlling)
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    terminal.close()


def test_hostile_titles_are_harmless_and_q_gives_the_terminal_back(terminal: Terminal) -> None:
    assert b"RUNNING" in terminal.read(15, b"RUNNING")
    terminal.output = b""
    terminal.read(30, b"clipboard")
    terminal.read(4)
    assert b"clipboard" in terminal.output, "titles are on the screen"
    for harm in (
        b"\x1b]52",
        b"\x1b]8",
        b"\x1b[31mred",
        b"\x1b[2J\x1b",
        b"\xc2\x9b",
        b"\xe2\x80\xae",
        b"\xf3\xa0\x81\x81",
        b"\x00",
    ):
        assert harm not in terminal.output, harm
    assert b"@click=app.exit" in terminal.output, "markup is literal text"
    terminal.press("q")
    terminal.read(5, b"\x1b[?1049l")
    assert b"\x1b[?1049l" in terminal.output
    assert terminal.process.wait(5) == 0


def test_p_pauses_the_engine_and_nothing_is_sent(terminal: Terminal, upstream: tuple[Demo, Path]) -> None:
    terminal.read(15, b"RUNNING")
    terminal.press("p")
    assert b"PAUSED" in terminal.read(15, b"PAUSED")
    terminal.read(0.5)
    before = upstream[0].log.total
    terminal.read(2)
    assert upstream[0].log.total == before
    terminal.output = b""
    terminal.press("p")
    assert b"RUNNING" in terminal.read(15, b"RUNNING")
    until_polled(upstream[0], before + 1)


def test_a_pty_that_nobody_reads_does_not_delay_the_engine(terminal: Terminal, upstream: tuple[Demo, Path]) -> None:
    terminal.read(15, b"RUNNING")
    began = time.monotonic()
    told = upstream[0].log.total
    # At full refresh ten seconds of screens are far more than a pty holds.
    until(lambda: time.monotonic() > began + 10 and upstream[0].log.total > told + 20)
    ended = time.monotonic()
    arrivals = [at for at in upstream[0].log.arrivals("/v2/trades") if began < at < ended]
    gaps = [later - earlier for earlier, later in pairwise([began, *arrivals, ended])]
    assert median(gaps) < 1.0, "as often as the limit allows"
    assert max(gaps) < 4.0, "all the while"
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(4) == 0
    assert time.monotonic() - ended < 3.0


@pytest.mark.parametrize(
    ("way", "controlling"), [("SIGTERM", True), ("SIGHUP", True), ("hang-up", True), ("hang-up", False)]
)
def test_it_ends_with_its_terminal_or_when_told_to(terminal: Terminal, way: str, tmp_path: Path) -> None:
    terminal.read(15, b"RUNNING")
    if way == "hang-up":
        terminal.close()
    else:
        terminal.process.send_signal(getattr(signal, way))
        terminal.read(5, b"\x1b[?1049l")
        assert b"\x1b[?1049l" in terminal.output
    assert terminal.process.wait(5) == 0
    assert "stopped" in (tmp_path / "state" / "polltop.log").read_text("utf-8")
