"""What bodies say about being rate limited, and what only looks as if they did."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.bodies import BodySays, body_says
from engine.hints import MAX_HINT_SECONDS

NOW = 1_620_286_000.0


def says(status: int, body: object, **headers: str) -> BodySays | None:
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return body_says(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw, NOW)


def rpc(code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message, **more}}


REFUSED = BodySays(refused=True, banned=False, wait=None)
BANNED = BodySays(refused=True, banned=True, wait=None)


def wait(seconds: float) -> BodySays:
    return BodySays(refused=True, banned=False, wait=seconds)


ALCHEMY = "Your app has exceeded its compute units per second capacity. If you have retries enabled"
GITHUB = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
CLOUDFLARE_1015 = """<!DOCTYPE html><html><head>
<title>Access denied | api.npmjs.org used Cloudflare to restrict access</title>
<style>body{color:red}</style></head><body><h1><span data-translate="error">Error</span>
<span>1015</span></h1><span>Ray ID: 9e7c &bull; 2026-04-06</span><h2>You are being rate limited</h2>
<p>The owner of this website has banned you temporarily from accessing this website.</p></body></html>"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(rpc(-32005, "daily request count exceeded, request rate limited"), REFUSED, id="Infura, daily"),
        pytest.param(rpc(-32005, "limit exceeded"), REFUSED, id="EIP-1474: the standard words of the code"),
        pytest.param(rpc(-32005, ""), REFUSED, id="a code and no words"),
        pytest.param(
            rpc(
                -32005, "You've exceeded the RPS limit available on the current plan.", data={"try_again_in": "3.27ms"}
            ),
            wait(0.00327),
            id="Chainstack",
        ),
        pytest.param(
            rpc(-32005, "project ID request rate exceeded", data={"rate": {"allowed_rps": 1, "backoff_seconds": 30}}),
            wait(30.0),
            id="Infura, rate",
        ),
        pytest.param(rpc(-32007, "50/second request limit reached - reduce calls per second"), REFUSED, id="QuickNode"),
        pytest.param(rpc(-32029, "Rate limit exceeded. Max 60 requests per minute"), REFUSED, id="TheRPC"),
        pytest.param(rpc(-32016, "over rate limit"), REFUSED, id="Base"),
        pytest.param(
            rpc(-32000, '429 Too Many Requests: {"error":{"code":-32016,"message":"over rate limit"}}\n'),
            REFUSED,
            id="Base, wrapped (base/node#368)",
        ),
        pytest.param(rpc(429, ALCHEMY), REFUSED, id="Alchemy (Synthetixio/kwenta#40)"),
        pytest.param(rpc(-32005, "Too Many Requests"), REFUSED, id="telix5000 53e4d27"),
        pytest.param(
            [{"jsonrpc": "2.0", "id": 1, "result": "0x1"}, rpc(-32007, "25/second request limit reached")],
            REFUSED,
            id="a batch, one of it refused",
        ),
        pytest.param({"error": ["EAPI:Rate limit exceeded"]}, REFUSED, id="Kraken"),
        pytest.param({"error": ["EGeneral:Too many requests"]}, REFUSED, id="Kraken (ccxt#20648)"),
        pytest.param(
            {"retCode": 10006, "retMsg": "Too many visits", "result": {}, "retExtInfo": {}, "time": 1693924869139},
            REFUSED,
            id="Bybit (directionalscalper#57)",
        ),
        pytest.param({"code": "50011", "msg": "Requests too frequent.", "data": []}, REFUSED, id="OKX"),
        pytest.param(
            {"code": -1003, "msg": "Too many requests; current limit is 2400 per minute"}, REFUSED, id="Binance"
        ),
        pytest.param({"status": "0", "message": "NOTOK", "result": "Max rate limit reached"}, REFUSED, id="Etherscan"),
        pytest.param(
            {"status": "0", "message": "NOTOK", "result": "Max calls per sec rate limit reached (5/sec)"},
            REFUSED,
            id="Etherscan (rotki#8626)",
        ),
        pytest.param(
            {"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]},
            REFUSED,
            id="GitHub GraphQL",
        ),
        pytest.param({"errors": [{"message": GITHUB}]}, wait(60.0), id="GitHub GraphQL, secondary"),
        pytest.param(
            {"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {}}},
            REFUSED,
            id="Shopify (Shopify/cli#8317)",
        ),
        pytest.param(
            {"data": {"a": [1]}, "errors": [{"message": "x", "extensions": {"code": "RATE_LIMITED"}}]},
            REFUSED,
            id="GraphQL, half of it",
        ),
        pytest.param({"ok": False, "error": "ratelimited"}, REFUSED, id="Slack"),
        pytest.param(
            {
                "ok": False,
                "error_code": 429,
                "description": "Too Many Requests: retry after 17",
                "parameters": {"retry_after": 17},
            },
            wait(17.0),
            id="Telegram",
        ),
        pytest.param({"success": False, "message": "Too many requests", "retryAfter": 60}, wait(60.0), id="Express"),
        pytest.param({"error": "rate limit exceeded, please try again in 1.5 seconds"}, wait(1.5), id="words"),
        pytest.param("\ufeff" + json.dumps({"error": "rate limited"}), REFUSED, id="a byte order mark"),
    ],
)
@pytest.mark.parametrize("status", [200, 201, 400, 403, 500])
def test_a_refusal_whatever_the_status(status: int, body: object, expected: BodySays) -> None:
    assert says(status, body) == expected


