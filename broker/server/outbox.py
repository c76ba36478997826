"""Writes sockets once in a turn of the event loop, for every connection that has output.

A socket read may produce output for many connections (deliveries, confirms). Each marks itself;
at the end of the turn every marked connection joins its pieces and writes once. So the number of
system calls follows the number of turns, not of messages.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """An object that gathers output and can write it."""

    is_marked: bool

    def flush(self) -> None:
        """Write everything gathered. Called on the event loop, at most once a turn."""
        ...

    def abort(self) -> None:
        """Drop the socket: its flush has failed."""
        ...


class Outbox:
    """The connections that have something to write at the end of this turn.

    Args:
        loop: The event loop that all connections live on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._marked: list[Flushable] = []

    def mark(self, connection: Flushable) -> None:
        """Have a connection flushed at the end of this turn; marking it twice is free."""
        if connection.is_marked:
            return
        connection.is_marked = True
        if not self._marked:
            self._loop.call_soon(self._flush)
        self._marked.append(connection)

    def _flush(self) -> None:
        marked, self._marked = self._marked, []
        for connection in marked:
            connection.is_marked = False
            try:
                connection.flush()
            except Exception:  # noqa: BLE001 - one connection's bug must not silence the others
                _log.exception("connection.flush_failed")
                connection.abort()
