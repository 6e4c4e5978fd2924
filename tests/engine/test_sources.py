"""What a source asks for, and what it makes of the answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from pydantic import TypeAdapter

from engine.config import SourceConfig
from engine.errors import DriftError, ReadError
from engine.signals import Bad, digest, name_all
from engine.sources.base import Page, Source, epoch_seconds
from engine.sources.http_json import HttpJson
from engine.sources.polymarket import NAMESPACE, PolymarketTrades
from engine.text import conceal
from tests.support.engines import OTHER, WALLET, items_source, trade, trades_source
from tests.support.tapes import recorded

Answer = httpx.Response | Exception


def ask(
    source: Source,
    answer: Answer | Callable[[httpx.Request], Answer],
    stream: str | None = None,
    cursor: str | None = None,
) -> Page:
    """One page of `source`, which gets `answer`."""

    def handler(request: httpx.Request) -> httpx.Response:
        got = answer(request) if callable(answer) else answer
        if isinstance(got, Exception):
            raise got
        return got

    async def main() -> Page:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            return await source.page(client, stream or source.streams[0], cursor)

    return anyio.run(main)


def parse(**data: Any) -> Any:
    return TypeAdapter[Any](SourceConfig).validate_python(data)


def polymarket(**changes: Any) -> PolymarketTrades:
    return PolymarketTrades(parse(**trades_source(**changes)))


def http_json(**changes: Any) -> HttpJson:
    return HttpJson(parse(**items_source(**changes)))


def body(text: str | bytes, **headers: str) -> httpx.Response:
    return httpx.Response(200, content=text, headers={"content-type": "application/json", **headers})


def rows(*items: Any, more: bool = False, cursor: str | None = None) -> httpx.Response:
    return body(json.dumps({"data": items, "pagination": {"has_more": more, "next_cursor": cursor}}))


# Polymarket.


def test_what_is_asked_for_a_wallet_and_for_the_feed() -> None:
    asked: list[httpx.URL] = []

    def handler(request: httpx.Request) -> Answer:
        asked.append(request.url)
        return rows()

    source = polymarket(wallets=[WALLET.upper().replace("X", "x"), OTHER], base_url="http://api.example/base/")
    assert source.streams == (f"trades/{WALLET}", f"trades/{OTHER}")
    ask(source, handler, source.streams[1])
    ask(source, handler, source.streams[1], "opaque+/=&")
    ask(polymarket(), handler)
    assert [str(url.copy_with(query=None)) for url in asked] == [
        "http://api.example/base/v2/trades",
        "http://api.example/base/v2/trades",
        "http://api.example/v2/trades",
    ]
    of_wallet = {"limit": "1000", "taker_only": "false", "user": OTHER}
    assert dict(asked[0].params) == of_wallet
    # A cursor carries no filters.
    assert dict(asked[1].params) == {**of_wallet, "cursor": "opaque+/=&"}
    assert dict(asked[2].params) == {"limit": "1000", "taker_only": "true"}


def test_a_row_becomes_a_record() -> None:
    row = trade(7, 1_790_620_238, size=10.294118, proxy_wallet="0x" + "AB" * 20)
    page = ask(polymarket(wallets=[WALLET]), body(rows(row).content, date="Mon, 28 Sep 2026 18:30:40 GMT"))
    (record,) = page.records
    assert record.identity == (NAMESPACE, f"0x{7:064x}", WALLET, row["token_id"], "BUY", 10294118)
    assert (record.time, record.counted) == (1_790_620_238.0, True)
    assert record.item == row
    assert (page.next, page.bad, page.date) == (None, [], 1_790_620_240.0)


def test_sizes_are_whole_millionths() -> None:
    # As floats these are a hair below their millionths.
    page = ask(polymarket(), rows(*(trade(1, 1000, size=size) for size in (1.000001, 1.000004, 1.000009))))
    assert [record.identity[-1] for record in page.records] == [1000001, 1000004, 1000009]


def test_display_fields_price_and_case_are_no_part_of_identity() -> None:
    first = trade(1, 1000, size=996)
    second = {**first, "title": "other", "outcome": "", "price": 0.4000001, "size": 996.0, "bio": "new"}
    third = {**first, "transaction_hash": first["transaction_hash"].upper().replace("X", "x")}
    page = ask(polymarket(), rows(first, second, third))
    assert len({record.identity for record in page.records}) == 1
    for change in ({"side": "SELL"}, {"size": 996.000001}, {"token_id": "5"}, {"proxy_wallet": OTHER}):
        other = ask(polymarket(), rows({**first, **change})).records[0]
        assert other.identity != page.records[0].identity


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"proxy_wallet": OTHER}, "it is of another wallet than was asked for"),
        ({"transaction_hash": "0x12"}, "transaction_hash: String should match pattern"),
        ({"transaction_hash": f"0x{1:064x}\n"}, "transaction_hash: String should match pattern"),
        ({"token_id": 12}, "token_id: Input should be a valid string"),
        ({"token_id": "1e70"}, "token_id: "),
        ({"token_id": "\u0661"}, "token_id: "),
        ({"side": "buy"}, "side: Input should be 'BUY' or 'SELL'"),
        ({"size": "10"}, "size"),
        ({"size": True}, "size"),
        ({"size": -1}, "size"),
        ({"size": 1e300}, "size"),
        ({"timestamp": 1.5}, "timestamp: "),
        ({"timestamp": "1790620238"}, "timestamp: "),
        ({"timestamp": -5}, "it is outside 1970 to 9999"),
        ({"timestamp": 10**400}, "it is outside 1970 to 9999"),
    ],
)
def test_bad_rows_are_kept_apart(change: dict[str, Any], reason: str) -> None:
    page = ask(polymarket(wallets=[WALLET]), rows(trade(1, 1000), {**trade(2, 1000), **change}))
    assert len(page.records) == 1
    (found,) = page.bad
    assert found.reason.startswith(reason)
    assert len(found.raw) <= 4096
    found.raw.encode("ascii")


@pytest.mark.parametrize("missing", ["proxy_wallet", "transaction_hash", "token_id", "side", "size", "timestamp"])
def test_a_missing_field_is_named(missing: str) -> None:
    row = trade(1, 1000)
    del row[missing]
    assert ask(polymarket(), rows(row)).bad[0].reason == f"{missing}: Field required"


@pytest.mark.parametrize("row", [None, [], "x", 5])
def test_a_row_that_is_none(row: Any) -> None:
    assert len(ask(polymarket(), rows(row)).bad) == 1


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"data": []},
        {"data": {}, "pagination": {"has_more": False, "next_cursor": None}},
        {"data": None, "pagination": {"has_more": False, "next_cursor": None}},
        {"data": [], "pagination": {"next_cursor": None}},
        {"data": [], "pagination": {"has_more": "no", "next_cursor": None}},
        {"data": [], "pagination": {"has_more": True, "next_cursor": 5}},
        {"data": [], "pagination": {"has_more": True, "next_cursor": None}},
        {"error": "rate limited", "code": "rate_limited"},
    ],
)
def test_an_envelope_that_changed_is_drift(data: Any) -> None:
    """pmxt#892: an array became an envelope, and the answer was "no trades"."""
    with pytest.raises(DriftError, match=r"^the answer .*\(http://api\.example/v2/trades\)$"):
        ask(polymarket(), body(json.dumps(data)))


