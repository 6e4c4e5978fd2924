"""The only door to the network: everything that leaves is paced, and what comes back is bounded in time and size."""

from __future__ import annotations

import gc
import gzip
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from engine.backoff import BAN_SECONDS
from engine.clock import SystemClock
from engine.demo import Demo, worst_window
from engine.errors import ThrottledError
from engine.network import TOTAL_SECONDS
from engine.pacing import Grant, Pacer
from engine.throttle import CUT
from engine.transport import DECODED_CAP, PATIENCE_SECONDS, RAW_CAP, PacedTransport, open_client
from tests.engine.test_pacing import limit_of, pacer_of
from tests.support.server import Reply, Seen, Server, authority, serving
from tests.support.virtual import VirtualClock, run

pytestmark = [
    pytest.mark.anyio,
    # httpx and httpcore leave their own generators to the collector when an answer is broken off. Ours are not.
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)[.]:ResourceWarning"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def fast(*, max_tries: int = 6, rate: str = "2000/1s") -> Pacer:
    pacer = pacer_of(default=rate, clock=SystemClock(), base=0.001, cap=0.001)
    pacer.backoff = pacer.backoff.model_copy(update={"max_tries": max_tries})
    return pacer


def granted(pacer: Pacer, url: str) -> int:
    return limit_of(pacer, httpx.URL(url)).granted


def always(reply: Reply) -> Callable[[Seen], Reply]:
    return lambda _: reply


@asynccontextmanager
async def standing(
    script: Callable[[Seen], Reply] | Reply, pacer: Pacer | None = None
) -> AsyncIterator[tuple[Server, httpx.AsyncClient, PacedTransport, Pacer]]:
    pacer = pacer or fast()
    async with (
        serving(always(script) if isinstance(script, Reply) else script) as server,
        open_client(pacer, pacer.clock) as (client, transport),
    ):
        yield server, client, transport, pacer


def quiet(pacer: Pacer, transport: PacedTransport) -> None:
    """Nothing is held: no grant, no waiter, no connection but idle ones."""
    assert pacer.in_flight == 0
    assert not any(pacer._queues.values())
    assert transport._network is not None
    for inner in transport._network._pools.values():
        assert isinstance(inner, httpx.AsyncHTTPTransport)
        assert all(connection.is_idle() or connection.is_closed() for connection in inner._pool.connections)
        assert not inner._pool._requests


# --- Everything is paced


