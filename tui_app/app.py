"""The monitor: pulls a snapshot at a steady beat and shows it. It owns no engine state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer
from textual.widgets import Input
from textual.worker import get_current_worker

from engine.clock import SystemClock
from engine.snapshot import EngineHandle, EvictScope, Outcome
from tui_app.board import PANES, Board
from tui_app.keys import BINDINGS, KEYS
from tui_app.monitor import Monitor
from tui_app.panes.evict import EvictScreen
from tui_app.themes import load_themes

__all__ = ["MonitorApp"]

FASTEST: Final = 0.25
SLOWEST: Final = 10.0
INTERRUPTED: Final = 130
NEED_ROOM: Final = frozenset({"help", "evict", "filter", "open", "zoom", "poll", "move", "sort", "command_palette"})
"""Actions whose effect would not be seen on a terminal that is too small."""


class MonitorApp(App[None]):
    """A live view of an engine, inside this process or elsewhere."""

    class EngineEnded(Message):
        """The hosted engine has ended by itself."""

    class Leave(Message):
        """Asked to leave from outside."""

    CSS_PATH = "app.tcss"
    TITLE = "polltop"
    BINDINGS: ClassVar[list[BindingType]] = [*BINDINGS]
    AUTO_FOCUS = None
    ESCAPE_TO_MINIMIZE = False

    def __init__(
        self,
        handle: EngineHandle,
        *,
        theme: str = "polltop-dark",
        actor: str = "",
        host: str = "",
        on_quit: Callable[[], Awaitable[int]] | None = None,
        now: Callable[[], float] | None = None,
        interval: float = 1.0,
        themes: Mapping[str, Theme] | None = None,
        notes: Sequence[str] = (),
        hosted: Callable[[float], bool] | None = None,
    ) -> None:
        """Show the engine behind `handle`.

        Args:
            handle: The engine.
            theme: Name of a loaded theme.
            actor: In whose name the verbs are done.
            host: Where the engine runs, for the header.
            on_quit: Awaited before the app leaves; gives the exit code. Without it, leaving leaves nothing to stop.
            now: A clock that never steps; tests pass their own.
            interval: Seconds between two pulls.
            themes: What `load_themes` gave; loaded here when missing.
            notes: Messages for the events pane, for instance about a theme file that cannot be read.
            hosted: Waits so many seconds at most for the end of an engine in this process; whether it came.
        """
        found, problems = ({**themes}, []) if themes is not None else load_themes()
        # Said here and not left to the theme: the first pictures are drawn before Textual applies one.
        super().__init__(ansi_color=found[theme].ansi)
        self.themes = found
        for each in found.values():
            self.register_theme(each)
        self.theme = theme
        self.handle, self.actor, self.on_quit = handle, actor, on_quit
        self.hosted = hosted
        leave = "Quit" if hosted else "Detach"
        self.monitor = Monitor(now or SystemClock().mono, host=host, leave=leave, interval=interval)
        for text in (*notes, *problems):
            self.monitor.tell(text, "warning")
        self.board = Board(self.monitor)
        self._pulling = False
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.animation_level = "none"
        self._timer = self.set_interval(self.monitor.interval, self._beat)
        if self.hosted is not None:
            self.run_worker(self._watch, thread=True, exit_on_error=False, group="engine", name="engine")
        self._beat()

    # -- pulling -------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._pulling:
            self.board.draw()  # a slow answer must not keep the ages from growing
        else:
            self.run_worker(self.pull(), exit_on_error=False, group="pull")

    async def pull(self) -> None:
        """Ask for the newest snapshot and show it; never twice at a time."""
        if self._pulling:
            return
        self._pulling = True
        try:
            self.monitor.take(await self.handle.pull(self.monitor.after))
        except ConnectionError as error:
            self.monitor.lost(str(error))
        except Exception as error:  # noqa: BLE001 - a view outlives whatever its link throws
            self.monitor.lost(f"{type(error).__name__}: {error}")
        finally:
            self._pulling = False
        if self.is_running:
            self.board.draw()

    def _watch(self) -> None:
        """Beside a hosted engine, in a thread: tell of its end, and be gone at once when cancelled."""
        ended, worker = self.hosted, get_current_worker()
        while ended is not None and not worker.is_cancelled:
            if ended(0.1):
                self.post_message(self.EngineEnded())
                return

    @on(EngineEnded)
    async def _after_engine(self) -> None:
        """A clean end is this view's end, too; a death is for the person to read."""
        await self.pull()
        view = self.monitor.live()
        if view is None or view.snapshot.state != "dead":
            self.action_leave()

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def _do(self, verb: Awaitable[Outcome]) -> None:
        self.run_worker(self._done(verb), exit_on_error=False, group="verbs")

    async def _done(self, verb: Awaitable[Outcome]) -> None:
        try:
            outcome = await verb
        except ConnectionError as error:
            outcome = Outcome(ok=False, text=f"no contact: {error}")
        except Exception as error:  # noqa: BLE001 - as in pull
            outcome = Outcome(ok=False, text=f"{type(error).__name__}: {error}")
        self._tell(outcome)
        await self.pull()

    def _tell(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self.monitor.say(f"{'✔' if outcome.ok else '✖'} {outcome.text}", "ok" if outcome.ok else "bad")
            self.board.draw()

    def action_pause(self) -> None:
        if (view := self.monitor.live()) is not None:
            self._do(self.handle.resume(self.actor) if view.held else self.handle.pause(self.actor))

    def action_poll(self) -> None:
        if source := self.monitor.chosen():
            self._do(self.handle.poll_now(source.name, self.actor))

    def action_evict(self) -> None:
        if self.monitor.live() is None:
            return
        scopes = [("all identifiers", EvictScope(kind="all"))]
        if source := self.monitor.chosen():
            scopes.append((f"source {source.name}", EvictScope(kind="source", value=source.name)))

        async def evict(scope: EvictScope, expect: int | None, dry: bool) -> Outcome:  # noqa: FBT001
            return await self.handle.evict(scope, self.actor, expect=expect, dry_run=dry)

        self.push_screen(EvictScreen(evict, scopes, self.monitor.host), self._tell)

    # -- this view -----------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """On a terminal that is too small only what can be seen there works."""
        if action in NEED_ROOM and self.is_mounted(self.board) and self.board.small:
            return False
        return super().check_action(action, parameters)

    def action_help(self) -> None:
        self.board.zoom("help")

    def action_zoom(self, number: int) -> None:
        self.board.zoom(PANES[number - 1])

    def action_open(self) -> None:
        self.monitor.pin()
        if self.board.zoomed != "detail":
            self.board.zoom("detail")

    async def action_back(self) -> None:
        """Close what is open, else let go of the filter; never leave."""
        if self.board.filtering:
            self.monitor.wanted = ""
            self.board.close_filter()
        elif self.board.zoomed:
            self.board.zoom("")
        else:
            self.monitor.wanted = ""
            self.board.draw()

    def action_freeze(self) -> None:
        self.monitor.freeze()
        self.board.draw()

    def action_move(self, by: int) -> None:
        self.monitor.move(by)
        self.board.draw()

    def action_sort(self) -> None:
        self.monitor.next_order()
        self.board.draw()

    def action_filter(self) -> None:
        self.board.zoom("")
        self.board.open_filter()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        if self.board.filtering:
            self.monitor.wanted = event.value
            self.board.draw()

    @on(Input.Submitted, "#filter")
    def _kept(self) -> None:
        self.board.close_filter()

    def action_next_theme(self) -> None:
        names = sorted(self.themes)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.ansi_color = self.themes[self.theme].ansi
        self.monitor.say(f"theme {self.theme}")
        self.board.draw()

    def action_faster(self) -> None:
        self._refresh_every(max(FASTEST, self.monitor.interval / 2))

    def action_slower(self) -> None:
        self._refresh_every(min(SLOWEST, self.monitor.interval * 2))

    def _refresh_every(self, interval: float) -> None:
        self.monitor.interval = interval
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(interval, self._beat)
        self.monitor.say(f"refresh every {interval:g} s")
        self.board.draw()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """The palette names every action."""
        for key in KEYS:
            if key.action != "command_palette":
                title = f"{key.help[0].upper()}{key.help[1:]}"
                yield SystemCommand(title, f"key {key.shown}", partial(self.run_action, key.action))

    # -- leaving -------------------------------------------------------------------------------------------------------

    def action_leave(self) -> None:
        if not self.monitor.leaving:
            self.monitor.leaving = True
            self.board.draw()
            self.run_worker(self._leave(), exit_on_error=False, group="leave")

    def ask_to_leave(self) -> None:
        """Leave soon. May be called from any thread."""
        self.post_message(self.Leave())

    @on(Leave)
    async def action_quit(self) -> None:
        self.action_leave()

    def action_interrupt(self) -> None:
        """Ctrl-C: as `q`; while that is under way, out at once."""
        if self.monitor.leaving:
            self.exit(return_code=INTERRUPTED)
        else:
            self.action_leave()

    async def _leave(self) -> None:
        try:
            code = await self.on_quit() if self.on_quit else 0
        except Exception:  # noqa: BLE001 - whatever stopping failed with, leaving is what was asked for
            code = 1
        self.exit(return_code=code)
