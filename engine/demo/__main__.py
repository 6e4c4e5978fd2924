"""`python -m engine.demo`: the upstream as a process of its own, for tests and for pollers elsewhere."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import anyio

from engine.clock import SystemClock
from engine.demo import Demo, scenario_names, serve
from engine.errors import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--scenario", default="calm", choices=scenario_names())
    parser.add_argument("--tape", type=Path, help="JSON lines of recorded rows to play")
    parser.add_argument("--tape-speed", type=_speed, help="tape seconds per real second")
    parser.add_argument("--log", type=Path, help="append each request to this file as a JSON line")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        demo = Demo(
            given.scenario,
            clock=SystemClock(),
            seed=given.seed,
            tape=given.tape,
            tape_speed=given.tape_speed,
            log_file=given.log,
        )
        anyio.run(_serve, demo, given.port)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


async def _serve(demo: Demo, port: int) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serve(demo.app, port=port) as url:
            print(f"ready {url}", flush=True)  # noqa: T201
            async for _ in signals:
                break
    demo.log.close()


def _speed(text: str) -> float:
    speed = float(text)
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError("a speed is a number above 0")
    return speed


if __name__ == "__main__":
    sys.exit(main())
