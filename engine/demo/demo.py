"""The demo put together: a market, its server's app, and the config that polls it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from engine.demo.app import create_app
from engine.demo.limits import RequestLog
from engine.demo.scenarios import scenario_of
from engine.demo.synthetic import SyntheticMarket
from engine.demo.tape import Tape

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from engine.clock import Clock
    from engine.demo.market import Market

__all__ = ["Demo"]

_BUSY_WALLETS = 4


class Demo:
    """An upstream to watch and to test against; serve `app`, poll it with `config(base_url)`, look into `log`."""

    def __init__(
        self,
        scenario: str = "calm",
        *,
        clock: Clock,
        seed: int = 0,
        tape: Path | None = None,
        tape_speed: float | None = None,
        log_file: Path | None = None,
    ) -> None:
        """Open the market now.

        Args:
            scenario: A name from `scenario_names()`; ValueError for another.
            clock: Whose time the demo lives in.
            seed: The same seed and start make the same market.
            tape: Play this recording instead of a made-up market; ConfigError when it cannot be used.
            tape_speed: Tape seconds per real second; without it the tape lasts ten minutes.
            log_file: Append every request to this file as a JSON line.
        """
        self.scenario = scenario_of(scenario)
        rng = random.Random(seed)
        start = clock.wall()
        self.market: Market = (
            SyntheticMarket(rng, start) if tape is None else Tape.load(tape, start, rng, speed=tape_speed)
        )
        self.log = RequestLog(file=log_file)
        self.app: Starlette = create_app(self.market, self.scenario, clock, rng, self.log)

    def config(self, base_url: str) -> dict[str, Any]:
        """A polltop config, as data, that polls this demo at `base_url` within its published limits."""
        base_url = base_url.rstrip("/")
        return {
            "headroom": 0.1,
            "backoff": {"base_seconds": 1.0, "cap_seconds": 15.0, "max_tries": 6},
            "limits": [
                {"match": f"{base_url}/*", "rate": "800/10s"},
                {"match": f"{base_url}/v2/trades*", "rate": "300/10s"},
            ],
            "sources": self._sources(base_url),
        }

    def _sources(self, base_url: str) -> list[dict[str, Any]]:
        if not isinstance(self.market, Tape):
            busy = self.market.busiest(_BUSY_WALLETS)
            return [
                _trades(base_url, "feed", 1.0),
                {**_trades(base_url, "wallets", 2.0), "wallets": busy},
            ]
        if self.market.is_v1:
            # No `time`: rows served as recorded are years old, and would be history at first sight.
            identity = ["type", "transactionHash", "proxyWallet", "conditionId", "asset", "side"]
            source = {"name": "tape", "type": "http_json", "url": f"{base_url}/records", "id": identity}
            return [{**source, "poll_interval_seconds": 1.0}]
        return [_trades(base_url, "tape", 1.0)]


def _trades(base_url: str, name: str, interval: float) -> dict[str, Any]:
    return {"name": name, "type": "polymarket_trades", "base_url": base_url, "poll_interval_seconds": interval}