def hops(seen: Seen) -> Reply:
    if seen.path.startswith("/hop"):
        return Reply(302, (("location", f"/{seen.path[2:]}" if len(seen.path) > 4 else "/end"),))
    if seen.path == "/digest" and "authorization" not in seen.headers:
        return Reply(401, (("www-authenticate", 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'),))
    return Reply()


async def test_every_page_redirect_and_auth_hop_takes_a_grant() -> None:
    gap = 0.02
    async with standing(hops, pacer_of(default=f"1/{gap}s", clock=SystemClock())) as (server, client, transport, pacer):
        for page in range(3):
            assert (await client.get(f"{server.url}/page?n={page}")).status_code == 200
        assert (await client.get(f"{server.url}/hop", follow_redirects=True)).status_code == 200
        assert (await client.get(f"{server.url}/hop")).status_code == 302
        auth = httpx.DigestAuth("user", "password")
        assert (await client.get(f"{server.url}/digest", auth=auth)).status_code == 200
        quiet(pacer, transport)
        assert server.paths == ["/page"] * 3 + ["/hop", "/end", "/hop", "/digest", "/digest"]
        assert transport.requests == granted(pacer, server.url) == len(server.seen) == 8
        # Seen from the server. (What it sees is a little late, by chance: the whole way and not each gap.)
        assert server.seen[-1].at - server.seen[0].at >= 7 * gap - 0.01
        assert transport.responses == {"200": 5, "302": 2, "401": 1}
        assert sum(transport.per_second.counts()) == 8


async def test_concurrent_callers_share_the_grid() -> None:
    async with standing(Reply(), pacer_of(default="10/0.1s", clock=SystemClock())) as (
        server,
        client,
        transport,
        pacer,
    ):
        async with anyio.create_task_group() as group:
            for _ in range(25):
                group.start_soon(client.get, f"{server.url}/x")
        assert len(server.seen) == 25
        assert server.seen[-1].at - server.seen[0].at >= 24 * 0.01 - 0.01
        quiet(pacer, transport)


async def test_refusals_are_sent_again_up_to_max_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backoff.LEAST_WAIT_SECONDS", 0.02)
    async with standing(Reply(429, (("retry-after", "0"),)), fast(max_tries=4)) as (server, client, transport, pacer):
        with pytest.raises(ThrottledError) as raised:
            await client.get(f"{server.url}/x")
        limit = limit_of(pacer, httpx.URL(server.url))
        assert (raised.value.limit, raised.value.until) == (limit.name, limit.cool_until)
        assert "429 Retry-After 0s" in str(raised.value)
        assert len(server.seen) == granted(pacer, server.url) == 4
        gaps = [after.at - before.at for before, after in pairwise(server.seen)]
        assert min(gaps) >= 0.02
        assert limit_of(pacer, httpx.URL(server.url)).attempt == 4
        quiet(pacer, transport)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 418, 422, 500, 502, 503, 504])
async def test_what_is_no_refusal_comes_back_at_once(status: int) -> None:
    async with standing(Reply(status, body=b"no")) as (server, client, transport, pacer):
        response = await client.get(f"{server.url}/x")
        assert (response.status_code, response.content) == (status, b"no")
        assert len(server.seen) == granted(pacer, server.url) == 1
        assert limit_of(pacer, httpx.URL(server.url)).attempt == 0
        quiet(pacer, transport)


# --- Time


@pytest.mark.parametrize(
    "reply",
    [
        Reply(delay=5.0),
        Reply(body=b"x" * 1_000, drip=0.01),
        Reply(body=b"x", length=2, stall=True),
    ],
)
async def test_one_deadline_covers_head_and_body(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    monkeypatch.setattr("engine.transport.TOTAL_SECONDS", 0.5)
    async with standing(reply) as (server, client, transport, pacer):
        start = pacer.clock.mono()
        with pytest.raises(httpx.ReadTimeout, match="no complete answer within"):
            await client.get(f"{server.url}/x")
        assert 0.5 <= pacer.clock.mono() - start < 4.0
        assert transport.responses == {"error": 1}
        assert limit_of(pacer, httpx.URL(server.url)).attempt == 0
        quiet(pacer, transport)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(429, body=b"x" * 1_000, drip=0.01),
        Reply(429, body=b"x", length=2),
        Reply(429, (("content-encoding", "gzip"),), b"no gzip"),
        Reply(429, (("content-encoding", "br"),), b"x"),
    ],
)
async def test_a_refusal_is_one_however_its_body_ends(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    monkeypatch.setattr("engine.transport.TOTAL_SECONDS", 0.5)
    monkeypatch.setattr("engine.backoff.LEAST_WAIT_SECONDS", 0.02)
    replies = iter([reply, Reply(body=b"good")])
    async with standing(lambda _: next(replies)) as (server, client, transport, pacer):
        assert (await client.get(f"{server.url}/x")).content == b"good"
        assert transport.responses == {"429": 1, "200": 1}
        assert limit_of(pacer, httpx.URL(server.url)).refused == 1
        quiet(pacer, transport)


async def test_waiting_for_leave_is_not_waiting_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.transport.TOTAL_SECONDS", 0.3)
    async with standing(Reply()) as (server, client, transport, pacer):
        for _ in range(2):  # the first request opens the connection before it waits, the second one has it
            pacer.pause()
            async with anyio.create_task_group() as group:
                group.start_soon(client.get, f"{server.url}/x")
                await anyio.sleep(0.35)
                pacer.resume()
        assert len(server.seen) == 2
        assert transport.responses == {"200": 2}


def test_a_cool_down_is_waited_for_as_long_as_patience_lasts() -> None:
    async def scenario(hint: int) -> tuple[list[float], float, httpx.Response | ThrottledError]:
        clock = VirtualClock()
        sent: list[float] = []

        async def upstream(_: httpx.Request) -> httpx.Response:
            sent.append(clock.mono())
            await anyio.sleep(2.0)
            if len(sent) < 3:
                return httpx.Response(429, headers={"retry-after": str(hint)})
            return httpx.Response(200, json=[1])

        pacer = pacer_of(clock=clock)
        async with open_client(pacer, clock, inner=httpx.MockTransport(upstream)) as (client, _):
            try:
                result: httpx.Response | ThrottledError = await client.get("https://a.example/x")
            except ThrottledError as error:
                result = error
            assert pacer.in_flight == 0
            assert not pacer._queues
            return sent, clock.mono(), result

    sent, _, result = run(scenario, 9)
    assert isinstance(result, httpx.Response)
    assert result.json() == [1]
    assert result.extensions["elapsed"] == pytest.approx(2.0)
    assert [round(after - before) for before, after in pairwise(sent)] in (
        [11, 11],
        [11, 12],
        [11, 13],
        [12, 11],
        [12, 12],
        [12, 13],
    )
    # Two waits that are each shorter than the patience, and together longer: the second is not begun.
    sent, now, result = run(scenario, 20)
    assert isinstance(result, ThrottledError)
    assert len(sent) == 2
    assert now == pytest.approx(sent[1] + 2.0)  # told at once
    assert 20.0 <= result.until - now <= 22.0
    sent, now, result = run(scenario, 120)
    assert isinstance(result, ThrottledError)
    assert len(sent) == 1
    assert 120.0 <= result.until - now <= 121.0


def test_who_waits_leaves_when_a_long_cool_down_begins_and_who_comes_does_not_wait() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        sent: list[float] = []
        left: list[float] = []

        def upstream(_: httpx.Request) -> httpx.Response:
            sent.append(clock.mono())
            return httpx.Response(429, headers={"retry-after": "600"})

        async def call(client: httpx.AsyncClient) -> None:
            with pytest.raises(ThrottledError, match="429 Retry-After 600s"):
                await client.get("https://a.example/x")
            left.append(clock.mono())

        pacer = pacer_of(clock=clock)
        async with open_client(pacer, clock, inner=httpx.MockTransport(upstream)) as (client, _):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(call, client)
            await call(client)
            assert len(sent) == 1
            assert left == [sent[0]] * 11
            await anyio.sleep(601.0 - PATIENCE_SECONDS + 2.0)
            await call(client)  # now it is short enough to be waited for: the probe, refused again
            assert len(sent) == 2
            assert sent[1] - sent[0] >= 600.0

    run(scenario)


def test_nobody_sends_inside_the_hint_not_even_who_was_about_to() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        sent: list[float] = []

        async def upstream(request: httpx.Request) -> httpx.Response:
            if request.url.host != "a.example":
                return httpx.Response(200)
            sent.append(clock.mono())
            await anyio.sleep(0.05)
            return httpx.Response(429, headers={"retry-after": "5"}) if len(sent) <= 2 else httpx.Response(200)

        pacer = pacer_of(default="10/1s", clock=clock)
        others = 0

        async def other(client: httpx.AsyncClient) -> None:
            nonlocal others
            for _ in range(30):
                await client.get("https://b.example/x")
                others += 1

        async with (
            open_client(pacer, clock, inner=httpx.MockTransport(upstream)) as (client, _),
            anyio.create_task_group() as group,
        ):
            group.start_soon(other, client)
            for _ in range(10):
                group.start_soon(client.get, "https://a.example/x")
            await anyio.sleep(4.0)
            assert len(sent) == 1
            assert others == 30
        # The first, then one probe (refused again), then one probe, and then all at half of the pace learned.
        assert 5.05 <= sent[1] - sent[0] <= 6.06
        assert 5.05 <= sent[2] - sent[1] <= 7.06
        assert sent[3] - sent[2] == pytest.approx(0.2 / CUT)
        assert len(sent) == 12

    run(scenario)


def test_a_ban_lasts_and_doubles_through_the_door() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        answers = [429, 403, 403, 418, 200, 403]
        sent: list[float] = []

        def upstream(_: httpx.Request) -> httpx.Response:
            sent.append(clock.mono())
            return httpx.Response(answers[len(sent) - 1])

        pacer = pacer_of(clock=clock)
        async with open_client(pacer, clock, inner=httpx.MockTransport(upstream)) as (client, _):
            for _ in range(3):
                with pytest.raises(ThrottledError) as raised:
                    await client.get("https://a.example/x")
                await anyio.sleep(raised.value.until - clock.boot())
            assert (await client.get("https://a.example/x")).status_code == 200
            gaps = [after - before for before, after in pairwise(sent)]
            assert all(BAN_SECONDS * 2**n <= gap <= BAN_SECONDS * 2**n + 60 for n, gap in enumerate(gaps[1:]))
            await anyio.sleep(601)
            # Long after, a 403 is a matter of rights again.
            assert (await client.get("https://a.example/x")).status_code == 403
            assert len(sent) == 6

    run(scenario)


def test_a_deadline_that_passes_as_the_connection_stands_is_a_timeout() -> None:
    async def scenario() -> None:
        clock = VirtualClock()

        class Slow(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(TOTAL_SECONDS + 1)
                await request.extensions["trace"](
                    "http11.send_request_headers.started", {"request": SimpleNamespace(method=b"GET")}
                )
                raise AssertionError("sent")

        pacer = pacer_of(clock=clock)
        async with open_client(pacer, clock) as (client, transport):
            assert transport._network is not None
            transport._network._pools[""] = Slow()
            with pytest.raises(httpx.ReadTimeout):
                await client.get("http://a.example/x")
        assert granted(pacer, "http://a.example/") == 0

    run(scenario)


def test_a_flood_never_exceeds_what_the_demo_enforces() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        demo = Demo(clock=clock)
        limits = {limit["match"]: limit["rate"] for limit in demo.config("http://demo.example")["limits"]}
        pacer = pacer_of(limits, clock=clock)
        async with (
            open_client(pacer, clock, inner=httpx.ASGITransport(demo.app)) as (client, transport),
            anyio.create_task_group() as group,
        ):
            for _ in range(400):
                group.start_soon(client.get, "http://demo.example/v2/trades?limit=1")
        assert transport.responses == {"200": 400}
        arrivals = demo.log.arrivals()
        assert worst_window(arrivals, 10.0) == 300
        assert 399 / (arrivals[-1] - arrivals[0]) == pytest.approx(30.0, rel=0.01)

    run(scenario)


# --- Size and encoding


@cache
def zeros(mebibytes: int) -> bytes:
    squeeze = zlib.compressobj(9, wbits=31)
    return b"".join(squeeze.compress(bytes(2**20)) for _ in range(mebibytes)) + squeeze.flush()


def packed(body: bytes, status: int = 200, encoding: str = "gzip", **more: str) -> Reply:
    return Reply(status, (("content-encoding", encoding), *more.items()), body)


async def test_a_body_as_large_as_allowed_comes_whole() -> None:
    async with standing(Reply(body=b"x" * RAW_CAP)) as (server, client, transport, pacer):
        assert len((await client.get(f"{server.url}/x")).content) == RAW_CAP
        quiet(pacer, transport)


@pytest.mark.parametrize("length", [RAW_CAP + 1, -1])
async def test_a_larger_body_is_broken_off(length: int) -> None:
    body = b"x" * (RAW_CAP + 1)
    async with standing(Reply(body=body, length=length, stall=True)) as (server, client, transport, pacer):
        with pytest.raises(httpx.DecodingError, match="larger than 8 MiB"):
            await client.get(f"{server.url}/x")
        assert transport.responses == {"error": 1}
        quiet(pacer, transport)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZip"])
async def test_gzip_is_inflated(encoding: str) -> None:
    text = random.Random(1).randbytes(300_000) + b"y" * 300_000
    members = gzip.compress(text[:400_000]) + gzip.compress(b"") + gzip.compress(text[400_000:])
    for body in (gzip.compress(text), members):
        async with standing(packed(body, encoding=encoding)) as (server, client, transport, pacer):
            response = await client.get(f"{server.url}/x")
            assert response.content == text
            assert "content-encoding" not in response.headers
            assert server.seen[0].headers["accept-encoding"] == "gzip"
            quiet(pacer, transport)


async def test_gzip_up_to_the_bound_is_inflated() -> None:
    async with standing(packed(zeros(DECODED_CAP >> 20))) as (server, client, _, _pacer):
        assert (await client.get(f"{server.url}/x")).content == bytes(DECODED_CAP)


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize("status", [200, 302, 429])
async def test_a_bomb_is_refused_within_bounded_memory(status: int, members: int) -> None:
    reply = packed(zeros(100 // members) * members, status, location="/elsewhere")
    error, words = (ThrottledError, "429") if status == 429 else (httpx.DecodingError, "inflates to more than 32 MiB")
    async with standing(reply, fast(max_tries=1)) as (server, client, transport, pacer):
        tracemalloc.start()
        try:
            with pytest.raises(error, match=words):
                await client.get(f"{server.url}/x", follow_redirects=True)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < DECODED_CAP + 8 * 2**20
        assert server.paths == ["/x"]
        quiet(pacer, transport)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(b"x" * 1_000)[:-9], "cut short"),
        (gzip.compress(b"x" * 1_000)[:12], "cut short"),
        (b"not gzip at all", "not the gzip"),
        (gzip.compress(b"x") + b"rubbish", "not the gzip"),
        (gzip.compress(b"x" * 100)[:-6] + b"\0" * 6, "not the gzip"),
    ],
    ids=["no trailer", "no end", "no gzip", "rubbish after it", "wrong sum"],
)
async def test_bad_gzip_is_an_error(body: bytes, reason: str) -> None:
    async with standing(packed(body)) as (server, client, transport, pacer):
        with pytest.raises(httpx.DecodingError, match=reason):
            await client.get(f"{server.url}/x")
        quiet(pacer, transport)


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_may_name_an_encoding(status: int) -> None:
    async with standing(packed(b"", status)) as (server, client, _, _pacer):
        assert (await client.get(f"{server.url}/x")).content == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "identity, br", "nonsense"])
