"""The node's log while it runs: the last lines, rotation.

`broker.cli.log_output` sets the log up; here is what operators ask of it later.
"""

from __future__ import annotations

import logging
from collections import deque
from logging.handlers import RotatingFileHandler
from typing import Final, NamedTuple

from broker.audit import trail

LINES_MAX: Final = 1_000
LINE_CHARACTERS_MAX: Final = 4_096


class Tail(NamedTuple):
    """Some of the last lines.

    Attributes:
        lines: Oldest first.
        next: The number of the line that comes after them.
    """

    lines: list[str]
    next: int


class LogRing(logging.Handler):
    """Keeps the last `LINES_MAX` lines, each cut at `LINE_CHARACTERS_MAX`."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; a traceback is several lines."""
        for line in self.format(record).splitlines():
            self._lines.append(line[:LINE_CHARACTERS_MAX])
            self._count += 1

    def last(self, count: int) -> Tail:
        """Return the last lines.

        Args:
            count: How many at most.
        """
        return Tail(list(self._lines)[max(0, len(self._lines) - count) :], self._count)

    def since(self, number: int) -> Tail:
        """Return the lines from a number on; those that are gone already are left out.

        Args:
            number: Of `Tail.next`.
        """
        return self.last(max(0, self._count - number))


def ring() -> LogRing | None:
    """Return the ring that this process keeps; None where another program has set its log up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogRing):
            return handler
    return None


def rotate() -> int:
    """Begin a new file of each log that keeps old ones; returns how many there are.

    One with log.file.rotation.count = 0 keeps none, and goes on as it is.
    """
    handlers = [*logging.getLogger().handlers, *logging.getLogger(trail.LOGGER).handlers]
    found = [
        each for each in handlers if isinstance(each, RotatingFileHandler) and each.backupCount
    ]
    for handler in found:
        handler.acquire()
        try:
            handler.doRollover()
        finally:
            handler.release()
    return len(found)
