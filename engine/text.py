"""The one place that makes outside text harmless before it is shown or logged, and keeps secrets out of it.

Textual markup is not its job: `[bold]` is legal text. A view shows what comes from here as a Text or Content object,
never as a markup string.
"""

from __future__ import annotations

import base64
import re
from unicodedata import category

__all__ = ["conceal", "plain"]

_LOST = "\ufffd"
_STAND_IN = "***"
_SHORTEST_SECRET = 4
_MARKS_IN_A_RUN = 8
# ZWNJ and ZWJ stay: without them Persian and the Indic scripts are misspelt and families of emoji fall apart. They move
# no cursor and reorder nothing; they count as marks, so a run of them is bounded. Other zero-width characters go.
_JOINERS = "\u200c\u200d"
# Controls (C0, DEL, C1), formats (bidi controls, zero width, BOM, tags), surrogates, line and paragraph separators.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def plain(value: object, limit: int = 512) -> str:
    r"""`str(value)` as one line that acts on nothing: no control, escape sequence, bidi trick, line break or secret.

    Tab, newline and carriage return become a space, other unsafe characters U+FFFD; a run of combining marks ends after
    8, and marks with nothing to sit on are dropped; concealed secrets become `***`. A text over `limit` characters
    (code points, not cells; at least 1) ends in an ellipsis within it. Work is bounded by `limit`, whatever the length.
    Never raises; applying it twice changes nothing.
    """
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - whatever is being reported, reporting it must not fail
        text = f"<{type(value).__name__}>"
    head = text[: 4 * limit + _vault.longest]
    clean = _vault.redact(_harmless(head))
    if len(head) < len(text):
        # The cut may have gone through a secret, and half of one is not recognised.
        clean = clean[: max(0, len(clean) - _vault.longest)]
    elif len(clean) <= limit:
        return clean
    return clean[: limit - 1] + "…"


def conceal(*secrets: str) -> None:
    """From now on `plain` shows `***` for each of these, process-wide: as it is, percent-encoded or in base64.

    A secret of several lines is concealed line by line as well. Below 4 characters one is ignored: `***` in every other
    word would hide nothing but the sense.
    """
    for secret in secrets:
        for part in (secret, *secret.splitlines()):
            if len(bare := part.strip()) >= _SHORTEST_SECRET:
                _vault.add(bare)


def _harmless(text: str) -> str:
    kept = []
    run = _MARKS_IN_A_RUN  # marks at the very start would land on what the screen shows to the left of them
    for char in text:
        run = run + 1 if char in _JOINERS or category(char).startswith("M") else 0
        if run <= _MARKS_IN_A_RUN:
            kept.append(_safe(char))
    return "".join(kept)


def _safe(char: str) -> str:
    if char in "\t\n\r":
        return " "
    if char in _JOINERS:
        return char
    point = ord(char)
    noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF  # noqa: PLR2004 - as Unicode defines them
    return _LOST if noncharacter or category(char) in _UNSAFE else char


class _Vault:
    """The secrets of this process and one expression that finds them in text that is already harmless."""

    def __init__(self) -> None:
        self.longest = 0
        """Characters of the longest form that a secret can take in a text."""
        self._forms: set[str] = set()
        self._found: re.Pattern[str] | None = None

    def add(self, secret: str) -> None:
        forms = {secret, *_base64_forms(secret.encode("utf-8", "surrogatepass"))}
        if not forms <= self._forms:
            self._forms |= forms
            self.longest = max(self.longest, *(3 * len(form.encode("utf-8", "surrogatepass")) for form in forms))
            self._found = None

    def redact(self, text: str) -> str:
        if not self._forms:
            return text
        if self._found is None:
            longest_first = sorted(self._forms, key=len, reverse=True)  # a secret may begin with another one
            self._found = re.compile("|".join(map(_expression, longest_first)))
        return self._found.sub(_STAND_IN, text)


def _expression(form: str) -> str:
    """Matches `form` however its characters are percent-encoded or escaped: which of them are is up to the encoder."""
    return "".join(
        re.escape(char)
        if char.isascii() and char.isalnum()
        else f"(?:\\\\?{re.escape(_safe(char))}|(?i:{_percent(char)}){'|[+]' if char == ' ' else ''})"
        for char in form
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _base64_forms(secret: bytes) -> set[str]:
    """The secret's own base64, and what shows of it in the base64 of a longer text (`user:secret`), at any offset."""
    forms = set()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(secret).decode()
        forms |= {whole, whole.rstrip("=")}
        for before in range(3):
            # Only characters whose six bits all come from the secret are the same whatever stands around it.
            first, last = -(-8 * before // 6), 8 * (before + len(secret)) // 6
            forms.add(encode(b"\0" * before + secret).decode()[first:last])
    return forms


_vault = _Vault()