def test_the_cursor_is_taken_only_when_there_is_more() -> None:
    assert ask(polymarket(), rows(more=True, cursor="c")).next == "c"
    assert ask(polymarket(), rows(more=False, cursor="c")).next is None


def test_the_recorded_page() -> None:
    path = recorded("v2_trades_user_taker_only_false.json")
    if path is None:
        return
    answer = json.loads(path.read_text())["response"]
    wallet = answer["data"][0]["proxy_wallet"]
    page = ask(polymarket(wallets=[wallet]), body(json.dumps(answer)))
    assert (len(page.records), page.bad) == (2, [])
    assert page.next == "opaque-1ba37d198cd969ac"
    assert page.records[0].identity[-1] == 10294118
    assert page.records[0].time == 1790620238.0
    # Pinned in test_signals.
    assert name_all(page.records)[0].digest == digest((*page.records[0].identity, 0))


def test_the_recorded_identical_rows_are_two_fills() -> None:
    path = recorded("chain_orderfilled_v2_samples.json")
    if path is None:
        return
    split = []
    for transaction, found in json.loads(path.read_text())["response"].items():
        fills = [
            trade(
                0,
                found["block_timestamp"],
                fill["maker"],
                transaction_hash=transaction,
                token_id=fill["tokenId"],
                side=fill["side"],
                size=(fill["takerAmt"] if fill["side"] == "BUY" else fill["makerAmt"]) / 1e6,
            )
            for fill in found["orderfilled"]
        ]
        named = name_all(ask(polymarket(), rows(*fills)).records)
        # Each log of the chain is one fill, whether or not its row looks like another one.
        assert len({item.digest for item in named}) == len(fills)
        split.append(len(fills) - len({item.record.identity for item in named}))
    assert max(split) >= 1


