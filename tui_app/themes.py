"""Themes: the files that come with polltop and the user's own, one YAML file each."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict
from textual.color import Color, ColorParseError
from textual.theme import Theme

from engine.errors import ConfigError
from engine.text import plain
from engine.yamlfile import read_yaml, validate

__all__ = ["ThemeFile", "choose_theme", "load_theme", "load_themes", "user_folder"]

DARK: Final = "polltop-dark"
PLAIN: Final = "ansi-16"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

_ANSI: Final = {"ansi-background": "ansi_default", "ansi-foreground": "ansi_default", "text-muted": "ansi_default"}
"""What Textual's own style sheets ask of such a theme, or would mix to an exact colour."""


def _colour(value: str) -> str:
    try:
        Color.parse(value)
    except ColorParseError:
        # The parser's own message suggests web names, but echoes the value over several lines.
        raise ValueError('not a colour; use "#rrggbb", a web name or ansi_blue') from None
    return value


Colour = Annotated[str, AfterValidator(_colour)]


class ThemeFile(BaseModel):
    """What a theme file may say. Colours are `"#rrggbb"` (in quotes), web names, or `ansi_blue` and its like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dark: bool
    ansi: bool = False
    """Send the terminal's own sixteen colours instead of exact ones; all colours are `ansi_...` names then."""
    primary: Colour
    """Titles and bars."""
    secondary: Colour
    """Names, and what is only to be known."""
    accent: Colour
    """Keys."""
    success: Colour
    """Running, live."""
    warning: Colour
    """Backing off, paused, degraded."""
    error: Colour
    """Dead, failing, stale."""
    foreground: Colour
    background: Colour
    surface: Colour | None = None
    panel: Colour | None = None
    boost: Colour | None = None
    variables: dict[str, str] = {}
    """Further variables of Textual's style sheets."""


def load_theme(path: Path) -> Theme:
    """One theme; its name is the file's. Raises ConfigError."""
    if not NAME.fullmatch(path.stem):
        raise ConfigError([plain(f"{path}: a theme is named in small letters, digits and hyphens", 300)])
    found = validate(ThemeFile, read_yaml(path))
    variables = {**(_ANSI if found.ansi else {}), **found.variables}
    return Theme(name=path.stem, **{**found.model_dump(), "variables": variables})


def user_folder() -> Path:
    """Where a user's own themes are."""
    return platformdirs.user_config_path("polltop") / "themes"


def load_themes(folder: Path | None = None) -> tuple[dict[str, Theme], list[str]]:
    """All themes by name, and what is wrong with files that could not be used. A user's theme replaces one of ours."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    with importlib.resources.as_file(importlib.resources.files("themes")) as ours:
        for path in _files(ours):
            themes[path.stem] = load_theme(path)
    try:
        own = list(_files(user_folder() if folder is None else folder))
    except OSError as error:
        return themes, [plain(f"themes: {error.filename}: {error.strerror}", 300)]
    for path in own:
        try:
            themes[path.stem] = load_theme(path)
        except ConfigError as error:
            problems += error.problems
    return themes, problems


def _files(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".yml"} and path.is_file())


def choose_theme(
    name: str | None, themes: Mapping[str, Theme], environ: Mapping[str, str], problems: Sequence[str] = ()
) -> str:
    """The theme asked for, else the one that suits the terminal.

    Raises ConfigError for a name that does not exist; its file may be among the `problems` that `load_themes` found.
    """
    if name is not None:
        if name not in themes:
            own = user_folder() / f"{name}.yaml"
            there = f"there are {', '.join(sorted(themes))}; one of your own is {own}"
            raise ConfigError([*problems, plain(f"no theme {name!r}: {there}", 500)])
        return name
    term = environ.get("TERM", "")
    few = environ.get("COLORTERM") not in {"truecolor", "24bit"} and "256" not in term and "direct" not in term
    if environ.get("NO_COLOR") or environ.get("SSH_CONNECTION") or environ.get("SSH_TTY") or few:
        return PLAIN
    return DARK
