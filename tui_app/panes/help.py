"""The help: what each key does, and what the words on the screen mean."""

from __future__ import annotations

from collections.abc import Sequence

from tui_app.format import Line, Span, line, pad, rule

__all__ = ["help_lines"]

MEANINGS = (
    ("RUNNING DEGRADED PAUSED", "the engine's state, for all who look"),
    ("LIVE FROZEN STALE", "this view: moving, held by you, out of date"),
    ("held", "identifiers still served by their source"),
    ("quar", "records set aside: not what their source documents"),
    ("owed", "deliveries not yet taken by a sink"),
)


def help_lines(keys: Sequence[tuple[str, str]], width: int, height: int) -> list[Line]:
    """The keys in two columns, and what the words on the screen mean where there is room."""
    size = width // 2
    half = -(-len(keys) // 2)
    lines = [rule("Help", width, note="esc closes")]
    for index in range(half):
        spans: list[Span] = []
        for key, text in keys[index::half]:
            spans += [(f" {key:>6}  ", "key"), (pad(text, size - 9), "")]
        lines.append(tuple(spans))
    lines.append(line())
    lines += [line("  ", (f"{word:<24}", "info"), meaning) for word, meaning in MEANINGS]
    return lines[:height]
