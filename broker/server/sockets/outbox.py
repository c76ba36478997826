"""Writes sockets together: once for every connection that has output, however many pieces it has.

A socket read may produce output for many connections (deliveries, confirms). Each marks itself;
every marked connection joins its pieces and writes once, at the end of the turn at the latest, or
after a read when `WRITE_TOGETHER` connections are marked. Small output of several connections goes
to the kernel in one call (`ManySockets`). So the number of system calls follows the number of turns
and reads, not of messages.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from broker.ports import Clock
from broker.server.connection_facts import ConnectionInfo
from broker.server.sockets.many_sockets import BYTES_MAX, ManySockets
from broker.server.sockets.socket_io import write

WRITE_TOGETHER: Final = 16
"""With so many marked connections a read ends with their writes, before the next socket is read.

The event loop reads all sockets that have something before it ends its turn. Where 100 of them
bring one message each, the first would wait until the last is read: writing between reads brought
the median from 6.8 to 4.6 ms. Smaller numbers cost throughput where many publishers' messages go to
few consumers: with 8 the consumers' sockets are written after every seven reads.
"""

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """An object that gathers output and can write it."""

    is_marked: bool

    def flush(self, now_ms: int) -> None:
        """Write everything gathered. Called after a read, or at the end of a turn.

        Args:
            now_ms: Monotonic milliseconds.
        """
        ...

    def abort(self) -> None:
        """Drop the socket: its flush has failed."""
        ...


class Outbox:
    """The connections that have something to write, by the end of this turn.

    Args:
        loop: The event loop that all connections live on.
        clock: Read once for `WRITE_TOGETHER` connections: each looks whether the lease lasts.
        sockets: Writes to many sockets together; None: to one after another.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        sockets: ManySockets | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._sockets = sockets
        self._marked: list[Flushable] = []
        self._is_due = False
        self._is_gathering = False

    def mark(self, connection: Flushable) -> None:
        """Have a connection flushed at the end of this turn; marking it twice is free."""
        if connection.is_marked:
            return
        connection.is_marked = True
        self._marked.append(connection)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def flush_if_many(self) -> None:
        """Write now if `WRITE_TOGETHER` connections are marked: call it at the end of a read.

        Only from the event loop: a connection in the middle of its work must not be flushed.
        """
        if len(self._marked) >= WRITE_TOGETHER:
            self._flush()

    def write(self, transport: asyncio.Transport, info: ConnectionInfo, pieces: list[bytes]) -> int:
        """Hand a connection's output to its socket, during a flush together with that of others.

        Args:
            transport: The connection's.
            info: Tells its socket's descriptor, and whether the transport encrypts.
            pieces: The output, at least one.

        Returns:
            Its size in bytes.
        """
        sockets = self._sockets
        if sockets is not None:
            if self._is_gathering and info.descriptor >= 0 and len(pieces[-1]) <= BYTES_MAX:
                data = b"".join(pieces)
                if sockets.add(transport, info.descriptor, data):
                    return len(data)
                pieces = [data]
            sockets.submit()  # this connection's earlier output may be there
        return write(transport, pieces, is_encrypted=info.tls is not None)

    def submit(self) -> None:
        """Have written what was gathered: before a transport closes, which drops what is left."""
        if self._sockets is not None:
            self._sockets.submit()

    def _end_turn(self) -> None:
        self._is_due = False
        self._flush()

    def _flush(self) -> None:
        marked, self._marked = self._marked, []
        self._is_gathering = len(marked) > 1
        now_ms = 0
        for number, connection in enumerate(marked):
            if not number % WRITE_TOGETHER:
                now_ms = self._clock.monotonic_ms()
            connection.is_marked = False
            try:
                connection.flush(now_ms)
            except Exception:  # noqa: BLE001 - one connection's bug must not silence the others
                _log.exception("connection.flush_failed")
                connection.abort()
        self._is_gathering = False
        self.submit()
