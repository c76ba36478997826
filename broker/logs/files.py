"""A log in a file that begins anew when it is large, and at dates."""

from __future__ import annotations

import io
import logging
import os
import sys
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from broker.logs.rotation_dates import RotationDate

_log = logging.getLogger(__name__)

_FOLDER_MODE = 0o750
_FILE_MODE = 0o640


class LogFile(RotatingFileHandler):
    """Its group may read a new file (0640), whatever the umask: for programs that gather logs.

    Args:
        path: Where it is; its folder is made.
        size_bytes: It is rotated when it would grow beyond; 0: never for that.
        count: Old files kept; with 0 it is never rotated.
        date: When it is rotated, too; None: never for that.

    Raises:
        OSError: It can't be opened.
    """

    def __init__(
        self, path: str, size_bytes: int, count: int, date: RotationDate | None = None
    ) -> None:
        folder = Path(path).parent
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(_FOLDER_MODE)
        self._date = date
        self._lost = 0
        self._seen_s = _written_s(Path(path))  # the last record; None: there is none yet
        super().__init__(path, maxBytes=size_bytes, backupCount=count, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the first that can't be written is told to the log's other outputs."""
        lost = self._lost
        super().emit(record)
        if lost and lost == self._lost:
            self._lost = 0
            _log.warning(
                "log.written_again: %s: %d lines were lost or came late", self.baseFilename, lost
            )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Count a line that is lost because the disk is full or broken."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._lost += 1
        if self._lost == 1:  # what is logged here may come back to this very file
            _log.error(
                "log.not_written: %s: %s: lines may be lost", self.baseFilename, error.strerror
            )

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        """Say whether a new file begins before a record."""
        seen_s, self._seen_s = self._seen_s, record.created
        if self._date is not None and seen_s is not None and self.backupCount:
            last = datetime.fromtimestamp(seen_s)  # noqa: DTZ006 - a local time
            if self._date.next_after(last).timestamp() <= record.created:
                return True
        return bool(super().shouldRollover(record))

    def _open(self) -> io.TextIOWrapper:
        is_new = not Path(self.baseFilename).exists()
        stream = super()._open()
        if is_new:
            os.fchmod(stream.fileno(), _FILE_MODE)
        return stream


def _written_s(path: Path) -> float | None:
    """When a file was written last, in seconds since the epoch; None, if it has nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime if found.st_size else None
