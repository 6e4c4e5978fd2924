"""The demo on a real socket."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from engine.clock import SystemClock
from engine.config import Rate
from engine.demo import (
    Demo,
    LimitRule,
    Phase,
    RequestLog,
    Scenario,
    SyntheticMarket,
    create_app,
    serve,
    serve_in_thread,
)
from tests.engine.demo.demo_support import json_lines, tape_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.applications import Starlette


def slow_app(latency: float) -> tuple[RequestLog, Starlette]:
    clock, log = SystemClock(), RequestLog()
    scenario = Scenario("slow", (LimitRule("*", (Phase(Rate(100, 1.0), latency_seconds=latency),)),))
    market = SyntheticMarket(random.Random(1), clock.wall(), backlog_seconds=1)
    return log, create_app(market, scenario, clock, random.Random(1), log)


def refuses(url: str) -> bool:
    address = httpx.URL(url)
    with socket.socket() as client:
        return client.connect_ex((address.host, address.port)) != 0


def test_it_serves_in_the_callers_loop_and_leaves_signals_and_logs_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        demo = Demo(clock=SystemClock())
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        async with serve(demo.app) as url, httpx.AsyncClient(base_url=url) as client:
            assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
            answer = await client.get("/v2/trades?limit=3")
            assert len(answer.json()["data"]) == 3
            assert answer.headers.get_list("date") == [answer.headers["date"]]
            assert "server" not in answer.headers
        assert len(demo.log.requests("/v2/trades", 200)) == 1
        return url

    caplog.set_level(logging.DEBUG, "uvicorn")
    assert refuses(asyncio.run(main()))
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


@pytest.mark.parametrize("cancelled", [False, True])
def test_it_stops_at_once_with_connections_open_and_a_request_in_flight(cancelled: bool) -> None:
    log, app = slow_app(60)

    async def main() -> None:
        async with httpx.AsyncClient() as client, anyio.create_task_group() as tasks:

            async def ask(url: str) -> None:
                with pytest.raises(httpx.HTTPError):
                    (await client.get(url + "/ok", timeout=30)).raise_for_status()

            with anyio.CancelScope() as scope:
                async with serve(app) as url:
                    idle = socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 0))
                    tasks.start_soon(ask, url)
                    await anyio.sleep(0.05)
                    if cancelled:
                        scope.cancel()
                    started.append(time.monotonic())
                    if cancelled:
                        await anyio.sleep(60)
            assert time.monotonic() - started[0] < 0.5
            assert idle.recv(1) == b""
            idle.close()

    started: list[float] = []
    asyncio.run(main())
    assert [request.status for request in log.requests()] in ([0], [500])


def test_a_keep_alive_connection_is_closed_on_exit() -> None:
    demo = Demo(clock=SystemClock())
    with httpx.Client() as client:
        with serve_in_thread(demo.app) as url:
            client.get(url + "/ok").raise_for_status()
            started = time.monotonic()
        assert time.monotonic() - started < 0.5
        with pytest.raises(httpx.HTTPError):
            client.get(url + "/ok")
    assert not any(thread.name == "demo server" for thread in threading.enumerate())


def test_answers_are_not_held_back_by_the_network_stack() -> None:
    demo = Demo(clock=SystemClock())
    taken = []
    with serve_in_thread(demo.app) as url, httpx.Client() as client:
        for _ in range(10):
            started = time.monotonic()
            client.get(url + "/ok").raise_for_status()
            taken.append(time.monotonic() - started)
    # Without TCP_NODELAY each one but the first takes 40 ms; a busy machine may slow any, not all.
    assert sorted(taken)[4] < 0.03


def test_a_taken_port_is_an_error_of_the_caller() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(OSError, match="in use"),
            serve_in_thread(Demo(clock=SystemClock()).app, port=taken.getsockname()[1]),
        ):
            pass


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    tape = tmp_path / "tape.jsonl"
    tape.write_text(json_lines(tape_row(1_000_000 + step) for step in range(50)))
    command = [sys.executable, "-m", "engine.demo", "--scenario", "storm", "--tape", str(tape), "--tape-speed", "2"]
    with subprocess.Popen(
        [*command, "--log", str(tmp_path / "log.jsonl"), "--seed", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        yield running
        running.kill()


def test_it_runs_as_a_process_of_its_own(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdout is not None
    ready, url = process.stdout.readline().split()
    assert ready == "ready"
    before = time.monotonic()
    assert len(httpx.get(url + "/v2/trades").json()["data"]) >= 5
    [line] = (tmp_path / "log.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert before <= logged.pop("mono") <= time.monotonic()
    assert logged == {"path": "/v2/trades", "query": "", "status": 200, "limit": "/v2/trades* 300/10s"}
    process.send_signal(signal.SIGTERM)
    assert process.wait(2) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_a_broken_tape_ends_the_process_with_its_line(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text("{}\n")
    ended = subprocess.run(
        [sys.executable, "-m", "engine.demo", "--tape", str(tape)], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr == f"{tape}:1: proxy_wallet: Field required\n"