def test_the_recorded_trades_are_all_records() -> None:
    path = recorded("midterms_2022_part1.v2.jsonl")
    if path is None:
        return
    lines = path.read_text().splitlines()[:2000]
    data = [row for row in map(json.loads, lines) if "transaction_hash" in row]
    page = ask(polymarket(), rows(*data))
    assert page.bad == []
    assert len(page.records) == len(data) > 1900
    assert len({item.digest for item in name_all(page.records)}) == len(data)


# http_json.


def test_paths_to_records_ids_and_time() -> None:
    source = http_json(records="data.list[?kind=='x']", id=["a.b", "c"], time="at.ms", headers={"X-Key": "s3cret"})
    item = {"kind": "x", "a": {"b": "é"}, "c": 5, "at": {"ms": 1_790_620_238_500}}
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> Answer:
        seen.append(request)
        return body(json.dumps({"data": {"list": [item, {"kind": "y"}]}}))

    page = ask(source, handler)
    (record,) = page.records
    assert record.identity == ("a", "é", 5)
    assert (record.time, record.counted) == (1_790_620_238.5, False)
    assert record.item == item
    assert seen[0].headers["x-key"] == "s3cret"
    assert (source.timed, source.max_pages, source.namespace, page.next, page.date) == (True, 1, "a", None, None)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (1_790_620_238, 1_790_620_238.0),
        (1_790_620_238.25, 1_790_620_238.25),
        (1_790_620_238_250, 1_790_620_238.25),
        ("1790620238", 1_790_620_238.0),
        ("1790620238250", 1_790_620_238.25),
        ("2026-09-28T18:30:38Z", 1_790_620_238.0),
        ("2026-09-28T20:30:38.250+02:00", 1_790_620_238.25),
        ("2026-09-28T18:30:38", 1_790_620_238.0),
        ("2026-09-28", 1_790_553_600.0),
    ],
)
def test_times(value: Any, seconds: float) -> None:
    assert epoch_seconds(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, [], {}, "", "soon", "nan", "inf", "-1", "1e999", "10000-01-01"),
        *(-1, -1e300, 1e300, 10**400, -(10**400), float("nan")),
    ],
)
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        epoch_seconds(value)


@pytest.mark.parametrize("value", ["1.0", "1e3", "12345678901234567890.0", "null", "[]", "{}", "[1]"])
def test_an_id_is_text_or_a_whole_number(value: str) -> None:
    page = ask(http_json(), body(f'[{{"id": {value}}}]'))
    assert page.records == []
    assert "not text or a whole number" in page.bad[0].reason


