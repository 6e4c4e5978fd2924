"""Any JSON API that answers GET with a list of records: paths in JMESPath name the list, identity and time."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jmespath
from jmespath.exceptions import JMESPathError

from engine.config import HttpJsonSource
from engine.errors import DriftError
from engine.signals import Bad, Part, Record, digest
from engine.sources.base import Page, date_of, elapsed_of, epoch_seconds, get_json, kind_of, where_of
from engine.text import plain

__all__ = ["HttpJson"]


class HttpJson:
    """`http_json`: one stream, one page. Equal identities in a page are one record served twice."""

    type = "http_json"
    max_pages = 1

    def __init__(self, config: HttpJsonSource) -> None:
        self.name = self.namespace = config.name
        self.interval = config.poll_interval_seconds
        self.timed = config.time is not None
        # A record without a time is old only because it was seen: under another URL all of them would be new.
        # Without what `${NAME}` put in: another key to the same door changes nothing. As a digest: it is stored, and a
        # URL may hold a secret that was written out.
        url = None if self.timed else plain(config.url, len(config.url))
        self.identity = digest((json.dumps([config.id, config.time, url]),)).hex()
        self.streams: tuple[str, ...] = (config.name,)
        self._url = httpx.URL(config.url)
        self._headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._path = plain(config.records, 120)
        self._records = jmespath.compile(config.records)
        self._id = [(path, jmespath.compile(path)) for path in config.id]
        self._time = None if config.time is None else (config.time, jmespath.compile(config.time))

    def first_url(self, stream: str) -> httpx.URL:  # noqa: ARG002 - one of each
        return self._url

    async def page(self, client: httpx.AsyncClient, stream: str, cursor: str | None) -> Page:  # noqa: ARG002 - one of each
        data, response = await get_json(client, self._url, self._headers)
        where = f"({where_of(self._url)})"
        try:
            items = self._records.search(data)
        except JMESPathError as error:
            raise DriftError(f"records `{self._path}` cannot be read {where}", plain(error, 200)) from error
        if not isinstance(items, list):
            raise DriftError(
                f"records `{self._path}` finds {kind_of(items)}, not a list; has the answer changed? {where}"
            )
        rows = [self._decode(item) for item in items]
        return Page(
            records=[row for row in rows if isinstance(row, Record)],
            bad=[row for row in rows if isinstance(row, Bad)],
            next=None,
            date=date_of(response),
            elapsed=elapsed_of(response),
        )

    def _decode(self, item: Any) -> Record | Bad:
        try:
            identity: list[Part] = [self.name]
            for path, expression in self._id:
                value = expression.search(item)
                if not isinstance(value, str | int):
                    return Bad.of(f"id `{path}` finds {kind_of(value)}, not text or a whole number", item)
                identity.append(value)
            time = None
            if self._time is not None:
                found = self._time[1].search(item)
                try:
                    time = epoch_seconds(found)
                except ValueError as error:
                    return Bad.of(f"time `{self._time[0]}` {error}", item)
            return Record(tuple(identity), time, item)
        except JMESPathError as error:
            return Bad.of(f"a path cannot be read: {error}", item)
        except (ValueError, RecursionError) as error:
            return Bad.of(str(error), item)
