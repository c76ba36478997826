"""The log while a node runs: the ring of last lines, levels by category."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from broker.logs.formatting import PlainFormatter
from broker.management import node_log


@pytest.fixture
def ring() -> node_log.LogRing:
    found = node_log.LogRing()
    found.setFormatter(PlainFormatter())
    return found


def record(text: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, text, arguments, **more)  # type: ignore[arg-type]


def test_the_last_lines_come_oldest_first_and_go_on_by_number(ring: node_log.LogRing):
    for number in range(3):
        ring.emit(record("line %d", number, exc_info=None))
    tail = ring.last(2)
    assert [line.rpartition("line ")[2] for line in tail.lines] == ["1", "2"]
    assert ring.since(tail.next).lines == []
    ring.emit(record("line 3", exc_info=None))
    assert len(ring.since(tail.next).lines) == 1


def test_old_lines_go_and_long_ones_are_cut(ring: node_log.LogRing):
    for _ in range(node_log.LINES_MAX + 5):
        ring.emit(record("x" * (2 * node_log.LINE_CHARACTERS_MAX), exc_info=None))
    tail = ring.since(0)
    assert len(tail.lines) == node_log.LINES_MAX
    assert max(map(len, tail.lines)) == node_log.LINE_CHARACTERS_MAX
    assert tail.next == node_log.LINES_MAX + 5


def test_no_text_of_a_client_begins_a_line(ring: node_log.LogRing):
    hostile = "a\n2026-11-25 12:00:00.000+00:00 [error] forged\x1b[2J"
    error = ValueError(hostile)
    ring.emit(record("%s", hostile, exc_info=(type(error), error, None)))
    first, *rest = ring.last(100).lines
    assert "\\n2026" in first
    assert rest
    assert all(line.startswith("  ") and "\x1b" not in line for line in rest)


def test_a_log_that_keeps_no_old_files_is_not_said_to_be_rotated(tmp_path: Path):
    root = logging.getLogger()
    kept = RotatingFileHandler(tmp_path / "kept.log", backupCount=1)
    single = RotatingFileHandler(tmp_path / "single.log", backupCount=0)
    root.handlers += [kept, single]
    try:
        assert node_log.rotate() == 1
    finally:
        for handler in (kept, single):
            root.removeHandler(handler)
            handler.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "kept.log",
        "kept.log.1",
        "single.log",
    ]
