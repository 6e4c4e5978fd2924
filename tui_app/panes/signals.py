"""Signals in figures: how many, how they are spread over the hour, what was turned away, what is still owed."""

from __future__ import annotations

from engine.snapshot import Snapshot
from tui_app.format import Line, Span, brief, clock, count, cut, harmless, join, line, rule, seconds, spark, words
from tui_app.view import View

__all__ = ["signal_line", "signal_lines"]

ROOMY = 36


def _last_new(view: View) -> str:
    newest = max((source.last_new for source in view.snapshot.sources if source.last_new is not None), default=None)
    return f"last {seconds(view.since(newest))}" if newest is not None else "none yet"


def _owed(snap: Snapshot) -> Span:
    owed = sum(sink.owed for sink in snap.sinks)
    failing = [sink for sink in snap.sinks if sink.reason]
    if failing:
        return f"owed {brief(owed)}: {harmless(failing[0].reason)}", "warn"
    return f"owed {brief(owed)}", ""


def signal_lines(view: View, width: int, height: int) -> list[Line]:
    """The pane, its title first."""
    snap = view.snapshot
    inner = width - 2
    head = words((f"{count(sum(snap.signals_per_minute))}/h", _last_new(view) if width >= ROOMY else ""), inner)
    late = f"late {brief(snap.late)}"
    bad: Span = (f"quar {brief(snap.quarantined)}", "warn" if snap.quarantined else "")
    counters: list[Span] = [(f"new {brief(snap.new)}", ""), (f"dup {brief(snap.duplicates)}", "")]
    owed = _owed(snap)
    lines = [rule("Signals", width, note=view.note)]
    lines.append(line(" ", head, "  ", (spark(snap.signals_per_minute, inner - len(head) - 2), "bar")))
    if width < ROOMY:
        lines.append(line(" ", *join([*counters, (late, "")], inner)))
        lines.append(line(" ", *join([bad, (cut(owed[0], inner - len(bad[0]) - 2), owed[1])], inner)))
    else:
        lines.append(line(" ", *join([*counters, (late, ""), bad], inner)))
        room = inner - len(f"  history {brief(snap.history)}")
        lines.append(
            line(" ", *join([(cut(owed[0], max(room, 12)), owed[1]), (f"history {brief(snap.history)}", "dim")], inner))
        )
    if height > len(lines):
        lines += _more(view, width, height - len(lines))
    return lines


def _more(view: View, width: int, height: int) -> list[Line]:
    """Sinks, and on a full screen the signals themselves."""
    snap = view.snapshot
    inner = width - 2
    more: list[Line] = []
    for sink in snap.sinks[: max(1, height // 3)]:
        told = harmless(sink.reason) or "ok"
        parts: list[Span] = [
            (cut(harmless(sink.name), 12), ""),
            (f"owed {brief(sink.owed)}", ""),
            (f"sent {brief(sink.delivered)}", "dim"),
            (cut(told, max(8, inner - 40)), "warn" if sink.reason else "ok"),
        ]
        more.append(line(" ", *join(parts, inner)))
    if width < 2 * ROOMY:
        return [*more, line(" ", (_last_new(view), "dim"))][:height]
    more += [line(), rule("Newest", width)]
    more += [
        signal_line(signal.seen_time, signal.source, signal.summary, width, late=signal.late) for signal in snap.signals
    ]
    return more[:height]


def signal_line(seen: float, source: str, summary: str, width: int, *, late: bool) -> Line:
    """One accepted signal on a line."""
    name = cut(harmless(source), 16 if width >= 2 * ROOMY else 10)
    mark: Span = ("late ", "warn") if late else ("", "")
    return line(" ", (clock(seen), "dim"), "  ", (name, "info"), "  ", mark, harmless(summary))