async def test_other_encodings_are_refused(encoding: str) -> None:
    async with standing(packed(b"\x1b" * 317, encoding=encoding)) as (server, client, transport, pacer):
        with pytest.raises(httpx.DecodingError, match="which was not asked for"):
            await client.get(f"{server.url}/x")
        quiet(pacer, transport)


# --- Failures


@pytest.mark.parametrize(
    "reply", [Reply(body=b"[", length=200), Reply(body=b"[1,", length=200, status=404), Reply(status=99)]
)
async def test_after_a_broken_answer_the_next_is_good(reply: Reply) -> None:
    replies = iter([reply, Reply(body=b"good"), reply, Reply(body=b"good")])
    async with standing(lambda _: next(replies)) as (server, client, transport, pacer):
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(f"{server.url}/x")
            quiet(pacer, transport)
            assert (await client.get(f"{server.url}/x")).content == b"good"
        assert transport.responses == {"error": 2, "200": 2}
        assert granted(pacer, server.url) == 4


@pytest.mark.parametrize("kept", [True, False])
async def test_a_connection_that_died_before_any_byte_is_no_failure(kept: bool) -> None:
    """A server closes what was idle just as the next request is on its way (RFC 9112 9.3.1)."""
    replies = iter([*[Reply(body=b"first")] * kept, Reply(silent=True), Reply(body=b"again")])
    async with standing(lambda _: next(replies)) as (server, client, transport, pacer):
        if kept:
            await client.get(f"{server.url}/x")
        assert (await client.get(f"{server.url}/x")).content == b"again"
        assert transport.responses == {"error": 1, "200": 1 + kept}
        assert granted(pacer, server.url) == len(server.seen) == 2 + kept  # the second one was paced, too
        quiet(pacer, transport)


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("HEAD", 2), ("POST", 1), ("PATCH", 1)])
async def test_it_is_sent_again_once_and_only_if_that_is_safe(method: str, sent: int) -> None:
    async with standing(Reply(silent=True)) as (server, client, transport, pacer):
        with pytest.raises(httpx.RemoteProtocolError, match="disconnected"):
            await client.request(method, f"{server.url}/x")
        assert granted(pacer, server.url) == len(server.seen) == sent
        assert transport.responses == {"error": sent}
        quiet(pacer, transport)


