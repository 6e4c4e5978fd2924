"""What the demo's server does to its clients: limits that change with time, hints, bans, delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import Rate

__all__ = ["CALM", "STORM", "Ban", "Hint", "LimitRule", "Phase", "Scenario", "scenario_names", "scenario_of"]

Hint = Literal["seconds", "date", "none"]
"""The form of `Retry-After`."""


@dataclass(frozen=True, slots=True)
class Ban:
    """Starts at a refusal; every request during it makes it `growth` times as long, counted from that request."""

    seconds: float
    growth: float = 2.0
    cap_seconds: float = 60.0
    status: int = 429
    """429 goes on as the limit; 403 answers with the HTML of a block."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A limit's behaviour for a while."""

    rate: Rate
    seconds: float = float("inf")
    hints: tuple[Hint, ...] = ("seconds",)
    """Taken in turn, one for each refusal."""
    html_share: float = 0.0
    """Share of refusals with an HTML body instead of the documented JSON."""
    ban: Ban | None = None
    latency_seconds: float = 0.0
    """Each answer waits this long, as in a queue."""


@dataclass(frozen=True, slots=True)
class LimitRule:
    """The phases of the limit for the paths that match `path` (`*`: any characters); they repeat."""

    path: str
    phases: tuple[Phase, ...]
    count_refused: bool = False

    def phase_at(self, elapsed: float) -> Phase:
        """The phase after `elapsed` seconds of the scenario."""
        cycle = sum(phase.seconds for phase in self.phases)
        # One endless phase makes the cycle endless; x % inf is x.
        left = elapsed % cycle
        for phase in self.phases:
            if left < phase.seconds:
                return phase
            left -= phase.seconds
        return self.phases[-1]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named set of limits. A request is charged to all that match its path, or refused and charged to none."""

    name: str
    rules: tuple[LimitRule, ...]


_GENERAL = LimitRule("*", (Phase(Rate(800, 10.0)),))
_TRADES = Rate(300, 10.0)

CALM = Scenario("calm", (_GENERAL, LimitRule("/v2/trades*", (Phase(_TRADES),))))
"""The published limits and nothing else."""

STORM = Scenario(
    "storm",
    (
        _GENERAL,
        LimitRule(
            "/v2/trades*",
            (
                Phase(_TRADES, 5),
                Phase(Rate(12, 10.0), 20, hints=("seconds", "date"), html_share=0.3, latency_seconds=0.3),
                Phase(
                    Rate(5, 10.0),
                    15,
                    hints=("seconds", "date"),
                    html_share=0.3,
                    ban=Ban(3.0, cap_seconds=20.0),
                    latency_seconds=0.8,
                ),
                Phase(_TRADES, 50),
            ),
        ),
    ),
)
"""Tightens under the client, bans, relaxes, and again: back-off within seconds, a recovery each minute and a half."""

_SCENARIOS = {scenario.name: scenario for scenario in (CALM, STORM)}


def scenario_names() -> list[str]:
    """All that can be asked for."""
    return sorted(_SCENARIOS)


def scenario_of(name: str) -> Scenario:
    """The scenario of that name. Raises ValueError, which lists the names."""
    try:
        return _SCENARIOS[name]
    except KeyError:
        raise ValueError(f"no scenario {name!r}; there are {', '.join(scenario_names())}") from None
