"""A log may be long, and its reader may sleep."""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine import log
from engine.logstreams import PENDING_LINES, RotatedFile, Unstalled


def test_a_file_starts_over_and_keeps_one_older(tmp_path: Path) -> None:
    path = tmp_path / "polltop.log"
    with RotatedFile(path, limit=100) as stream:
        for number in range(30):
            stream.write(f"line {number:03}\n")
            stream.flush()
    assert {file.name for file in tmp_path.iterdir()} == {"polltop.log", "polltop.log.1"}
    assert all(file.stat().st_size <= 100 for file in tmp_path.iterdir())
    assert path.read_text().endswith("line 029\n")
    assert path.stat().st_mode & 0o777 == 0o600
    with RotatedFile(path, limit=100) as stream:
        stream.write("again\n")
    assert "line 029\nagain\n" in path.read_text(), "a restart goes on in the same file"


def test_a_reader_that_stalls_holds_nobody_up_and_is_told_what_it_lost() -> None:
    reader, writer = os.pipe()
    with (
        open(writer, "w", encoding="utf-8") as pipe,
        open(reader, encoding="utf-8") as end,
        Unstalled(pipe) as stream,
    ):
        log.configure(stream, "json")
        for number in range(3 * PENDING_LINES):
            log.get().info("x" * 200, number=number)  # a pipe holds 64 KiB: this would block for ever
        first = [json.loads(end.readline()) for _ in range(PENDING_LINES)]
        log.get().info("after it")
        lines = first
        while lines[-1]["event"] != "after it":
            lines.append(json.loads(end.readline()))
    assert lines[0]["number"] == 0
    told = [line for line in lines if line["event"].startswith("lines of log were lost")]
    assert {note["level"] for note in told} == {"warning"}
    assert sum(note["lines"] for note in told) == 3 * PENDING_LINES + 1 - (len(lines) - len(told))


def test_the_end_waits_for_the_last_lines() -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as pipe, Unstalled(pipe) as stream:
        for number in range(10):
            stream.write(f"{number}\n")
    with open(reader, encoding="utf-8") as end:
        assert end.read().splitlines() == [str(number) for number in range(10)]