TRADE = {
    "proxy_wallet": "0x1",
    "side": "BUY",
    "size": 5,
    "price": 0.5,
    "timestamp": 1790000000,
    "transaction_hash": "0x2",
    "title": "Will the API rate limit be exceeded? Error 1015: too many requests",
    "slug": "rate-limit",
    "outcome": "Yes",
}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([TRADE] * 3, id="Polymarket, v1 trades"),
        pytest.param({"data": [TRADE] * 3, "pagination": {"has_more": False}}, id="Polymarket, v2 trades"),
        pytest.param({"data": [{**TRADE, "error": "rate limit exceeded", "code": 429}]}, id="records with an error"),
        pytest.param({"error": None, "data": [{"message": "too many requests"}]}, id="no error, and data"),
        pytest.param({"error": "", "result": {"XXBT": ["rate limit"]}}, id="an empty error"),
        pytest.param({"error": [], "result": {"pair": "rate limit"}}, id="Kraken, good"),
        pytest.param({"error": "rate limit exceeded", "data": [TRADE]}, id="an error beside data is not the answer"),
        pytest.param([{"error": "rate limit exceeded", "code": 429}], id="a list of log records"),
        pytest.param([{"jsonrpc": "2.0", **rpc(-32005, "rate limit")}, {"error": "rate limit"}], id="no batch"),
        pytest.param({"job": 7, "state": "failed", "error": "429 Too Many Requests"}, id="a job that met a limit"),
        pytest.param({"id": 7, "status": "error", "message": "rate limit exceeded"}, id="a commit status"),
        pytest.param({"title": "rate limited", "status": "error", "type": "incident"}, id="an incident"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "result": {"error": "rate limit"}}, id="JSON-RPC, good"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "result": [{"code": 429, "message": "rate limit"}]}, id="its records"),
        pytest.param(
            rpc(-32005, "query returned more than 10000 results. Try with this block range [0x1, 0x2]."),
            id="Infura: too much at once",
        ),
        pytest.param(rpc(-32005, "Block range limit exceeded."), id="Chainstack: too much at once"),
        pytest.param(rpc(-32005, "Log response size exceeded."), id="Alchemy: too much at once"),
        pytest.param(rpc(-32602, "range 1000000 exceeds limit of 10000"), id="INFURA/infura#237"),
        pytest.param(rpc(-32701, "exceed maximum block range"), id="publicnode"),
        pytest.param(rpc(-32007, "Slot 5 was skipped, or missing due to ledger jump to recent snapshot"), id="Solana"),
        pytest.param(rpc(-32005, "Node is behind by 42 slots"), id="Solana: unhealthy"),
        pytest.param(rpc(-32016, "Minimum context slot has not been reached"), id="Solana: behind"),
        pytest.param(rpc(3, "execution reverted: Rate limit exceeded", data="0x08c379a0"), id="a bridge's own limit"),
        pytest.param(rpc(-32601, "the method does not exist"), id="another error"),
        pytest.param({"code": "50011", "msg": "invalid ccy", "data": []}, id="OKX: another error"),
        pytest.param({"code": "0", "msg": "", "data": [{"text": "Too Many Requests"}]}, id="OKX, good"),
        pytest.param({"retCode": 0, "retMsg": "OK", "result": {"list": ["too many visits"]}}, id="Bybit, good"),
        pytest.param({"code": 200, "message": "rate limit: 50", "status": "ok"}, id="a good code"),
        pytest.param({"status": "1", "message": "OK", "result": "Max rate limit reached"}, id="Etherscan, good"),
        pytest.param({"status": "0", "message": "No transactions found", "result": []}, id="Etherscan, none"),
        pytest.param({"message": "rate limit exceeded"}, id="a message alone"),
        pytest.param({"data": {"issues": [{"title": "rate limit"}]}, "errors": []}, id="GraphQL, good"),
        pytest.param(
            {"data": {"a": 1}, "errors": [{"message": "no such field `rate limit`"}]}, id="GraphQL, words beside data"
        ),
        pytest.param({"data": {"a": 1}, "errors": "rate limit"}, id="GraphQL, no list"),
        pytest.param(
            {"resources": {"core": {"limit": 60, "remaining": 0}}, "rate": {"limit": 60}}, id="GitHub /rate_limit"
        ),
        pytest.param({"error": {"retry_after": 5}}, id="a wait alone"),
        pytest.param("error code: 1015 was seen by many users today", id="a text about it"),
        pytest.param("<html><h1>Error 1015</h1>You are being rate limited</html>", id="a page about it"),
        pytest.param('{"error":"rate limit exceeded"', id="cut short"),
        pytest.param('{"error":"rate limit exceeded","detail":"' + "x" * 70_000 + '"}', id="too long for an error"),
        pytest.param("null", id="null"),
        pytest.param('"error: rate limit"', id="a string"),
        pytest.param("", id="nothing"),
    ],
)
def test_no_good_answer_is_taken_for_a_refusal(body: object) -> None:
    assert says(200, body) is None


