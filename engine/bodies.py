"""What a body says about being rate limited: a refusal inside a 200, a ban, a wait that no header field names.

Each table names whom its rows are from: the vendors' pages on their limits (Binance, Bybit, OKX, Kraken, Telegram,
Discord, GitHub, Shopify, Etherscan, Infura, Alchemy, QuickNode, Chainstack, Cloudflare's 1xxx errors), and bodies as
users reported them. The tests name where each was seen.

The rules:
    - Only a JSON error is read, at known places of it; or a page, if its status refuses.
    - Of a 2xx answer only what is an error in form, so that no record can be taken for a refusal, whatever it tells of.
    - Words win over codes: the same codes mean other things elsewhere.
    - Nothing raises, whatever is sent, and no wait is longer than `MAX_HINT_SECONDS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.hints import ABSURD_SECONDS, MAX_HINT_SECONDS, retry_after, seconds_until, sent_at

__all__ = ["BodySays", "body_says"]

_LOOK = 64 * 2**10
"""Bytes of a body that are looked at."""
_PHRASES = re.compile(
    # Most: also Slack's `ratelimited`, Google's `rateLimitExceeded`, GraphQL's `RATE_LIMITED`.
    r"rate[ _-]?limit|too[ _]many[ _]requests"
    # Bybit; OKX; GitHub; Shopify, AWS; AWS.
    r"|too many visits|(?:requests?|access) too frequent|abuse detection|throttl(?:ed|ing)|\brate exceeded"
    # QuickNode; Infura; Alchemy; Chainstack.
    r"|request limit (?:reached|exceeded)|request count exceeded|compute units per second|capacity limit exceeded"
    r"|exceeded the rps limit",
    re.IGNORECASE,
)
"""Texts that mean a refusal, whatever the code beside them."""
_QUOTED = re.compile(r"execution reverted", re.IGNORECASE)
"""Unless the words are a contract's own: some bridges limit rates too."""
_CODES = frozenset({"429", "-1003", "-32005", "-32007", "-32008", "-32016", "-32029", "10006", "10018", "50011"})
"""Binance, JSON-RPC nodes, Bybit, OKX. Others use the same numbers: Solana's -32007 is a slot without a block."""
_AGREES = re.compile(r"limit|exceed|quota|capacity|too (?:many|frequent|fast)|slow down", re.IGNORECASE)
"""What the text beside such a code must speak of, if there is one ..."""
_TOO_LARGE = re.compile(r"\branges?\b|\bresults?\b|response size|batch", re.IGNORECASE)
"""... and not: `query returned more than 10000 results` (-32005 too) asks for less in one request, not for fewer."""
_CLOUDFLARE = re.compile(r"\berror(?: ?code)?:? (1015|1020|1006|1007|1008)\b", re.IGNORECASE)
"""1015 is a rate limit; by the others an address or a client is blocked (developers.cloudflare.com, 1xxx errors)."""
_BANNED = re.compile(r"\bbanned until(?: ([0-9]{13}|[0-9]{10})(?![0-9]))?", re.IGNORECASE)
"""Binance: `Way too much request weight used; IP banned until 1620286253180.`"""
_USUAL = (
    (re.compile(r"secondary rate limit|abuse detection", re.IGNORECASE), 60.0),  # docs.github.com: at least a minute
    (re.compile(r"error(?: ?code)?:? 1015\b", re.IGNORECASE), 30.0),  # Cloudflare, changelog of 2026-03-12
)
"""Waits of those who name none."""

_TEXTS = ("error", "message", "msg", "retMsg", "ret_msg", "description", "detail", "title", "result", "reason")
_NUMBERS = ("code", "retCode", "ret_code", "error_code", "errcode", "errorCode", "statusCode", "status", "type")
_WAITS = {
    **dict.fromkeys(("retry_after", "retryAfter", "retry_after_seconds", "retryAfterSeconds"), 1.0),
    **dict.fromkeys(("backoff_seconds", "retryDelay", "try_again_in"), 1.0),  # Infura, Google, Chainstack
    **dict.fromkeys(("retry_after_ms", "retryAfterMs"), 0.001),  # Matrix
}
"""Fields with a wait, and their unit in seconds."""
_INNER = ("error", "errors", "data", "detail", "details", "extensions", "parameters", "rate")
"""Fields whose objects belong to the error: `parameters` is Telegram's, `data.rate` Infura's."""
_ENVELOPE = {*_TEXTS, *_NUMBERS, *_WAITS, *_INNER} - {"title", "type"}
_ENVELOPE |= {"success", "ok", "time", "retExtInfo", "request_id", "requestId", "trace_id", "timestamp", "retryable"}
"""All that a 2xx answer may consist of if it is an error: with anything else in it, it is a record."""

