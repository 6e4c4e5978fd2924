"""The API as a client sees it, in virtual time."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from engine.config import Config, Rate
from engine.demo import Demo, LimitRule, Phase, RequestLog, Scenario, SyntheticMarket, create_app, worst_window
from engine.demo.market import Query
from tests.engine.demo.demo_support import (
    DAY_ZERO,
    TrioClock,
    client_of,
    fills,
    in_virtual_time,
    json_lines,
    tape_row,
    walk,
)

if TYPE_CHECKING:
    from pathlib import Path

Probe = Callable[[Demo, httpx.AsyncClient], Awaitable[None]]


def visit(probe: Probe, scenario: str = "calm", **options: Any) -> Demo:
    demos = []

    async def main() -> None:
        demo = Demo(scenario, clock=TrioClock(), **options)
        demos.append(demo)
        async with client_of(demo.app) as client:
            await probe(demo, client)

    in_virtual_time(main)
    return demos[0]


def test_the_envelope_of_a_page() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        answer = await client.get("/v2/trades?limit=7")
        body = answer.json()
        assert list(body) == ["data", "pagination"]
        assert body["data"] == demo.market.page(DAY_ZERO, Query(), 7).rows
        assert len(body["data"]) == 7
        cursor = body["pagination"].pop("next_cursor")
        assert body["pagination"] == {"limit": 7, "offset": 0, "has_more": True}
        assert isinstance(cursor, str)
        assert len((await client.get("/v2/trades")).json()["data"]) == 100

    visit(probe)


def test_every_answer_carries_the_clocks_date_and_a_trace_id() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        await trio.sleep(1000)
        traces = set()
        for path in ("/v2/trades", "/v2/status", "/ok", "/records", "/nowhere", "/v2/trades?offset=1"):
            answer = await client.get(path)
            assert parsedate_to_datetime(answer.headers["date"]).timestamp() == int(DAY_ZERO + 1000)
            traces.add(answer.headers["x-trace-id"])
        assert len(traces) == 6

    visit(probe)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=many", "limit"),
        ("offset=10", "offset"),
        ("user=somebody", "user"),
        ("side=HOLD", "side"),
        ("taker_only=maybe", "taker_only"),
        ("start=now", "start"),
        ("condition=0x1", "condition"),
        ("cursor=", "cursor"),
        ("cursor=bm90IGpzb24=", "cursor"),
        ("cursor=%F0%9F%8F%86", "cursor"),
        pytest.param("cursor=" + "W1tb" * 8_000, "cursor", id="deeply nested cursor"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_documented_body(query: str, parameter: str) -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        answer = await client.get(f"/v2/trades?{query}")
        assert answer.status_code == 400
        body = answer.json()
        assert (body["code"], body["retryable"], body["parameter"]) == ("invalid_request", False, parameter)
        assert body["trace_id"] == answer.headers["x-trace-id"]
        if query == "limit=1001":
            assert body["error"] == "Failed to deserialize query string: limit: limit must be between 0 and 1000"

    visit(probe)


def test_a_cursor_cannot_be_changed() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        cursor = (await client.get("/v2/trades?limit=5")).json()["pagination"]["next_cursor"]
        assert (await client.get("/v2/trades", params={"cursor": cursor})).json()["pagination"]["limit"] == 5
        for index in range(0, len(cursor), 9):
            changed = cursor[:index] + ("A" if cursor[index] != "A" else "B") + cursor[index + 1 :]
            assert (await client.get("/v2/trades", params={"cursor": changed})).status_code == 400

    visit(probe)


def test_filters_hold() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        wallet = demo.market.busiest(1)[0]
        everything = fills(demo.market.visible(DAY_ZERO))
        takers = fills(row for page in await walk(client, limit=1000) for row in page)
        assert takers < everything

        own = [
            row
            for page in await walk(client, limit=1000, user=wallet.upper().replace("X", "x"), takerOnly="false")
            for row in page
        ]
        assert fills(own) == Counter({key: count for key, count in everything.items() if key[1] == wallet})
        assert {row["side"] for row in own} == {"BUY", "SELL"}

        sold = (await client.get("/v2/trades", params={"side": "SELL", "limit": 1000})).json()["data"]
        assert {row["side"] for row in sold} == {"SELL"}

        newest, oldest = own[10]["timestamp"], own[40]["timestamp"]
        span = {"user": wallet, "taker_only": "false", "start": oldest, "end": newest, "limit": 1000}
        between = (await client.get("/v2/trades", params=span)).json()["data"]
        assert between == [row for row in own if oldest <= row["timestamp"] <= newest]
        # Without `user`, start and end are documented to do nothing.
        bare = (await client.get("/v2/trades", params={"start": oldest, "end": oldest})).json()["data"]
        assert bare == (await client.get("/v2/trades")).json()["data"]

        nobody = (await client.get("/v2/trades", params={"user": "0x" + "0" * 40})).json()
        assert nobody["data"] == []
        assert nobody["pagination"]["has_more"] is False

    visit(probe)


def test_a_transaction_may_spread_over_two_pages() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        pages = await walk(client, limit=100, taker_only="false")
        spread = sum(
            above[-1]["transaction_hash"] == below[0]["transaction_hash"] for above, below in itertools.pairwise(pages)
        )
        assert spread > 10
        assert [row for page in pages for row in page] == demo.market.visible(DAY_ZERO)

    visit(probe)


def test_two_identical_fills_come_as_two_rows() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        rows = [json.dumps(row) for page in await walk(client, limit=1000) for row in page]
        assert Counter(rows).most_common(1)[0][1] == 2

    visit(probe)


def test_a_walk_is_stable_while_rows_are_added() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        before = fills(demo.market.page(DAY_ZERO, Query(), 10**9).rows)
        params: dict[str, Any] = {"limit": 100}
        walked: list[dict[str, Any]] = []
        for _ in range(20):
            answer = (await client.get("/v2/trades", params=params)).json()
            walked += answer["data"]
            params["cursor"] = answer["pagination"]["next_cursor"]
            await trio.sleep(1)
        now = DAY_ZERO + trio.current_time()
        after = fills(demo.market.page(now, Query(), 10**9).rows)
        assert (after - before).total() > 20
        # Nothing twice, and of what was there at first nothing skipped.
        assert fills(walked) <= after
        reached = walked[-1]["timestamp"]
        there = Counter({key: count for key, count in before.items() if key[-1] > reached})
        assert there.total() > 1900
        assert there <= fills(walked)

    visit(probe)


def test_rows_served_later_may_be_older_than_rows_served_before() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        late = 0
        earlier = (await client.get("/v2/trades?limit=1000")).json()["data"]
        for _ in range(12):
            await trio.sleep(5)
            later = (await client.get("/v2/trades?limit=1000")).json()["data"]
            newest, oldest = earlier[0]["timestamp"], earlier[-1]["timestamp"]
            late += sum(oldest < timestamp <= newest for *_, timestamp in fills(later) - fills(earlier))
            earlier = later
        assert late > 50

    visit(probe)


def test_gzip_only_for_those_who_take_it() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        bodies = []
        for accepted, encoding in (
            ("gzip", "gzip"),
            ("br, GZIP;q=0.5", "gzip"),
            ("identity", None),
            ("gzip;q=0", None),
            ("gzip;q=0.0, br", None),
            ("xgzip", None),
        ):
            answer = await client.get("/v2/trades", headers={"accept-encoding": accepted})
            assert answer.headers.get("content-encoding") == encoding, accepted
            bodies.append(answer.json())
        assert all(body == bodies[0] for body in bodies)

    visit(probe)


def test_other_paths_and_methods_are_errors_in_json() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        for method, path, status, code in (
            ("GET", "/nowhere", 404, "not_found"),
            ("GET", "/v2/trades/", 404, "not_found"),
            ("GET", "/records", 404, "not_found"),
            ("POST", "/v2/trades", 405, "method_not_allowed"),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert (await client.get("/ok")).text == "OK"

    visit(probe)


def test_status_says_how_far_behind_the_data_is(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_text(json_lines(tape_row(1_000_000 + step) for step in range(60)))

    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        lags = []
        for _ in range(20):
            await trio.sleep(10)
            data = (await client.get("/v2/status")).json()["data"]
            assert list(data) == ["computed_at", "age_seconds", "serving", "ingestion"]
            assert 0 <= data["age_seconds"] < 30
            lags.append(data["serving"]["lag_seconds"])
        assert max(lags[:5]) < 10
        # The tape is over after a minute; the lag grows in the half-minute steps of the snapshot.
        assert lags == sorted(lags)
        assert lags[-1] > 100

    visit(probe, tape=path, tape_speed=1)


def limited(*rules: LimitRule) -> tuple[Scenario, RequestLog]:
    return Scenario("test", rules), RequestLog()


def test_the_server_is_strict_and_logs_each_request() -> None:
    scenario, log = limited(LimitRule("/ok", (Phase(Rate(12, 10.0)),)))
    rng = random.Random(5)

    async def main() -> None:
        app = create_app(SyntheticMarket(random.Random(1), DAY_ZERO), scenario, TrioClock(), rng, log)
        async with client_of(app) as client:
            for _ in range(300):
                await trio.sleep(rng.expovariate(4))
                await client.get("/ok?a=b")

    in_virtual_time(main)
    assert log.total == len(log.requests()) == 300
    assert {request.status for request in log.requests()} == {200, 429}
    assert worst_window(log.arrivals("/ok", 200), 10) == 12
    assert worst_window(log.arrivals("/ok"), 10) > 20
    assert {(request.path, request.query, request.limit) for request in log.requests()} == {
        ("/ok", "a=b", "/ok 12/10s")
    }


def test_whoever_waits_as_told_is_let_in() -> None:
    scenario, log = limited(LimitRule("/ok", (Phase(Rate(3, 10.0), hints=("seconds", "date")),)))

    async def main() -> None:
        app = create_app(SyntheticMarket(random.Random(1), DAY_ZERO), scenario, TrioClock(), random.Random(1), log)
        forms = set()
        async with client_of(app) as client:
            for _ in range(40):
                answer = await client.get("/ok")
                if answer.status_code == 429:
                    hint = answer.headers["retry-after"]
                    forms.add(hint.isdecimal())
                    if hint.isdecimal():
                        await trio.sleep(int(hint))
                    else:
                        await trio.sleep(parsedate_to_datetime(hint).timestamp() - DAY_ZERO - trio.current_time())
                    assert (await client.get("/ok")).status_code == 200
                await trio.sleep(0.3)
        assert forms == {True, False}

    in_virtual_time(main)


def test_a_client_that_leaves_while_it_waits_is_logged_without_an_answer() -> None:
    scenario, log = limited(LimitRule("*", (Phase(Rate(3, 10.0), latency_seconds=5),)))

    async def main() -> None:
        app = create_app(SyntheticMarket(random.Random(1), DAY_ZERO), scenario, TrioClock(), random.Random(1), log)
        async with client_of(app) as client:
            with trio.move_on_after(1):
                await client.get("/ok")
            started = trio.current_time()
            await client.get("/ok")
            assert trio.current_time() - started == 5

    in_virtual_time(main)
    assert [request.status for request in log.requests()] == [0, 200]


def test_calm_refuses_at_the_published_limit() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        statuses = Counter([(await client.get("/v2/trades?limit=1")).status_code for _ in range(305)])
        assert statuses == {200: 300, 429: 5}
        statuses = Counter([(await client.get("/ok")).status_code for _ in range(505)])
        assert statuses == {200: 500, 429: 5}

    visit(probe)


def test_a_storm_is_felt_early_in_every_form_and_passes() -> None:
    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        while trio.current_time() < 180:
            answer = await client.get("/v2/trades?limit=1")
            if answer.status_code == 429:
                kinds.add((answer.headers["retry-after"].isdecimal(), answer.headers["content-type"].split(";")[0]))
            await trio.sleep(0.34)

    kinds: set[tuple[bool, str]] = set()
    log = visit(probe, scenario="storm").log
    refused = log.arrivals(status=429)
    assert 5 <= refused[0] < 8
    assert kinds == {(numeric, kind) for numeric in (True, False) for kind in ("application/json", "text/html")}
    recovered = [at for at in log.arrivals(status=200) if 60 < at < 90 or 150 < at < 180]
    assert len(recovered) > 150
    assert max(at for at in refused if at < 90) < 65
    assert any(95 < at < 110 for at in refused)


def test_the_same_seed_makes_the_same_demo() -> None:
    async def main(seed: int) -> list[bytes]:
        demo = Demo("storm", clock=TrioClock(), seed=seed)
        answers = []
        async with client_of(demo.app) as client:
            for _ in range(60):
                answer = await client.get("/v2/trades?limit=5", headers={"accept-encoding": "identity"})
                answers.append(answer.content + repr(answer.headers).encode())
                await trio.sleep(0.4)
        return answers

    runs = [trio.run(main, seed, clock=trio.testing.MockClock(autojump_threshold=0)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("kind", ["synthetic", "v2", "v1"])
def test_the_config_is_one_that_polltop_takes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tape.jsonl"
    row = {"proxyWallet": "0xa", "transactionHash": "0x1", "timestamp": 1_725_000_000}
    path.write_text(json_lines([tape_row(1_000_000) if kind == "v2" else row]))

    async def probe(demo: Demo, client: httpx.AsyncClient) -> None:
        config = Config.model_validate(demo.config("http://127.0.0.1:8080/"))
        assert [(limit.match, str(limit.rate)) for limit in config.limits] == [
            ("http://127.0.0.1:8080/*", "800/10s"),
            ("http://127.0.0.1:8080/v2/trades*", "300/10s"),
        ]
        names = [source.name for source in config.sources]
        assert names == (["feed", "wallets"] if kind == "synthetic" else ["tape"])
        assert config.headroom == 0.1
        if kind == "synthetic":
            assert [len(getattr(source, "wallets")) for source in config.sources] == [0, 4]  # noqa: B009

    visit(probe, tape=None if kind == "synthetic" else path)
