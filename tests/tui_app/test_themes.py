"""Themes: ours are sound, a user's own are read, a bad one is a message."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from engine.errors import ConfigError
from tests.tui_app import builders as b
from tests.tui_app.bench import bench
from tui_app.themes import choose_theme, load_theme, load_themes, user_folder

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
dark: true
primary: "#112233"
secondary: teal
accent: "#ffcc00"
success: "#00ff00"
warning: "#ffff00"
error: "#ff0000"
foreground: "#ffffff"
background: "#000000"
"""


def test_ours() -> None:
    themes, problems = load_themes()
    assert sorted(themes) == ["ansi-16", "polltop-dark", "polltop-light"]
    assert problems == []
    assert themes["polltop-dark"].dark
    assert not themes["polltop-light"].dark
    assert themes["ansi-16"].ansi


@pytest.mark.parametrize("name", ["polltop-dark", "polltop-light"])
@pytest.mark.parametrize("colour", ["primary", "secondary", "accent", "success", "warning", "error", "foreground"])
def test_our_colours_are_readable_on_their_background(name: str, colour: str) -> None:
    """4.5 to 1 is what WCAG asks of text."""
    theme = load_themes()[0][name]

    def luminance(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert theme.background is not None
    light, dark = sorted((luminance(getattr(theme, colour)), luminance(theme.background)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_a_users_theme_joins_ours_and_may_replace_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "polltop-dark.yml").write_text(GOOD, "utf-8")
    (tmp_path / "notes.txt").write_text("not a theme", "utf-8")
    themes, problems = load_themes(tmp_path)
    assert problems == []
    assert themes["mine"].secondary == "teal"
    assert themes["polltop-dark"].primary == "#112233"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("dark: [", "not YAML"),
        (GOOD.replace('"#112233"', "bluish"), ":3: primary: "),
        (GOOD.replace('accent: "#ffcc00"\n', ""), "accent"),
        (GOOD + "acent: red\n", "acent"),
        (GOOD + "dark: false\n", ":11: dark"),
        (GOOD.replace("dark: true", "dark: maybe"), ":2: dark"),
        ("- a\n- b\n", ":1"),
        ('"[/]": "[@click=app.exit]x[/]"\n', "[/]"),
    ],
)
def test_a_bad_theme_is_a_message_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.yaml").write_text(text, "utf-8")
    (tmp_path / "mine.yaml").write_text(GOOD, "utf-8")
    themes, problems = load_themes(tmp_path)
    assert "bad" not in themes
    assert "mine" in themes
    assert any("bad.yaml" in problem for problem in problems)
    assert said in "\n".join(problems)


def test_a_name_is_a_plain_word(tmp_path: Path) -> None:
    for name in ("[bold]", "My Theme", "x" * 40):
        path = tmp_path / f"{name}.yaml"
        path.write_text(GOOD, "utf-8")
        with pytest.raises(ConfigError, match="small letters"):
            load_theme(path)


def test_a_bad_theme_is_said_in_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text("dark: [", "utf-8")

    async def main() -> None:
        async with bench(size=(120, 30), engine=b.FakeEngine(events=())) as on:
            assert "bad.yaml" in on.text()

    asyncio.run(main())


def test_choice() -> None:
    themes, _ = load_themes()
    assert choose_theme("polltop-light", themes, {"NO_COLOR": "1"}) == "polltop-light"
    assert choose_theme(None, themes, {"TERM": "xterm-256color"}) == "polltop-dark"
    assert choose_theme(None, themes, {"TERM": "xterm", "COLORTERM": "truecolor"}) == "polltop-dark"
    assert choose_theme(None, themes, {"TERM": "linux"}) == "ansi-16"
    for name in ("NO_COLOR", "SSH_CONNECTION", "SSH_TTY"):
        assert choose_theme(None, themes, {"TERM": "xterm-256color", name: "1"}) == "ansi-16"
    with pytest.raises(ConfigError, match=re.escape("'gold': there are ansi-16, polltop-dark, polltop-light; one of")):
        choose_theme("gold", themes, {})
    with pytest.raises(ConfigError, match=r"gold\.yaml:3: not YAML"):
        choose_theme("gold", themes, {}, ["gold.yaml:3: not YAML"])
