"""The log: one line an event, redacted, whoever writes it, and never a reason to fail."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from engine import log, text
from engine.text import conceal

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary-5ecret-token"


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(text, "_vault", text._Vault())
    root = logging.getLogger()
    loggers = [root, *map(logging.getLogger, log._CHATTY)]
    before = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate
    structlog.reset_defaults()


def throw(error: Exception) -> None:
    raise error


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_time_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    log.configure(stream := io.StringIO(), "json", "info")
    log.get().info("now")
    monkeypatch.undo()
    time.tzset()
    written = datetime.fromisoformat(objects(stream)[0]["time"])
    assert abs(written - datetime.now(UTC)) < timedelta(minutes=1)


def test_json_is_one_object_a_line_with_time_level_event_first() -> None:
    log.configure(stream := io.StringIO(), "json", "info")
    log.get().info("poll finished", source="whales", rows=3, ok=True, none=None)
    log.get().debug("not shown")
    (line,) = objects(stream)
    assert list(line) == ["time", "level", "event", "source", "rows", "ok", "none"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {"level": "info", "event": "poll finished", "source": "whales", "rows": 3, "ok": True, "none": None}


def test_text_is_a_clock_a_level_an_event_and_pairs() -> None:
    log.configure(stream := io.StringIO(), "text", "debug")
    log.get().debug("poll finished", source="whales", rows=3, note="a b", forged='x" level=error')
    assert re.fullmatch(
        r'\d\d:\d\d:\d\dZ debug poll finished source=whales rows=3 note="a b" forged="x\\" level=error"\n',
        stream.getvalue(),
    )


@pytest.mark.parametrize("kind", ["text", "json"])
def test_no_value_acts_on_a_terminal_or_makes_a_line(kind: log.Format) -> None:
    log.configure(stream := io.StringIO(), kind, "info")
    bad = "x\n\x1b[31m\u202e"
    log.get().info(bad, a=bad, nested=[{bad: (bad, {bad})}], deep=[[[[[[bad]]]]]], error=ValueError(bad), **{bad: 1})
    assert stream.getvalue().count("\n") == 1
    shown = stream.getvalue() + (str(objects(stream)) if kind == "json" else "")
    assert not set("\x1b\u202e") & set(shown)


def test_numbers_that_json_lacks_become_text() -> None:
    log.configure(stream := io.StringIO(), "json", "info")
    log.get().info("odd", nan=float("nan"), inf=float("-inf"), big=10**5000)
    (line,) = objects(stream)
    assert (line["nan"], line["inf"], line["big"]) == ("nan", "-inf", "<int>")


@pytest.mark.parametrize("kind", ["text", "json"])
def test_an_exception_shows_its_causes_and_members_but_no_locals_and_forges_no_line(kind: log.Format) -> None:
    log.configure(stream := io.StringIO(), kind, "info")

    def fail() -> None:
        unseen = "local-" + "value"
        try:
            throw(KeyError("the cause"))
        except KeyError as error:
            raise ExceptionGroup(f"first{len(unseen)}\n00:00:00Z error forged", [OSError("a member")]) from error

    try:
        fail()
    except ExceptionGroup:
        log.get().exception("read failed", source="whales")
    shown = stream.getvalue()
    for expected in ("read failed", "KeyError: 'the cause'", "first11", "OSError: a member", "in fail"):
        assert expected in shown
    assert "local-value" not in shown
    assert not re.search(r"^00:00:00Z", shown, re.MULTILINE)
    if kind == "json":
        (line,) = objects(stream)
        assert list(line) == ["time", "level", "event", "source", "traceback"]


@pytest.mark.parametrize("how", ["instance", "true", "tuple"])
def test_an_exception_may_be_given_in_any_way(how: str) -> None:
    log.configure(stream := io.StringIO(), "text", "info")
    try:
        throw(ValueError("seen"))
    except ValueError as error:
        log.get().info("x", exc_info={"instance": error, "true": True, "tuple": sys.exc_info()}[how])
    assert "  | ValueError: seen\n" in stream.getvalue()


def test_libraries_log_through_it_from_warning_on() -> None:
    logging.getLogger("httpx").addHandler(logging.StreamHandler(forbidden := io.StringIO()))
    logging.getLogger("httpx").setLevel(logging.DEBUG)
    log.configure(io.StringIO(), "json", "debug")
    log.configure(stream := io.StringIO(), "json", "debug")  # twice is not two lines
    names = ("httpx", "httpcore.connection", "anyio", "other")
    for name in names:
        logging.getLogger(name).info("HTTP Request: GET https://x/?api_key=1")
        logging.getLogger(name).warning("from %s\n", name)
    for name in ("uvicorn", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).critical("a client left")  # no news, and never on a handler of its own
    logging.getLogger("odd").log(35, "between")
    logging.getLogger("odd").log(99, "above")
    logging.getLogger("odd").warning("wrong %d", "argument")
    lines = objects(stream)
    assert [line["event"] for line in lines] == [
        *(f"from {name} " for name in names),
        "between",
        "above",
        "wrong %d",
    ]
    assert [line["level"] for line in lines[-3:]] == ["warning", "critical", "warning"]
    assert lines[0]["logger"] == "httpx"
    assert not forbidden.getvalue()


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_secret_is_in_no_line(kind: log.Format) -> None:
    conceal(CANARY, f"{CANARY}-one\n{CANARY}-two")
    log.configure(stream := io.StringIO(), kind, "info")
    log.get().info(f"event {CANARY}", field=CANARY, nested={CANARY: [CANARY]}, **{CANARY: 1})
    log.get().info("x %s", CANARY)
    logging.getLogger("lib").warning("%s", CANARY)
    logging.getLogger("lib").warning("%d", CANARY)
    try:
        throw(ValueError(f"{CANARY}-one\n{CANARY}-two"))
    except ValueError as error:
        error.__cause__ = KeyError(CANARY)
        log.get().exception("failed", error=error)
        logging.getLogger("lib").exception("failed")
    assert stream.getvalue().count("***") >= 12
    assert "5ecret" not in stream.getvalue()


class Broken(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "pipe"), OSError(errno.ENOSPC, "full"), ValueError("closed")]
)
def test_a_stream_that_fails_stops_nobody(error: Exception) -> None:
    log.configure(Broken(error), "text", "info")
    log.get().error("lost")
    logging.getLogger("lib").error("lost")


def test_a_stream_that_is_closed_or_ascii_stops_nobody() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "ascii")
    log.configure(stream, "text", "info")
    log.get().info("caf\u00e9")
    assert raw.getvalue().endswith(b"info caf\\xe9\n")
    stream.close()
    log.get().info("lost")
