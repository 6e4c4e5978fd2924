"""Pure text for the screen: durations, counts, bars, sparklines, state words, and lines that fit a number of cells.

A line is a tuple of spans, each a literal text with the role it plays; what a role looks like is the theme's business.
Nothing here, and nothing that is built from here, is ever parsed as markup.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

__all__ = [
    "ROLES",
    "SOURCE_WORDS",
    "Line",
    "Role",
    "Span",
    "bar",
    "brief",
    "cells",
    "clock",
    "count",
    "cut",
    "duration",
    "fit",
    "harmless",
    "join",
    "line",
    "pad",
    "percent",
    "rate",
    "rule",
    "seconds",
    "short_name",
    "spark",
    "table_row",
    "words",
]

Role = Literal["", "dim", "ok", "warn", "bad", "info", "title", "key", "bar"]
ROLES: Final[tuple[Role, ...]] = ("dim", "ok", "warn", "bad", "info", "title", "key", "bar")
Span = tuple[str, Role]
Line = tuple[Span, ...]

SOURCE_WORDS: Final[dict[str, tuple[str, Role]]] = {
    "failing": ("✖ failing", "bad"),
    "throttled": ("▲ backoff", "warn"),
    "starting": ("… starting", "dim"),
    "live": ("● live", "ok"),
    "paused": ("‖ paused", "warn"),
    "stopped": ("■ stopped", "dim"),
}
"""Glyph, word and role of each state of a source, worst first."""

MINUTE, HOUR, DAY = 60, 3_600, 86_400
BLOCKS = "▁▂▃▄▅▆▇█"
SEPARATOR = "  "
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def cells(text: str) -> int:
    """Cells of the terminal that a text takes."""
    return cell_len(text)


def harmless(text: str) -> str:
    """The text without what a terminal would obey. `text.plain` has done it before; this is the last door."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, width: int) -> str:
    """At most `width` cells of a text, with an ellipsis where something is missing."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells; the text at the left, or at the right."""
    text = cut(text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def line(*parts: str | Span) -> Line:
    """A line of spans; a bare text has no role."""
    return tuple((part, "") if isinstance(part, str) else part for part in parts)


def fit(spans: Line, width: int) -> Line:
    """A line of exactly `width` cells, cut with an ellipsis or padded, in as few spans as show the same."""
    done: list[Span] = []
    left = width
    for text, role in spans:
        safe = harmless(text)
        taken = cell_len(safe)
        _append(done, safe if taken <= left else cut(safe, left), role)
        left -= taken
        if left <= 0:
            break
    if (missing := width - sum(cell_len(text) for text, _ in done)) > 0:
        _append(done, " " * missing, "")
    return tuple(done)


def _append(done: list[Span], text: str, role: Role) -> None:
    """Add a span, to the one before where that looks the same: each change of style costs a dozen bytes on the wire."""
    if not text:
        return
    if done and (role == done[-1][1] or text.isspace()):
        done[-1] = (done[-1][0] + text, done[-1][1])
    else:
        done.append((text, role))


def words(parts: Iterable[str], width: int) -> str:
    """As many parts as fit, in order, two cells apart: a narrow screen loses the last ones whole, never half of one."""
    text = ""
    for part in parts:
        if not part:
            continue
        longer = f"{text}{SEPARATOR}{part}" if text else part
        if cell_len(longer) > width:
            return text or cut(part, width)
        text = longer
    return text


def join(parts: Iterable[Span], width: int) -> Line:
    """`words` for spans."""
    done: list[Span] = []
    left = width
    for text, role in parts:
        if not text:
            continue
        need = cell_len(text) + (len(SEPARATOR) if done else 0)
        if need > left:
            return tuple(done) or ((cut(text, width), role),)
        if done:
            done.append((SEPARATOR, ""))
        done.append((text, role))
        left -= need
    return tuple(done)


def rule(title: str, width: int, *, note: str = "", role: Role = "title") -> Line:
    """A rule across with a title in it, and a note behind the title."""
    head = cut(f"─{title}", width)
    tail = f"  {note}" if note else ""
    if cell_len(head) + cell_len(tail) > width:
        tail = f"  {cut(note, width - cell_len(head) - 2)}" if width - cell_len(head) > len(SEPARATOR) else ""
    left = width - cell_len(head) - cell_len(tail)
    return ((head, role), (tail, "dim"), ("─" * left, role))


def table_row(values: Sequence[Span], widths: Sequence[int], *, right: frozenset[int] = frozenset()) -> Line:
    """Values under their columns, one cell apart, one cell from the left edge."""
    spans: list[Span] = []
    for index, ((text, role), width) in enumerate(zip(values, widths, strict=True)):
        spans += ((" ", ""), (pad(harmless(text), width, right=index in right), role))
    return tuple(spans)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def duration(value: float | None) -> str:
    """`4d02h`, `3h07m`, `2m14s`, `38s`; a hyphen when there is none."""
    if (value := _finite(value)) is None:
        return "-"
    whole = max(0, int(value))
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    return f"{whole // DAY}d{whole % DAY // HOUR:02}h"


def seconds(value: float | None) -> str:
    """Like `duration`, with a tenth below ten seconds and milliseconds below one tenth."""
    if (value := _finite(value)) is None:
        return "-"
    value = max(0.0, value)
    if 0 < value < 0.1:  # noqa: PLR2004
        return f"{value * 1000:.0f}ms"
    return f"{value:.1f}s" if value < 9.95 else duration(value)  # noqa: PLR2004


def count(value: int) -> str:
    """All digits, grouped."""
    return f"{value:,}"


def brief(value: int) -> str:
    """A count in at most five cells: `1,902`, `18.2k`, `104k`, `1.2M`."""
    if value < 10_000:  # noqa: PLR2004
        return f"{value:,}"
    scaled = float(value)
    for unit in "kMGT":
        scaled /= 1000
        if scaled < 99.95:  # noqa: PLR2004
            return f"{scaled:.1f}{unit}".replace(".0", "")
        if scaled < 999.5:  # noqa: PLR2004
            return f"{scaled:.0f}{unit}"
    return "lots"


def rate(value: float) -> str:
    """A rate with as many digits as mean something."""
    if not math.isfinite(value):
        return "-"
    if value and value < 0.1:  # noqa: PLR2004
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"  # noqa: PLR2004


def percent(part: float, whole: float) -> str:
    """`73%`, `0.4%`; a hyphen of nothing."""
    if whole <= 0:
        return "-"
    value = 100 * part / whole
    if 0 < value < 0.05:  # noqa: PLR2004
        return "<0.1%"
    return f"{value:.1f}%" if 0 < value < 9.95 else f"{value:.0f}%"  # noqa: PLR2004


def clock(wall: float) -> str:
    """The time of day in UTC, marked as such."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "--:--:--Z"


def bar(part: float, whole: float, width: int) -> str:
    """A bar of `width` cells; whatever is not nothing shows at least one block, whatever is not all leaves one open."""
    if width <= 0:
        return ""
    share = part / whole if whole > 0 else 0.0
    share = min(1.0, max(0.0, share if math.isfinite(share) else 0.0))
    full = round(share * width)
    if share > 0 and not full:
        full = 1
    if share < 1 and full == width > 1:
        full = width - 1
    return "█" * full + "░" * (width - full)


def spark(values: Sequence[float], width: int) -> str:
    """The newest `width` values as blocks, newest at the right, scaled to the largest among them."""
    if width <= 0 or not values:
        return ""
    shown = [max(0.0, value) if math.isfinite(value) else 0.0 for value in values[-width:]]
    top = max(shown)
    if not top:
        return BLOCKS[0] * len(shown)
    last = len(BLOCKS) - 1
    return "".join(BLOCKS[min(last, math.ceil(value / top * last))] for value in shown)


def short_name(pattern: str, width: int) -> str:
    """A limit's pattern without its scheme, cut in the middle: the host and the end of the path tell it apart."""
    text = pattern.split("://", 1)[-1]
    if cell_len(text) <= width:
        return text
    if width < 8:  # noqa: PLR2004
        return cut(text, width)
    tail = _tail(text, width * 3 // 5)
    if 0 < (slash := tail.find("/")) < len(tail) - 2:
        tail = tail[slash:]
    return set_cell_size(text, width - 1 - cell_len(tail)) + "…" + tail


def _tail(text: str, width: int) -> str:
    """The last `width` cells at most, not starting with a combining character."""
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= width:
        start -= 1
    while start < len(text) and unicodedata.combining(text[start]):
        start += 1
    return text[start:]