def test_ids_keep_their_type_and_every_digit() -> None:
    text = '[{"id": 1}, {"id": "1"}, {"id": true}, {"id": 9007199254740993}, {"id": "\\ud800"}, {"id": ""}]'
    page = ask(http_json(), body(text))
    assert page.bad == []
    named = name_all(page.records)
    assert len({item.digest for item in named}) == 6
    assert [item.key[1] for item in named] == [1, "1", True, 9007199254740993, "\ud800", ""]


@pytest.mark.parametrize(
    ("records", "time", "item", "reason"),
    [
        ("@", "t", {"id": 1}, "time `t` finds nothing, not a time"),
        ("@", "t", {"id": 1, "t": "\ud800\x1b[31m"}, "time `t` '\ufffd\ufffd[31m' is no time"),
        ("@", "sum(t)", {"id": 1, "t": ["\ud800\x1b"]}, "a path cannot be read: In function sum()"),
    ],
)
def test_reasons_are_plain_text(records: str, time: str, item: Any, reason: str) -> None:
    page = ask(http_json(records=records, time=time), body(json.dumps([item])))
    found = page.bad[0].reason
    assert found.startswith(reason)
    assert found.isprintable()
    found.encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[{'id': 1}]", "not JSON"),
        ("", "not JSON"),
        ('[{"id": 1, "x": NaN}]', "NaN is not JSON"),
        ('[{"id": 1, "x": -Infinity}]', "-Infinity is not JSON"),
        ('[{"id": 1, "x": 1e999}]', "1e999 is too large a number"),
        ("[" * 100_000, "not JSON"),
        ('[{"id": ' + "[" * 50_000 + "]" * 50_000 + "}]", "not JSON"),
        ("[" + "9" * 5000 + "]", "not JSON"),
        (b'[{"id": "\xff"}]', "not JSON"),
    ],
)
def test_what_is_not_json(text: str | bytes, reason: str) -> None:
    with pytest.raises(DriftError, match=reason) as caught:
        ask(http_json(), body(text))
    assert len(str(caught.value)) < 700


def test_nesting_that_can_be_read_can_be_kept_or_is_bad() -> None:
    for depth in (100, 500, 800, 900, 950, 980):
        text = '[{"id": 1, "x": ' + "[" * depth + "]" * depth + '}, {"id": 2}]'
        try:
            page = ask(http_json(), body(text))
        except DriftError:
            continue
        assert len(page.records) + len(page.bad) == 2


def test_anything_can_be_quarantined() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for item in (deep, float("nan"), "\ud800", {"a": "x" * 10_000}, 10**5000):
        found = Bad.of("why", item)
        assert found.raw.isascii()
        assert len(found.raw) <= 4096
    while deep:
        deep = deep[0]


def test_a_bom_and_utf_16_are_read() -> None:
    assert len(ask(http_json(), body('[{"id": 1}]'.encode("utf-8-sig"))).records) == 1
    assert len(ask(http_json(), body('[{"id": 1}]'.encode("utf-16"))).records) == 1


def test_html_with_200_is_drift_and_shown_harmless() -> None:
    answer = httpx.Response(200, html="<html>\x1b]52;c;x\x07 maintenance [/bold]</html>")
    with pytest.raises(DriftError) as caught:
        ask(http_json(), answer)
    text = str(caught.value)
    assert "not JSON (text/html; charset=utf-8)" in text
    assert "maintenance [/bold]" in text
    assert text.isprintable()


@pytest.mark.parametrize(
    ("records", "data", "kind"),
    [
        ("data", {}, "nothing"),
        ("data", {"data": {}}, "an object"),
        ("@", {"data": []}, "an object"),
        ("@", "x", "text"),
        ("@", None, "nothing"),
    ],
)
def test_records_that_are_no_list_are_drift(records: str, data: Any, kind: str) -> None:
    with pytest.raises(DriftError, match=f"records `{records}` finds {kind}, not a list"):
        ask(http_json(records=records), body(json.dumps(data)))


def test_a_path_that_fails_on_the_answer_is_drift() -> None:
    with pytest.raises(DriftError, match=r"records `sort_by.* cannot be read"):
        ask(http_json(records="sort_by(data, &x)"), body('{"data": [{"x": 1}, {"x": "a"}]}'))


