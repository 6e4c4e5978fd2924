"""The sources, worst first: state, countdown, ages, counters and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.snapshot import SourceView
from tui_app.format import SOURCE_WORDS, Line, Role, Span, brief, count, harmless, line, rule, seconds, table_row
from tui_app.view import Order, View

__all__ = ["Table", "detail_lines", "source_lines"]

_RIGHT: Final = frozenset({"Next", "Ok ago", "New ago", "Try", "Sig", "Dup", "Late", "Quar", "Lat", "Reads", "Every"})
_NARROW: Final = (("State", 10), ("Source", 12), ("Next", 5), ("Ok ago", 6), ("Why", 0))
_NORMAL: Final = (
    *(("State", 10), ("Source", 13), ("Next", 5), ("Ok ago", 6), ("New ago", 7)),
    *(("Try", 3), ("Sig", 5), ("Dup", 5), ("Why", 0)),
)
_WIDE: Final = (
    *(("State", 10), ("Source", 18), ("Every", 5), ("Next", 5), ("Ok ago", 6), ("New ago", 7), ("Try", 3)),
    *(("Sig", 5), ("Dup", 5), ("Late", 5), ("Quar", 5), ("Reads", 5), ("Lat", 5), ("Why", 0)),
)


@dataclass(frozen=True, slots=True)
class Table:
    """What of the sources is shown, and how."""

    sources: Sequence[SourceView]
    """Sorted and filtered."""
    total: int
    top: int
    """Index of the first row on screen."""
    chosen: str
    """Name of the source under the cursor."""
    order: Order
    wanted: str = ""


def _columns(width: int) -> tuple[tuple[tuple[str, int], ...], list[int]]:
    columns = _NARROW if width < 76 else _NORMAL if width < 110 else _WIDE  # noqa: PLR2004
    fixed = sum(size + 1 for _, size in columns)
    return columns, [size or max(1, width - fixed - 1) for _, size in columns]


def _state(view: View, source: SourceView) -> Span:
    word, role = SOURCE_WORDS[source.state]
    if view.over:
        return f"? {word[2:]}", "dim"
    if view.held and source.state not in {"paused", "stopped"}:
        return word, "dim"
    return word, role


def _next(view: View, source: SourceView) -> str:
    if view.over or view.held:
        return "-"
    if source.reading and source.state != "throttled":
        return "now"
    left = view.until(source.next_poll)
    return "due" if left == 0 else seconds(left)


def _latency(source: SourceView) -> str:
    value = source.latency
    return f"{value * 1000:.0f}ms" if value is not None and 0 <= value < 0.9995 else seconds(value)  # noqa: PLR2004


def _cell(view: View, source: SourceView, column: str) -> Span:
    match column:
        case "State":
            return _state(view, source)
        case "Source":
            return source.name, ""
        case "Next":
            return _next(view, source), ""
        case "Ok ago":
            return seconds(view.since(source.last_ok)), ""
        case "New ago":
            return seconds(view.since(source.last_new)), ""
        case "Try":
            return (str(source.attempt), "warn") if source.attempt else ("-", "dim")
        case "Every":
            return seconds(source.interval), "dim"
        case "Lat":
            return _latency(source), ""
        case "Why":
            return source.reason, "dim"
        case _:
            fields = {"Sig": "signals", "Dup": "duplicates", "Late": "late", "Quar": "quarantined", "Reads": "reads"}
            value: int = getattr(source, fields[column])
            role: Role = "warn" if column == "Quar" and value else ""
            return brief(value), role


def source_lines(view: View, table: Table, width: int, height: int) -> list[Line]:
    """The table, its title first; the row under the cursor carries a mark as well as a colour."""
    lines = [_title(view, table, width, height)]
    if not table.total:
        return [*lines, *_nothing(view)][:height]
    columns, widths = _columns(width)
    right = frozenset(index for index, (name, _) in enumerate(columns) if name in _RIGHT)
    lines.append(table_row([(name, "dim") for name, _ in columns], widths, right=right))
    if not table.sources:
        lines.append(line(" ", ("none match the filter", "dim")))
    for source in table.sources[table.top : table.top + height - 2]:
        row = table_row([_cell(view, source, name) for name, _ in columns], widths, right=right)
        lines.append((("▸", "key"), *row[1:3], *row[3:]) if source.name == table.chosen else row)
    return lines[:height]


def _title(view: View, table: Table, width: int, height: int) -> Line:
    shown = len(table.sources)
    title = f"Sources {shown}" if shown == table.total else f"Sources {shown} of {table.total}"
    notes = [view.note, f"{table.order} first" if table.order == "worst" else f"by {table.order}"]
    if table.wanted:
        notes.append(f"/{harmless(table.wanted)}")
    above, below = table.top, max(0, shown - table.top - (height - 2))
    if above or below:
        notes.append(" ".join(text for text in (f"↑{above}" if above else "", f"↓{below}" if below else "") if text))
    return rule(title, width, note=", ".join(note for note in notes if note) if table.total else view.note)


def _nothing(view: View) -> list[Line]:
    return [
        line(" ", "No source is polled yet." if view.snapshot.state != "dead" else "No source was polled."),
        line(" ", (f"Config read: {harmless(view.snapshot.config)}", "dim")),
    ]


def detail_lines(view: View, source: SourceView | None, width: int) -> list[Line]:
    """Everything about one source, on a screen of its own."""
    if source is None:
        return [rule("Source", width), line(" ", ("gone from the config", "dim"))]
    state, role = _state(view, source)
    facts: tuple[tuple[str, str], ...] = (
        ("type", f"{harmless(source.type)}, {source.streams} stream{'' if source.streams == 1 else 's'}"),
        ("every", seconds(source.interval)),
        ("next poll", _next(view, source)),
        ("last good read", f"{seconds(view.since(source.last_ok))} ago" if source.last_ok is not None else "never"),
        ("last new record", f"{seconds(view.since(source.last_new))} ago" if source.last_new is not None else "never"),
        ("latency", _latency(source)),
        ("reads", f"{count(source.reads)}, {count(source.failures)} failed, {count(source.skipped)} skipped"),
        ("failed in a row", count(source.attempt)),
        ("records", f"{count(source.records)}: {count(source.history)} history, {count(source.duplicates)} duplicate"),
        ("signals", f"{count(source.signals)}, {count(source.late)} late"),
        ("quarantined", count(source.quarantined)),
        ("gaps", count(source.gaps)),
    )
    lines = [rule(f"Source {harmless(source.name)}", width, note=view.note)]
    lines.append(line(" ", (state, role), f"  for {seconds(view.since(source.since))}"))
    lines += [line("   ", part) for part in _wrapped(harmless(source.reason), width - 5)]
    lines.append(line())
    lines += [line(f" {name:<17}", value) for name, value in facts]
    lines += [line(), line(" ", ("r", "key"), " polls it now   ", ("esc", "key"), " back")]
    return lines


def _wrapped(text: str, width: int, most: int = 4) -> list[str]:
    """A reason over a few lines, broken where it fits."""
    parts: list[str] = []
    row = ""
    for word in text.split():
        longer = f"{row} {word}" if row else word
        if row and len(longer) > width:
            parts.append(row)
            row = word
        else:
            row = longer
    return [*parts, row][:most] if row else []
