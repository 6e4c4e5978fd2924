"""Faults of a pacer, made on purpose one at a time: the other tests must find each. It takes minutes: `make soak`.

Most were somebody's: slots reserved and lost with their waiter, a burst after idling, a cool-down that those who wait
do not see, an attempt counted by each of twenty waiters, a jitter that shortens the hint, a rate cut by each refusal.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = [f"tests/engine/test_{name}.py" for name in ("turns", "restart", "throttle", "matching", "backoff", "pacing")]

MUTANTS = {
    "no ring: a late slot before one on time is one too many": (
        "engine/limits.py",
        "if over > 0 and (full := self._releases[over - 1] + self.window) > ready:",
        "if over > 10**9 and (full := self._releases[over - 1] + self.window) > ready:",
    ),
    "no grid: the whole budget at once": (
        "engine/limits.py",
        "        ready = self._next\n",
        "        ready = -math.inf\n",
    ),
    "headroom is not kept": ("engine/limits.py", "rate.seconds / (1.0 - headroom)", "rate.seconds / 1.0"),
    "credit for time away": (
        "engine/limits.py",
        "on_grid = since <= self._next and late",
        "on_grid = late < 1e9 or late",
    ),
    "a cool-down is not waited for": (
        "engine/limits.py",
        "if self.shut_until > boot and",
        "if self.shut_until > 1e18 and",
    ),
    "a cool-down is read on the wrong clock": (
        "engine/limits.py",
        "(opens := mono + (self.shut_until - boot)) > ready",
        "(opens := self.shut_until) > ready",
    ),
    "everybody probes": ("engine/limits.py", "if self.probe is not None or (", "if self.probe is self or ("),
    "a cost is charged as one slot": (
        "engine/limits.py",
        "+ self.effective_gap(boot) * cost",
        "+ self.effective_gap(boot)",
    ),
    "a late refusal shortens the wait": (
        "engine/limits.py",
        "if boot + wait > self.cool_until:",
        "if boot + wait > 0:",
    ),
    "no slow start": ("engine/limits.py", "_SLOW_START = 0.5", "_SLOW_START = 1.0"),
    "releases are forgotten over a restart": ("engine/limits.py", "if at > mono - self.window:", "if at > mono:"),
    "what the server says is left is not kept to": (
        "engine/limits.py",
        "gap = max(gap, 1.0 / self._told[0])",
        "gap = max(gap, 0.0)",
    ),
    "requests in flight are not bounded": (
        "engine/limits.py",
        "self.in_flight >= self.max_in_flight",
        "self.in_flight > self.max_in_flight",
    ),
    "an attempt for each refused request": (
        "engine/pacing.py",
        "if limit.round <= grant._round or not limit.probe_due]",
        "if limit.round >= 0]",
    ),
    "who is granted and cancelled in one step keeps the grant": (
        "engine/pacing.py",
        "waiter.grant.settle(Verdict.TRANSIENT)",
        "pass",
    ),
    "who comes overtakes who waits": (
        "engine/pacing.py",
        "None if self._queues or self._paused",
        "None if self._paused",
    ),
    "a pause is not kept": ("engine/pacing.py", "        if not self._paused:\n", "        if self._seq:\n"),
    "those who need little starve those who need much": (
        "engine/pacing.py",
        "elif held is None or not self._holds_up(",
        "elif held is None or True or not self._holds_up(",
    ),
    "urgent requests wait like all": (
        "engine/pacing.py",
        "since - HEAD_START_SECONDS if urgent else since",
        "since if urgent else since",
    ),
    "urgent requests starve the others": (
        "engine/pacing.py",
        "since - HEAD_START_SECONDS if urgent else since",
        "-math.inf if urgent else since",
    ),
    "patience is not looked at": (
        "engine/pacing.py",
        "if waiter.patience < math.inf and",
        "if waiter.patience < 0 and",
    ),
    "the wide limit learns instead of the tight one": (
        "engine/pacing.py",
        "limit = max(limits, key=lambda limit: limit.load(mono))",
        "limit = min(limits, key=lambda limit: limit.load(mono))",
    ),
    "a cut for each refusal": ("engine/throttle.py", "if not self._answered:", "if not self._answered and boot < 0:"),
    "grown beyond what is configured": (
        "engine/throttle.py",
        "self.share = min(1.0, max(self.share, self._peak",
        "self.share = min(2.0, max(self.share, self._peak",
    ),
    "latency is the server's own affair": ("engine/throttle.py", "or queued < _QUEUE", "or queued < 1e9"),
    "whatever takes long is our fault": ("engine/throttle.py", "or queued < _QUEUE", "or queued < 0.0"),
    "the jitter shortens the hint": ("engine/backoff.py", "(hint or 0.0) + jitter", "(hint or 0.0) - jitter"),
}


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_mutant_is_one_change(fault: str) -> None:
    """The list is of the code as it is."""
    path, before, after = MUTANTS[fault]
    assert (ROOT / path).read_text("utf-8").count(before) == 1
    assert before != after


@pytest.mark.soak
@pytest.mark.parametrize("fault", MUTANTS)
def test_the_tests_find(tmp_path: Path, fault: str) -> None:
    path, before, after = MUTANTS[fault]
    for part in ("engine", "tui_app", "tests", "themes"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    mutated = tmp_path / path
    mutated.write_text(mutated.read_text("utf-8").replace(before, after), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "60", *TESTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, f"no test found: {fault}"
    assert "rror" in done.stdout
    assert "SyntaxError" not in done.stdout
