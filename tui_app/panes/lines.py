"""The widget behind every pane: lines of literal spans, of which only the cells that changed are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui_app.format import ROLES, Line, Role, cells, fit

__all__ = ["Lines", "changed"]


def changed(old: Line, new: Line) -> tuple[int, int] | None:
    """First and one past the last column in which two lines of one width differ; None when they are equal."""
    if old == new:
        return None
    before = [(char, role) for text, role in old for char in text]
    after = [(char, role) for text, role in new for char in text]
    columns = cells("".join(char for char, _ in after))
    if len(after) != columns or len(before) != columns:
        return 0, columns  # wide or combining characters: a column is no index
    first = next((index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), None)
    if first is None:
        return None  # the same cells, cut into spans otherwise
    last = columns
    while before[last - 1] == after[last - 1]:
        last -= 1
    return first, last


class Lines(Widget):
    """Shows lines cut to its width; `show` repaints the span of cells that differs in each row and nothing else."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in ROLES}
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._given: tuple[Line, ...] = ()
        self._shown: tuple[Line, ...] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines from now on."""
        self._given = tuple(lines)
        self._paint()

    def text(self) -> str:
        """What is shown, as plain text."""
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self._shown)

    def _paint(self) -> None:
        width, height = self.size
        padded = (*self._given[:height], *((),) * (height - len(self._given)))
        new = tuple(fit(line, width) for line in padded)
        old, self._shown = self._shown, new
        if len(old) != len(new) or (new and cells("".join(t for t, _ in new[0])) != _width(old)):
            self.refresh()
            return
        spans = ((y, changed(was, now)) for y, (was, now) in enumerate(zip(old, new, strict=True)))
        if regions := [Region(span[0], y, span[1] - span[0], 1) for y, span in spans if span]:
            self.refresh(*regions)

    def on_resize(self) -> None:
        self._paint()

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        if y >= len(self._shown):
            return Strip.blank(self.size.width, base)
        styles = {role: self._style(role) for _, role in self._shown[y]}
        strip = Strip([Segment(text, styles[role]) for text, role in self._shown[y]])
        # A frame may come between a new size and the paint that it asks for. A line that is too long would then run
        # into what is beside it, which nobody repaints.
        return strip.adjust_cell_length(self.size.width, base)

    def _style(self, role: Role) -> Style:
        return self.get_component_rich_style(f"lines--{role}") if role else self.rich_style


def _width(lines: tuple[Line, ...]) -> int:
    return cells("".join(text for text, _ in lines[0])) if lines else 0
