"""The screen without a config: what to do first, until a key closes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.theme import Theme

from engine.text import plain
from tui_app.format import Line, cut, line, rule
from tui_app.panes.lines import Lines

__all__ = ["FirstScreen"]


class FirstScreen(App[None]):
    """Shows a few lines of text."""

    class Leave(Message):
        """Asked to leave from outside."""

    CSS_PATH = "app.tcss"
    TITLE = "polltop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,enter", "leave", "Quit", id="view.leave"),
        Binding("ctrl+c", "leave", "Quit", id="view.interrupt", priority=True),
    ]

    def __init__(self, lines: Sequence[str], *, themes: Mapping[str, Theme], theme: str) -> None:
        super().__init__(ansi_color=themes[theme].ansi)
        for each in themes.values():
            self.register_theme(each)
        self.theme = theme
        self.lines = [plain(text) for text in lines]
        self.on_quit: Callable[[], Awaitable[int]] | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="full")
        yield Lines(id="foot")

    def on_resize(self, event: events.Resize) -> None:
        width = event.size.width
        shown: list[Line] = [rule("polltop", width), line()]
        shown += [line(" ", (cut(text, width - 2), "" if index else "title")) for index, text in enumerate(self.lines)]
        self.query_one("#full", Lines).show(shown)
        self.query_one("#foot", Lines).show([line(("q", "key"), " Quit")])

    def action_leave(self) -> None:
        self.run_worker(self._leave(), exit_on_error=False)

    def ask_to_leave(self) -> None:
        """Leave soon. May be called from any thread."""
        self.post_message(self.Leave())

    @on(Leave)
    async def action_quit(self) -> None:
        self.action_leave()

    async def _leave(self) -> None:
        self.exit(return_code=await self.on_quit() if self.on_quit else 0)
