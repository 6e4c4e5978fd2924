"""What happened: the newest event at the bottom, as in a log."""

from __future__ import annotations

from collections.abc import Sequence

from engine.snapshot import Event
from tui_app.format import Line, Role, clock, harmless, line, rule

__all__ = ["event_lines"]

LEVELS: dict[str, tuple[str, Role]] = {"info": ("info", "dim"), "warning": ("warn", "warn"), "error": ("ERR ", "bad")}


def event_lines(events: Sequence[Event], width: int, height: int, note: str = "") -> list[Line]:
    """The list, its title first."""
    lines = [rule("Events", width, note=note)]
    if not events:
        return [*lines, line(" ", ("none yet", "dim"))]
    for event in events[-(height - 1) :] if height > 1 else ():
        word, role = LEVELS[event.level]
        text_role: Role = "" if event.level == "info" else role
        lines.append(line(" ", (clock(event.time), "dim"), " ", (word, role), "  ", (harmless(event.text), text_role)))
    return lines
