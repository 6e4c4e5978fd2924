"""Which limits a request meets, and what it costs under each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import httpx

from engine.clock import Clock
from engine.config import LimitConfig, Rate
from engine.limits import Limit, LimitState

__all__ = ["Charges", "Matcher"]

SLOW_SECONDS = 1.0
"""From this gap on each slot is written down before it is used. A faster grid does not notice one restart."""


class Charges:
    """The limits that some requests meet, and the units that one takes of each. The same requests, the same object."""

    __slots__ = ("items", "limits", "slow", "tightest")

    def __init__(self, items: tuple[tuple[Limit, int], ...]) -> None:
        self.items = items
        self.limits = tuple(limit for limit, _ in items)
        # The gap of the host is ours: it is never what a server means.
        named = [item for item in items if item[0].kind != "gap"]
        self.tightest = max(named, key=lambda item: item[0].gap * item[1])
        self.slow = any(limit.gap >= SLOW_SECONDS for limit, _ in named)


_CACHED = 4096
"""Requests that are told apart: URLs repeat, but for cursors."""


class Matcher:
    """Finds the limits of a request: its host's gap, and what matches, or else the host's default rate.

    Args:
        limits: Those of the config.
        default_rate: Per host, for what matches none: nothing is ever unlimited.
        min_interval: Least seconds between two requests to one host.
        headroom: Part of every limit but the gap that is left unused.
        max_in_flight: Requests to one host at a time.
        clock: The engine's.
    """

    def __init__(
        self,
        limits: Iterable[LimitConfig],
        *,
        default_rate: Rate,
        min_interval: float,
        headroom: float,
        max_in_flight: int,
        clock: Clock,
    ) -> None:
        self._rules = [
            _Rule(
                limit,
                Limit(limit.name, "limit", limit.rate, headroom=headroom, max_in_flight=limit.max_in_flight),
            )
            for limit in limits
        ]
        self._default_rate = default_rate
        # A gap of zero still bounds the requests in flight.
        self._gap = Rate(1, min_interval) if min_interval > 0 else Rate(1, 1e-9)
        self._headroom = headroom
        self._max_in_flight = max_in_flight
        self._hosts: dict[str, Limit] = {}
        self._defaults: dict[str, Limit] = {}
        self._cache: dict[tuple[str, str, str], Charges] = {}
        self._known: dict[tuple[tuple[Limit, int], ...], Charges] = {}
        self._kept: dict[str, tuple[LimitState, float]] = {}
        self._clock = clock

    def __iter__(self) -> Iterator[Limit]:
        yield from (rule.limit for rule in self._rules)
        yield from self._defaults.values()
        yield from self._hosts.values()

    def restore(self, states: Mapping[str, tuple[LimitState, float]]) -> None:
        """Go on from states by key, each dumped at a time of `Clock.boot`; a default's when its host is first met."""
        self._kept = dict(states)
        for limit in self:
            self._revive(limit)

    def _revive(self, limit: Limit) -> None:
        state, dumped = self._kept.pop(limit.key, (None, 0.0))
        if state is not None:
            limit.restore(state, dumped, self._clock.mono(), self._clock.boot())

    @property
    def hosts(self) -> Iterable[Limit]:
        """The gaps, one a host."""
        return self._hosts.values()

    def charges(self, url: httpx.URL, method: str, source: str) -> Charges:
        """The limits of a request, and what it costs under each."""
        key = (str(url), method, source)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            found = self._cache[key] = self._find(url, method, source)
        return found

    def _find(self, url: httpx.URL, method: str, source: str) -> Charges:
        host = _origin(url)
        if host not in self._hosts:
            self._hosts[host] = Limit(host, "gap", self._gap, max_in_flight=self._max_in_flight)
        # With the query and without; as it is sent, and with %xx decoded: a limit must not be missed by its spelling.
        query = f"?{url.query.decode('ascii')}"
        paths = {url.path, url.raw_path.decode("ascii").partition("?")[0]}
        forms = [host + path + end for path in paths for end in ("", query)]
        matching = [(rule.limit, rule.cost(forms)) for rule in self._rules if rule.is_for(forms, method, source)]
        if not matching:
            if host not in self._defaults:
                self._defaults[host] = Limit(host, "default", self._default_rate, headroom=self._headroom)
                self._revive(self._defaults[host])
            matching = [(self._defaults[host], 1)]
        items = ((self._hosts[host], 1), *matching)
        return self._known.setdefault(items, Charges(items))


class _Rule:
    """A limit of the config, and the requests that it is for."""

    def __init__(self, config: LimitConfig, limit: Limit) -> None:
        self.limit = limit
        self._pattern = _pattern(config.match)
        self._methods = frozenset(config.methods)
        self._sources = frozenset(config.sources)
        self._costs = [(_pattern(match), cost) for match, cost in config.cost.items()]

    def is_for(self, forms: list[str], method: str, source: str) -> bool:
        return (
            (not self._methods or method.upper() in self._methods)
            and (not self._sources or source in self._sources)
            and any(map(self._pattern.fullmatch, forms))
        )

    def cost(self, forms: list[str]) -> int:
        return next((cost for pattern, cost in self._costs if any(map(pattern.fullmatch, forms))), 1)


def _origin(url: httpx.URL) -> str:
    """As httpx would have it, and without the port that a scheme in capitals made it keep."""
    host = f"{url.scheme}://{url.netloc.decode('ascii')}"
    return host.removesuffix({"http": ":80", "https": ":443"}.get(url.scheme, " "))


def _pattern(match: str) -> re.Pattern[str]:
    # Compared with httpx's normal form: lower-case scheme and host, no default port, IDNA.
    head = re.match(r"https?://[^/*]*", match, re.IGNORECASE)
    start = head[0] if head else ""
    rest = match[len(start) :]
    start = re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", start.lower())
    if not start.isascii():
        url = httpx.URL(start)
        start = _origin(url)
    return re.compile(".*".join(re.escape(part) for part in (start + rest).split("*")), re.DOTALL)
