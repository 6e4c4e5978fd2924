"""Back-off: which limit waits, its attempt, its countdown, and why."""

from __future__ import annotations

from engine.snapshot import CooldownView
from tui_app.format import (
    Line,
    Role,
    bar,
    clock,
    count,
    cut,
    duration,
    harmless,
    line,
    pad,
    rule,
    seconds,
    short_name,
    words,
)
from tui_app.view import View

__all__ = ["backoff_lines"]

ROOMY = 36


def _nearest_first(view: View) -> list[CooldownView]:
    return sorted(view.snapshot.cooldowns, key=lambda cooldown: (cooldown.until, cooldown.limit))


def _countdown(view: View, cooldown: CooldownView) -> tuple[str, float]:
    """The wait that is left, and the part of it that is over."""
    left = view.until_boot(cooldown.until)
    if left is None:
        return "-", 0.0
    if cooldown.probing or left <= 0:
        return "probe", 1.0
    total = max(cooldown.wait, cooldown.until - cooldown.since, 1e-9)
    return duration(left + 0.999), 1 - left / total


def _row(view: View, cooldown: CooldownView, width: int) -> Line:
    left, over = _countdown(view, cooldown)
    tried = f"{'ban' if cooldown.banned else 'try'} {cooldown.attempt}" if cooldown.attempt else "quota"
    size = 8 if width >= ROOMY else 0
    tail = f" {tried} {left:>5}" + (f" ▕{bar(over, 1, size)}▏" if size else "")
    room = width - 1 - len(tail) - 1
    role: Role = "bad" if cooldown.banned else "warn"
    return line(" ", (pad(short_name(cooldown.limit, room), room), ""), (tail, role))


def _why(view: View, cooldown: CooldownView) -> str:
    if not cooldown.long or view.over:
        return harmless(cooldown.cause)
    ends = clock(view.snapshot.wall + cooldown.until - view.snapshot.boot)
    return f"throttled until {ends}, r overrides: {harmless(cooldown.cause)}"


def _cause(view: View, cooldown: CooldownView, more: int, width: int) -> Line:
    text = _why(view, cooldown)
    text = text if cooldown.long else f"cause: {text}"
    tail = f"  +{more} more" if more > 0 else ""
    return line(" ", cut(text, width - 2 - len(tail)), (tail, "dim"))


def _quiet(view: View, width: int) -> list[Line]:
    snap = view.snapshot
    refused = snap.responses.get("429", 0)
    errors = snap.responses.get("error", 0) + snap.responses.get("no connection", 0)
    last = f"last: {harmless(snap.last_cooldown)}" if snap.last_cooldown else "no back-off yet"
    told = "unknown" if view.over else "none active"
    return [
        line(" ", told),
        line(" ", (cut(last, width - 2), "dim")),
        line(" ", (words((f"429s {count(refused)}", f"no answer {count(errors)}"), width - 2), "dim")),
    ]


def backoff_lines(view: View, width: int, height: int) -> list[Line]:
    """The pane, its title first: the nearest deadlines, and the cause of the nearest."""
    waiting = _nearest_first(view)
    title = f"Back-off {len(waiting)}" if waiting else "Back-off"
    lines = [rule(title, width, note=view.note, role="warn" if waiting else "title")]
    if not waiting:
        return [*lines, *_quiet(view, width)]
    room = height - 1
    if room <= 3:  # noqa: PLR2004
        shown = waiting[: max(1, room - 1)]
        lines += [_row(view, cooldown, width) for cooldown in shown]
        lines.append(_cause(view, shown[0], len(waiting) - len(shown), width))
        return lines
    each = 2 if room < 8 else 3  # noqa: PLR2004
    fits = max(1, room // each)
    if len(waiting) > fits:
        fits = max(1, (room - 1) // each)
    for cooldown in waiting[:fits]:
        lines.append(_row(view, cooldown, width))
        lines.append(line("   ", (cut(_why(view, cooldown), width - 4), "dim")))
        if each == 3:  # noqa: PLR2004
            hint = f"server asked {seconds(cooldown.hint)}" if cooldown.hint is not None else "no hint from the server"
            lines.append(line("   ", (words((f"waits {seconds(cooldown.wait)}", hint), width - 4), "dim")))
    if len(waiting) > fits:
        lines.append(line(" ", (f"+{len(waiting) - fits} more", "dim")))
    return lines
