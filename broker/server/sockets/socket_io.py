"""How much is read from a client's socket at a time, and how output is handed to it.

Every read costs a turn of the event loop, whatever it brings. Of small messages a quarter of a
mebibyte brings thousands, and more would keep other connections waiting; of large ones it brings a
handful, and the turn costs more than they do. So a connection whose full reads bring few commands
is read in larger pieces, until they bring many again.

    without TLS   a quarter of a mebibyte is the event loop's own size for an `asyncio.Protocol`; an
                  `asyncio.BufferedProtocol` chooses: `Reads` gives it a whole one
    with TLS      the event loop decrypts what one read has brought, at most 256 KiB, and reads on
                  in the same turn while the socket is full: `Reads` gathers that

With TLS `Reads` is there from the first byte: without it the event loop allocates 256 KiB for each
record of 16 KiB, which takes two thirds of the time of decrypting it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from typing_extensions import override

FULL_BYTES: Final = 200_000
"""A read that brings so much was probably full: uvloop reads 256,000 bytes at a time, of TLS
262,144 that are still encrypted."""

WIDE_BYTES: Final = 1 << 20
WIDE_FROM_BYTES: Final = 16 << 10
NARROW_FROM_BYTES: Final = 4 << 10
"""Bytes a command: from the first on reads are wide, below the second they are not."""

GATHERED_FROM_BYTES: Final = 512
SEPARATE_FROM_BYTES: Final = 256
"""The same for reads of TLS. They are gathered sooner, for a turn with TLS costs more: with 1 KB
persistent the node's processor time for a message fell by 3 to 17 % (docs/operations.md, TLS)."""

_READ_BYTES: Final = 1 << 18
"""What one read of TLS may bring: the room that has to be left for another."""

LARGE_BYTES: Final = 16 * 1024
"""Output that ends with a piece as large as this is handed to the socket piece by piece."""

ENCRYPTED_BYTES: Final = 1 << 18
"""So much output is encrypted at a time: it stays in the processor's cache between its steps, and
a mebibyte takes 1.3 times as long."""


class Room:
    """The memory that sockets are read into: one for all connections of an event loop.

    Attributes:
        memory: A mebibyte.
        reader: Whose input lies in it until the turn ends; None: nobody's.
    """

    __slots__ = ("memory", "reader")

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(WIDE_BYTES))
        self.reader: Reads | None = None


class Reads(asyncio.BufferedProtocol):
    """Reads into the room, and passes everything on.

    Args:
        connection: Gets what is read.
        room: The event loop's.
        is_encrypted: The connection has TLS.

    Attributes:
        is_encrypted: As given.
        is_gathering: Full reads of one turn are passed on together, if no other connection needs
            the room before; else each read by itself, as from the beginning.
    """

    def __init__(self, connection: asyncio.Protocol, room: Room, *, is_encrypted: bool) -> None:
        self.is_encrypted = is_encrypted
        self.is_gathering = False
        self._connection = connection
        self._room = room
        self._filled = 0
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        other = self._room.reader
        if other is not None and other is not self:
            other.hand_on()
        return self._room.memory[self._filled :]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        is_more_likely = self.is_gathering and nbytes >= FULL_BYTES
        if not is_more_likely or WIDE_BYTES - self._filled < 2 * _READ_BYTES:
            self.hand_on()
        elif self._room.reader is None:
            self._room.reader = self
            asyncio.get_running_loop().call_soon(self.hand_on)

    def hand_on(self) -> None:
        """Pass on what has been read."""
        room, filled = self._room, self._filled
        if room.reader is self:
            room.reader = None
        if filled:
            self._filled = 0
            self._connection.data_received(bytes(room.memory[:filled]))

    @override
    def eof_received(self) -> bool | None:
        self.hand_on()
        return self._connection.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.hand_on()
        self._connection.connection_lost(exc)


def fit(
    transport: asyncio.BaseTransport | None, connection: asyncio.Protocol, room: Room, each: int
) -> None:
    """Read the socket widely or not, by what a full read has just brought.

    Args:
        transport: The connection's; None when it is gone.
        connection: Whom to hand what is read.
        room: The event loop's.
        each: Bytes a command.
    """
    if transport is None or transport.is_closing():
        return
    reads = transport.get_protocol()
    is_wide = isinstance(reads, Reads)
    if isinstance(reads, Reads) and reads.is_encrypted:
        least = SEPARATE_FROM_BYTES if reads.is_gathering else GATHERED_FROM_BYTES
        reads.is_gathering = each >= least
    elif not is_wide and each >= WIDE_FROM_BYTES:
        transport.set_protocol(Reads(connection, room, is_encrypted=False))
    elif is_wide and each < NARROW_FROM_BYTES:
        transport.set_protocol(connection)


def write(transport: asyncio.Transport, pieces: list[bytes], *, is_encrypted: bool) -> int:
    """Hand output to the socket.

    Args:
        transport: The connection's.
        pieces: The output, at least one.
        is_encrypted: The connection has TLS.

    Returns:
        Its size in bytes.
    """
    if not is_encrypted and len(pieces[-1]) >= LARGE_BYTES:
        transport.writelines(pieces)  # a copy costs more than a place in writev
        return sum(map(len, pieces))
    data = b"".join(pieces)  # with TLS each that is written by itself is a record, for 1.3 us
    size = len(data)
    if not is_encrypted or size <= ENCRYPTED_BYTES:
        transport.write(data)
        return size
    view = memoryview(data)
    for start in range(0, size, ENCRYPTED_BYTES):
        transport.write(view[start : start + ENCRYPTED_BYTES])
    return size
