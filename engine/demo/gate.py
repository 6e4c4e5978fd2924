"""A scenario at work: judges each request by the limits of its path, bans, and words the refusal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import formatdate
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, JSONResponse, Response

from engine.demo.limits import SlidingLimit

if TYPE_CHECKING:
    import random

    from engine.clock import Clock
    from engine.demo.scenarios import Hint, LimitRule, Phase, Scenario

__all__ = ["Gate", "Refusal", "Verdict"]

_LIMITED_HTML = """<!DOCTYPE html><html><head><title>Error 1015</title></head><body><h1>Error 1015</h1>
<h2>You are being rate limited</h2><p>The owner of this website has banned you temporarily.</p></body></html>"""
_BLOCKED_HTML = """<!DOCTYPE html><html><head><title>Attention Required!</title></head><body>
<h1>Sorry, you have been blocked</h1></body></html>"""
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request turned away, and how it is told."""

    wait_seconds: float
    status: int
    hint: Hint
    html: bool

    def response(self, trace_id: str, wall: float) -> Response:
        headers = {}
        if self.hint == "seconds":
            headers["retry-after"] = str(max(1, math.ceil(self.wait_seconds)))
        elif self.hint == "date":
            # A date has whole seconds only: rounded up, it never asks for less than the wait.
            headers["retry-after"] = formatdate(math.ceil(wall + self.wait_seconds), usegmt=True)
        if self.status != _TOO_MANY:
            return HTMLResponse(_BLOCKED_HTML, self.status, headers)
        if self.html:
            return HTMLResponse(_LIMITED_HTML, self.status, headers)
        body = {"error": "rate limit exceeded", "code": "rate_limited", "retryable": True, "trace_id": trace_id}
        return JSONResponse(body, self.status, headers)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a request."""

    limit: str | None
    latency_seconds: float
    refusal: Refusal | None


class _RuleState:
    """One rule, what has arrived under it, and its ban."""

    def __init__(self, rule: LimitRule) -> None:
        self.rule = rule
        self.phase: Phase = rule.phases[0]
        self.limit = SlidingLimit(self.phase.rate.requests, self.phase.rate.seconds, count_refused=rule.count_refused)
        self.ban_until = -math.inf
        self._ban_seconds = 0.0
        self._ban_status = _TOO_MANY
        self._refusals = 0

    @property
    def label(self) -> str:
        return f"{self.rule.path} {self.phase.rate}"

    def enter(self, elapsed: float) -> None:
        self.phase = self.rule.phase_at(elapsed)
        self.limit.retune(self.phase.rate.requests, self.phase.rate.seconds)

    def start_ban(self, now: float) -> None:
        if (ban := self.phase.ban) is not None:
            self._ban_seconds, self._ban_status = ban.seconds, ban.status
            self.ban_until = now + ban.seconds

    def grow_ban(self, now: float) -> None:
        # A ban may outlast its phase, and no longer grows then: a storm passes even for who hammers on.
        if (ban := self.phase.ban) is not None:
            self._ban_seconds = min(ban.cap_seconds, self._ban_seconds * ban.growth)
            self.ban_until = max(self.ban_until, now + self._ban_seconds)

    def refuse(self, wait: float, rng: random.Random, *, banned: bool) -> Refusal:
        hint = self.phase.hints[self._refusals % len(self.phase.hints)]
        self._refusals += 1
        html = rng.random() < self.phase.html_share
        return Refusal(wait, self._ban_status if banned else _TOO_MANY, hint, html)


class Gate:
    """Judges requests as they arrive; its phases count from its making."""

    def __init__(self, scenario: Scenario, clock: Clock, rng: random.Random) -> None:
        self._rules = [_RuleState(rule) for rule in scenario.rules]
        self._clock = clock
        self._rng = rng
        self._opened = clock.mono()

    def judge(self, path: str, now: float) -> Verdict:
        """Accept or refuse a request that arrived at mono time `now`."""
        rules = [state for state in self._rules if fnmatchcase(path, state.rule.path)]
        for state in rules:
            state.enter(now - self._opened)
        refused = self._refusal(rules, now)
        for state in rules:
            if refused is None or state.rule.count_refused:
                state.limit.charge(now)
        latency = max((state.phase.latency_seconds for state in rules), default=0.0)
        if refused is not None:
            # The wait is measured after the charge: a refused request that counts has just made it longer.
            state, banned = refused
            wait = state.ban_until - now if banned else state.limit.wait(now)
            if not banned and state.phase.ban is not None:
                state.start_ban(now)
                wait = max(wait, state.phase.ban.seconds)
            return Verdict(state.label, latency, state.refuse(wait, self._rng, banned=banned))
        tightest = min(rules, key=lambda state: state.phase.rate.requests / state.phase.rate.seconds, default=None)
        return Verdict(None if tightest is None else tightest.label, latency, None)

    def _refusal(self, rules: list[_RuleState], now: float) -> tuple[_RuleState, bool] | None:
        """The rule that refuses, the one that does so longest, and whether it does because of a ban."""
        for state in rules:
            if now < state.ban_until:
                state.grow_ban(now)
                return state, True
        longest = max(rules, key=lambda state: state.limit.wait(now), default=None)
        if longest is None or longest.limit.wait(now) == 0:
            return None
        return longest, False
