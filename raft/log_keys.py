"""Keys and values of Raft groups on disk. Pure: bytes in, bytes out.

```
raft_log     key    | group 8 BE | index 8 BE |
             value  | version 1 | kind 1 | term 8 BE | crc32 4 BE | data |
                      crc32 covers the key, version, kind, term and data

raft_state   key    | group 8 BE | "G" |     the group exists here; its first configuration
             key    | group 8 BE | "H" |     hard state: term, vote, commit
             key    | group 8 BE | "B" |     base: index and term of the last entry compacted away
             key    | group 8 BE | "S" |     the snapshot in force: its meta, parts and size
             key    | group 8 BE | "F" |     a configuration that an operator forced, and where
             key    | group 8 BE | "N" |     where the group's log begins in its files
             key    | group 8 BE | "L" |     what was here may be lost: no votes until admitted
             key    | group 8 BE | "E" |     the group was erased; its log files may be there yet
             key    | group 8 BE | "C" | index 8 BE |     a checkpoint: its meta, parts and size
             value  | version 1 | crc32 4 BE | msgpack array |
                      crc32 covers the key and the array

snapshots    key    | group 8 BE | index 8 BE | part 4 BE, from 0 |     of checkpoints, too
             value  | crc32 4 BE | at most 1 MiB |
                      crc32 covers the key and the data
```

Keys are part of the checksum, so a record in a wrong place is noticed too. Big-endian keys sort as
numbers do: a log is one range in order.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

import msgspec
from zlib_ng.zlib_ng import crc32

from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta

VERSION: Final = 1
PART_BYTES_MAX: Final = 1024 * 1024

_KEY: Final = struct.Struct(">QQ")
_PART_KEY: Final = struct.Struct(">QQI")
_GROUP: Final = struct.Struct(">Q")
_ENTRY: Final = struct.Struct(">BBQI")
_ENTRY_COVERED: Final = 10  # version, kind and term
_U32: Final = struct.Struct(">I")
_STATE_HEAD_BYTES: Final = 5  # version and checksum

_CHECKPOINT: Final = b"C"

_encoder = msgspec.msgpack.Encoder()


class RecordDamaged(Exception):
    """A record's bytes are not what was written: wrong checksum, length, version or place."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """The last entry that was compacted away; (0, 0) if none was."""

    index: int = 0
    term: int = 0


class SnapshotRecord(msgspec.Struct, frozen=True, array_like=True):
    """The snapshot in force, or a checkpoint.

    Attributes:
        meta: Where it stands.
        parts: How many parts it has.
        size_bytes: All parts together.
    """

    meta: SnapshotMeta
    parts: int
    size_bytes: int


class ForcedConfiguration(msgspec.Struct, frozen=True, array_like=True):
    """A configuration that an operator put in force on a stopped node (docs/protocol-rules.md P8).

    Attributes:
        index: The last entry it covers: configurations up to there no longer count.
        configuration: The members that are left.
    """

    index: int
    configuration: Configuration


class Blank(msgspec.Struct, frozen=True, array_like=True):
    """The replica may have lost its data and waits to be readmitted (docs/planted-bugs.md R11)."""


class FirstSegment(msgspec.Struct, frozen=True, array_like=True):
    """Where a group's log begins in its files (`raft.segments`).

    Attributes:
        sequence: Number of the segment; those before it do not belong to the log.
        keeps_log: The group has checkpoints, and its log stays until it is released.
    """

    sequence: int
    keeps_log: bool = False


class Erased(msgspec.Struct, frozen=True, array_like=True):
    """The group was erased. Stays until its log files are gone, too."""


AnyState = (
    Configuration
    | HardState
    | Base
    | SnapshotRecord
    | ForcedConfiguration
    | FirstSegment
    | Blank
    | Erased
)
StateRecord = TypeVar(
    "StateRecord",
    Configuration,
    HardState,
    Base,
    SnapshotRecord,
    ForcedConfiguration,
    FirstSegment,
    Blank,
    Erased,
)

_KINDS: Final[dict[type, bytes]] = {
    Configuration: b"G",
    HardState: b"H",
    Base: b"B",
    SnapshotRecord: b"S",
    ForcedConfiguration: b"F",
    FirstSegment: b"N",
    Blank: b"L",
    Erased: b"E",
}


def entry_key(group: int, index: int) -> bytes:
    """Key of a log entry."""
    return _KEY.pack(group, index)


def log_range(group: int, low: int = 0, high: int | None = None) -> tuple[bytes, bytes]:
    """Start and end of the keys of entries in [low, high); all of the group without limits."""
    end = _KEY.pack(group + 1, 0) if high is None else _KEY.pack(group, high)
    return _KEY.pack(group, low), end


