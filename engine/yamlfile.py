"""YAML files that people write (config, themes): read with line numbers, checked with every problem told at once.

Keys are taken as they are written (`no:` is the key "no"), dates stay text, and only the plain YAML types exist: no tag
makes an object. Aliases work, merge keys (`<<`) do not.
"""

from __future__ import annotations

import difflib
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from engine.errors import ConfigError
from engine.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

__all__ = ["Document", "Loc", "read_yaml", "validate"]

Loc = tuple[str | int, ...]
"""Where a value is: keys and positions from the root."""
Model = TypeVar("Model", bound=BaseModel)

_MAX_BYTES = 1 << 20
_MAX_VALUES = 100_000  # an alias counts each time it is used: ten lines of them can mean billions of values
_MAX_DEPTH = 32
_TAG = "tag:yaml.org,2002:"
_TEXTS = {_TAG + "str", _TAG + "timestamp"}
_OTHERS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}


@dataclass
class Document:
    """What a file says, the line of each value, and what is wrong with it so far."""

    path: Path
    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    problems: list[tuple[int, Loc, str]] = field(default_factory=list)

    def line(self, loc: Loc) -> int:
        """The line of the value at `loc`, or of what would hold it. Counts from 1."""
        return next((self.lines[loc[:n]] for n in range(len(loc), -1, -1) if loc[:n] in self.lines), 1)

    def add(self, loc: Loc, reason: str, line: int | None = None) -> None:
        """Note a problem; `reason` must not hold the value when that may be a secret."""
        self.problems.append((line or self.line(loc), loc, reason))

    def error(self) -> ConfigError:
        """All problems in line order, as `FILE:LINE: field: reason`."""
        return ConfigError([
            plain(f"{self.path}:{line}: {_shown(loc)}{': ' if loc else ''}{reason}", 2000)
            for line, loc, reason in sorted(self.problems, key=lambda problem: problem[0])
        ])  # fmt: skip