def test_a_bare_error_code_of_cloudflare_is_one_in_a_200_too() -> None:
    assert says(200, "error code: 1015") == wait(30.0)  # eRPC passes it on so
    assert says(200, "error code: 1006") == BANNED


@pytest.mark.parametrize("status", [100, 301, 304, 399])
def test_other_statuses_have_no_say(status: int) -> None:
    assert says(status, {"error": "rate limit exceeded"}) is None


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(
            403,
            {"message": GITHUB, "documentation_url": "https://docs.github.com/#secondary-rate-limits"},
            wait(60.0),
            id="GitHub (github-mirror#62)",
        ),
        pytest.param(
            403,
            {"message": "You have triggered an abuse detection mechanism. Please retry your request again later."},
            wait(60.0),
            id="GitHub, in former times",
        ),
        pytest.param(403, {"message": "API rate limit exceeded for installation ID 1."}, REFUSED, id="GitHub, primary"),
        pytest.param(
            403,
            {"error": {"code": 403, "message": "x", "errors": [{"reason": "rateLimitExceeded"}]}},
            REFUSED,
            id="Google",
        ),
        pytest.param(
            403,
            rpc(-32600, "Monthly capacity limit exceeded. Visit https://x to upgrade"),
            REFUSED,
            id="Alchemy (xmtpd#672)",
        ),
        pytest.param(403, "<html><h1>403</h1><p>Too Many Requests</p></html>", REFUSED, id="a page"),
        pytest.param(403, "access too frequent", REFUSED, id="Bybit"),
        pytest.param(403, {"error": "IP_BLOCKED", "retryAfter": 900}, wait(900.0), id="a wait makes a 403 a refusal"),
        pytest.param(
            503,
            {"error": "x", "code": "dependency_unavailable", "retryable": True, "retry_after": 3},
            BodySays(False, False, 3.0),
            id="not a 503",
        ),
        pytest.param(400, {"__type": "ThrottlingException", "message": "Rate exceeded"}, REFUSED, id="AWS"),
        pytest.param(500, "rate limit exceeded\n", REFUSED, id="a line"),
        pytest.param(403, "error code: 1020", BANNED, id="Cloudflare 1020"),
        pytest.param(
            403, "<title>Access denied</title><span>Error</span> <span>1006</span>", BANNED, id="Cloudflare 1006"
        ),
        pytest.param(403, "error code: 1007", BANNED, id="Cloudflare 1007"),
        pytest.param(403, {"title": "Error 1008: Access denied", "status": 403}, BANNED, id="Cloudflare 1008, JSON"),
        pytest.param(429, CLOUDFLARE_1015, wait(30.0), id="Cloudflare 1015 (download-counts#8)"),
        pytest.param(429, "error code: 1015", wait(30.0), id="Cloudflare 1015"),
        pytest.param(
            429,
            {"title": "Error 1015: You are being rate limited", "error_code": 1015, "retry_after": 12},
            wait(12.0),
            id="Cloudflare 1015, JSON",
        ),
        pytest.param(
            418,
            {"code": -1003, "msg": "Way too much request weight used; IP banned until 1620286253180. Please"},
            BodySays(True, True, 253.18),
            id="Binance",
        ),
        pytest.param(
            418,
            {"code": -1003, "msg": "Way too many requests; IP(194.1.1.9) banned until 1620286060000."},
            BodySays(True, True, 60.0),
            id="Binance, with the address",
        ),
        pytest.param(
            429,
            {"code": -1003, "msg": "IP banned until 1620286253180."},
            BodySays(True, True, 253.18),
            id="Binance, by 429",
        ),
        pytest.param(418, {"code": -1003, "msg": "IP banned until 1620285999999."}, BANNED, id="a ban that is over"),
        pytest.param(418, {"code": -1003, "msg": "IP() banned until 16605565089"}, BANNED, id="cut (binance-proxy#8)"),
        pytest.param(
            418,
            {"code": -1003, "msg": "IP banned until 9999999999999."},
            BodySays(True, True, MAX_HINT_SECONDS),
            id="a ban of centuries",
        ),
        pytest.param(
            429,
            {"message": "You are being rate limited.", "retry_after": 0.729, "global": False},
            wait(0.729),
            id="Discord",
        ),
        pytest.param(
            429,
            {"errcode": "M_LIMIT_EXCEEDED", "error": "Too many requests", "retry_after_ms": 2500},
            wait(2.5),
            id="Matrix",
        ),
        pytest.param(
            429, {"ok": False, "error_code": 429, "parameters": {"retry_after": "15"}}, wait(15.0), id="Telegram"
        ),
        pytest.param(
            429,
            {"error": {"message": "Rate limit reached for x. Please try again in 1m2.639999999s. Visit"}},
            wait(62.639999999),
            id="Groq",
        ),
        pytest.param(
            429, {"error": {"message": "Rate limit reached. Please try again in 542ms."}}, wait(0.542), id="OpenAI"
        ),
        pytest.param(
            429,
            {
                "error": {
                    "code": 429,
                    "message": "Quota exceeded. Please retry in 57.2s.",
                    "details": [{"@type": "type.googleapis.com/google.rpc.Help"}, {"retryDelay": "57.238747106s"}],
                }
            },
            wait(57.238747106),
            id="Gemini",
        ),
        pytest.param(429, {"detail": "Too many requests", "retry_after_seconds": 9}, wait(9.0), id="Polymarket's SDK"),
        pytest.param(429, {"detail": {"code": "CHAT_RATE_LIMITED", "retry_after_ms": 700}}, wait(0.7), id="FastAPI"),
        pytest.param(
            429, "Rate limit exceeded for your ip, please wait 1min and retry.", wait(60.0), id="godwoken-web3#136"
        ),
        pytest.param(429, {"error": "Please retry after 5"}, wait(5.0), id="bare seconds"),
        pytest.param(429, {"error": "Try again in 3 minutes."}, wait(180.0), id="minutes"),
        pytest.param(429, {"error": "try again in 2h3m"}, wait(7380.0), id="hours"),
        pytest.param(429, {"error": "retry after 200000 s"}, wait(MAX_HINT_SECONDS), id="not over a day"),
        pytest.param(429, {"retry_after": 9, "error": {"retry_after": 12}}, wait(12.0), id="the longest"),
    ],
)
def test_an_error_says_more(status: int, body: object, expected: BodySays) -> None:
    got = says(status, body)
    assert got is not None
    assert (got.refused, got.banned) == (expected.refused, expected.banned)
    assert got.wait == (None if expected.wait is None else pytest.approx(expected.wait, rel=1e-6))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Forbidden",
        "{}",
        "[]",
        "null",
        "0",
        {"message": "Not Found", "documentation_url": "https://x#rate-limits"},
        {"error": "max historical activity offset of 5000 exceeded"},
        {"message": "Forbidden"},
        {"code": 404},
        {
            "error": "Failed to deserialize query string: limit: limit must be between 0 and 1000",
            "code": "invalid_request",
            "retryable": False,
            "trace_id": "72fce274be1542c181c7df5df4d881e4",
        },
        {"error": "message: API key disabled, reason: tenant disabled, json-rpc code: -32051, rest code: 403"},
        {"statusCode": 403, "message": "Access denied"},
        {"status": 500, "error": "Internal Server Error"},
        "<html><head><title>403 Forbidden</title></head><body><center>nginx</center></body></html>",
        "<title>Attention Required! | Cloudflare</title><h1>Sorry, you have been blocked</h1>",
        "<title>Just a moment...</title>",
        "error code: 1016",
        "Error 10150",
        "terror code: 1015x",
        {"error": "you are banned"},
        {"retry_after": None},
        {"error": "Please try again later"},
    ],
)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_a_plain_error_says_nothing(status: int, body: object) -> None:
    assert says(status, body) is None


