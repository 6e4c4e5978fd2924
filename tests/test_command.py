"""The command as a user meets it: what it says, what it prints where, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.demo import Demo, serve_in_thread
from tests.support import command
from tests.support.until import until
from tests.test_end_to_end import until_polled, write_config

WALLET = "0x" + "ab" * 20

CONFIG = f"""\
headroom: 0.1
sources:
  - {{name: whales, type: polymarket_trades, wallets: ["{WALLET}"], poll_interval_seconds: 5}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def refused(folder: Path, config: str, *lines: str) -> None:
    """The command refuses `config`, with exit code 2 and just these lines."""
    path = folder / "config.yaml"
    path.write_text(config, encoding="utf-8")
    done = command.run("--no-ui", "--config", path, "--state-dir", folder / "state")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [line.replace("FILE", str(path)) for line in lines]
    assert not (folder / "state").exists(), "a config that is refused leaves nothing behind"


def test_an_unknown_key_is_refused_with_what_was_probably_meant(folder: Path) -> None:
    config = CONFIG.replace("headroom: 0.1", "hedroom: 0.1")
    refused(folder, config, "FILE:1: hedroom: unknown key, did you mean headroom?")


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(folder: Path) -> None:
    config = """\
dedup_window_seconds: -5
max_entries: 1000000000000
sources:
  - {name: a, type: http_json, url: "ftp://x", id: [id], poll_interval_seconds: 0}
"""
    path = folder / "config.yaml"
    path.write_text(config, encoding="utf-8")
    done = command.run("--no-ui", "--config", path)
    assert done.returncode == 2
    told = done.stderr.splitlines()
    assert [line.split(": ")[0].removeprefix(str(path)) for line in told] == [":1", ":2", ":4", ":4"]
    assert all(word in done.stderr for word in ("dedup_window_seconds", "max_entries", "url", "poll_interval_seconds"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG + "headroom: 0.2\n", ":4: headroom: given twice"),
        (CONFIG.replace("whales", '"${POLLTOP_TEST_UNSET}"'), "POLLTOP_TEST_UNSET"),
        (CONFIG + CONFIG.splitlines()[2] + "\n", ":4: sources[1].name: given twice (first on line 3)"),
        ("headroom: 0.1\n", "sources"),
        ("sources: []\n", "sources"),
        ("headroom: [\n", ":2: "),
        (CONFIG.replace("headroom: 0.1", "default_rate: fast"), "300/10s"),
        (CONFIG.replace("headroom: 0.1", "min_interval_seconds: .nan"), "min_interval_seconds"),
    ],
)
def test_bad_input_names_the_file_the_line_and_the_reason(folder: Path, config: str, said: str) -> None:
    path = folder / "config.yaml"
    path.write_text(config, encoding="utf-8")
    done = command.run("--no-ui", "--config", path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith(f"{path}:")
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_named(folder: Path) -> None:
    done = command.run("--no-ui", "--config", folder / "nowhere.yaml")
    assert done.returncode == 2
    assert str(folder / "nowhere.yaml") in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_config_it_says_what_to_do(folder: Path) -> None:
    done = command.run("--no-ui", env=command.environment(HOME=str(folder), XDG_CONFIG_HOME=str(folder)))
    assert done.returncode == 2
    assert "polltop --demo" in done.stderr
    assert str(folder / "polltop" / "config.yaml") in done.stderr


def test_a_state_folder_that_cannot_be_one_is_named(folder: Path) -> None:
    (folder / "file").write_text("not a folder")
    done = command.run("--demo", "--no-ui", "--state-dir", folder / "file")
    assert done.returncode == 2
    assert str(folder / "file") in done.stderr
    assert "--state-dir" in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "file").read_text() == "not a folder"


