"""The demo's API: what of the Data API v2 a poller of trades asks for, plus a bare array at `/records`."""

from __future__ import annotations

import gzip
import json
import re
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.demo.cursor import CursorSigner
from engine.demo.gate import Gate
from engine.demo.limits import LoggedRequest
from engine.demo.market import Query
from engine.demo.params import BadRequestError, TradesParams
from engine.demo.status import status_of

if TYPE_CHECKING:
    import random

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from engine.clock import Clock
    from engine.demo.limits import RequestLog
    from engine.demo.market import Market
    from engine.demo.scenarios import Scenario

__all__ = ["RECORDS_SLICE", "create_app"]

RECORDS_SLICE = 25
"""Rows in an answer of `/records`."""
_COMPRESSED_FROM = 500
_NOT_FOUND, _NOT_ALLOWED = 404, 405


def create_app(market: Market, scenario: Scenario, clock: Clock, rng: random.Random, log: RequestLog) -> Starlette:
    """Serve `market` under the limits of `scenario`, in the time of `clock`; every request goes to `log`."""
    api = _Api(market, clock, CursorSigner(rng.randbytes(32)))
    app = Starlette(
        routes=[
            Route("/v2/trades", api.trades),
            Route("/v2/status", api.status),
            Route("/records", api.records),
            Route("/ok", api.ok),
        ],
        middleware=[Middleware(_Front, gate=Gate(scenario, clock, rng), clock=clock, rng=rng, log=log)],
        exception_handlers={BadRequestError: _bad_request, HTTPException: _http_error},
    )
    app.router.redirect_slashes = False
    return app


class _Api:
    def __init__(self, market: Market, clock: Clock, cursors: CursorSigner) -> None:
        self._market = market
        self._clock = clock
        self._cursors = cursors
        self._record_position = 0

    async def trades(self, request: Request) -> Response:
        params = TradesParams.parse(request.query_params)
        before, limit = None, params.limit
        if params.cursor is not None:
            before, page_size = self._cursors.open(params.cursor)
            limit = limit if limit is not None else page_size
        limit = limit if limit is not None else 100
        query = Query(params.user, params.taker_only, params.side, params.start, params.end, before)
        page = self._market.page(self._clock.wall(), query, limit)
        cursor = None if page.last is None else self._cursors.sign(page.last, limit)
        pagination = {"limit": limit, "offset": 0, "has_more": page.has_more, "next_cursor": cursor}
        return _answer(request, {"data": page.rows, "pagination": pagination})

    async def status(self, request: Request) -> Response:
        return _answer(request, {"data": status_of(self._market, self._clock.wall())})

    async def records(self, request: Request) -> Response:
        records = self._market.records
        if not records:
            raise HTTPException(_NOT_FOUND)
        position = self._record_position
        if position + RECORDS_SLICE < len(records):
            self._record_position += RECORDS_SLICE
        return _answer(request, records[position : position + RECORDS_SLICE])

    async def ok(self, request: Request) -> Response:  # noqa: ARG002
        return PlainTextResponse("OK")


class _Front:
    """Meets every request first: stamps, judges, delays and logs it."""

    def __init__(self, app: ASGIApp, *, gate: Gate, clock: Clock, rng: random.Random, log: RequestLog) -> None:
        self._app = app
        self._gate = gate
        self._clock = clock
        self._rng = rng
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived, wall = self._clock.mono(), self._clock.wall()
        trace_id = f"{self._rng.getrandbits(128):032x}"
        scope["trace_id"] = trace_id
        verdict = self._gate.judge(scope["path"], arrived)
        answered = False

        def note(status: int) -> None:
            query = scope["query_string"].decode("latin-1")
            self._log.add(LoggedRequest(arrived, scope["path"], query, status, verdict.limit))

        async def stamped(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["date"] = formatdate(self._clock.wall(), usegmt=True)
                headers["x-trace-id"] = trace_id
                # Noted before it is sent: whoever has the answer finds the request in the log.
                answered = True
                note(message["status"])
            await send(message)

        try:
            if verdict.latency_seconds:
                await self._clock.sleep_until(arrived + verdict.latency_seconds)
            target = self._app if verdict.refusal is None else verdict.refusal.response(trace_id, wall)
            await target(scope, receive, stamped)
        finally:
            if not answered:
                note(0)


def _answer(request: Request, payload: Any) -> Response:
    # ASCII: a recording may hold lone surrogates, which UTF-8 cannot carry.
    body = json.dumps(payload, allow_nan=False, separators=(",", ":")).encode("ascii")
    headers = {"vary": "accept-encoding"}
    if len(body) >= _COMPRESSED_FROM and _takes_gzip(request.headers.get("accept-encoding", "")):
        # Compressed in place, not by Starlette's middleware, whose thread would lose a race against virtual time.
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type="application/json")


def _takes_gzip(accepted: str) -> bool:
    return re.search(r"(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))", accepted.lower()) is not None


def _error(request: Request, status: int, code: str, message: str, parameter: str | None = None) -> Response:
    body = {"error": message, "code": code, "retryable": False, "trace_id": request.scope["trace_id"]}
    if parameter is not None:
        body["parameter"] = parameter
    return Response(json.dumps(body).encode("ascii"), status, media_type="application/json")


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequestError)
    return _error(request, 400, "invalid_request", str(error), error.parameter)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == _NOT_ALLOWED:
        return _error(request, _NOT_ALLOWED, "method_not_allowed", f"{request.method} is not allowed here")
    return _error(request, _NOT_FOUND, "not_found", f"no such path: {request.url.path}")