_MARKERS = (b'"code"', b'"retCode"', b'"ret_code"', b'"status"', b'"success"', b'"ok"', b'"errcode"')
_FAILED = frozenset({"0", "error", "fail", "failed", "false", "429"})
_GOOD_CODES = frozenset({"none", "", "0", "200", "00000", "ok", "success"})

_AMOUNT = r"[0-9]{1,10}(?:\.[0-9]{1,20})?"
_UNITS = {"ms": 0.001, "msec": 0.001, "millisecond": 0.001, "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0}
_UNITS |= {"m": 60.0, "min": 60.0, "minute": 60.0, "h": 3_600.0, "hour": 3_600.0, "µs": 1e-6}
_PART = rf"{_AMOUNT} ?(?:ms|msec|millisecond|s|sec|second|m|min|minute|h|hour|µs)s?(?![a-z])"
_DURATION = rf"(?:{_PART} ?){{1,4}}|{_AMOUNT}(?=[.,;!)]?(?: |$))"
_PARTS = re.compile(rf"({_AMOUNT}) ?([a-zµ]*)", re.IGNORECASE | re.ASCII)
_AGAIN = re.compile(
    rf"\b(?:again|retry|wait)(?:[ -](?:in|after|for|at least)){{0,2}}:? ({_DURATION})", re.IGNORECASE | re.ASCII
)
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class BodySays:
    """What a body says about being rate limited."""

    refused: bool
    banned: bool
    wait: float | None
    """Seconds, more than 0 and at most `MAX_HINT_SECONDS`."""


@dataclass(slots=True)
class _Told:
    """The words, codes and waits of an error."""

    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def body_says(status: int, headers: Mapping[str, str], body: bytes, now: float) -> BodySays | None:
    """What the body of an answer says about being rate limited; None when it says nothing.

    Of a 2xx answer only what is an error in form is read (`_error_within`), so that no record can be taken for a
    refusal, whatever it tells of. Of other bodies than JSON only those of the statuses that refuse, and short ones.
    A 429 is a refusal without its body, which may add a wait or a ban.
    """
    told = _told_by_error(status, body[:_LOOK]) if status >= 400 else _told_by_good(status, body)  # noqa: PLR2004
    if told is None:
        return None
    text = " ".join(told.texts)
    blocked = _CLOUDFLARE.search(text)
    until = _BANNED.search(text)
    banned = until is not None or (blocked is not None and blocked[1] != "1015")
    wait = max(told.waits, default=None) or _spoken(text)
    refused = banned or blocked is not None or _is_refusal(told, text) or (status in (403, 418) and bool(told.waits))
    if until is not None:
        left = seconds_until(until[1] or "", sent_at(headers, now))
        wait = None if left is None else min(left, MAX_HINT_SECONDS)
    elif wait is None and refused and not retry_after(headers, now):
        wait = next((usual for said, usual in _USUAL if said.search(text)), None)
    if status == 429:  # noqa: PLR2004 - too many requests
        return BodySays(True, banned, wait) if banned or wait is not None else None
    if refused or (wait is not None and status >= 400):  # noqa: PLR2004 - an error
        return BodySays(refused, banned, wait)
    return None


def _is_refusal(told: _Told, text: str) -> bool:
    """By the words; by a code only where they do not speak of something else."""
    if _QUOTED.search(text):
        return False
    if _PHRASES.search(text) or any(map(_PHRASES.search, told.codes)):
        return True
    known = not _CODES.isdisjoint(told.codes)
    return known and (not text or (_AGREES.search(text) is not None and not _TOO_LARGE.search(text)))


def _told_by_error(status: int, head: bytes) -> _Told | None:
    told = _Told()
    document = _json(head)
    if isinstance(document, dict | list):
        _collect(document, told, depth=4)
    elif status in (403, 418, 429, 503) or (len(head) <= 512 and b"<" not in head):  # noqa: PLR2004
        told.texts.append(_visible(head))
    else:
        return None
    return told


def _told_by_good(status: int, body: bytes) -> _Told | None:
    if not 200 <= status < 300 or len(body) > _LOOK:  # noqa: PLR2004 - success; an error is never so long
        return None
    told = _Told()
    if body.startswith(b"error code: ") and len(body) < 20:  # noqa: PLR2004 - Cloudflare's, whole
        told.texts.append(_visible(body))
        return told
    # An envelope without an `error` is all there is to the answer, and so it is short.
    if b'"error' not in body and (len(body) > 4_096 or not any(map(body.__contains__, _MARKERS))):  # noqa: PLR2004
        return None
    if (error := _error_within(_json(body))) is None:
        return None
    _collect(error, told, depth=4)
    return told


def _error_within(document: Any) -> Any:
    """What of a 2xx answer is an error in form; None when nothing is."""
    if isinstance(document, list):
        # A JSON-RPC batch; a list of anything else is one of records.
        rpc = all(isinstance(call, dict) and "jsonrpc" in call for call in document)
        return [{"error": call["error"]} for call in document if call.get("error")] if rpc else None
    if not isinstance(document, dict):
        return None
    if "jsonrpc" in document:
        return {"error": document.get("error")}
    if document.get("errors") and document.keys() <= {"data", "errors", "extensions"}:
        return _of_graphql(document)
    has_payload = any(isinstance(document.get(key), list | dict) and document[key] for key in ("data", "result"))
    return document if document.keys() <= _ENVELOPE and not has_payload and _is_error(document) else None


def _of_graphql(document: dict[str, Any]) -> Any:
    if not document.get("data"):
        return {"errors": document["errors"]}
    # Beside data only the codes count: the words of the other errors may quote anything.
    errors = document["errors"] if isinstance(document["errors"], list) else []
    coded = [error for error in errors if isinstance(error, dict)]
    return {"errors": [{"type": error.get("type"), "extensions": error.get("extensions")} for error in coded]}


def _is_error(document: dict[str, Any]) -> bool:
    failed = any(document.get(key) for key in ("error", "errors")) or False in map(document.get, ("success", "ok"))
    if failed or str(document.get("status")).lower() in _FAILED:
        return True
    return any(str(document.get(key)).lower() not in _GOOD_CODES for key in _NUMBERS if key != "status")


def _collect(node: Any, told: _Told, depth: int) -> None:
    """Gather what an error says from its objects, no deeper than `depth` and from no more than 20 of a list."""
    if isinstance(node, str):
        told.texts.append(" ".join(node.split()))
    elif isinstance(node, list) and depth:
        for each in node[:20]:
            _collect(each, told, depth - 1)
    elif isinstance(node, dict):
        told.texts += [" ".join(node[key].split()) for key in _TEXTS if isinstance(node.get(key), str)]
        told.codes += [str(node[key]) for key in _NUMBERS if isinstance(node.get(key), int | str)]
        told.waits += [wait for key, unit in _WAITS.items() if (wait := _wait(node.get(key), unit)) is not None]
        for key in _INNER if depth else ():
            if isinstance(node.get(key), dict | list):
                _collect(node[key], told, depth - 1)


def _wait(value: Any, unit: float) -> float | None:
    if isinstance(value, str):
        if re.fullmatch(_AMOUNT, value):
            return _bounded(float(value) * unit)
        return _bounded(_duration(value)) if re.fullmatch(_DURATION, value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < ABSURD_SECONDS / unit:
        return None
    return _bounded(value * unit)


def _spoken(text: str) -> float | None:
    said = _AGAIN.search(text)
    return None if said is None else _bounded(_duration(said[1]))


def _duration(text: str) -> float:
    """Seconds of `12s`, `1m2.5s`, `500 ms`, `3 minutes`, `5`."""
    parts = ((amount, unit.lower()) for amount, unit in _PARTS.findall(text))
    return sum(float(amount) * (_UNITS.get(unit) or _UNITS[unit.removesuffix("s")]) for amount, unit in parts)


def _bounded(seconds: float) -> float | None:
    return min(seconds, MAX_HINT_SECONDS) if 0 < seconds < ABSURD_SECONDS else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _visible(page: bytes) -> str:
    """The text of a page, on one line."""
    return " ".join(_TAG.sub(" ", page.decode("utf-8", "replace")).split())
