from __future__ import annotations

import errno
import io
import logging
import os
from datetime import datetime
from pathlib import Path

import pytest

from broker.logs.files import LogFile
from broker.logs.rotation_dates import parse

SUNDAY = datetime(2026, 11, 22, 10, 15)  # noqa: DTZ001 - local


@pytest.mark.parametrize(
    ("spec", "due"),
    [
        ("$D0", (2026, 11, 23, 0, 0)),
        ("$D10H15", (2026, 11, 23, 10, 15)),
        ("$D23H30", (2026, 11, 22, 23, 30)),
        ("$W0D23", (2026, 11, 22, 23, 0)),
        ("$W0D9", (2026, 11, 29, 9, 0)),
        ("$W5", (2026, 11, 27, 0, 0)),
        ("$M1D0", (2026, 12, 1, 0, 0)),
        ("$M31D0", (2026, 11, 30, 0, 0)),
        ("$MLD6", (2026, 11, 30, 6, 0)),
        ("$H0", (2026, 11, 22, 11, 0)),
        ("$H30", (2026, 11, 22, 10, 30)),
    ],
)
def test_the_next_file_begins_at_the_date(spec: str, due: tuple[int, ...]) -> None:
    year, month, day, hour, minute = due
    assert parse(spec).next_after(SUNDAY) == datetime(year, month, day, hour, minute)  # noqa: DTZ001


@pytest.mark.parametrize("spec", ["", "$", "D0", "$D24", "$W7D0", "$M0D0", "$M32", "$D0H60", "$X"])
def test_what_is_no_date_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="a date such as"):
        parse(spec)


def test_a_file_is_rotated_at_the_date_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "node.log"

    def write(handler: LogFile, text: str, hour: int) -> None:
        created = SUNDAY.replace(day=23, hour=hour).timestamp()
        handler.emit(logging.makeLogRecord({"msg": text, "created": created}))

    first = LogFile(str(path), 0, 3, parse("$D12"))
    for text, hour in (("a", 10), ("b", 11), ("c", 12), ("d", 13)):
        write(first, text, hour)
    first.close()
    assert path.with_name("node.log.1").read_text() == "a\nb\n"
    assert path.read_text() == "c\nd\n"
    yesterday = SUNDAY.timestamp()
    os.utime(path, (yesterday, yesterday))
    again = LogFile(str(path), 0, 3, parse("$D12"))
    write(again, "e", 14)
    again.close()
    assert path.with_name("node.log.1").read_text() == "c\nd\n"
    assert path.read_text() == "e\n"


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_lines_that_a_full_disk_loses_are_told_once_to_the_other_outputs(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    handler = LogFile(str(tmp_path / "node.log"), 0, 0)
    loggers = logging.getLogger("tests.full"), logging.getLogger("broker.logs.files")
    for each in loggers:  # its own words come back to it
        each.addHandler(handler)
    disk = handler.stream
    try:
        handler.stream = FullDisk()  # type: ignore[assignment]
        for _ in range(3):
            loggers[0].error("x")
        handler.stream = disk
        loggers[0].error("at last")
    finally:
        for each in loggers:
            each.removeHandler(handler)
        handler.close()
    path = tmp_path / "node.log"
    told = [each.getMessage() for each in caplog.records if each.name == "broker.logs.files"]
    assert told == [
        f"log.not_written: {path}: No space left on device: lines may be lost",
        f"log.written_again: {path}: 4 lines were lost or came late",
    ]
    assert path.read_text().splitlines() == ["at last", told[1]]
    assert capsys.readouterr().err == ""
