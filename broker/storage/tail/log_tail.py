"""The tail: what was written to many log files, in one file, with one sync for all of them.

A batch whose files are few is synced file by file. One that touches many is written to the tail,
and synced there; the files get it later (`broker.storage.log_files`). Until they are synced a start
repeats what the tail holds, in order. An append says where it stands, so that repeating one that
was carried out changes nothing.

There are two files. When the one in use is full the other takes over, and another thread brings the
log files up to date and empties the full one.

A file is filled with zeros once and overwritten in place ever after: a sync of a file that grows
makes ext4 write out all other files that grew meanwhile, which is what the tail is there to avoid.

```
head     | "WMT2" | number of the first record 8 | crc32 4 |     a file is emptied by a new head
record   | "WMTL" | number 8 | size 4 | crc32 4 | msgpack array of writes |    from byte 512 on
           crc32 covers the number and the writes
number   | generation 4 | place 4 |     a file that is emptied gets a generation above the other's;
           numbers go up by one within one, and are never used again
```
The first record of a file that took over says which was the last of the other: while that has not
been emptied, it must be there. A head "WMTH" is read, too: there was one file then.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from broker.durable_files import sync_folder
from broker.storage.store import StoreDamaged

FIRST_AT: Final = 512
"""Where the first record begins: in another sector than the head."""

NAMES: Final = ("tail", "tail2")

_HEAD: Final = struct.Struct(">4sQ")
_HEAD_MAGIC: Final = b"WMT2"
_HEAD_MAGICS: Final = (_HEAD_MAGIC, b"WMTH")
_RECORD: Final = struct.Struct(">4sQII")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_MAGIC: Final = b"WMTL"
_GENERATION_BITS: Final = 32


_FILL_BYTES: Final = 1 << 20

_CHECKED_BYTES: Final = 4 << 10
"""crc32 lets go of the interpreter for more than 5 KiB, and to get it back takes longer than the
checksum: the event loop has it by then."""


class Kind(IntEnum):
    """What is done with a file."""

    APPEND = 0
    CUT = 1
    REMOVE = 2
    FOLLOWS = 3


class TailWrite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One write to a log file.

    Attributes:
        kind: What is done.
        name: The file.
        position: Of an append: where it begins; of a cut: the new size, in bytes; of `FOLLOWS`: the
            number of the record before, in the other file.
        data: What is appended.
    """

    kind: int
    name: str
    position: int = 0
    data: bytes = b""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[TailWrite])


class LogTail:
    """The tail of a node's log files.

    Args:
        folder: Where its two files are; each is made when it is first used.
        room_bytes: How much of each is filled with zeros then.

    Raises:
        StoreDamaged: A head is damaged.
        OSError: A file can't be read.
    """

    def __init__(self, folder: Path, room_bytes: int) -> None:
        self._files = [_TailFile(folder / name, room_bytes) for name in NAMES]
        self._in_use, self._other = self._files
        self._follows: int | None = None
        for each in self._files:
            each.open()
        self._number_new_files()
        self._in_use, self._other = sorted(self._files, key=lambda each: each.number)

    @property
    def used_bytes(self) -> int:
        """Of all records in the file in use."""
        return self._in_use.used_bytes

    @property
    def is_empty(self) -> bool:
        """True while nothing would be repeated."""
        return not self._in_use.used_bytes and not self._other.used_bytes

    def append(self, writes: list[TailWrite]) -> None:
        """Write what a batch asks for, durably.

        Raises:
            OSError: The disk refused it.
        """
        if self._follows is not None:
            writes = [TailWrite(Kind.FOLLOWS, "", self._follows), *writes]
        self._in_use.append(writes)
        self._follows = None

    def records(self) -> Iterator[list[TailWrite]]:
        """Read what is to be repeated; a last record that was being written is left out.

        Raises:
            StoreDamaged: A record is damaged that others follow.
        """
        before: _TailFile | None = None
        for each in (self._in_use, self._other):
            for writes in each.records():
                follows = writes[0].position if writes[0].kind == Kind.FOLLOWS else None
                if before is not None and follows is not None and before.number != follows + 1:
                    raise StoreDamaged(
                        before.path,
                        f"record {before.number} is damaged, and {each.path.name} goes on",
                    )
                yield writes if follows is None else writes[1:]
            before = each

    def take_over(self) -> None:
        """Go on in the other file, which is empty; `empty_full` must follow."""
        assert not self._other.used_bytes, "a file that is used again would lose what it holds"
        self._follows = self._in_use.number - 1
        self._in_use, self._other = self._other, self._in_use

    def empty_full(self) -> None:
        """Forget what the full file holds, durably: all of it is durable in the log files.

        By any thread, as long as nobody else asks for more than `append` meanwhile.

        Raises:
            OSError: The disk refused it.
        """
        self._other.clear(_first_number(self._in_use.generation + 1))

    def empty(self) -> None:
        """Forget everything, durably: all of it is durable in the log files.

        The older file is emptied first: the newer one alone changes nothing when it is repeated.

        Raises:
            OSError: The disk refused it.
        """
        for each in sorted(self._files, key=lambda each: each.number):
            if each.used_bytes:
                # Not the same generation: the number of a record that was torn may be there, too.
                each.clear(_first_number(max(file.generation for file in self._files) + 1))
        self._in_use, self._other = sorted(self._files, key=lambda each: each.number)
        self._follows = None

    def make_ready(self) -> None:
        """Make the file that will take over, if there is none; by any thread, as `empty_full`.

        Raises:
            OSError: The disk refused it.
        """
        self._other.make_ready()

    def close(self) -> None:
        """Close the files."""
        for each in self._files:
            each.close()

    def _number_new_files(self) -> None:
        for each in self._files:
            if not each.has_head:
                others = [other.generation for other in self._files if other is not each]
                each.number = _first_number(max(others) + 1)


