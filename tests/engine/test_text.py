"""plain() and conceal(): what goes in from outside comes out as one harmless line without secrets."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from unicodedata import category
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import text
from engine.text import conceal, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "can^ary:Se'cret \\/Ω=9"
LOST = "\ufffd"
KEPT = "می\u200cخواهم 👨\u200d👩\u200d👧 क्\u200dष 東京"  # noqa: RUF001 - Persian, on purpose


@pytest.fixture(autouse=True)
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(text, "_vault", text._Vault())
        yield


@pytest.mark.parametrize(
    "outside, shown",
    [
        ("plain [bold]text[/] stays", "plain [bold]text[/] stays"),
        ("a\tb\nc\rd", "a b c d"),
        ("\x1b[31mred\x07", f"{LOST}[31mred{LOST}"),
        ("\x7f\x80\x9b\x9f\x85", LOST * 5),
        ("\u202a\u202e\u2066\u2069\u200e\u200f\u061c", LOST * 7),
        ("\u2028\u2029", LOST * 2),
        ("\u200b\ufeff\u2060\u00ad", LOST * 4),
        ("\U000e0001\U000e0041\U000e007f", LOST * 3),
        ("\ud800\udfff", LOST * 2),
        ("\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff", LOST * 6),
        (KEPT, KEPT),
        ("a" + "\u0301" * 20 + "b", "a" + "\u0301" * 8 + "b"),
        ("a" + "\u0301\u200d" * 20, "a" + "\u0301\u200d" * 4),
        ("\u0301\u0301a", "a"),
        (None, "None"),
        (4.5, "4.5"),
        (ValueError("x\ny"), "x y"),
    ],
)
def test_outside_text_is_made_harmless(outside: object, shown: str) -> None:
    assert plain(outside) == shown


def test_a_long_text_ends_in_an_ellipsis_within_the_limit() -> None:
    assert plain("x" * 512) == "x" * 512
    assert plain("x" * 513) == "x" * 511 + "…"
    assert plain("x" * 10_000_000, 5) == "xxxx…"
    assert plain("abcdef", 1) == "…"
    assert plain("a" + "\u0301" * 100_000, 100) == "a" + "\u0301" * 8 + "…"


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Sulky:
        def __str__(self) -> str:
            raise RuntimeError

    assert plain(Sulky()) == "<Sulky>"


@given(st.text(st.characters(exclude_categories=[])), st.integers(1, 60))
@example("\ud83d\u200d\u0301\u202e\x9b31m\U000e0041", 4)
@example("\u0301" * 50 + "a" + "\u200d" * 50, 7)
@example("x\tpass word", 60)
def test_nothing_that_acts_survives_and_twice_is_once(outside: str, limit: int) -> None:
    conceal("pass word")
    shown = plain(outside, limit)
    assert len(shown) <= limit
    assert plain(shown, limit) == shown
    assert all(char in "\u200c\u200d" or category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in shown)
    assert all(ord(char) & 0xFFFE != 0xFFFE and not 0xFDD0 <= ord(char) <= 0xFDEF for char in shown)
    shown.encode()


@pytest.mark.parametrize(
    "served",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET, safe="/:"),
        quote(SECRET, safe="").replace("%5E", "%5e").replace("%CE%A9", "%ce%a9"),
        quote_plus(SECRET),
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        repr(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        quote(base64.b64encode(SECRET.encode()).decode(), safe=""),
    ],
)
def test_a_concealed_secret_is_replaced_in_every_form(served: str) -> None:
    conceal(SECRET)
    assert plain(f"key=<{served}>") == "key=<***>"


def test_both_alphabets_of_base64_are_known() -> None:
    conceal("??>>??>>canary")
    assert plain("Pz8+Pj8/Pj5jYW5hcnk= Pz8-Pj8_Pj5jYW5hcnk=") == "*** ***"


@pytest.mark.parametrize("before", ["", "u:", "us:", "usr:"])
@pytest.mark.parametrize("after", ["", "!", "!!"])
def test_a_secret_within_a_longer_base64_text_is_replaced(before: str, after: str) -> None:
    conceal("canary-secret-token")
    served = base64.b64encode(f"{before}canary-secret-token{after}".encode()).decode()
    shown = plain(f"Basic {served}")
    assert "***" in shown
    # What is left over cannot be told apart from its neighbours: at most a character and padding on each side of it.
    assert len(shown.removeprefix("Basic ").replace("***", "")) <= 4 + len(before) + len(after) + 3


def test_a_secret_across_the_cut_is_not_shown_in_part() -> None:
    conceal("hunter2hunter2")
    for limit in (4, 20):
        assert "hunt" not in plain("a" * (limit - 3) + "hunter2hunter2", limit)
        for end in range(150):
            # Marks beyond the eighth are dropped, so that the far end of what was looked at comes into sight.
            assert "h" not in plain("a" + "\u0301" * (4 * limit + end) + "hunter2hunter2" + "x" * 100, limit)
    assert plain("x" * 1000, 5) == "xxxx…"


def test_the_longer_of_two_secrets_wins_and_lines_are_secrets_of_their_own() -> None:
    conceal("abcd", "abcdefgh", "-----BEGIN\nline-two\tx\n")
    assert plain("abcdefgh abcd line-two\tx -----BEGIN") == "*** *** *** ***"


def test_a_short_secret_is_ignored() -> None:
    conceal("", "abc", "   \t   ")
    assert plain("abc       ") == "abc       "
