"""The newest signals, newest first."""

from __future__ import annotations

from tui_app.format import Line, count, line, rule
from tui_app.panes.signals import signal_line
from tui_app.view import View, matches

__all__ = ["feed_lines"]


def feed_lines(view: View, width: int, height: int, wanted: str = "") -> list[Line]:
    """The list, its title first."""
    if height <= 0:
        return []
    signals = view.snapshot.signals
    shown = [each for each in signals if matches(wanted, each.source, each.summary)] if wanted else list(signals)
    title = "Newest signals"
    if wanted:
        title += f" {count(len(shown))} of {count(len(signals))}"
    lines = [rule(title, width, note=view.note)]
    if not shown:
        lines.append(line(" ", ("none match the filter" if wanted and signals else "none yet", "dim")))
    lines += [signal_line(each.seen_time, each.source, each.summary, width, late=each.late) for each in shown]
    return lines[:height]