async def test_cancelled_at_any_moment_nothing_leaks() -> None:
    rng = random.Random(5)

    def script(seen: Seen) -> Reply:
        if seen.path == "/good":
            return Reply(body=b"good")
        kind = rng.randrange(5)
        delay = rng.uniform(0, 0.01)
        if kind == 0:
            return Reply(delay=delay, body=b"x" * 20, drip=0.001)
        return (Reply(delay=delay), packed(zeros(1)), Reply(stall=True, length=9), Reply(404))[kind - 1]

    async def one(client: httpx.AsyncClient, url: str) -> None:
        with anyio.move_on_after(rng.uniform(0, 0.05)):
            await client.get(f"{url}/x")

    async with standing(script) as (server, client, transport, pacer):
        for _ in range(10):
            async with anyio.create_task_group() as group:
                for _ in range(30):
                    group.start_soon(one, client, server.url)
            assert pacer.in_flight == 0
        for _ in range(10):
            with anyio.fail_after(1.0):
                assert (await client.get(f"{server.url}/good")).content == b"good"
            # One that is cancelled in the step of its grant has spent its slot, and was never sent.
            assert len(server.seen) <= transport.requests <= granted(pacer, server.url) <= 310
        quiet(pacer, transport)


async def test_a_library_that_sends_without_asking_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.network._SEND_EVENTS", ("renamed",))
    async with standing(Reply()) as (server, client, _, pacer):
        with pytest.raises(RuntimeError, match="without a grant"):
            await client.get(f"{server.url}/x")
        assert pacer.in_flight == 0


