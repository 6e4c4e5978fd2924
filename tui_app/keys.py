"""Every action of the monitor once: its key, its id, its words. Bindings, footer, help and palette come from here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding

from tui_app.format import Line, Span, cells

__all__ = ["BINDINGS", "KEYS", "Key", "footer_line", "help_rows"]


@dataclass(frozen=True, slots=True)
class Key:
    """An action that a person can take."""

    key: str
    shown: str
    id: str
    action: str
    label: str
    """For the footer; empty when the footer does not name it."""
    help: str


KEYS: Final = (
    Key("q", "q", "view.leave", "leave", "Quit", "leave"),
    Key("question_mark,f1", "?", "view.help", "help", "Help", "this help"),
    Key("space", "space", "view.freeze", "freeze", "Freeze", "freeze or go live"),
    Key("p", "p", "engine.pause", "pause", "Pause engine", "pause/resume engine"),
    Key("E", "E", "engine.evict", "evict", "Evict…", "forget identifiers…"),
    Key("r", "r", "engine.poll", "poll", "Poll", "poll source now"),
    Key("slash", "/", "view.filter", "filter", "Filter", "filter the lists"),
    Key("enter", "enter", "view.open", "open", "Open", "source in detail"),
    Key("s", "s", "view.sort", "sort", "Sort", "sort another way"),
    Key("escape", "esc", "view.back", "back", "", "back, clear filter"),
    Key("1", "1", "view.pane1", "zoom(1)", "", "pacing, full size"),
    Key("2", "2", "view.pane2", "zoom(2)", "", "back-off, full size"),
    Key("3", "3", "view.pane3", "zoom(3)", "", "window, full size"),
    Key("4", "4", "view.pane4", "zoom(4)", "", "signals, full size"),
    Key("up,k", "up k", "view.up", "move(-1)", "", "source above"),
    Key("down,j", "down j", "view.down", "move(1)", "", "source below"),
    Key("pageup", "pgup", "view.pageup", "move(-10)", "", "ten up"),
    Key("pagedown", "pgdn", "view.pagedown", "move(10)", "", "ten down"),
    Key("T", "T", "view.theme", "next_theme", "", "next theme"),
    Key("plus", "+", "view.faster", "faster", "", "refresh faster"),
    Key("minus", "-", "view.slower", "slower", "", "refresh slower"),
    Key("ctrl+p", "ctrl+p", "view.palette", "command_palette", "", "all actions"),
    Key("ctrl+c", "ctrl+c", "view.interrupt", "interrupt", "", "leave; twice: at once"),
)

BINDINGS: Final = [
    Binding(key.key, key.action, key.label or key.help, id=key.id, show=False, priority=key.key == "ctrl+c")
    for key in KEYS
]


def footer_line(width: int, labels: dict[str, str]) -> Line:
    """As many keys as fit whole, in order; `labels` flips words by id."""
    spans: list[Span] = []
    left = width
    for key in KEYS:
        label = labels.get(key.id, key.label)
        if not label:
            continue
        need = cells(f"{key.shown} {label}") + bool(spans)
        if need > left:
            break
        spans += [*([(" ", "")] if spans else []), (key.shown, "key"), (f" {label}", "")]  # type: ignore[list-item]
        left -= need
    return tuple(spans)


def help_rows() -> Iterator[tuple[str, str]]:
    for key in KEYS:
        yield key.shown, key.help