def test_a_page_of_an_unrelated_error_is_not_read() -> None:
    page = "<html><nav>Docs: rate limits, too many requests</nav><h1>Not here</h1></html>"
    assert says(404, page) is None
    assert says(500, page) is None


def test_no_usual_wait_where_a_field_names_one() -> None:
    assert says(403, {"message": GITHUB}, retry_after="12") == REFUSED
    assert says(403, {"message": GITHUB}, retry_after="0") == wait(60.0)
    assert says(429, "error code: 1015", retry_after="10") is None
    assert says(429, {"error": "retry after 12 s"}, retry_after="10") == wait(12.0)


@pytest.mark.parametrize("unit", ["\u03bcs", "\u017f", "parsecs"])
def test_no_other_unit_is_one(unit: str) -> None:
    assert says(429, {"error": f"try again in 5{unit}"}) is None
    assert says(429, {"error": "try again in 2000000 s"}) is None


def test_a_ban_counts_from_the_answers_own_date() -> None:
    body = {"code": -1003, "msg": "IP banned until 1620286253000."}
    assert says(418, body, date="Thu, 06 May 2021 07:30:00 GMT") == BodySays(True, True, 53.0)


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-5",
        "0",
        "true",
        "false",
        "null",
        '""',
        '"-5"',
        '"+5"',
        '"1_000"',
        '"1e3"',
        '"nan"',
        '"soon"',
        '"5 apples"',
        "[5]",
        '{"a":5}',
        "1000000",
        "1620286253",
        "9" * 400,
        "9" * 5_000,
        '"' + "9" * 5_000 + '"',
        '"\uff15"',
    ],
)
@pytest.mark.parametrize("key", ["retry_after", "try_again_in"])
def test_no_other_wait_is_one(key: str, value: str) -> None:
    assert says(429, f'{{"{key}":{value}}}') is None


