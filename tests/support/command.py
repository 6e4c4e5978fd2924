"""The real command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]


def environment(**extra: str) -> dict[str, str]:
    """Of a user without proxies, config or state of their own."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1", "TERM": "xterm-256color"} | extra


def command(*arguments: object) -> list[str]:
    """`polltop ARGUMENTS`, by the interpreter that runs the tests."""
    return [sys.executable, "-m", "tui_app", *map(str, arguments)]


def start(
    *arguments: object,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    stdin: int = subprocess.DEVNULL,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start it."""
    return subprocess.Popen(
        command(*arguments), stdin=stdin, stdout=stdout, stderr=stderr, env=env or environment(), text=True, cwd=REPO
    )


@contextmanager
def running(*arguments: object, **popen: Any) -> Iterator[subprocess.Popen[str]]:
    """Start it; nothing of it outlives the test, whatever the test finds."""
    process = start(*arguments, **popen)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*arguments: object, timeout: float = 30.0, **popen: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(*arguments, **popen)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out or "", err or "")


def summary(stderr: str) -> dict[str, Any]:
    """The last line of a JSON log."""
    last: dict[str, Any] = json.loads(stderr.splitlines()[-1])
    assert last["event"] == "summary", stderr
    return last
