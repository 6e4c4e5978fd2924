"""The card for a terminal that is too small: the state and the two keys that still work."""

from __future__ import annotations

from tui_app.format import Line, cut, harmless, line, words
from tui_app.panes.header import Standing, engine_words
from tui_app.view import LEAST, View

__all__ = ["small_lines"]


def small_lines(view: View | None, standing: Standing, width: int, height: int, leave: str) -> list[Line]:
    """The card; on very few rows the state comes first."""
    inner = max(1, width - 2)
    if view is None:
        state = line(" ", (cut("… STARTING", inner), "dim"))
    else:
        word, role, rest = engine_words(view)
        state = line(" ", (words((harmless(word), *map(harmless, rest)), inner), role))
    size = line(" ", words((f"terminal {width}x{height};", f"need {LEAST[0]}x{LEAST[1]}"), inner))
    verb = "resume" if view is not None and view.held else "pause"
    keys = line(" ", (words((f"p {verb}", f"q {leave.lower()}"), inner), "key"))
    if standing.leaving:
        keys = line(" ", ("leaving", "warn"))
    if height < 6:  # noqa: PLR2004
        return [state, keys, size][:height]
    return [line(), size, line(), state, line(), keys]
