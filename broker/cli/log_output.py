"""Log output of a node: standard output or a rotated file, plain lines or JSON.

The rest of the code logs one event name plus `extra` fields; here they become text. Control
characters of peers never reach the log raw (CVE-2019-11287's kin).
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from broker.audit import trail
from broker.config import LogSettings
from broker.management.node_log import LEVELS, LogRing

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class PlainFormatter(logging.Formatter):
    """`2026-11-21 12:00:00.123+00:00 [info] event key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record))
        text = f"{_time(record)} [{record.levelname.lower()}] {_clean(record.getMessage())}{fields}"
        if record.exc_info:
            # Indented: no text of an exception can pass for a line of the log.
            lines = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n  {_clean(line)}" for line in lines)
        return text


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


class _LogFile(RotatingFileHandler):
    """Its group may read a new file (0640), whatever the umask: for programs that gather logs."""

    def _open(self) -> io.TextIOWrapper:
        is_new = not Path(self.baseFilename).exists()
        stream = super()._open()
        if is_new:
            os.fchmod(stream.fileno(), 0o640)
        return stream


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o750)


def configure(settings: LogSettings) -> None:
    """Replace the root logger's handlers by those of the settings.

    Args:
        settings: Where to write, what, and when to rotate.

    Raises:
        OSError: The log file can't be opened.
    """
    handlers: list[logging.Handler] = []
    if settings.console:
        handlers.append(logging.StreamHandler(sys.stdout))
    if settings.file is not None:
        handlers.append(_file(settings.file, settings))
    handlers.append(LogRing())
    formatter = JsonFormatter() if settings.format == "json" else PlainFormatter()
    for handler in handlers:
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(LEVELS[settings.level])
    _configure_audit(settings)


def _configure_audit(settings: LogSettings) -> None:
    """Keep an audit log, or none; its lines come whole from `broker.audit.trail`."""
    logger = logging.getLogger(trail.LOGGER)
    if settings.audit_file is None:
        logger.handlers[:] = []
        logger.setLevel(LEVELS["none"])
        return
    handler = _file(settings.audit_file, settings)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


def _file(path: str, settings: LogSettings) -> _LogFile:
    _make_folder(Path(path).parent)
    return _LogFile(
        path,
        maxBytes=settings.rotation_size_bytes,
        backupCount=settings.rotation_count,
        encoding="utf-8",
    )


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(key, value) for key, value in vars(record).items() if key not in _STANDARD]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(" ", "milliseconds")


def _shown(value: object) -> str:
    text = _clean(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _clean(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