def test_an_identity_knows_the_url_and_not_its_secrets() -> None:
    def identity(url: str, **over: Any) -> str:
        return http_json(url=url, **over).identity

    conceal("rotated-key-1")
    conceal("rotated-key-2")
    assert "written-out" not in identity("https://a.example/x?key=written-out")
    assert identity("https://a.example/x?key=rotated-key-1") == identity("https://a.example/x?key=rotated-key-2")
    assert identity("https://a.example/x") != identity("https://a.example/y")
    assert identity("https://a.example/" + "x" * 1000 + "1") != identity("https://a.example/" + "x" * 1000 + "2")
    assert identity("https://a.example/x", time="t") == identity("https://a.example/y", time="t")
    assert identity("https://a.example/x", time="t") != identity("https://a.example/x", time="u")


# Answers that are none.


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (httpx.Response(404), ReadError, "HTTP 404 (http://api.example/items)"),
        (httpx.Response(500, text="\x1b[2Joops\n" + "x" * 1000), ReadError, "HTTP 500 (http://api.example/items): "),
        (httpx.Response(204), DriftError, "not JSON (no content type)"),
        (httpx.ConnectTimeout(""), ReadError, "no connection in time"),
        (httpx.ReadTimeout("no complete answer within 30 s"), ReadError, "no answer in time: no complete answer"),
        (httpx.ConnectError("Name or service not known"), ReadError, "cannot connect: Name or service not known"),
        (httpx.RemoteProtocolError("cut"), ReadError, "broke off: cut"),
        (httpx.DecodingError("bomb"), ReadError, "bad body: bomb"),
        (httpx.ReadError(""), ReadError, "the connection failed"),
        (httpx.ProxyError("no"), ReadError, "the proxy failed: no"),
        (httpx.UnsupportedProtocol("x"), ReadError, "UnsupportedProtocol: x"),
    ],
)
def test_failures_in_words(answer: Answer, kind: type[ReadError], text: str) -> None:
    with pytest.raises(kind) as caught:
        ask(http_json(), answer)
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_shown_and_not_followed(status: int) -> None:
    asked: list[httpx.URL] = []

    def handler(request: httpx.Request) -> Answer:
        asked.append(request.url)
        return httpx.Response(status, headers={"location": "http://169.254.169.254/latest"})

    with pytest.raises(ReadError, match=rf"redirects \({status}\) to http://169\.254\.169\.254/"):
        ask(http_json(), handler)
    assert len(asked) == 1


def test_a_password_in_the_url_is_in_no_text() -> None:
    source = http_json(url="http://ana:s3cret-word@api.example/items?api_key=canary-key")
    for answer in (httpx.Response(500), httpx.Response(302), body("{}"), body("nope"), httpx.ConnectError("no")):
        with pytest.raises(ReadError) as caught:
            ask(source, answer)
        assert "s3cret-word" not in str(caught.value)
        assert "canary-key" not in str(caught.value)
    trades = polymarket(base_url="http://ana:s3cret-word@api.example")
    with pytest.raises(DriftError) as caught:
        ask(trades, body("[]"))
    assert "s3cret-word" not in str(caught.value)


def test_a_secret_that_is_longer_than_what_is_shown_is_not_shown_in_part() -> None:
    secret = "".join(random.Random(1).choices("abcdefghijkmnpqrstuvwxyz23456789", k=600))
    conceal(secret)
    for answer in (
        httpx.Response(401, text=f"no such token: {secret}"),
        httpx.Response(200, text=f"<html>{secret}</html>"),
        httpx.Response(301, headers={"location": f"https://elsewhere.example/?key={secret[:300]}"}),
    ):
        with pytest.raises(ReadError) as caught:
            ask(http_json(), lambda _, answer=answer: answer)  # type: ignore[misc]
        shown = str(caught.value)
        assert not [at for at in range(590) if secret[at : at + 10] in shown], shown
