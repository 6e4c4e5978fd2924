"""What every source offers, and the one place where answers become data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from engine.errors import DriftError, ReadError
from engine.hints import http_date
from engine.signals import MAX_TIME, Bad, Record
from engine.text import plain

__all__ = ["Page", "Source", "date_of", "elapsed_of", "epoch_seconds", "get_json", "kind_of", "where_of"]

_REDIRECT = range(300, 400)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer, decoded."""

    records: list[Record]
    bad: list[Bad]
    next: str | None
    """Cursor of the page after it; None at the end, and where the API has no pages."""
    date: float | None
    """The answer's `Date`, seconds since the epoch."""
    elapsed: float
    """Seconds from the grant to the last byte."""


class Source(Protocol):
    """One thing that is polled."""

    name: str
    type: str
    namespace: str
    """First part of its keys. Sources with the same namespace see each other's records."""
    identity: str
    """What its records are told apart by, as configured: with another, what is known of its streams means nothing."""
    interval: float
    """Seconds from the start of one read of a stream to the start of the next."""
    timed: bool
    """Whether its records carry a time of their own."""
    max_pages: int
    streams: tuple[str, ...]
    """Each is read on its own. The first part of a name is the source's."""

    def first_url(self, stream: str) -> httpx.URL:
        """What a read of a stream asks first; the limits of the stream are those that it meets."""
        ...

    async def page(self, client: httpx.AsyncClient, stream: str, cursor: str | None) -> Page:
        """Ask for one page. Raises ReadError and its kind DriftError, and ThrottledError."""
        ...


async def get_json(
    client: httpx.AsyncClient, url: httpx.URL, headers: dict[str, str] | None = None
) -> tuple[Any, httpx.Response]:
    """GET `url` and decode its JSON.

    Raises:
        ReadError: With what went wrong, and where, in words.
        ThrottledError: A limit cools down for longer than a request waits.
    """
    # What happened comes first: where there is little room, it is what must be read.
    where = f"({where_of(url)})"
    try:
        response = await client.get(url, headers=headers)
    except httpx.HTTPError as error:
        raise ReadError(f"{_describe(error)} {where}") from error
    status = response.status_code
    if status in _REDIRECT:
        # Without its query, as every URL that is told: ours may have been passed on in it.
        target = plain(response.headers.get("location", "nowhere").partition("?")[0])
        raise ReadError(f"redirects ({status}) to {target}; put that URL in the config if you trust it {where}")
    if not response.is_success:
        raise ReadError(f"HTTP {status} {where}", _sample(response))
    try:
        return json.loads(response.content, parse_constant=_refuse_constant, parse_float=_finite), response
    except (ValueError, RecursionError) as error:
        kind = response.headers.get("content-type", "no content type")
        said = [plain(error, 100), _sample(response)]
        raise DriftError(f"not JSON ({plain(kind, 60)}) {where}", ": ".join(filter(None, said))) from error


def where_of(url: httpx.URL) -> str:
    """A URL for people: without its user, password and query, which may hold secrets."""
    return plain(f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{url.path}")


def epoch_seconds(value: Any) -> float:
    """A time as epoch seconds, from epoch seconds, milliseconds, or ISO 8601. Raises ValueError.

    A number from 1e11 on is milliseconds: as seconds it would be after the year 5138. ISO 8601 without a zone is UTC.
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError(f"{plain(value, 40)!r} is no time") from None
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"finds {kind_of(value)}, not a time")  # noqa: TRY004 - one kind of error for one kind of fault
    if not 0 <= value <= MAX_TIME * 1000:  # NaN too; and an integer may be too large for a float
        raise ValueError("it is outside 1970 to 9999")
    return value / 1000.0 if value >= 1e11 else float(value)  # noqa: PLR2004


def kind_of(value: Any) -> str:
    """What a value decoded from JSON is, for people."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def date_of(response: httpx.Response) -> float | None:
    """The answer's `Date`, seconds since the epoch."""
    return http_date(response.headers.get("date", ""))


def elapsed_of(response: httpx.Response) -> float:
    """Seconds from the grant to the last byte of the body."""
    return float(response.extensions.get("elapsed", 0.0))


def _describe(error: httpx.HTTPError) -> str:
    kinds: list[tuple[type[httpx.HTTPError], str]] = [
        (httpx.ConnectTimeout, "no connection in time"),
        (httpx.ConnectError, "cannot connect"),
        (httpx.TimeoutException, "no answer in time"),
        (httpx.RemoteProtocolError, "broke off"),
        (httpx.DecodingError, "bad body"),
        (httpx.ProxyError, "the proxy failed"),
        (httpx.NetworkError, "the connection failed"),
    ]
    what = next((words for kind, words in kinds if isinstance(error, kind)), type(error).__name__)
    detail = plain(error, 200)
    return f"{what}: {detail}" if detail else what


def _sample(response: httpx.Response) -> str:
    # Far more than is shown: `plain` must see a secret whole to know it.
    return plain(response.content[: 64 * 2**10].decode("utf-8", "replace"), 120).strip()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value
