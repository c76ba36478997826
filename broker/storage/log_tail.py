"""One file for the writes of batches that touch many log files: one sync for all of them.

A batch whose files are few is synced file by file. One that touches many is written to the tail
first, synced there, and then carried out in the files without a sync; those are synced together
when the tail is full (`broker.storage.log_files`). Until then a start repeats what the tail holds,
in order. An append says where it stands, so that repeating one that was carried out changes
nothing.

The file is filled with zeros once and overwritten in place ever after: a sync of a file that grows
makes ext4 write out all other files that grew meanwhile, which is what the tail is there to avoid.

```
head     | "WMTH" | number of the first record 8 | crc32 4 |     the tail is emptied by a new head
record   | "WMTL" | number 8 | size 4 | crc32 4 | msgpack array of writes |    from byte 512 on
           crc32 covers the number and the writes; numbers go up by one, and are never used again
```
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

from broker.storage.store import StoreDamaged

FIRST_AT: Final = 512
"""Where the first record begins: in another sector than the head."""

_HEAD: Final = struct.Struct(">4sQ")
_HEAD_MAGIC: Final = b"WMTH"
_RECORD: Final = struct.Struct(">4sQII")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_MAGIC: Final = b"WMTL"


_FILL_BYTES: Final = 1 << 20


class Kind(IntEnum):
    """What is done with a file."""

    APPEND = 0
    CUT = 1
    REMOVE = 2


class TailWrite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One write to a log file.

    Attributes:
        kind: What is done.
        name: The file.
        position: Of an append: where it begins; of a cut: the new size, in bytes.
        data: What is appended.
    """

    kind: int
    name: str
    position: int = 0
    data: bytes = b""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[TailWrite])


class LogTail:
    """The tail's file.

    Args:
        path: Where it is; it is made with the first record.
        room_bytes: How much of it is filled with zeros then.

    Attributes:
        used_bytes: Of all records in it.
    """

    def __init__(self, path: Path, room_bytes: int) -> None:
        self.used_bytes = 0
        self._path = path
        self._room_bytes = room_bytes
        self._descriptor: int | None = None
        self._has_head = False
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """True while nothing would be repeated."""
        return not self.used_bytes

    def append(self, writes: list[TailWrite]) -> None:
        """Write what a batch asks for, durably.

        Raises:
            OSError: The disk refused it.
        """
        body = _encoder.encode(writes)
        head = _RECORD.pack(_MAGIC, self._number, len(body), _checksum(self._number, body))
        descriptor = self._opened()
        _write(descriptor, head + body, FIRST_AT + self.used_bytes)
        os.fdatasync(descriptor)
        self._number += 1
        self.used_bytes += len(head) + len(body)

    def records(self) -> Iterator[list[TailWrite]]:
        """Read what is to be repeated; a last record that was being written is left out.

        Raises:
            StoreDamaged: The head is damaged, or a record before a whole one.
        """
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        first = _first_number(content)
        if first is None:
            if any(content):  # it is all zeros while it is being made
                raise StoreDamaged(self._path, "its head is damaged")
            return
        self._has_head, self._number, at = True, first, FIRST_AT
        while (found := _parse(content, at, self._number)) is not None:
            writes, end = found
            self._number += 1
            self.used_bytes += end - at
            at = end
            yield writes
        self._require_end(content, at, self._number)

    def clear(self) -> None:
        """Forget everything, durably: what was written to the files is durable there.

        Raises:
            OSError: The disk refused it.
        """
        descriptor = self._opened()
        # The number of a record that was torn may be there, too.
        self._number += 1
        _write(descriptor, _packed_head(self._number), 0)
        os.fdatasync(descriptor)
        self.used_bytes = 0

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            if not self._has_head:
                self._make(self._descriptor)
                self._has_head = True
        return self._descriptor

    def _make(self, descriptor: int) -> None:
        """Fill a new file, or one whose making was interrupted, and write its head last."""
        for at in range(0, FIRST_AT + self._room_bytes, _FILL_BYTES):
            size = min(_FILL_BYTES, FIRST_AT + self._room_bytes - at)
            _write(descriptor, bytes(size), at)
        os.fsync(descriptor)
        _write(descriptor, _packed_head(self._number), 0)
        os.fdatasync(descriptor)
        _sync_folder(self._path.parent)

    def _require_end(self, content: bytes, at: int, number: int) -> None:
        """Raise where a whole record follows one that is not: somebody was told of both."""
        mark = _MAGIC + _U64.pack(number + 1)
        later = content.find(mark, at)
        while later >= 0:
            if _parse(content, later, number + 1) is not None:
                raise StoreDamaged(self._path, f"a record at {at} is damaged, and others follow")
            later = content.find(mark, later + 1)


def _parse(content: bytes, at: int, number: int) -> tuple[list[TailWrite], int] | None:
    """Return the writes of the record at a position, and where it ends; None if it is not whole."""
    start = at + _RECORD.size
    if start > len(content):
        return None
    magic, found, size, crc = _RECORD.unpack_from(content, at)
    body = content[start : start + size]
    if magic != _MAGIC or found != number or len(body) < size or _checksum(number, body) != crc:
        return None
    return _decoder.decode(body), start + size


def _packed_head(number: int) -> bytes:
    head = _HEAD.pack(_HEAD_MAGIC, number)
    return head + _U32.pack(zlib.crc32(head))


def _first_number(content: bytes) -> int | None:
    if len(content) < FIRST_AT:
        return None
    magic, number = _HEAD.unpack_from(content)
    (crc,) = _U32.unpack_from(content, _HEAD.size)
    return number if magic == _HEAD_MAGIC and zlib.crc32(content[: _HEAD.size]) == crc else None


def _write(descriptor: int, data: bytes, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], at + written)


def _checksum(number: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_U64.pack(number)))


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
