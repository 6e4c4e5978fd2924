"""Lists of HTTP structured fields (RFC 9651), as far as the fields that are read here use them: items with parameters.

    "burst";q=100;w=60, "daily";q=1000;w=86400;pk=:dXNlcg==:

Strict, as RFC 9651 4.2 asks: what does not parse to its last character is no list at all. Inner lists are not read, so
that a field with one is malformed too. Time is linear in the length of the text, and nothing raises.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

__all__ = ["Bare", "Item", "Token", "parse_list"]


class Token(str):
    """A word without quotes (RFC 9651 3.3.4), told apart from a string."""

    __slots__ = ()


Bare = bool | int | float | str | bytes
Item = tuple[Bare, dict[str, Bare]]
"""A value and its parameters; a parameter without a value is True."""


def _bytes(text: str) -> bytes:
    encoded = text[1:-1].rstrip("=")
    # RFC 9651 4.2.7: missing padding is made good.
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)


_KINDS: dict[str, tuple[str, Callable[[str], Bare]]] = {
    "decimal": (r"-?[0-9]{1,12}\.[0-9]{1,3}", float),
    "integer": (r"-?[0-9]{1,15}", int),
    "string": (r'"(?:[ !#-\[\]-~]|\\["\\])*"', lambda text: re.sub(r"\\(.)", r"\1", text[1:-1])),
    "token": (r"[A-Za-z*][-!#$%&'*+.^_`|~0-9A-Za-z:/]*", Token),
    "bytes": (r":[A-Za-z0-9+/=]*:", _bytes),
    "boolean": (r"\?[01]", lambda text: text == "?1"),
    "date": (r"@-?[0-9]{1,15}", lambda text: int(text[1:])),
    "display": (
        r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"',
        lambda text: unquote_to_bytes(text[2:-1]).decode("utf-8"),
    ),
}
_BARE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in _KINDS.items()))
_KEY = re.compile(r"; *([a-z*][-a-z0-9_.*]*)(=?)")
_COMMA = re.compile(r"[ \t]*,[ \t]*")


def parse_list(text: str) -> list[Item] | None:
    """The items of a field (RFC 9651 4.2.1), several lines of it joined with commas; None when it is malformed."""
    text = text.lstrip(" ").rstrip(" \t")
    items: list[Item] = []
    at = 0
    try:
        while at < len(text):
            value, at = _bare(text, at)
            parameters, at = _parameters(text, at)
            items.append((value, parameters))
            if at == len(text):
                break
            if (comma := _COMMA.match(text, at)) is None or comma.end() == len(text):
                return None
            at = comma.end()
    except (ValueError, binascii.Error):
        return None
    return items


def _bare(text: str, at: int) -> tuple[Bare, int]:
    match = _BARE.match(text, at)
    if match is None or match.lastgroup is None:
        raise ValueError(at)
    return _KINDS[match.lastgroup][1](match.group()), match.end()


def _parameters(text: str, at: int) -> tuple[dict[str, Bare], int]:
    parameters: dict[str, Bare] = {}
    while (key := _KEY.match(text, at)) is not None:
        parameters[key[1]], at = _bare(text, key.end()) if key[2] else (True, key.end())
    return parameters, at
