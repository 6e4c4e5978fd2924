"""A field of the config exists if and only if changing it changes what the engine does: one case for each."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from engine.config import Config
from tests.support.engines import WALLET, Api, ListSink, items_source, running, trade, trades_source, wait
from tests.support.virtual import VirtualClock, run


@dataclass
class Seen:
    """What came of a run."""

    requests: list[httpx.Request] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    failures: int = 0
    files: list[str] = field(default_factory=list)
    polled: bool = False
    """Whether asking for a read at the end was granted."""


Script = Callable[[Api, VirtualClock], Any]


def observe(folder: Path, config: dict[str, Any], script: Script, seconds: float = 60.0) -> Seen:
    """Run an engine on `config` while `script` drives the API."""
    seen = Seen()

    async def main() -> None:
        clock = VirtualClock()
        api = Api(clock)
        sink = ListSink()

        async def answer(request: httpx.Request) -> httpx.Response:
            seen.requests.append(request)
            seen.sent.append(clock.mono())
            return await api(request)

        await script(api, clock)
        async with running(folder, Config.model_validate(config), clock, httpx.MockTransport(answer), sink) as engine:
            end = clock.mono() + seconds
            if hasattr(script, "later"):
                await script.later(api, clock)
            await clock.sleep_until(end)
            seen.failures = engine.snapshot().sources[0].failures
            seen.polled = (await engine.poll_now(engine.snapshot().sources[0].name, "ana")).ok
        seen.signals = [json.loads(line) for line in sink.lines]

    run(main)
    seen.files = sorted(path.name for path in folder.iterdir() if path.suffix == ".jsonl")
    return seen


def script(before: Script, later: Script | None = None) -> Script:
    if later is not None:
        before.later = later  # type: ignore[attr-defined]
    return before


async def nothing(_api: Api, _clock: VirtualClock) -> None:
    pass


def items(*ids: Any) -> Script:
    async def before(api: Api, _clock: VirtualClock) -> None:
        api.items = [{"id": each, "kind": "a", "when": 1_790_000_000} for each in ids]

    return before


def comes_and_goes() -> Script:
    async def later(api: Api, clock: VirtualClock) -> None:
        await wait(clock, 12)
        api.items = [{"id": 2}]
        await wait(clock, 12)
        api.items = []
        await wait(clock, 20)
        api.items = [{"id": 2}]

    return script(items(1), later)


def row_of_age(age: float, after: float = 12.0) -> Script:
    async def before(api: Api, _clock: VirtualClock) -> None:
        api.add(trade(1, api.now))

    async def later(api: Api, clock: VirtualClock) -> None:
        await wait(clock, after)
        api.add(trade(2, api.now - age))

    return script(before, later)


def only_row_of_age(age: float) -> Script:
    async def before(_api: Api, _clock: VirtualClock) -> None:
        pass

    async def later(api: Api, clock: VirtualClock) -> None:
        await wait(clock, 12)
        api.add(trade(2, api.now - age))

    return script(before, later)


def refusals(count: int) -> Script:
    async def before(api: Api, _clock: VirtualClock) -> None:
        api.faults.extend(httpx.Response(429) for _ in range(count))

    return before


def refused_for(seconds: int) -> Script:
    async def before(api: Api, _clock: VirtualClock) -> None:
        api.faults.append(httpx.Response(429, headers={"retry-after": str(seconds)}))

    return before


async def slow(api: Api, _clock: VirtualClock) -> None:
    api.latency = 10.0


def many_rows() -> Script:
    async def before(api: Api, _clock: VirtualClock) -> None:
        api.page_rows = 5
        api.add(trade(0, api.now))

    async def later(api: Api, clock: VirtualClock) -> None:
        await wait(clock, 12)
        api.add(*(trade(number, api.now) for number in range(1, 60)))

    return script(before, later)


@dataclass(frozen=True)
class Case:
    """Two values of a field, and what they make different."""

    one: Any
    other: Any
    differs: Callable[[Seen], Any]
    script: Script = nothing
    source: dict[str, Any] = field(default_factory=items_source)
    base: dict[str, Any] = field(default_factory=dict)


def signals(seen: Seen) -> int:
    return len(seen.signals)


def requests(seen: Seen) -> int:
    return len(seen.requests)


def paths(seen: Seen) -> set[str]:
    return {f"{request.url.host}{request.url.path}" for request in seen.requests}


def user(seen: Seen) -> str:
    return str(seen.requests[0].url.params.get("user"))


def longest(seen: Seen) -> float:
    return max(later - earlier for earlier, later in zip(seen.sent, seen.sent[1:], strict=False))


def shortest(seen: Seen) -> float:
    return min(later - earlier for earlier, later in zip(seen.sent, seen.sent[1:], strict=False))


LATE = {"lateness_seconds": 200.0}
LOOK = {"start": "lookback"}
SLOW = [{"match": "http://api.example/items*", "rate": "2/60s"}]
TWO = [items_source("a"), items_source("b")]
LIMIT = {"match": "http://api.example/*", "rate": "600/60s"}

CASES: dict[str, Case] = {
    "Config.dedup_window_seconds": Case(5.0, 90.0, signals, comes_and_goes()),
    "Config.lateness_seconds": Case(60.0, 10.0, signals, row_of_age(30), trades_source()),
    "Config.max_age_seconds": Case(300.0, 50.0, signals, only_row_of_age(100), trades_source(), LATE),
    "Config.max_entries": Case(5, 6, lambda seen: seen.failures > 0, items(1, 2, 3)),
    "Config.start": Case("now", "lookback", signals, items(1)),
    "Config.min_interval_seconds": Case(
        0.05, 2.0, shortest, source=trades_source(wallets=["0x" + "11" * 20, "0x" + "22" * 20])
    ),
    "Config.default_rate": Case("600/60s", "2/60s", requests),
    "Config.headroom": Case(0.0, 0.5, requests, base={"default_rate": "6/60s"}),
    "Config.backoff": Case({"base_seconds": 1.0}, {"base_seconds": 60.0}, longest, refusals(2)),
    "Config.max_in_flight": Case(1, 2, requests, slow, base={"sources": TWO}),
    "Config.max_cooldown_seconds": Case(500.0, 700.0, lambda seen: seen.polled, refused_for(600)),
    "Config.limits": Case([], SLOW, requests),
    "Config.sources": Case([items_source("a")], [items_source("a"), items_source("b")], requests),
    "Config.sinks": Case([], [{"type": "jsonl", "path": "out.jsonl"}], lambda seen: seen.files, items(1), base=LOOK),
    "Backoff.base_seconds": Case(1.0, 60.0, longest, refusals(2)),
    "Backoff.cap_seconds": Case(5.0, 600.0, longest, refusals(5), base={"backoff": {"base_seconds": 5.0}}),
    "Backoff.max_tries": Case(1, 6, shortest, refusals(3), items_source(poll_interval_seconds=20.0)),
    "LimitConfig.match": Case("http://api.example/items", "http://api.example/other", requests, base={"limits": SLOW}),
    "LimitConfig.rate": Case("600/60s", "2/60s", requests, base={"limits": [LIMIT]}),
    "LimitConfig.methods": Case(["GET"], ["POST"], requests, base={"limits": SLOW}),
    "LimitConfig.sources": Case(["a"], ["a", "b"], requests, base={"limits": SLOW, "sources": TWO}),
    "LimitConfig.cost": Case({}, {"http://api.example/*": 2}, requests, base={"limits": SLOW}),
    "LimitConfig.max_in_flight": Case(1, 2, requests, slow, base={"limits": [LIMIT], "sources": TWO}),
    "HttpJsonSource.type": Case("http_json", "polymarket_trades", paths),
    "HttpJsonSource.name": Case("a", "b", lambda seen: seen.signals[0]["source"], items(1), base=LOOK),
    "HttpJsonSource.poll_interval_seconds": Case(5.0, 20.0, requests),
    "HttpJsonSource.url": Case("http://api.example/items", "http://api.example/more", paths),
    "HttpJsonSource.headers": Case({}, {"x-key": "k"}, lambda seen: seen.requests[0].headers.get("x-key")),
    "HttpJsonSource.records": Case("@", "[?id > `1`]", signals, items(1, 2), base=LOOK),
    "HttpJsonSource.id": Case(["id"], ["kind"], signals, items(1, 2), base=LOOK),
    "HttpJsonSource.time": Case(None, "when", lambda seen: seen.signals[0]["event_time"], items(1), base=LOOK),
    "PolymarketTradesSource.wallets": Case([], [WALLET], user, source=trades_source()),
    "PolymarketTradesSource.base_url": Case("http://one.example", "http://two.example", paths, source=trades_source()),
    "PolymarketTradesSource.max_pages": Case(3, 20, signals, many_rows(), trades_source()),
    "JsonlSink.path": Case("one.jsonl", "two.jsonl", lambda seen: seen.files, items(1), base=LOOK),
}  # fmt: skip

# The same reader serves both kinds of source.
SAME = {"PolymarketTradesSource.name", "PolymarketTradesSource.poll_interval_seconds", "PolymarketTradesSource.type"}
# There is but one kind of sink: its type tells what is meant, and whoever adds a second adds a case.
ONLY_ONE = {"JsonlSink.type"}


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and all that its fields hold."""
    found = {model}

    def look(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.update(models(annotation))
        for part in typing.get_args(annotation):
            look(part)

    for each in model.model_fields.values():
        look(each.annotation)
        for extra in each.metadata:
            look(extra)
    return found


def test_every_field_has_its_case() -> None:
    fields = {f"{model.__name__}.{name}" for model in models(Config) for name in model.model_fields}
    assert fields == CASES.keys() | SAME | ONLY_ONE


def config_with(name: str, value: Any, case: Case, folder: Path) -> dict[str, Any]:
    owner, _, key = name.partition(".")
    source = dict(case.source)
    config: dict[str, Any] = {"default_rate": "600/60s"} | case.base
    if owner == "Config":
        config[key] = value
    elif owner == "Backoff":
        config["backoff"] = {"cap_seconds": 600.0} | config.get("backoff", {}) | {key: value}
    elif owner == "LimitConfig":
        config["limits"] = [{**config["limits"][0], key: value}]
    elif owner == "JsonlSink":
        config["sinks"] = [{"type": "jsonl", key: value}]
    elif value == "polymarket_trades":
        source = trades_source()
    else:
        source[key] = value
    config.setdefault("sources", [source])
    if config.get("sinks"):
        config["sinks"] = [{**sink, "path": str(folder / sink["path"])} for sink in config["sinks"]]
    return config


@pytest.mark.parametrize("name", CASES)
def test_changing_it_changes_what_happens(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    seen = []
    for index, value in enumerate((case.one, case.other)):
        folder = tmp_path / str(index)
        folder.mkdir()
        seen.append(case.differs(observe(folder, config_with(name, value, case, folder), case.script)))
    assert seen[0] != seen[1]
