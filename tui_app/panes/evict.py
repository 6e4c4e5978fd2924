"""Force-evict: says how much it would forget, asks for a typed word, and says what it did. Cancel has the focus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from engine.snapshot import EvictScope, Outcome
from tui_app.format import Line, Role, count, cut, harmless, line
from tui_app.panes.lines import Lines
from tui_app.view import LEAST

__all__ = ["EvictScreen"]

WORD = "evict"
Evict = Callable[[EvictScope, int | None, bool], Awaitable[Outcome]]


class EvictScreen(ModalScreen[Outcome | None]):
    """Gives the outcome when something was evicted, None when nothing was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="evict.cancel"),
        Binding("up,down", "scope", "Scope", id="evict.scope"),
    ]

    def __init__(self, evict: Evict, scopes: list[tuple[str, EvictScope]], host: str) -> None:
        super().__init__(id="evict-screen")
        self.evict, self.scopes, self.host = evict, scopes, host
        self.at = 0
        self.left = False
        self.preview: Outcome | None = None
        self.done: Outcome | None = None
        self.said: tuple[str, Role] = ("", "")

    def compose(self) -> ComposeResult:
        with Vertical(id="evict-box"):
            yield Lines(id="evict-text")
            with Horizontal(id="evict-row"):
                yield Button(Content("[ Cancel ]"), id="evict-cancel", compact=True)
                yield Lines(id="evict-ask")
                yield Input(id="evict-word", compact=True, max_length=16, select_on_focus=False)

    async def on_mount(self) -> None:
        self.query_one(Button).focus()
        await self._look()

    def on_resize(self, event: events.Resize) -> None:
        """On a terminal that is too small it could not be read: nothing is done, then."""
        if (event.size.width < LEAST[0] or event.size.height < LEAST[1]) and not self.left:
            self.action_cancel()

    async def _ask(self, expect: int | None, *, dry: bool) -> Outcome:
        try:
            return await self.evict(self.scopes[self.at][1], expect, dry)
        except ConnectionError as error:
            return Outcome(ok=False, text=harmless(f"no contact: {error}"))

    async def _look(self) -> None:
        """Count what the scope holds now."""
        self.preview = None
        self._draw()
        self.preview = await self._ask(None, dry=True)
        self._draw()

    def _draw(self) -> None:
        width = 58
        name = harmless(self.scopes[self.at][0])
        other = "  (up/down changes)" if len(self.scopes) > 1 else ""
        lines: list[Line] = [
            line(("Force-evict identifiers", "title"), cut(f" on {self.host}" if self.host else "", 30))
        ]
        lines.append(line("Scope   ", (cut(name, width - 8 - len(other)), "warn"), (other, "dim")))
        if self.preview is None:
            lines.append(line("Removes …"))
        elif self.preview.ok:
            lines.append(line("Removes ", (f"{count(self.preview.count)} identifiers", "warn")))
        else:
            lines.append(line("Refused ", (cut(harmless(self.preview.text), width - 8), "bad")))
        lines.append(line("Effect  the next sighting of each is acted on again"))
        lines.append(line("Undo    none; it is written to the audit log"))
        text, role = self.said
        lines.append(line((cut(harmless(text), width), role)))
        self.query_one("#evict-text", Lines).show(lines)
        ask = "enter or esc closes" if self.done else f"type  {WORD}  then Enter:"
        self.query_one("#evict-ask", Lines).show([line(f"  {ask}")])

    async def action_scope(self) -> None:
        if self.done is None and len(self.scopes) > 1:
            self.at = (self.at + 1) % len(self.scopes)
            self.said = ("", "")
            await self._look()

    def action_cancel(self) -> None:
        self.left = True
        self.dismiss(self.done)

    @on(Button.Pressed)
    def _pressed(self) -> None:
        self.action_cancel()

    def on_key(self, event: events.Key) -> None:
        """A letter typed while Cancel has the focus goes where it was meant."""
        if self.focused is self.query_one(Button) and event.character and event.character.isalpha() and not self.done:
            word = self.query_one(Input)
            word.focus()
            word.insert_text_at_cursor(event.character)
            event.stop()

    @on(Input.Submitted)
    async def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.done or self.preview is None:
            return
        if event.value.strip() != WORD:
            self._say(f"type {WORD} to confirm, esc to leave", "warn")
            return
        if not self.preview.ok:
            self._say("nothing was done", "warn")
            return
        outcome = await self._ask(self.preview.count, dry=False)
        event.input.clear()
        self._say(outcome.text, "ok" if outcome.ok else "bad")
        if outcome.ok:
            self.done = outcome
            event.input.display = False
            button = self.query_one(Button)
            button.label = Content("[ Close ]")
            button.focus()
            self._draw()
        else:
            await self._look()

    def _say(self, text: str, role: Literal["ok", "warn", "bad"]) -> None:
        self.said = (text, role)
        self._draw()
