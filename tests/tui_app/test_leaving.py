"""Leaving a real process on a real pty: by key and by signal, with a terminal that reads and with one that does not."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parents[2]
LEFT = b"\x1b[?1049l"


class Terminal:
    """A pty of 80x24 with the monitor of a toy engine on it."""

    def __init__(self, beats: Path, how: str = "", **environ: str) -> None:
        self.beats = beats
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(side)
        os.set_blocking(self.main, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tui_app.toy", str(beats), how],
            stdin=side,
            stdout=side,
            stderr=side,
            cwd=HERE,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONDEVMODE": "", **environ},
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - no thread runs here yet
        )
        self.side = side
        self.output = b""

    def read(self, seconds: float, until: bytes = b"") -> bytes:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (until and until in self.output):
            if select.select([self.main], [], [], left)[0]:
                with contextlib.suppress(BlockingIOError, OSError):
                    self.output += os.read(self.main, 65_536)
        return self.output

    def press(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def wait(self, seconds: float, *, reading: bool = True) -> int:
        """The exit code; the terminal is read meanwhile, or not."""
        end = time.monotonic() + seconds
        while (code := self.process.poll()) is None:
            assert time.monotonic() < end, "the process lives on"
            self.read(0.02) if reading else time.sleep(0.02)
        if reading:
            self.read(0.1)
        return code

    def lines(self) -> list[str]:
        return self.beats.read_text("utf-8").split() if self.beats.exists() else []


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def begin(how: str = "", until: bytes = b"RUNNING", **environ: str) -> Terminal:
        terminal = Terminal(tmp_path / "beats", how, XDG_CONFIG_HOME=str(tmp_path), **environ)
        made.append(terminal)
        assert until in terminal.read(15, until), terminal.output
        return terminal

    yield begin
    for terminal in made:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.main)
        os.close(terminal.side)


Start = Any


@pytest.mark.parametrize(("way", "how"), [("q", "slow"), ("SIGTERM", "")])
def test_every_way_out_stops_the_engine_and_gives_the_terminal_back(start: Start, way: str, how: str) -> None:
    terminal = start(how)
    began = time.monotonic()
    if way.startswith("SIG"):
        terminal.process.send_signal(getattr(signal, way))
    else:
        terminal.press(way.encode())
    assert terminal.wait(4) == 0
    assert time.monotonic() - began < 2.5
    assert terminal.lines()[-1] == "stopped"
    assert LEFT in terminal.output
    assert termios.tcgetattr(terminal.side) == terminal.modes


def test_a_stalled_terminal_delays_neither_the_engine_nor_the_end(start: Start) -> None:
    """The view's loop hangs in a write: `q` would never be heard, and SIGTERM ends it all the same."""
    terminal = start()
    for _ in range(60):
        terminal.press(b"1\x1b")  # whole pictures, which nobody reads
        time.sleep(0.05)
    moments = [float(line) for line in terminal.lines()]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(moments) > 40
    assert max(gaps) < 0.5
    began = time.monotonic()
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait(4, reading=False) == 0
    assert time.monotonic() - began < 3.0
    assert terminal.lines()[-1] == "stopped"
    assert LEFT in terminal.read(0.5, LEFT), "what was stuck is thrown away, and the terminal put right"
    assert termios.tcgetattr(terminal.side) == terminal.modes


def test_interrupted_twice(start: Start) -> None:
    terminal = start("stuck")
    terminal.press(b"\x03")
    assert b"STOPPING" in terminal.read(1, b"STOPPING")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait(1.0) == 130
    assert LEFT in terminal.output


def test_an_engine_that_does_not_stop_is_left_behind_in_time(start: Start) -> None:
    terminal = start("stuck")
    began = time.monotonic()
    terminal.press(b"q")
    assert terminal.wait(4) == 1
    assert time.monotonic() - began < 2.5
    assert LEFT in terminal.output


def test_a_dead_engine_is_read_first_and_told_on_stderr_after(start: Start) -> None:
    terminal = start("dies", until=b"ENGINE DEAD")
    terminal.read(0.3)
    assert terminal.process.poll() is None
    terminal.output = b""
    terminal.press(b"q")
    assert terminal.wait(3) == 1
    assert b"the disk is full [/]" in terminal.output.rsplit(LEFT, 1)[1]


def test_ansi_16_sends_no_exact_colour_and_the_wire_stays_thin(start: Start) -> None:
    terminal = start(NO_COLOR="", SSH_CONNECTION="a b c d")
    for keys in (b"?", b"?", b"E"):
        terminal.press(keys)
        terminal.read(0.3)
    assert b"38;2;" not in terminal.output
    assert b"48;2;" not in terminal.output
    assert b"38;5;" not in terminal.output
    assert b"?1000h" not in terminal.output, "no mouse over ssh"


def test_the_wire_budget(start: Start) -> None:
    """At 80x24 and 1 Hz at most 6 kB/s, with every row moving."""
    terminal = start("busy", until=b"DEGRADED", COLORTERM="truecolor")
    terminal.read(0.5)
    terminal.output = b""
    terminal.read(2.0)
    assert 200 < len(terminal.output) / 2 < 6_000
