"""The real command on a real server: rows in, signals out, each once, through kills and restarts."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.clock import SystemClock
from engine.demo import Demo, serve_in_thread, worst_window
from tests.support import command
from tests.support.tapes import recorded, trades, write_tape
from tests.support.until import until

RATE = (5, 2.0)
"""What the config allows: less than the beat asks for, so that the limit binds."""

Fill = tuple[str, str, str, str, float]


def fill(row: Any) -> Fill:
    return (row["transaction_hash"], row["proxy_wallet"], row["token_id"], row["side"], row["size"])


@contextmanager
def upstream(tape: Path, speed: float | None = None) -> Iterator[tuple[Demo, str]]:
    demo = Demo(clock=SystemClock(), seed=7, tape=tape, tape_speed=speed)
    with serve_in_thread(demo.app) as url:
        yield demo, url


def write_config(folder: Path, url: str, **over: Any) -> Path:
    config = {
        "dedup_window_seconds": 5,
        "lateness_seconds": 5,
        "limits": [{"match": f"{url}/*", "rate": f"{RATE[0]}/{RATE[1]:g}s"}],
        "headroom": 0.1,
        "sources": [{"name": "tape", "type": "polymarket_trades", "base_url": url, "poll_interval_seconds": 0.3}],
        "sinks": [{"type": "jsonl", "path": "signals.jsonl"}],
    } | over
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def until_all_is_read(demo: Demo) -> None:
    """Until the tape is over and two more polls were answered; the third shows that they were dealt with."""
    until(lambda: time.time() > demo.market.ends)  # type: ignore[attr-defined]
    until_polled(demo, demo.log.total + 3)


def until_polled(demo: Demo, times: int) -> None:
    until(lambda: demo.log.total >= times)


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def check(demo: Demo, out: list[dict[str, Any]]) -> None:
    """Every row that appeared after the first read came out once, none from before did, and no limit was broken."""
    ahead = time.time() - time.monotonic()
    first = demo.log.arrivals("/v2/trades")[0] + ahead
    appeared = demo.market.appearances(time.time())
    # What appeared while the first answer was being made may be on either side.
    surely = Counter(fill(seen.row) for seen in appeared if seen.visible_at > first + 0.1)
    perhaps = surely + Counter(fill(seen.row) for seen in appeared if first - 0.01 < seen.visible_at <= first + 0.1)
    got = Counter(fill(line["payload"]) for line in out)
    assert len(surely) > 100
    assert not surely - got, "lost"
    assert not got - perhaps, "twice, or history"
    assert len({line["id"] for line in out}) == len(out)
    assert worst_window(demo.log.arrivals(), RATE[1]) <= RATE[0], "the limit holds"
    assert not demo.log.requests(status=429)


def test_every_row_that_appears_comes_out_once(tmp_path: Path) -> None:
    span = write_tape(tmp_path / "tape.jsonl", trades(1200))
    with upstream(tmp_path / "tape.jsonl", span / 7) as (demo, url):
        config = write_config(tmp_path, url)
        arguments = ("--config", config, "--state-dir", tmp_path / "state", "--no-ui", "--log-format", "json")
        with command.running(*arguments) as process:
            until_all_is_read(demo)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=10)
        assert process.returncode == 0, err
        check(demo, lines(tmp_path / "signals.jsonl"))
        assert worst_window(demo.log.arrivals(), RATE[1]) == RATE[0], "the limit binds"
        assert out == (tmp_path / "signals.jsonl").read_text("ascii")
        summary = command.summary(err)
        assert summary["signals"] == len(out.splitlines())
        assert summary["responses"] == {"200": summary["requests"]}
        assert summary["requests"] == len(demo.log.requests())
        assert summary["records"] == summary["signals"] + summary["duplicates"] + summary["history"]
        assert summary["late"] == summary["quarantined"] == 0
    fields = ["id", "source", "key", "event_time", "seen_time", "payload"]
    assert all(list(line) == fields for line in map(json.loads, out.splitlines()))


@pytest.mark.parametrize(
    ("kills", "downtime"),
    [(5, 0.05), (1, 8.0), pytest.param(50, 0.05, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_a_killed_engine_loses_and_repeats_nothing(tmp_path: Path, kills: int, downtime: float) -> None:
    rng = random.Random(kills)
    rows = trades(1000 if kills < 50 else 4000)
    span = write_tape(tmp_path / "tape.jsonl", rows)
    with upstream(tmp_path / "tape.jsonl", span / (9.0 if kills < 50 else 110.0)) as (demo, url):
        config = write_config(tmp_path, url)
        arguments = ("--config", config, "--state-dir", tmp_path / "state", "--no-ui")

        def begin() -> AbstractContextManager[subprocess.Popen[str]]:
            return command.running(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        for _ in range(kills):
            sent = demo.log.total
            with begin() as process:
                # A second request: the first read is committed, what comes from now on is this engine's to lose.
                until_polled(demo, sent + 2)
                time.sleep(rng.uniform(0.0, 1.0))
                assert process.poll() is None
                process.kill()
            time.sleep(downtime)
        with begin() as process:
            until_all_is_read(demo)
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        check(demo, lines(tmp_path / "signals.jsonl"))


def test_a_bot_that_wrote_each_trade_many_times_gets_each_once(tmp_path: Path) -> None:
    """The tape of a real bot that recorded the same trade 67 times."""
    tape = recorded("activity_2024_polling_bot.v1.jsonl")
    if tape is None:
        rows = [
            {
                "proxyWallet": "0xabc",
                "transactionHash": f"0x{index % 6:064x}",
                "timestamp": 1725425464 + index % 6,
                "type": "TRADE",
            }
            for index in range(150)
        ]
        tape = tmp_path / "v1.jsonl"
        write_tape(tape, rows)
    with upstream(tape) as (demo, url):
        identity = ["type", "transactionHash", "proxyWallet"]
        source = {
            "name": "v1",
            "type": "http_json",
            "url": f"{url}/records",
            "id": identity,
            "poll_interval_seconds": 0.2,
        }
        config = write_config(tmp_path, url, start="lookback", sources=[source])
        done = command.run(
            "--config", config, "--state-dir", tmp_path / "state", "--no-ui", "--duration", 4, "--log-format", "json"
        )
        assert done.returncode == 0, done.stderr
        assert len(demo.log.requests("/records")) >= 6, "the whole tape was served"
    assert len(done.stdout.splitlines()) == 6
    assert command.summary(done.stderr)["records"] >= 150
