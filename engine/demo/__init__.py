"""The embedded upstream: a small market API with real limits and real misbehaviour, to watch and to test against."""

from engine.demo.app import create_app
from engine.demo.demo import Demo
from engine.demo.limits import LoggedRequest, RequestLog, SlidingLimit, worst_window
from engine.demo.scenarios import Ban, LimitRule, Phase, Scenario, scenario_names, scenario_of
from engine.demo.server import serve, serve_in_thread
from engine.demo.synthetic import SyntheticMarket
from engine.demo.tape import Tape

__all__ = [
    "Ban",
    "Demo",
    "LimitRule",
    "LoggedRequest",
    "Phase",
    "RequestLog",
    "Scenario",
    "SlidingLimit",
    "SyntheticMarket",
    "Tape",
    "create_app",
    "scenario_names",
    "scenario_of",
    "serve",
    "serve_in_thread",
    "worst_window",
]
