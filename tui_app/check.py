"""`polltop check` and `polltop explain`: what a config will do, in words and numbers, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import httpx

from engine.clock import Clock
from engine.config import Config
from engine.errors import ConfigError
from engine.limits import Limit
from engine.plan import Plan, SourcePlan, matcher_of, plan_of
from engine.text import plain
from tui_app.format import count, percent, seconds

__all__ = ["check_lines", "explain_lines"]


def check_lines(config: Config, origin: str, clock: Clock) -> list[str]:
    """The plan of a config."""
    plan = plan_of(config, clock)
    lines = [f"{origin}: {_some(len(plan.sources), 'source')}, {_some(len(config.limits), 'limit')}"]
    for source, given in zip(plan.sources, config.sources, strict=True):
        timed = getattr(given, "time", "") is not None
        lines += ["", *_source_lines(source), *_window_lines(plan, config, timed=timed)]
    lines.append("")
    lines += [f"warning: {warning}" for warning in plan.warnings] or ["All beats fit."]
    if plan.unmet:
        lines.append(f"No source meets: {', '.join(plain(name, 200) for name in plan.unmet)}")
    return lines


def _source_lines(source: SourcePlan) -> Iterable[str]:
    each = "each " if source.streams > 1 else ""
    yield (
        f"{source.name}: {source.type}, {_some(source.streams, 'stream')}, {each}every {seconds(source.interval)}: "
        f"{source.per_second:.3g} requests/s"
    )
    rows = [("asks", "of all", "granted", "used", "limit")]
    rows += [
        (
            _rate(load.by_source[source.name]),
            _rate(load.asked),
            _rate(load.granted),
            percent(load.part, 1.0),
            _name(load.limit),
        )
        for load in sorted(source.loads, key=lambda load: -load.part)
    ]
    yield from _table(rows)
    if source.slowdown > 1.0:
        yield f"  does not fit: a beat will take {seconds(source.interval * source.slowdown)}"
    else:
        yield f"  fits: {1.0 / max(load.part for load in source.loads):.3g} times as many requests would"


def _window_lines(plan: Plan, config: Config, *, timed: bool) -> Iterable[str]:
    if timed:
        full = plan.max_entries / plan.kept_seconds
        yield (
            f"  window: a record is kept {seconds(plan.kept_seconds)}: {count(round(plan.kept_seconds))} entries for "
            f"each new record a second; max_entries ({count(plan.max_entries)}) is reached at {count(round(full))}"
        )
    else:
        yield (
            "  window: the records of a page, and those that left it in the last "
            f"{seconds(config.dedup_window_seconds)}; max_entries {count(plan.max_entries)} has room for pages of "
            f"{count(plan.max_entries // 2)}"
        )


def explain_lines(config: Config, url: str, method: str, source: str, clock: Clock) -> list[str]:
    """The limits that a request would be charged. Raises ConfigError for a URL or source that is none."""
    names = [each.name for each in config.sources]
    if source and source not in names:
        raise ConfigError([f"--source: no source is called {plain(source, 80)}; there are {', '.join(names)}"])
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError([f"URL: {plain(url, 200)}: {error}"]) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError([f"URL: {plain(url, 200)}: give all of it, as https://api.example.com/items?page=1"])
    charges = matcher_of(config, clock).charges(parsed, method, source)
    asker = f" of {source}" if source else ""
    lines = [f"{method.upper()} {plain(parsed, 1000)}{asker}"]
    rows = [("costs", "of", "granted", "limit")]
    rows += [
        (str(cost), f"{limit.rate.requests} in {seconds(limit.window)}", _rate(1.0 / limit.gap), _name(limit))
        for limit, cost in sorted(charges.items, key=lambda item: item[0].kind == "gap")
    ]
    return [*lines, *_table(rows)]


def _name(limit: Limit) -> str:
    kinds = {"limit": "", "default": "default_rate, as no limit matches: ", "gap": "min_interval_seconds: "}
    bound = "" if limit.max_in_flight is None else f", {limit.max_in_flight} at a time"
    return f"{kinds[limit.kind]}{plain(limit.name, 300)}{bound}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """All but the last column to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = (value.rjust(width) for value, width in zip(row, widths, strict=False))
        yield "  " + "  ".join((*cells, row[-1]))


def _rate(per_second: float) -> str:
    return f"{per_second:.3g}/s"


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
