"""Lines of the log. The code logs one event name plus `extra` fields; here they become text.

Control characters of peers never reach the log raw (CVE-2019-11287's kin), and a field's value that
could be taken for something else is quoted as JSON quotes it: `fields_of` reads a line back.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BARE: Final = re.compile(r'[^\s="]+')
_FIELD: Final = re.compile(r' ([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|[^\s="]+)')


class PlainFormatter(logging.Formatter):
    """`2026-11-21 12:00:00.123+00:00 [info] event key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        text = f"{_time(record)} [{record.levelname.lower()}] {message(record)}"
        # Indented: no text of an exception can pass for a line of the log.
        return text + "".join(f"\n  {line}" for line in traceback(self, record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, as `log.console.formatter = json` of RabbitMQ."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            "logger": record.name,
        }
        fields.update(_fields(record))
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def formatter(name: str) -> logging.Formatter:
    """Return a formatter.

    Args:
        name: "plain" or "json".
    """
    return JsonFormatter() if name == "json" else PlainFormatter()


def message(record: logging.LogRecord) -> str:
    """Return a record's text and fields in one line, without its time and level."""
    fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record))
    return f"{_clean(record.getMessage())}{fields}"


def traceback(used: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the lines of a record's exception; none without one."""
    if not record.exc_info:
        return []
    return [_clean(line) for line in used.formatException(record.exc_info).splitlines()]


def fields_of(line: str) -> dict[str, str]:
    """Read the fields of a plain line back, as texts.

    Args:
        line: That `PlainFormatter` made.
    """
    return {
        key: json.loads(value) if value.startswith('"') else value
        for key, value in _FIELD.findall(line)
    }


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(key, value) for key, value in vars(record).items() if key not in _STANDARD]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(" ", "milliseconds")


def _shown(value: object) -> str:
    text = str(value)
    if not text.isprintable():
        return json.dumps(text).replace("\x7f", "\\u007f")
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _clean(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
