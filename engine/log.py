"""The one log: a line an event, as text or JSON, with nothing in it that acts on a terminal and no secret.

Everything passes `text.plain`, what libraries say through stdlib logging too. Tracebacks show the lines of code, never
the values of locals.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Literal, TextIO, cast

import structlog

from engine.text import plain

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

__all__ = ["Format", "Level", "configure", "get"]

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

# httpx logs full URLs at INFO, with passwords and keys in them; uvicorn's loggers bring handlers of their own.
_CHATTY = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "anyio": logging.WARNING,
    # It reports each client that leaves, and its own stop, as errors.
    "uvicorn": logging.CRITICAL + 1,
    "uvicorn.error": logging.CRITICAL + 1,
    "uvicorn.access": logging.CRITICAL + 1,
}
_MAX_TRACEBACK_LINES = 60
_MAX_ITEMS = 100
_MAX_DEPTH = 4
_MAX_NUMBER = 1e300  # beyond it stand infinity, NaN (JSON has neither) and integers that Python refuses to print
_BARE = re.compile(r"[^\s\"'=\\]+")


def configure(stream: TextIO, format: Format = "text", level: Level = "info") -> None:  # noqa: A002
    """Send the log of this process to `stream`, replacing what was configured before.

    JSON: one object a line with `time` (RFC 3339, UTC, milliseconds), `level`, `event`, then the fields. Text:
    `HH:MM:SSZ level event key=value ...`. A stream that can no longer be written loses lines, and nothing else.
    """
    writer = _Writer(stream)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%f", utc=True, key="time"),
            _json_line if format == "json" else _text_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,  # a demo or a test configures again
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]  # any other would write what is not redacted
    root.setLevel(logging.WARNING)
    for name, quiet in _CHATTY.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(quiet)


def get() -> FilteringBoundLogger:
    """The logger: `get().info("poll finished", source=name)`. It follows the last `configure`."""
    return cast("FilteringBoundLogger", structlog.get_logger())


class _Writer:
    """Writes whole lines and never raises: a log that nobody can read must not stop the engine."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()  # two threads, and a signal handler may log amid a line

    def msg(self, line: str) -> None:
        # OSError: the reader is gone, the disk is full. ValueError: the stream is closed.
        with self._lock, suppress(OSError, ValueError):
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:  # LANG=C: better escaped than lost
                self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _Forward(logging.Handler):
    """Hands stdlib records to the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = record.getMessage()
        except Exception:  # noqa: BLE001 - logging's own answer prints the raw arguments to stderr
            event = str(record.msg)
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        get().log(level, event, logger=record.name, exc_info=record.exc_info)


def _taken_apart(event_dict: EventDict) -> tuple[str, str, str, dict[str, object], list[str]]:
    """Time, level, event, fields and traceback, all harmless."""
    fields: dict[str, object] = dict(event_dict)
    time, level, event = (str(fields.pop(key)) for key in ("time", "level", "event"))
    lines = _traceback(fields.pop("exc_info", None))
    clean = {plain(key, 64): _harmless(value, _MAX_DEPTH) for key, value in fields.items()}
    return f"{time[:-3]}Z", level, plain(event), clean, lines


def _json_line(_: WrappedLogger, __: str, event_dict: EventDict) -> str:
    time, level, event, fields, lines = _taken_apart(event_dict)
    trailer = {"traceback": lines} if lines else {}
    return json.dumps({"time": time, "level": level, "event": event, **fields, **trailer})


def _text_line(_: WrappedLogger, __: str, event_dict: EventDict) -> str:
    time, level, event, fields, lines = _taken_apart(event_dict)
    words = [f"{time[11:19]}Z", level, event, *(f"{key}={_worded(value)}" for key, value in fields.items())]
    return "\n".join([" ".join(words), *(f"  | {line}" for line in lines)])


def _worded(value: object) -> str:
    """A value that holds no space or quote as it is; any other in JSON, so that it cannot pass for a further field."""
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _harmless(value: object, depth: int) -> object:
    if value is None or (isinstance(value, int | float) and abs(value) < _MAX_NUMBER):
        return value
    if isinstance(value, Mapping) and depth:
        return {plain(key, 64): _harmless(item, depth - 1) for key, item in islice(value.items(), _MAX_ITEMS)}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_harmless(item, depth - 1) for item in islice(value, _MAX_ITEMS)]
    return plain(value)


def _traceback(exc_info: object) -> list[str]:
    """Lines of the traceback, groups and causes included, innermost last; empty without an exception."""
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    elif exc_info and not isinstance(exc_info, BaseException):
        exc_info = sys.exception()
    if not isinstance(exc_info, BaseException):
        return []
    told = traceback.TracebackException.from_exception(exc_info, limit=-20, capture_locals=False, compact=True)
    lines = [plain(line) for chunk in told.format() for line in chunk.rstrip("\n").split("\n")]
    return lines[-_MAX_TRACEBACK_LINES:]
