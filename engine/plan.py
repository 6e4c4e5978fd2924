"""What a config will do, before anything is sent: who asks how often, under which limits, and whether that fits.

A read of a stream is taken for one request. More pages are asked for only where more than a page is new.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.clock import Clock
from engine.config import Config
from engine.limits import Limit
from engine.matching import Matcher
from engine.sources import source_of

__all__ = ["Load", "Plan", "SourcePlan", "matcher_of", "plan_of"]


@dataclass(slots=True)
class Load:
    """A limit and what is asked of it."""

    limit: Limit
    by_source: dict[str, float]
    """Units a second that each source asks for."""

    @property
    def asked(self) -> float:
        """Units a second, of all sources together."""
        return sum(self.by_source.values())

    @property
    def granted(self) -> float:
        """Units a second that the limit grants after headroom."""
        return 1.0 / self.limit.gap

    @property
    def part(self) -> float:
        """The part of it that is asked for; above 1 it cannot be."""
        return self.asked * self.limit.gap


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source, how often it asks, and the limits that it meets."""

    name: str
    type: str
    streams: int
    interval: float
    loads: tuple[Load, ...]

    @property
    def per_second(self) -> float:
        """Requests a second."""
        return self.streams / self.interval

    @property
    def slowdown(self) -> float:
        """How many times longer than configured a beat will take; 1 where the beats fit."""
        return max(1.0, *(load.part for load in self.loads))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config will do."""

    sources: tuple[SourcePlan, ...]
    loads: tuple[Load, ...]
    """Every limit that some source meets."""
    unmet: tuple[str, ...]
    """Limits of the config that no source meets."""
    kept_seconds: float
    """How long an identifier is kept at least, where records have a time: by the lateness and then by the window."""
    max_entries: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """The beats that cannot fit, with the numbers."""
        intervals = {source.name: source.interval for source in self.sources}
        said = []
        for load in self.loads:
            if load.part <= 1.0 + 1e-9:
                continue
            fits = ", ".join(f"{name} {intervals[name] * load.part:.3g}" for name in load.by_source)
            said.append(
                f"the beats do not fit under {load.limit.name}: {load.asked:.3g}/s are asked for, {load.granted:.3g}/s "
                f"are granted: beats will be skipped; poll_interval_seconds that would fit: {fits}"
            )
        return tuple(said)


def matcher_of(config: Config, clock: Clock) -> Matcher:
    """The limits of a config."""
    return Matcher(
        config.limits,
        default_rate=config.default_rate,
        min_interval=config.min_interval_seconds,
        headroom=config.headroom,
        max_in_flight=config.max_in_flight,
        clock=clock,
    )


def plan_of(config: Config, clock: Clock) -> Plan:
    """The plan of a config. Nothing is sent or written."""
    matcher = matcher_of(config, clock)
    loads: dict[Limit, Load] = {}
    plans = []
    for source in map(source_of, config.sources):
        met: dict[Limit, Load] = {}
        for stream in source.streams:
            for limit, cost in matcher.charges(source.first_url(stream), "GET", source.name).items:
                load = met[limit] = loads.setdefault(limit, Load(limit, {}))
                load.by_source[source.name] = load.by_source.get(source.name, 0.0) + cost / source.interval
        plans.append(SourcePlan(source.name, source.type, len(source.streams), source.interval, tuple(met.values())))
    return Plan(
        sources=tuple(plans),
        loads=tuple(loads.values()),
        unmet=tuple(limit.name for limit in matcher if limit not in loads),
        kept_seconds=config.lateness_seconds + config.dedup_window_seconds,
        max_entries=config.max_entries,
    )
