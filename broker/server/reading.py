"""The size of one read of a client's socket: a quarter of a mebibyte, or a whole one.

Every read costs a turn of the event loop, whatever it brings. Of small messages a quarter of a
mebibyte brings thousands, and more would keep other connections waiting; of large ones it brings a
handful, and the turn costs more than they do. So a connection whose full reads bring few commands
is read in larger pieces, until they bring many again.

The size is uvloop's own for an `asyncio.Protocol`, and the protocol's to choose for an
`asyncio.BufferedProtocol`: what is read widely is handed on by one.
"""

from __future__ import annotations

import asyncio
from typing import Final

FULL_BYTES: Final = 200_000
"""A read that brings so much was probably full: uvloop reads 256,000 bytes at a time."""

WIDE_BYTES: Final = 1 << 20
WIDE_FROM_BYTES: Final = 16 << 10
NARROW_FROM_BYTES: Final = 4 << 10
"""Bytes a command: from the first on reads are wide, below the second they are not."""

_room = memoryview(bytearray(WIDE_BYTES))  # of all connections: emptied in the turn that fills it


class WideReads(asyncio.BufferedProtocol):
    """Reads a mebibyte at a time, and passes everything on.

    Args:
        connection: Gets what is read.
    """

    def __init__(self, connection: asyncio.Protocol) -> None:
        self._connection = connection
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]
        self.eof_received = connection.eof_received  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        del sizehint
        return _room

    def buffer_updated(self, nbytes: int) -> None:
        """So much of it was filled."""
        self._connection.data_received(bytes(_room[:nbytes]))


def fit(transport: asyncio.BaseTransport | None, connection: asyncio.Protocol, each: int) -> None:
    """Read the socket widely or not, by what a full read has just brought.

    Args:
        transport: The connection's; None when it is gone.
        connection: Whom to hand what is read.
        each: Bytes a command.
    """
    if transport is None or transport.is_closing():
        return
    is_wide = isinstance(transport.get_protocol(), WideReads)
    if not is_wide and each >= WIDE_FROM_BYTES:
        transport.set_protocol(WideReads(connection))
    elif is_wide and each < NARROW_FROM_BYTES:
        transport.set_protocol(connection)