class _TailFile:
    """One file of the tail.

    Attributes:
        path: Where it is.
        used_bytes: Of all records in it.
        number: Of the next record.
        has_head: It was made, and its head is whole.
    """

    def __init__(self, path: Path, room_bytes: int) -> None:
        self.path = path
        self.used_bytes = 0
        self.number = 0
        self.has_head = False
        self._room_bytes = room_bytes
        self._descriptor: int | None = None
        self._first_number = 0

    @property
    def generation(self) -> int:
        return self.number >> _GENERATION_BITS

    def open(self) -> None:
        """Read the head, if there is one.

        Raises:
            StoreDamaged: It is damaged.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        number = _parse_head(content)
        if number is not None:
            self.has_head, self.number = True, number
            for _, at in _records(content, number):
                self.number += 1
                self.used_bytes = at - FIRST_AT
            self._first_number = number
            self._require_end(content, FIRST_AT + self.used_bytes)
        elif any(content):  # it is all zeros while it is being made
            raise StoreDamaged(self.path, "its head is damaged")

    def records(self) -> Iterator[list[TailWrite]]:
        if self.used_bytes:
            for body, _ in _records(self.path.read_bytes(), self._first_number):
                yield _decoder.decode(body)

    def append(self, writes: list[TailWrite]) -> None:
        body = _encoder.encode(writes)
        head = _RECORD.pack(_MAGIC, self.number, len(body), _checksum(self.number, body))
        _write(self._opened(), head + body, FIRST_AT + self.used_bytes)
        self.number += 1
        self.used_bytes += len(head) + len(body)

    def clear(self, number: int) -> None:
        _write(self._opened(), _packed_head(number), 0)
        self.number, self.used_bytes = number, 0

    def make_ready(self) -> None:
        self._opened()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            if not self.has_head:
                self._make()
                self.has_head = True
            # Each write is durable when it returns: the loop is waited for once, not twice.
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_DSYNC)
        return self._descriptor

    def _make(self) -> None:
        """Fill a new file, or one whose making was interrupted, and write its head last."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for at in range(0, FIRST_AT + self._room_bytes, _FILL_BYTES):
                size = min(_FILL_BYTES, FIRST_AT + self._room_bytes - at)
                _write(descriptor, bytes(size), at)
            os.fsync(descriptor)
            _write(descriptor, _packed_head(self.number), 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self.path.parent)

    def _require_end(self, content: bytes, at: int) -> None:
        """Raise where a whole record follows one that is not: somebody was told of both."""
        mark = _MAGIC + _U64.pack(self.number + 1)
        later = content.find(mark, at)
        while later >= 0:
            if _parse(content, later, self.number + 1) is not None:
                raise StoreDamaged(self.path, f"a record at {at} is damaged, and others follow")
            later = content.find(mark, later + 1)


def _first_number(generation: int) -> int:
    return generation << _GENERATION_BITS


def _records(content: bytes, number: int) -> Iterator[tuple[bytes, int]]:
    """The bodies of the records in a file, and where each ends."""
    at = FIRST_AT
    while (found := _parse(content, at, number)) is not None:
        number += 1
        at = found[1]
        yield found


def _parse(content: bytes, at: int, number: int) -> tuple[bytes, int] | None:
    """Return the body of the record at a position, and where it ends; None if it is not whole."""
    start = at + _RECORD.size
    if start > len(content):
        return None
    magic, found, size, crc = _RECORD.unpack_from(content, at)
    body = content[start : start + size]
    if magic != _MAGIC or found != number or len(body) < size or _checksum(number, body) != crc:
        return None
    return body, start + size


def _packed_head(number: int) -> bytes:
    head = _HEAD.pack(_HEAD_MAGIC, number)
    return head + _U32.pack(crc32(head))


def _parse_head(content: bytes) -> int | None:
    if len(content) < FIRST_AT:
        return None
    magic, number = _HEAD.unpack_from(content)
    (crc,) = _U32.unpack_from(content, _HEAD.size)
    is_whole = magic in _HEAD_MAGICS and crc32(content[: _HEAD.size]) == crc
    return number if is_whole else None


def _write(descriptor: int, data: bytes, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], at + written)


def _checksum(number: int, body: bytes) -> int:
    checksum, view = crc32(_U64.pack(number)), memoryview(body)
    for at in range(0, len(body), _CHECKED_BYTES):
        checksum = crc32(view[at : at + _CHECKED_BYTES], checksum)
    return checksum