# --- Connections and proxies


def grants_noted(pacer: Pacer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    noted: list[float] = []
    real = pacer.acquire

    async def acquire(url: httpx.URL, **more: Any) -> Grant:
        grant = await real(url, **more)
        noted.append(grant.at)
        return grant

    monkeypatch.setattr(pacer, "acquire", acquire)
    return noted


@pytest.mark.parametrize("proxied", [False, True])
async def test_the_connection_stands_before_the_first_slot_is_spent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxied: bool
) -> None:
    authority().cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    pacer = fast(rate="100/1s")
    noted = grants_noted(pacer, monkeypatch)
    async with (
        serving(always(Reply()), tls=True, handshake_delay=0.05) as server,
        serving(always(Reply(500))) as proxy,
        open_client(pacer, pacer.clock) as (client, transport),
    ):
        if proxied:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.get, f"{server.url}/x")
        assert len(noted) == len(server.seen) == 5
        assert noted[0] - server.accepted[0] >= 0.05
        assert proxy.tunnels == (len(server.accepted) if proxied else 0)
        assert proxy.seen == []
        quiet(pacer, transport)


async def test_a_connection_that_fails_spends_no_slot_and_blocks_nobody() -> None:
    pacer = fast(rate="100/1s")
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    gone = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
    await listener.aclose()
    async with standing(Reply(), pacer) as (server, client, transport, _):
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{gone}/x")
        assert granted(pacer, gone) == 0
        failed = 0

        async def fails() -> None:
            nonlocal failed
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{gone}/x")
            failed += 1

        with anyio.fail_after(1.0):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(fails)
                group.start_soon(client.get, f"{server.url}/x")
        assert failed == 5
        assert granted(pacer, gone) <= 4
        assert transport.responses["no connection"] + transport.responses["error"] == 6
        assert transport.responses["error"] + transport.responses["200"] == transport.requests
        quiet(pacer, transport)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # httpcore's, of a handshake that is cancelled