def test_a_page_of_trades_costs_little() -> None:
    page = json.dumps({"data": [TRADE] * 300, "pagination": {}}).encode()
    began = time.perf_counter()
    for _ in range(100):
        assert body_says(200, {}, page, NOW) is None
    assert (time.perf_counter() - began) / 100 < 0.005


FRAGMENTS = st.sampled_from(
    [
        '{"error":',
        '"errors":[',
        '"code":',
        "429",
        '"rate limit"',
        "}",
        "]",
        ",",
        '"retry_after":',
        "NaN",
        "1e999",
        "-1003",
        "[",
        '{"jsonrpc":"2.0",',
        "try again in ",
        "9" * 30,
        "µs",
        "\u017f",
        "\u212a",
        "ms",
        " banned until ",
        "1620286253180",
        "error code: ",
        "1015",
        "<",
        ">",
        "&#99999999999;",
        '"data":',
        "null",
        "true",
        "\\ud800",
        "\x00",
        "wait 5 ",
        "hours ",
        "\u03bcs",
    ]
)
STATUSES = st.sampled_from([200, 204, 302, 400, 403, 404, 418, 429, 500, 503])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=9),
        st.sampled_from(["rate limit", "retry after 5", "RATE_LIMITED", 429, -32005, 1e999, 10**40, "12s"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "errors",
                    "code",
                    "message",
                    "data",
                    "status",
                    "result",
                    "retry_after",
                    "extensions",
                    "jsonrpc",
                    "parameters",
                    "type",
                    "ok",
                    "retryDelay",
                    "retry_after_ms",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def bounded(got: BodySays | None) -> bool:
    return got is None or (
        (got.wait is None or 0.0 < got.wait <= MAX_HINT_SECONDS) and (got.refused or got.banned or got.wait is not None)
    )


@given(
    STATUSES,
    st.one_of(st.binary(max_size=200), st.lists(FRAGMENTS, max_size=12).map(lambda parts: "".join(parts).encode())),
)
@example(500, b"[" * 100_000)
@example(200, b'{"error":' * 7_000)
@example(200, b'{"error":' + b"[" * 60_000)
@example(429, b"wait " + b"9" * 60_000)
@example(429, b"<p>&#" + b"9" * 5_000)
@example(403, "try again in 5 \u03bcs, wait 5\u017f, wait 5\u212a".encode())
@example(403, b"\xff\xfe{\x00\xed\xa0\x80")
def test_no_bytes_raise_or_are_out_of_bounds(status: int, body: bytes) -> None:
    assert bounded(body_says(status, {"date": "x", "retry-after": "soon"}, body, NOW))


@given(STATUSES, VALUES)
def test_no_document_raises_or_is_out_of_bounds(status: int, document: Any) -> None:
    assert bounded(body_says(status, {}, json.dumps(document).encode(), NOW))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"title": st.sampled_from(["rate limit", "error"]), "code": st.just(429), "error": VALUES}
        ),
        min_size=1,
    )
)
def test_no_records_are_taken_for_a_refusal(records: list[dict[str, Any]]) -> None:
    for document in (
        records,
        {"data": records},
        {"result": records, "error": None},
        {"items": records, "error": "rate limit"},
    ):
        assert body_says(200, {}, json.dumps(document).encode(), NOW) is None


@pytest.mark.parametrize(
    "unit", [b"<", b"retry ", b"wait 1s", b'{"error":', b"[", b"banned until ", b"error ", b"rate ", b"1."]
)
def test_time_is_linear(unit: bytes) -> None:
    body = (unit * 70_000)[: 64 * 2**10]
    began = time.perf_counter()
    body_says(403, {}, body, NOW)
    assert time.perf_counter() - began < 0.5