def entry_record(key: bytes, entry: Entry) -> bytes:
    """A log entry's value; `key` is its `entry_key`."""
    head = _ENTRY.pack(VERSION, entry.kind, entry.term, 0)[:_ENTRY_COVERED]
    checksum = crc32(entry.data, crc32(head, crc32(key)))
    return head + _U32.pack(checksum) + entry.data


def parse_entry(key: bytes, value: bytes) -> Entry:
    """Check and decode a log entry.

    Raises:
        RecordDamaged: If it is not what was written there.
    """
    if len(key) != _KEY.size or len(value) < _ENTRY.size or value[0] != VERSION:
        raise RecordDamaged(f"log record {key.hex()} starts with {value[:2]!r}")
    _, kind, term, checksum = _ENTRY.unpack_from(value)
    data = value[_ENTRY.size :]
    found = crc32(data, crc32(value[:_ENTRY_COVERED], crc32(key)))
    if found != checksum:
        raise RecordDamaged(f"checksum of log record {key.hex()} does not match")
    return Entry(_KEY.unpack(key)[1], term, kind, data)


def state_key(group: int, record: type) -> bytes:
    """Key of a group's state record of that type."""
    return _GROUP.pack(group) + _KINDS[record]


def checkpoint_key(group: int, index: int) -> bytes:
    """Key of a checkpoint's record."""
    return _GROUP.pack(group) + _CHECKPOINT + _GROUP.pack(index)


def checkpoints_range(group: int) -> tuple[bytes, bytes]:
    """Start and end of the records of a group's checkpoints."""
    key = _GROUP.pack(group) + _CHECKPOINT
    return key, key + b"\xff" * 9


def state_range(group: int) -> tuple[bytes, bytes]:
    """Start and end of a group's state records."""
    return _GROUP.pack(group), _GROUP.pack(group + 1)


def all_states() -> tuple[bytes, bytes]:
    """Start and end of all groups' state records."""
    return b"", b"\xff" * 9


def parse_state_key(key: bytes) -> int:
    """The group of a state record's key."""
    return int(_GROUP.unpack_from(key)[0])


def state_record(key: bytes, record: AnyState) -> bytes:
    """A state record's value; `key` is its `state_key`."""
    data = _encoder.encode(record)
    return bytes((VERSION,)) + _U32.pack(_state_checksum(key, data)) + data


def parse_state(key: bytes, value: bytes, record: type[StateRecord]) -> StateRecord:
    """Check and decode a state record.

    Raises:
        RecordDamaged: If it is not what was written there.
    """
    if len(value) < _STATE_HEAD_BYTES or value[0] != VERSION:
        raise RecordDamaged(f"state record {key.hex()} starts with {value[:1]!r}")
    if _state_checksum(key, value[_STATE_HEAD_BYTES:]) != _U32.unpack_from(value, 1)[0]:
        raise RecordDamaged(f"checksum of state record {key.hex()} does not match")
    try:
        return msgspec.msgpack.decode(memoryview(value)[_STATE_HEAD_BYTES:], type=record)
    except ValueError as error:
        raise RecordDamaged(f"state record {key.hex()} does not decode: {error}") from error


def _state_checksum(key: bytes, data: bytes) -> int:
    return crc32(data, crc32(key))


def part_key(group: int, index: int, part: int) -> bytes:
    """Key of a snapshot's part."""
    return _PART_KEY.pack(group, index, part)


def parts_range(group: int, index: int | None = None) -> tuple[bytes, bytes]:
    """Start and end of a snapshot's parts, or of all parts of the group."""
    if index is None:
        return _PART_KEY.pack(group, 0, 0), _PART_KEY.pack(group + 1, 0, 0)
    return _PART_KEY.pack(group, index, 0), _PART_KEY.pack(group, index + 1, 0)


def parts_before(group: int, index: int) -> tuple[bytes, bytes]:
    """Start and end of the parts of snapshots older than the one at `index`."""
    return _PART_KEY.pack(group, 0, 0), _PART_KEY.pack(group, index, 0)


def parts_after(group: int, index: int) -> tuple[bytes, bytes]:
    """Start and end of the parts of snapshots newer than the one at `index`."""
    return _PART_KEY.pack(group, index + 1, 0), _PART_KEY.pack(group + 1, 0, 0)


def part_record(key: bytes, data: bytes) -> bytes:
    """A snapshot part's value; `key` is its `part_key`."""
    return _U32.pack(crc32(data, crc32(key))) + data


def parse_part(key: bytes, value: bytes) -> bytes:
    """Check a snapshot's part.

    Raises:
        RecordDamaged: If it is not what was written there.
    """
    data = value[_U32.size :]
    if len(value) < _U32.size or crc32(data, crc32(key)) != _U32.unpack_from(value)[0]:
        raise RecordDamaged(f"checksum of snapshot part {key.hex()} does not match")
    return data