@pytest.mark.parametrize("fault", ["cut", "overwritten", "not a database"])
def test_a_damaged_ledger_is_named_without_a_traceback(folder: Path, upstream: tuple[Demo, Path], fault: str) -> None:
    arguments = ("--config", upstream[1], "--state-dir", folder / "state", "--no-ui", "--duration", 0.5)
    assert command.run(*arguments).returncode == 0
    ledger = folder / "state" / "polltop.sqlite3"
    content = ledger.read_bytes()
    if fault == "cut":
        ledger.write_bytes(content[:5000])
    elif fault == "overwritten":
        ledger.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    else:
        ledger.write_text("A letter to the editor. " * 1000)
    done = command.run(*arguments)
    assert done.returncode == 1
    *_, said = done.stderr.splitlines()
    assert said.startswith(f"{ledger}: ")
    assert "move it (and its -wal) aside to start afresh" in said
    assert "Traceback" not in done.stderr


def test_a_tape_with_a_broken_line_is_refused_with_that_line(folder: Path) -> None:
    tape = folder / "tape.jsonl"
    tape.write_text('{"proxy_wallet": 1}\nnot json\n', encoding="utf-8")
    done = command.run("--no-ui", "--tape", tape)
    assert done.returncode == 2
    assert f"{tape}:2: not JSON" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scenario", "hurricane"],
        ["--tape-speed", "2"],
        ["--duration", "-1"],
        ["--duration", "nan"],
        ["--duration", "inf"],
        ["--tape", "x", "--tape-speed", "nan"],
        ["--log-format", "xml"],
        ["--nonsense"],
    ],
)
def test_wrong_usage_is_exit_2_without_a_traceback(arguments: list[str]) -> None:
    done = command.run("--no-ui", *arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_scenario_lists_the_known_ones() -> None:
    assert "calm, storm" in command.run("--no-ui", "--scenario", "hurricane").stderr


def test_version_and_help() -> None:
    assert command.run("--version").stdout == "polltop 0.1.0\n"
    text = command.run("--help").stdout
    for flag in (
        "--config", "--state-dir", "--no-ui", "--duration", "--log-format", "--demo", "--scenario", "--tape",
        "--tape-speed", "--theme", "--version",
    ):  # fmt: skip
        assert flag in text


def test_a_demo_without_a_screen_prints_signals_and_ends_after_its_duration() -> None:
    done = command.run("--demo", "--no-ui", "--duration", 6, "--log-format", "json")
    assert done.returncode == 0, done.stderr
    signals = [json.loads(line) for line in done.stdout.splitlines()]
    assert signals
    assert command.summary(done.stderr)["signals"] == len(signals)
    for line in done.stderr.splitlines():
        assert {"time", "level", "event"} <= json.loads(line).keys()


def test_a_pipe_for_stdout_needs_no_flag_and_no_textual() -> None:
    code = (
        "import sys, runpy; sys.argv = ['polltop', '--demo', '--duration', '0.3']\n"
        "try: runpy.run_module('tui_app', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'textual' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=command.REPO,
        env=command.environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def engine(folder: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ("--demo", "--no-ui", "--state-dir", folder / "state", "--log-format", "json")
    with command.running(*arguments) as process:
        assert process.stderr is not None
        assert "started" in process.stderr.readline()
        yield process


def test_a_second_engine_on_the_folder_is_refused_and_told_who_holds_it(
    engine: subprocess.Popen[str], folder: Path
) -> None:
    done = command.run("--demo", "--no-ui", "--state-dir", folder / "state")
    assert done.returncode == 3
    assert f"pid {engine.pid}" in done.stderr
    assert engine.poll() is None
    engine.kill()
    engine.wait()
    done = command.run("--demo", "--no-ui", "--state-dir", folder / "state", "--duration", 0.3)
    assert done.returncode == 0, "a killed engine holds nothing"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly_within_two_seconds(engine: subprocess.Popen[str], number: int) -> None:
    began = time.monotonic()
    engine.send_signal(number)
    _, err = engine.communicate(timeout=10)
    assert engine.returncode == 0
    assert time.monotonic() - began < 2.0
    assert command.summary(err)["seconds"] > 0


def test_a_reader_that_goes_away_ends_it_cleanly(engine: subprocess.Popen[str]) -> None:
    assert engine.stdout is not None
    engine.stdout.readline()
    engine.stdout.close()
    assert engine.wait(15) == 0
    assert engine.stderr is not None
    assert command.summary(engine.stderr.read())["signals"] > 0


@pytest.fixture
def upstream(folder: Path) -> Iterator[tuple[Demo, Path]]:
    """An upstream whose log tells how far the engine is when the engine cannot, and a config that polls it."""
    demo = Demo(clock=SystemClock(), seed=7)
    with serve_in_thread(demo.app) as url:
        yield demo, write_config(folder, url)


def fill(writer: int) -> None:
    """Nobody reads it: not one more byte goes in, and who writes to it waits."""
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 512)
    os.set_blocking(writer, True)


def ends_in_time(process: subprocess.Popen[str]) -> str:
    """Told to, it ends cleanly; what it said on stderr."""
    began = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert time.monotonic() - began < 2.5
    return err or ""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_reader_that_stalls_stops_neither_polling_nor_the_end(
    folder: Path, upstream: tuple[Demo, Path], kind: str
) -> None:
    reader, writer = os.pipe() if kind == "pipe" else os.openpty()
    fill(writer)
    demo, config = upstream
    arguments = ("--config", config, "--no-ui", "--state-dir", folder / "state", "--log-format", "json")
    jsonl = folder / "signals.jsonl"
    with command.running(*arguments, stdout=writer) as process:
        until(lambda: jsonl.exists() and jsonl.stat().st_size)
        told = demo.log.total
        until_polled(demo, told + 5)
        summary = command.summary(ends_in_time(process))
    assert summary["responses"]["200"] >= told + 4
    assert summary["signals"] > 0
    os.close(reader)
    os.close(writer)
    # What was owed then is delivered now; the kernel may have found room for a few lines in the terminal all the same.
    ids = [json.loads(line)["id"] for line in jsonl.read_text("ascii").splitlines()]
    with command.running(*arguments) as process:
        assert process.stdout is not None
        owed: list[str] = []
        while ids[-1] not in owed and (found := json.loads(process.stdout.readline())["id"]) in ids:
            owed.append(found)
        assert owed == ids[len(ids) - len(owed) :]
        assert len(owed) == len(ids) or kind == "terminal"
        assert summary["owed"] >= len(owed)
        ends_in_time(process)


def test_a_log_that_nobody_reads_stops_neither_polling_nor_the_end(folder: Path, upstream: tuple[Demo, Path]) -> None:
    reader, writer = os.pipe()
    fill(writer)
    demo, config = upstream
    with command.running("--config", config, "--no-ui", "--state-dir", folder / "state", stderr=writer) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"]
        told = demo.log.total
        until_polled(demo, told + 5)
        ends_in_time(process)
    os.close(reader)
    os.close(writer)


def test_a_log_file_that_cannot_be_is_named(folder: Path) -> None:
    (folder / "state" / "polltop.log").mkdir(parents=True)
    main, side = os.openpty()
    process = command.start("--demo", "--state-dir", folder / "state", stdin=side, stdout=side, stderr=side)
    os.close(side)
    assert process.wait(20) == 2
    said = os.read(main, 65536).decode()
    os.close(main)
    assert "polltop.log" in said
    assert "Traceback" not in said


def test_no_monitor_without_a_terminal(folder: Path) -> None:
    """TERM=dumb on a real terminal: refused, with the way out."""
    import pty

    main, side = pty.openpty()
    done = command.run("--demo", stdin=side, stdout=side, stderr=subprocess.PIPE, env=command.environment(TERM="dumb"))
    os.close(main)
    os.close(side)
    assert done.returncode == 74
    assert "--no-ui" in done.stderr