def read_yaml(path: Path) -> Document:
    """Read `path`, at most 1 MiB of UTF-8.

    What is wrong within a readable file (a key given twice, a strange tag) is noted in the document for `validate` to
    raise with the rest. Raises ConfigError for a file that cannot be read at all.
    """
    document = Document(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError([plain(f"{path}: cannot be read: {why}", 2000)]) from error
    if len(raw) > _MAX_BYTES:
        raise ConfigError([plain(f"{path}: larger than 1 MiB", 2000)])
    try:
        root, loader = _composed(raw)
        _Builder(document, loader).fill(root)
    except UnicodeDecodeError as error:
        document.add((), f"not UTF-8 (byte 0x{raw[error.start]:02x})", raw.count(b"\n", 0, error.start) + 1)
    except yaml.reader.ReaderError as error:
        line = raw.decode().count("\n", 0, error.position) + 1
        document.add((), f"not YAML: the character U+{int(error.character):04X} is not allowed", line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        text = raw.decode().splitlines()[line - 1 : line]
        hint = " (put a value with ${NAME} in quotes here)" if text and "${" in text[0] else ""
        document.add((), f"not YAML: {error.problem or error.context}{hint}", line)
    except RecursionError:
        document.add((), f"nested more than {_MAX_DEPTH} deep")
    except _TooMuchError as error:
        document.add((), str(error))
    else:
        return document
    raise document.error()


def validate(model: type[Model], document: Document, context: Mapping[str, object] | None = None) -> Model:
    """The document as a `model`, which sees `context` while it validates.

    Raises ConfigError with every problem: those noted in the document and those that the model finds.
    """
    if document.data is None:
        document.add((), "the file is empty")
        raise document.error()
    try:
        valid = model.model_validate(document.data, context=dict(context or {}))
    except ValidationError as invalid:
        noted = {loc for _, loc, _ in document.problems}
        for error in invalid.errors(include_url=False):
            loc, siblings = _follow(model, error["loc"])
            if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
                loc = (*loc, error["ctx"]["discriminator"][1:-1])  # pydantic quotes it
            # A value that could not be read, and a whole whose part is wrong, say nothing new.
            whole = error["type"] == "value_error" and any(bad[: len(loc)] == loc for bad in noted)
            if loc not in noted and not whole:
                document.add(loc, _reason(error, siblings))
    else:
        if not document.problems:
            return valid
    raise document.error()


class _TooMuchError(Exception):
    pass


def _composed(raw: bytes) -> tuple[yaml.Node | None, yaml.SafeLoader]:
    loader = yaml.SafeLoader(raw.decode())
    return loader.get_single_node(), loader


class _Builder:
    """Turns PyYAML's nodes into data, noting lines: its own constructor keeps none, and the last of two keys wins."""

    def __init__(self, document: Document, loader: yaml.SafeLoader) -> None:
        self._document = document
        self._loader = loader
        self._values = 0

    def fill(self, root: yaml.Node | None) -> None:
        if root is not None:
            self._document.data = self._value(root, ())

    def _value(self, node: yaml.Node, loc: Loc) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _TooMuchError(f"more than {_MAX_VALUES} values")
        if len(loc) > _MAX_DEPTH:
            raise _TooMuchError(f"nested more than {_MAX_DEPTH} deep")
        self._document.lines.setdefault(loc, _line(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._value(item, (*loc, at)) for at, item in enumerate(node.value)]
        if node.tag in _TEXTS:
            return node.value
        if node.tag not in _OTHERS:
            self._document.add(loc, f"the tag {node.tag.replace(_TAG, '!!')} is not supported", _line(node))
            return None
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError, OverflowError):
            self._document.add(loc, f"not a valid {node.tag.removeprefix(_TAG)}", _line(node))

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.add(loc, "a key must be plain text", _line(key_node))
                continue
            key = key_node.value
            here = (*loc, key)
            if key in result:
                self._document.add(here, f"given twice (first on line {self._document.lines[here]})", _line(key_node))
                continue
            self._document.lines[here] = _line(key_node)
            result[key] = self._value(value, here)
        return result


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(loc: Loc) -> str:
    """`sources[0].headers.X-Key`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _follow(model: type[BaseModel], loc: Loc) -> tuple[Loc, Iterable[str]]:
    """Pydantic's `loc` without the tags of unions, and the names that are known beside its last part.

    At a union's own error: the tags that it knows.
    """
    here: Any = model
    shown: list[str | int] = []
    siblings: Iterable[str] = ()
    for part in loc:
        members = _members(here)
        if len(members) > 1:
            here = next((member for member in members if part in _tags(member)), None)
            continue
        if part == "[key]":  # pydantic's mark for a complaint about a key, not its value
            continue
        shown.append(part)
        here = members[0]
        if isinstance(here, type) and issubclass(here, BaseModel):
            siblings = here.model_fields
            known = here.model_fields.get(str(part))
            here = known.annotation if known else None
        else:
            here = (get_args(here) or (None,))[-1]  # the items of a list, the values of a dict
    members = _members(here)
    if len(members) > 1:
        siblings = [tag for member in members for tag in _tags(member)]
    return tuple(shown), siblings


def _members(annotation: Any) -> tuple[Any, ...]:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(bare for member in get_args(annotation) if member is not type(None) for bare in _members(member))
    return (annotation,)


def _tags(member: Any) -> list[str]:
    """The values by which a tagged union tells this member."""
    fields = member.model_fields.values() if isinstance(member, type) and issubclass(member, BaseModel) else ()
    return [tag for known in fields if get_origin(known.annotation) is Literal for tag in get_args(known.annotation)]


_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
    "path_type": "a path",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def _reason(error: ErrorDetails, siblings: Iterable[str]) -> str:
    """What is wrong, in the words of someone who writes the file. Never holds the value, but for an unknown tag."""
    kind = error["type"]
    ctx = error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"unknown key{_guess(error['loc'][-1], siblings)}"
    if kind == "union_tag_not_found":
        return f"is missing; known: {', '.join(siblings)}"
    if kind == "union_tag_invalid":
        guess = _guess(ctx["tag"], siblings)
        return f"unknown {ctx['discriminator'][1:-1]} {ctx['tag']!r}{guess}; known: {', '.join(siblings)}"
    if kind == "value_error":
        return str(ctx["error"])
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {_got(kind, error['input'])}"
    if kind in _BOUNDS:
        key, word = _BOUNDS[kind]
        return f"must be {word} {ctx[key]:.15g}"
    if kind == "too_short":
        return f"needs at least {ctx['min_length']}, has {ctx['actual_length']}"
    if kind == "too_long":
        return f"takes at most {ctx['max_length']}"
    return error["msg"].replace("Input should be", "must be")


def _guess(word: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def _got(kind: str, value: object) -> str:
    quote = ": put it in quotes" if kind == "string_type" else ""
    if isinstance(value, bool):
        note = " (an unquoted yes, no, on or off means true or false)" if quote else ""
        return f"{str(value).lower()}{note}{quote}"
    if isinstance(value, int):
        if kind == "float_type":
            return "one that is too large"
        return f"a number{' (unquoted digits and 0x... are numbers)' if quote else ''}{quote}"
    if isinstance(value, float):
        return f"a number with a fraction{quote}"
    names: dict[type, str] = {str: "text", list: "a list", dict: "keys with values"}
    return names.get(type(value), "nothing")
