"""Entries of a stream's Raft log: what replicas apply, and the chunk that readers read. Pure.

```
entry    | version 1 | flags 1 | first offset 8 | timestamp ms 8 | records 4 | delta size 4 |
           delta | chunk                                       numbers are big-endian
```
The log is the stream: an entry's chunk (`broker.streams.chunk`) is written once and read where it
lies. The delta is what the entry changes in the stream's state, msgpack; replicas apply it and look
at no message. An entry without messages has no chunk, and its first offset is the next one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

VERSION: Final = 1
"""Version of an entry. A replica refuses entries of a version it does not know."""

BEGINS_SEGMENT: Final = 1
"""Flag: a segment of the stream, by which retention goes, begins with this entry."""

_HEAD: Final = struct.Struct(">BBQQII")

HEAD_BYTES: Final = _HEAD.size


class Span(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Consecutive numbers of a publishing node's session (docs/protocol-rules.md P10).

    The spans of an entry that are stored cover its messages in their order.

    Attributes:
        session: Its name.
        lowest: Its lowest number without an answer.
        first: First number.
        count: How many.
        is_stored: False for numbers that brought no message: given up by their node, refused, or
            of a publisher whose id was stored before.
        is_rejected: They are answered by a refusal.
    """

    session: str
    lowest: int
    first: int
    count: int
    is_stored: bool = True
    is_rejected: bool = False


class Delta(msgspec.Struct, array_like=True, frozen=True):
    """The changes of an entry to the stream's state. Fields are only appended, with defaults.

    Attributes:
        spans: Numbers of sessions, in order.
        publishers: (name, id, offset) of named publishers whose messages are stored.
        ended: (node, boot) that group 0 has ended.
        cut: First offset kept; 0: nothing is dropped.
        offsets: (name, offset) that consumers have stored.
    """

    spans: list[Span] = []
    publishers: list[tuple[str, int, int]] = []
    ended: list[tuple[str, str]] = []
    cut: int = 0
    offsets: list[tuple[str, int]] = []


class StreamEntry(NamedTuple):
    """An entry.

    Attributes:
        first_offset: Offset of its first message; the next offset if there is none.
        timestamp_ms: The leader's time, milliseconds since the epoch; never falls.
        records: How many messages.
        delta: What changes.
        chunk: The messages; empty if there are none.
        flags: `BEGINS_SEGMENT` or 0.
    """

    first_offset: int
    timestamp_ms: int
    records: int
    delta: Delta
    chunk: bytes
    flags: int = 0

    @property
    def begins_segment(self) -> bool:
        """True if a segment begins with it."""
        return bool(self.flags & BEGINS_SEGMENT)


class EntryDamaged(Exception):
    """The bytes are no entry of a version known here."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Delta)


def encode_entry(entry: StreamEntry) -> bytes:
    """Return an entry's bytes."""
    delta = _encoder.encode(entry.delta)
    head = _HEAD.pack(
        VERSION, entry.flags, entry.first_offset, entry.timestamp_ms, entry.records, len(delta)
    )
    return b"".join((head, delta, entry.chunk))


def decode_entry(data: bytes) -> StreamEntry:
    """Read what `encode_entry` wrote.

    Raises:
        EntryDamaged: As `decode_changes`.
    """
    entry = decode_changes(data)
    return entry._replace(chunk=data[read_head(data)[3] :])


def decode_changes(data: bytes) -> StreamEntry:
    """Read what replicas apply of an entry: all but its chunk, which is not copied.

    Raises:
        EntryDamaged: The bytes are no entry, or of a version not known here.
    """
    if len(data) < HEAD_BYTES:
        raise EntryDamaged(f"{len(data)} bytes are no entry of a stream")
    version, flags, first_offset, timestamp_ms, count, size = _HEAD.unpack_from(data)
    if version != VERSION:
        raise EntryDamaged(f"expected entry version {VERSION}, found {version}")
    end = HEAD_BYTES + size
    if end > len(data):
        raise EntryDamaged("the entry ends within its delta")
    try:
        delta = _decoder.decode(data[HEAD_BYTES:end])
    except msgspec.DecodeError as error:
        raise EntryDamaged(str(error)) from error
    return StreamEntry(first_offset, timestamp_ms, count, delta, b"", flags)


def read_head(data: bytes) -> tuple[int, int, int, int]:
    """Return (first offset, timestamp ms, records, where the chunk begins) of an entry.

    Raises:
        EntryDamaged: The bytes are no entry.
    """
    if len(data) < HEAD_BYTES or data[0] != VERSION:
        raise EntryDamaged("no entry of a stream")
    _, _, first_offset, timestamp_ms, count, size = _HEAD.unpack_from(data)
    return first_offset, timestamp_ms, count, HEAD_BYTES + size
