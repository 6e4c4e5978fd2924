"""The command `polltop`: flags, where things are, and how the process ends."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from platformdirs import user_state_path

from engine import __version__, log
from engine.clock import SystemClock
from engine.config import Config, default_path, load
from engine.errors import ConfigError, PolltopError, StateHeldError, sole
from engine.logstreams import RotatedFile, Unstalled
from engine.text import plain

__all__ = ["main"]

FAILED = 1
USAGE = 2
HELD = 3
NOT_A_TERMINAL = 74

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to run, once every flag has been read."""

    config: Config
    origin: str
    state_dir: Path


_HELP = {"help_option_names": ["-h", "--help"]}

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Config to use.", metavar="FILE", show_default="config.yaml in your config folder"),
]


@app.callback(invoke_without_command=True, context_settings=_HELP)
def polltop(
    context: typer.Context,
    config: ConfigOption = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Folder for what must survive a restart; one engine at a time.", metavar="DIR")
    ] = None,
    no_ui: Annotated[
        bool,
        typer.Option("--no-ui", help="No screen: signals to stdout, the log to stderr. Chosen by itself in a pipe."),
    ] = False,
    duration: Annotated[
        float | None,
        typer.Option(help="Stop cleanly after SECONDS.", metavar="SECONDS", min=0.0, max=1e9, callback=_number),
    ] = None,
    log_format: Annotated[Literal["text", "json"], typer.Option(help="Form of the log on stderr.")] = "text",
    demo: Annotated[bool, typer.Option("--demo", help="Poll a market API that runs inside, to look around.")] = False,
    scenario: Annotated[
        str | None, typer.Option(help="How the demo behaves: calm or storm. Implies --demo.", metavar="NAME")
    ] = None,
    tape: Annotated[
        Path | None,
        typer.Option(help="Recorded rows (JSON lines) for the demo to replay. Implies --demo.", metavar="FILE"),
    ] = None,
    tape_speed: Annotated[
        float | None,
        typer.Option(
            help="Tape seconds per second; without it the tape lasts ten minutes.",
            metavar="X",
            min=1e-6,
            max=1e12,
            callback=_number,
        ),
    ] = None,
    theme: Annotated[
        str | None, typer.Option(help="Colours: polltop-dark, polltop-light, ansi-16 or your own.", metavar="NAME")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Poll rate-limited HTTP APIs politely, act on each event once, and watch it live.

    Without a flag it opens the monitor on your config; `polltop --demo` needs none.

    Exit codes: 0 done, 1 the engine failed, 2 usage or config, 3 another engine holds the state folder,
    74 not a terminal, 130 interrupted twice.
    """
    if context.invoked_subcommand is not None:
        _only_config(context)
        return
    if version:
        typer.echo(f"polltop {__version__}")
        return
    screen = not no_ui and sys.stdout.isatty()
    if screen:
        _check_terminal()
    if theme is not None and no_ui:
        raise ConfigError(["--theme: --no-ui has no colours; give one or the other"])
    if tape_speed is not None and tape is None:
        raise ConfigError(["--tape-speed: it needs --tape FILE"])
    with ExitStack() as stack:
        if demo or tape is not None or scenario is not None:
            plan = stack.enter_context(_demo(scenario or "calm", tape, tape_speed, state_dir, config))
        else:
            path = config or default_path()
            if config is None and not path.exists():
                _first_steps(path, screen=screen, theme=theme)
                return
            plan = _Plan(load(path), str(path), state_dir or user_state_path("polltop"))
        _run(plan, duration, theme, log_format, screen=screen)


@app.command(context_settings=_HELP)
def check(context: typer.Context, config: ConfigOption = None) -> None:
    """Read a config and say what it will do: requests, limits, and whether they fit. Nothing is sent."""
    from tui_app.check import check_lines

    path = _config_path(context, config)
    _print(check_lines(load(path), str(path), SystemClock()))


@app.command(context_settings=_HELP)
def explain(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="What would be asked for.", metavar="URL")],
    method: Annotated[str, typer.Option(help="How.", metavar="METHOD")] = "GET",
    source: Annotated[str, typer.Option(help="For which source of the config.", metavar="NAME")] = "",
    config: ConfigOption = None,
) -> None:
    """List the limits that a request would be charged, and what it costs under each. Nothing is sent."""
    from tui_app.check import explain_lines

    _print(explain_lines(load(_config_path(context, config)), url, method, source, SystemClock()))


def _config_path(context: typer.Context, config: Path | None) -> Path:
    path = config or (context.parent and context.parent.params.get("config")) or default_path()
    if not path.exists() and path == default_path():
        raise ConfigError(first_steps(path))
    return path


def _only_config(context: typer.Context) -> None:
    """A flag that says nothing to a subcommand is a mistake."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name != "config"}
    given = [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError([f"{flags}: not for `{context.invoked_subcommand}`"])


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)  # noqa: T201 - the command speaks


def main() -> NoReturn:
    """Run the command, and end the process with its exit code. What a user can cause shows no traceback."""
    try:
        app(standalone_mode=True)
    except (PolltopError, BaseExceptionGroup) as group:
        # The engine's tasks end in groups.
        error = sole(group)
        if not isinstance(error, PolltopError):
            raise
        _say(error)
        sys.exit(HELD if isinstance(error, StateHeldError) else USAGE if isinstance(error, ConfigError) else FAILED)
    sys.exit(0)


def _run(
    plan: _Plan, duration: float | None, theme: str | None, log_format: Literal["text", "json"], *, screen: bool
) -> None:
    from engine.store import StateFolder, Store
    from engine.supervisor import Engine

    clock = SystemClock()
    with ExitStack() as stack:
        try:
            folder = StateFolder(plan.state_dir, clock)
        except StateHeldError:
            raise
        except PolltopError as error:
            raise ConfigError([str(error)]) from error
        stack.callback(folder.close)
        if screen:
            try:
                stream = stack.enter_context(RotatedFile(plan.state_dir / "polltop.log"))
            except OSError as error:
                raise ConfigError(
                    [f"{error.filename}: cannot be written: {error.strerror}; see --state-dir"]
                ) from error
            log.configure(stream, log_format)
        else:
            log.configure(stack.enter_context(Unstalled(sys.stderr)), log_format)
        store = Store(plan.state_dir, clock)
        stack.callback(store.close)
        if screen:
            from tui_app.host import run_monitor

            run_monitor(
                lambda: Engine(plan.config, store, clock=clock, origin=plan.origin), seconds=duration, theme=theme
            )
            return
        from engine.sinks.stdout import Stdout
        from tui_app.headless import run_headless

        run_headless(lambda: Engine(plan.config, store, clock=clock, origin=plan.origin, sinks=[Stdout()]), duration)


@contextmanager
def _demo(
    scenario: str, tape: Path | None, speed: float | None, state_dir: Path | None, config: Path | None
) -> Iterator[_Plan]:
    """The embedded upstream, serving, and the plan that polls it. Its state is thrown away unless it has a folder."""
    from engine.demo import Demo, serve_in_thread

    if config is not None:
        raise ConfigError(["--config: a demo brings its own; give one or the other"])
    try:
        demo = Demo(scenario, clock=SystemClock(), tape=tape, tape_speed=speed)
    except ValueError as error:
        raise ConfigError([f"--scenario: {error}"]) from error
    with ExitStack() as stack:
        url = stack.enter_context(serve_in_thread(demo.app))
        folder = state_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polltop-demo-")))
        what = f"demo: {tape.name}" if tape else f"demo: {scenario}"
        yield _Plan(Config.model_validate(demo.config(url)), what, folder)


def _first_steps(path: Path, *, screen: bool, theme: str | None) -> None:
    """No config: say what to do, on a first screen or on stderr."""
    if not screen:
        raise ConfigError(first_steps(path))
    from tui_app.host import run_first_screen

    run_first_screen(first_steps(path), theme=theme)


def first_steps(path: Path) -> list[str]:
    """What to do without a config."""
    return [
        f"There is no config at {path}",
        "Look around first:   polltop --demo",
        "Use another config:  polltop --config FILE",
        "The README explains one for Polymarket, line by line.",
    ]


def _check_terminal() -> None:
    # Textual reads keys from stdin and draws on stderr.
    if os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        _say("polltop: the monitor needs a terminal on stdin, stdout and stderr, not TERM=dumb; or run it with --no-ui")
        sys.exit(NOT_A_TERMINAL)


def _say(what: object) -> None:
    for line in str(what).splitlines():
        print(plain(line, 1000), file=sys.stderr)  # noqa: T201 - the command speaks
