"""Records, their identity, and the signals they become.

A key is a typed list: a namespace, the identity fields, and an occurrence number. In memory it is 16 bytes of blake2b
over its length-prefixed parts, the same on every machine and in every run; `Signal.id` is their hex form.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from engine.text import plain

__all__ = ["Bad", "Named", "Part", "Record", "Signal", "digest", "name_all", "rfc3339", "to_json"]

Part = str | int | bool
"""What a key may hold. Never a float: two servers print the same number differently."""

Key = tuple[Part, ...]

RAW_CHARACTERS = 4096
MAX_TIME = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Record:
    """One item as a source read it."""

    identity: Key
    """Namespace and identity fields."""
    time: float | None
    """The record's own time, seconds since the epoch; None where the source has none."""
    item: Any
    """The item as served, decoded."""
    counted: bool = False
    """Equal records of one read are different events (occurrence 0, 1, ...) and not one event served twice."""


@dataclass(frozen=True, slots=True)
class Bad:
    """An item that cannot be a record, kept for the operator."""

    reason: str
    raw: str
    """The item as ASCII JSON, cut to 4096 characters."""

    @classmethod
    def of(cls, reason: str, item: Any) -> Bad:
        """Quarantine `item`, or what can be kept of it."""
        try:
            raw = json.dumps(item, ensure_ascii=True)
        except (ValueError, RecursionError):
            raw = f"{type(item).__name__} that cannot be written as JSON"
        return cls(plain(reason, 300), raw[:RAW_CHARACTERS])


class Named:
    """A record with its full key."""

    __slots__ = ("_digest", "key", "record")

    def __init__(self, record: Record, key: Key) -> None:
        self.record = record
        self.key = key
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """16 bytes for the key; made when first asked for, since most of a page is history."""
        if self._digest is None:
            self._digest = digest(self.key)
        return self._digest


@dataclass(frozen=True, slots=True)
class Signal:
    """A record accepted once."""

    id: str
    source: str
    key: str
    """The key as a JSON list."""
    event_time: float | None
    seen_time: float
    payload: str
    late: bool

    def line(self) -> str:
        """The JSON object that every sink gets, without a line end."""
        event_time = "null" if self.event_time is None else f'"{rfc3339(self.event_time)}"'
        return (
            f'{{"id": "{self.id}", "source": {json.dumps(self.source)}, "key": {self.key}, "event_time": {event_time}, '
            f'"seen_time": "{rfc3339(self.seen_time)}", "payload": {self.payload}}}'
        )


def rfc3339(seconds: float) -> str:
    """A time as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def to_json(value: Any) -> str:
    """ASCII JSON. Raises ValueError for NaN and infinities, RecursionError for a value nested too deep."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def digest(key: Key) -> bytes:
    """16 bytes that name `key`: blake2b over each part's type, length and UTF-8 form."""
    state = blake2b(digest_size=16)
    for part in key:
        kind = b"s" if isinstance(part, str) else b"b" if isinstance(part, bool) else b"i"
        # Lone surrogates come through JSON escapes; they are told apart here, not repaired.
        data = str(part).encode("utf-8", "surrogatepass")
        state.update(kind + len(data).to_bytes(4, "big") + data)
    return state.digest()


def name_all(records: Iterable[Record]) -> list[Named]:
    """Give each record of one read its full key, in order.

    Counted records that are equal get the occurrence numbers 0, 1, ... over the whole read (a page would be too little:
    one transaction may lie on two). Other records that are equal share one key.
    """
    counts: Counter[Key] = Counter()
    named = []
    for record in records:
        occurrence = counts[record.identity]
        if record.counted:
            counts[record.identity] += 1
        named.append(Named(record, (*record.identity, occurrence)))
    return named
