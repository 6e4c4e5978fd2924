"""What the monitor's tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual import _wait

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_user_themes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have themes of their own, and a terminal without colour."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NO_COLOR", "SSH_CONNECTION", "SSH_TTY", "COLORTERM", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot waits until the process has been idle for 20 ms, a thousand times in these tests; 5 ms do."""
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", 0.005)
    monkeypatch.setattr(_wait, "SLEEP_IDLE", 0.000_25)