async def test_who_gives_up_while_connecting_leaves_the_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority().cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    pacer = fast()
    async with (
        serving(always(Reply()), tls=True, handshake_delay=0.03) as server,
        open_client(pacer, pacer.clock) as (client, transport),
    ):
        async with anyio.create_task_group() as group:

            async def leaves() -> None:
                with anyio.move_on_after(0.01):
                    await client.get(f"{server.url}/leaves")

            group.start_soon(leaves)
            await anyio.sleep(0.005)
            group.start_soon(client.get, f"{server.url}/stays")
        assert server.paths == ["/stays"]
        assert granted(pacer, server.url) == 1
        quiet(pacer, transport)
        gc.collect()


async def test_a_proxy_of_the_environment_is_used_and_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    pacer = fast(rate="1/0.02s")
    async with (
        standing(Reply(body=b"direct"), pacer) as (server, client, transport, _),
        serving(always(Reply(body=b"by proxy"))) as proxy,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        for number in range(4):
            assert (await client.get(f"http://upstream.example/{number}")).content == b"by proxy"
        assert [seen.target for seen in proxy.seen] == [f"http://upstream.example/{n}" for n in range(4)]
        assert granted(pacer, "http://upstream.example/") == 4
        assert proxy.seen[-1].at - proxy.seen[0].at >= 3 * 0.02 - 0.01
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
        assert (await client.get(f"{server.url}/x")).content == b"direct"
        monkeypatch.delenv("HTTP_PROXY")
        monkeypatch.setenv("ALL_PROXY", proxy.url.removeprefix("http://"))  # curl takes it without a scheme, too
        assert (await client.get("http://upstream.example/4")).content == b"by proxy"
        assert len(proxy.seen) == 5
        assert transport.requests == 6
        quiet(pacer, transport)


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:9", "gopher://me:secret@127.0.0.1:9"])
async def test_a_proxy_of_another_kind_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    pacer = fast()
    async with open_client(pacer, pacer.clock) as (client, transport):
        with pytest.raises(httpx.ProxyError, match="the environment names") as caught:
            await client.get("http://upstream.example/x")
        assert "secret" not in str(caught.value)
        assert transport.responses == {"no connection": 1}
        assert granted(pacer, "http://upstream.example/") == 0


async def test_a_proxy_that_is_not_there_spends_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    pacer = fast()
    async with open_client(pacer, pacer.clock) as (client, transport):
        with pytest.raises(httpx.ConnectError):
            await client.get("http://upstream.example/x")
        assert granted(pacer, "http://upstream.example/") == 0
        quiet(pacer, transport)
