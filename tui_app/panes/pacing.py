"""Request pacing: what is sent, which limit binds, its rate in use against the configured one, and what waits."""

from __future__ import annotations

from engine.snapshot import LimitView, Snapshot
from tui_app.format import (
    Line,
    Role,
    Span,
    bar,
    count,
    cut,
    harmless,
    join,
    line,
    pad,
    rate,
    rule,
    seconds,
    short_name,
    spark,
    words,
)
from tui_app.panes.header import sending
from tui_app.view import View

__all__ = ["pacing_lines", "tightest"]

ROOMY = 36


def _load(limit: LimitView) -> float:
    return limit.used / limit.requests if limit.requests else 0.0


def tightest(snapshot: Snapshot) -> LimitView | None:
    """The limit that binds, or else the one nearest to it; the least gap counts only when there is no other."""
    return max(snapshot.limits, key=lambda limit: (limit.kind != "gap", limit.binds, _load(limit)), default=None)


def _allowed(limit: LimitView) -> float:
    return limit.requests / limit.effective_window_seconds if limit.effective_window_seconds else 0.0


def _pace(limit: LimitView) -> str:
    """The rate in use, and the configured one where that is another."""
    configured = f"{rate(_allowed(limit))}/s"
    return f"{rate(limit.per_second)} (set {configured})" if limit.why else configured


def _next(view: View, limit: LimitView) -> str:
    if view.over or view.held:
        return "next -"
    return f"next {seconds(view.until(limit.next_slot))}" if limit.next_slot is not None else "next now"


def _used(limit: LimitView) -> str:
    return f"{count(limit.used)}/{count(limit.requests)} in {seconds(limit.effective_window_seconds)}"


def pacing_lines(view: View, width: int, height: int) -> list[Line]:
    """The pane, its title first."""
    snap = view.snapshot
    limit = tightest(snap)
    name = "Pacing"
    if limit is not None and width > ROOMY:
        name += " bound by " if limit.binds else " "
        name += short_name(limit.name, max(8, width - 5 - len(name) - len(view.note)))
    lines = [rule(name, width, note=view.note)]
    inner = width - 2
    now = 0.0 if view.held or snap.state in {"dead", "stopped"} else sending(snap)
    if limit is None:
        text = f"rate {rate(now)}/s"
        return [*lines, line(" ", text), line(" ", ("no limits yet", "dim"))]
    label = "" if width < ROOMY else "rate "
    text = f"{label}{rate(now)}/s of {_pace(limit)}"
    chart = spark(snap.requests_per_second, inner - len(text) - 2)
    lines.append(line(" ", text, "  ", (chart, "bar")))
    used = _used(limit) if width < ROOMY else f"used {_used(limit)}"
    full: Role = "warn" if limit.used >= limit.requests else "bar"
    if limit.why:
        lines.append(line(" ", used, "  ", (cut(harmless(limit.why), max(0, inner - len(used) - 2)), "warn")))
    else:
        lines.append(line(" ", used, "  ", (bar(limit.used, limit.requests, min(20, inner - len(used) - 2)), full)))
    queue = f"queue {limit.queue}"
    refused = snap.responses.get("429", 0)
    parts = (_next(view, limit), queue, f"flight {snap.in_flight}", f"429s {count(refused)}")
    lines.append(line(" ", words(parts, inner)))
    if height > len(lines):
        lines += _more(view, width, height - len(lines))
    return lines


def _more(view: View, width: int, height: int) -> list[Line]:
    """What a taller pane has room for: totals, then every limit on a line."""
    snap = view.snapshot
    codes = [f"{code} {count(number)}" for code, number in sorted(snap.responses.items())]
    more = [line(" ", words((f"sent {count(snap.requests)}", *codes), width - 2))]
    if height <= 4:  # noqa: PLR2004
        ranked = sorted(snap.limits, key=_load, reverse=True)
        more += [_limit_line(view, limit, width) for limit in ranked[: height - 1]]
        return more
    more += [line(), rule("Limits", width), line(" ", ("used in window, nearest first", "dim"))]
    ranked = sorted(snap.limits, key=lambda limit: (limit.kind == "gap", -_load(limit), limit.name))
    room = height - len(more)
    shown = ranked if len(ranked) <= room else ranked[: room - 1]
    more += [_limit_line(view, limit, width) for limit in shown]
    if len(shown) < len(ranked):
        more.append(line(" ", (f"+{len(ranked) - len(shown)} more", "dim")))
    return more


def _limit_line(view: View, limit: LimitView, width: int) -> Line:
    inner = width - 2
    name = max(10, min(36, inner // 2))
    text = pad(short_name(limit.name, name), name)
    used = f"{limit.used}/{limit.requests}"
    parts: list[Span] = [
        (f"{text} {used:>9}", ""),
        (bar(limit.used, limit.requests, 10), "bar"),
        (f"{_pace(limit)}", "warn" if limit.why else ""),
        (_next(view, limit), ""),
        (f"queue {limit.queue}", ""),
        (harmless(limit.why), "warn"),
        (f"granted {count(limit.granted)}", "dim"),
        (f"refused {count(limit.refused)}", "warn" if limit.refused else "dim"),
    ]
    return line(" ", *join([part for part in parts if part[0]], inner))
