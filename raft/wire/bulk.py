"""Appends of large entries as protobuf reads and writes them, without its copies. Pure.

protobuf copies an entry's data three times on its way out, for each follower, and twice on its way
in. Here it is a piece of the payload as it is, and cut out once. What is not written as here is
left to protobuf's library.
"""

from __future__ import annotations

from typing import Final

from raft.core.messages import Append, Entry
from raft.wire.varint import read_varint, varint

LARGE_BYTES: Final = 4 << 10
"""Data of a large entry; smaller ones cost less with the library."""

_BYTES_4: Final = 0x22
"""Tag of field 4, of bytes: a payload's message, an append's entry, an entry's data."""

_APPEND: Final = 0x3A
_NUMBERS: Final = (0x08, 0x10, 0x18)
"""Tags of the fields 1 to 3, which are numbers; those that are 0 are left out."""

_U64_BYTES_MAX: Final = 9
"""Longer numbers may be none of 64 bits: the library knows what to do with those."""


def is_large(append: Append) -> bool:
    """True if its entries are large on average."""
    entries = append.entries
    return sum([len(each.data) for each in entries]) >= max(1, len(entries)) * LARGE_BYTES


def encode(head: bytes, append: Append) -> list[bytes]:
    """Return a payload with one append, in pieces.

    Args:
        head: The payload without messages.
        append: What it carries.
    """
    pieces: list[bytes] = []
    for entry in append.entries:
        numbers = _numbers(entry.index, entry.term, entry.kind)
        fields = numbers + b"\x22" + varint(len(entry.data))
        pieces += (b"\x22" + varint(len(fields) + len(entry.data)) + fields, entry.data)
    fields = _numbers(append.prev_index, append.prev_term, append.commit)
    size = len(fields) + sum(map(len, pieces))
    envelope = _numbers(append.group, append.term) + b"\x3a" + varint(size) + fields
    size += len(envelope) - len(fields)
    return [head + b"\x22" + varint(size) + envelope, *pieces]


def decode(head: bytes, data: bytes | memoryview, sender: str, to: str) -> Append | None:
    """Read what `encode` wrote.

    Args:
        head: As in `encode`.
        data: The payload.
        sender: The node that wrote it.
        to: This node.

    Returns:
        None for all else, damaged or not: protobuf is to read that.
    """
    if len(data) < LARGE_BYTES or data[: len(head)] != head:
        return None
    try:
        position = _enter(data, len(head), _BYTES_4)
        group, term, other, position = _read_numbers(data, position)
        position = _enter(data, position, _APPEND)
        prev_index, prev_term, commit, position = _read_numbers(data, position)
        entries: list[Entry] = []
        while position < len(data):
            size, start = _read_size(data, position, _BYTES_4)
            index, entry_term, kind, position = _read_numbers(data, start)
            length, position = _read_size(data, position, _BYTES_4)
            if length < LARGE_BYTES or position + length != start + size:
                return None
            start, position = position, position + length
            entries.append(Entry(index, entry_term, kind, bytes(data[start:position])))
    except (IndexError, ValueError):
        return None
    if other or position != len(data):
        return None
    return Append(group, sender, to, term, prev_index, prev_term, commit, entries)


def _numbers(*values: int) -> bytes:
    """The fields 1 to 3, as far as given."""
    found = b""
    for tag, value in zip(_NUMBERS, values, strict=False):
        if value:
            found += bytes((tag,)) + varint(value)
    return found


def _read_numbers(data: bytes | memoryview, position: int) -> tuple[int, int, int, int]:
    """Return the fields 1 to 3, and the position behind them."""
    found = [0, 0, 0]
    for place, tag in enumerate(_NUMBERS):
        if data[position] == tag:
            start = position + 1
            found[place], position = read_varint(data, start)
            if position - start > _U64_BYTES_MAX:
                raise ValueError("a long number")
    return found[0], found[1], found[2], position


def _read_size(data: bytes | memoryview, position: int, tag: int) -> tuple[int, int]:
    """Return the size of a field of bytes, and where they begin."""
    if data[position] != tag:
        raise ValueError("another field")
    return read_varint(data, position + 1)


def _enter(data: bytes | memoryview, position: int, tag: int) -> int:
    """Return where a field begins that is the last of the data."""
    size, position = _read_size(data, position, tag)
    if position + size != len(data):
        raise ValueError("something follows")
    return position
