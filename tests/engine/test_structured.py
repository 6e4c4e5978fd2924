"""Structured fields are read as RFC 9651 says, or not at all."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.structured import Bare, Item, Token, parse_list


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("   ", []),
        ('"a"', [("a", {})]),
        (' "a" , b\t,\tc ', [("a", {}), ("b", {}), ("c", {})]),
        ("a;q=100;w=60,b;q=1000;w=86400", [("a", {"q": 100, "w": 60}), ("b", {"q": 1000, "w": 86400})]),
        ("a \t", [("a", {})]),
        ('"default"; r=50;  t=30', [("default", {"r": 50, "t": 30})]),
        ('"a";pk=:cHsdsRa894==:', [("a", {"pk": base64.b64decode("cHsdsRa894==")})]),
        ("a;pk=:aGk:", [("a", {"pk": b"hi"})]),
        ("a;pk=::", [("a", {"pk": b""})]),
        ("a;b;c=?0;d=?1", [("a", {"b": True, "c": False, "d": True})]),
        ("a;x=1;x=2", [("a", {"x": 2})]),
        ("a;*k-_.1=-0.5", [("a", {"*k-_.1": -0.5})]),
        ("-7;a=999999999999999", [(-7, {"a": 10**15 - 1})]),
        ("123456789012.123", [(123456789012.123, {})]),
        (r'"say \"hi\" \\ ok"', [(r'say "hi" \ ok', {})]),
        ("*tok/en:x~", [("*tok/en:x~", {})]),
        ("a;at=@1659578233", [("a", {"at": 1659578233})]),
        ('%"f%c3%bc"', [("fü", {})]),
    ],
)  # fmt: skip
def test_lists_are_read(text: str, items: list[Item]) -> None:
    assert parse_list(text) == items


@pytest.mark.parametrize(
    "text",
    [
        ",", "a,", ",a", "a,,b", "a b", "a;", "a;;b", "a ;b=1", "a;b =1", "a;b= 1", "a;B=1", "a;1=1", "a=1", "(a b)",
        "a;b=(c)", '"a', '"a\\b"', '"a\tb"', '"ü"', "\ta", "é", "1.", ".5", "1.2345", "1234567890123.1", "--1", "+1",
        "1234567890123456", "1_0", "\uff11", "?2", "?", ":a", ":a:", ":a-b=:", ":====a:", "@", "@1.5", '%"%C3"', "%a",
        '%"%c3"', '%"%4"', '"fixed window";"resolvers";q=3000;w=300',
        ":aG=k:", "a;\tb=1",
    ],
)  # fmt: skip
def test_what_is_malformed_is_no_list(text: str) -> None:
    assert parse_list(text) is None


KEYS = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,5}", fullmatch=True)
BARE: st.SearchStrategy[Bare] = st.one_of(
    st.booleans(),
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=9),
    st.from_regex(r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]{0,8}", fullmatch=True).map(Token),
    st.binary(max_size=9),
)


def written(value: Bare) -> str:
    """As RFC 9651 4.1 serialises it."""
    match value:
        case bool():
            return f"?{value:d}"
        case int():
            return str(value)
        case float():
            return f"{value:.3f}"
        case Token():
            return str(value)
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', r"\"") + '"'
        case _:
            return f":{base64.b64encode(value).decode()}:"


@given(st.lists(st.tuples(BARE, st.dictionaries(KEYS, BARE, max_size=3)), max_size=4))
def test_what_was_written_is_read(items: list[Item]) -> None:
    text = ", ".join(
        written(value)
        + "".join(f";{key}" + ("" if extra is True else f"={written(extra)}") for key, extra in more.items())
        for value, more in items
    )
    read = parse_list(text)
    assert read == items
    kinds = [[type(value), *map(type, more.values())] for value, more in items]
    assert [[type(value), *map(type, more.values())] for value, more in read or []] == kinds


@given(st.one_of(st.text(max_size=30), st.text('a"\\;=,:?@%1.- \tb*()', max_size=30)))
@example("9" * 5_000)
@example("a;b=:" + "/" * 4_097 + ":")
def test_nothing_raises(text: str) -> None:
    read = parse_list(text)
    assert read is None or all(isinstance(more, dict) for _, more in read)
