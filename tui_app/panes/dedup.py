"""The windows of identifiers: how full, how old, what they let through and what they held back."""

from __future__ import annotations

from engine.snapshot import WindowView
from tui_app.format import Line, Role, bar, brief, count, line, percent, rule, seconds, words
from tui_app.view import View

__all__ = ["dedup_lines"]

ROOMY = 36
NEARLY_FULL = 0.9


def _fill(window: WindowView) -> float:
    return window.entries / window.capacity if window.capacity else 0.0


def _facts(window: WindowView, width: int) -> list[Line]:
    inner = width - 2
    share = percent(window.entries, window.capacity)
    role: Role = "warn" if window.evicted_early or _fill(window) > NEARLY_FULL else "bar"
    held = f"held {brief(window.held)}"
    oldest = f"oldest {seconds(window.oldest_age)} of {seconds(window.window_seconds)}"
    if width < ROOMY:
        oldest = f"{seconds(window.oldest_age)} of {seconds(window.window_seconds)}"
    early = f"EARLY {brief(window.evicted_early)}" if window.evicted_early else ""
    seen = window.new + window.duplicates
    keys = f"{brief(window.entries)}/{brief(window.capacity)}"
    hits = f"dup {percent(window.duplicates, seen)}"
    counters = (
        early,
        f"new {brief(window.new)}",
        hits,
        f"forced {brief(window.forced)}",
        f"gone {brief(window.expired)}",
    )
    size = min(20, inner - len(keys) - 8)
    return [
        line(" ", (bar(window.entries, window.capacity, size), role), f" {share:>5}  ", keys),
        line(" ", words((oldest, held, f"claims {window.claims}"), inner)),
        line(" ", (words(counters, inner), "warn" if window.evicted_early else "")),
    ]


def dedup_lines(view: View, width: int, height: int) -> list[Line]:
    """The pane, its title first: the fullest window, and below it the others where there is room."""
    windows = sorted(view.snapshot.windows, key=_fill, reverse=True)
    title = f"Dedup window {windows[0].name}" if len(windows) > 1 else "Dedup window"
    lines = [rule(title, width, note=view.note)]
    if not windows:
        return [*lines, line(" ", ("no window yet", "dim"))]
    lines += _facts(windows[0], width)
    room = height - len(lines)
    if room >= 3 and width < 2 * ROOMY:  # noqa: PLR2004
        lines += _narrow_extra(windows[0])[:room]
    elif room > 1:
        lines += [line(), *_totals(windows[0])]
    for window in windows[1:]:
        if height - len(lines) < 5:  # noqa: PLR2004
            break
        lines += [line(), rule(window.name, width), *_facts(window, width)]
    return lines


def _narrow_extra(window: WindowView) -> list[Line]:
    return [
        line(" ", f"keys    {count(window.entries)}"),
        line(" ", f"of      {count(window.capacity)}"),
        line(" ", f"expired {count(window.expired)}"),
        line(" ", f"early   {count(window.evicted_early)}"),
    ]


def _totals(window: WindowView) -> list[Line]:
    rows = (
        ("identifiers", count(window.entries), f"of {count(window.capacity)}"),
        ("held", count(window.held), "still served by their source: they do not age"),
        ("being recorded", count(window.claims), ""),
        ("new", count(window.new), ""),
        ("duplicates", count(window.duplicates), ""),
        ("expired", count(window.expired), f"after {seconds(window.window_seconds)}"),
        ("evicted early", count(window.evicted_early), "each may be acted on again"),
        ("forced", count(window.forced), "by an operator"),
    )
    return [line(f" {name:<16}{value:>12}  ", (note, "dim")) for name, value, note in rows]
