"""Keys and values of classic queues' messages on disk. Pure: bytes in, bytes out.

```
queue_index   key    | queue uid, 8 BE | message number, 8 BE |
              value  | version 1 | flags 1 | crc32 4 BE | [body id 8 BE | size 8 BE] | Message |
                       flags bit 0: the content, size bytes, is in `bodies`; empty here
                       crc32 covers version, flags and everything behind the checksum
                       the Message is a msgpack array of its fields

bodies        key    | body id, 8 BE | part 4 BE, from 0 |
              value  | crc32 4 BE | at most 1 MiB of content |

meta          key    "number/" | queue uid, 8 BE |
              value  | every number up to this one may have been used, 8 BE |
              key    "copy/" | queue uid, 8 BE |
              value  | crc32 4 BE | identity of the ring member whose copy this is |
              key    "bodies"
              value  | every body id up to this one may have been used, 8 BE |
```

Big-endian keys sort as numbers do, so one queue's records are one range in order of arrival.
The embedding limit is RabbitMQ's `queue_index_embed_msgs_below`, which counts properties too.

Source:
    protocol.md P13 (parts of 1 MiB), P29.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from broker.message import Message

VERSION: Final = 1
EMBEDDED_BYTES_MAX: Final = 4096
PART_BYTES_MAX: Final = 1024 * 1024
KEYS_END: Final = b"\xff" * 17
"""Behind every key of `queue_index` and `bodies`."""

_EXTERNAL: Final = 1
_INDEX_KEY: Final = struct.Struct(">QQ")
_BODY_KEY: Final = struct.Struct(">QI")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BBI")
_ADDRESS: Final = struct.Struct(">QQ")
_SEED: Final = {flags: zlib.crc32(bytes((VERSION, flags))) for flags in (0, _EXTERNAL)}
BODY_MARK_KEY: Final = b"bodies"
_NUMBER_PREFIX: Final = b"number/"
_COPY_PREFIX: Final = b"copy/"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class RecordDamaged(Exception):
    """A record's bytes are not what was written: wrong checksum, length or version."""


class BodyAddress(NamedTuple):
    """Where a content is.

    Attributes:
        body_id: Its id in `bodies`.
        size_bytes: Its size, all parts together.
    """

    body_id: int
    size_bytes: int

    @property
    def parts(self) -> int:
        """How many records it takes."""
        return -(-self.size_bytes // PART_BYTES_MAX)


class IndexRecord(NamedTuple):
    """A decoded index record.

    Attributes:
        message: The message; its content is empty when `body` is given.
        body: Where the content is, None when it is embedded.
    """

    message: Message
    body: BodyAddress | None


def index_key(uid: int, number: int) -> bytes:
    """Key of a message's index record."""
    return _INDEX_KEY.pack(uid, number)


def parse_index_key(key: bytes) -> tuple[int, int]:
    """The queue's uid and the message's number.

    Raises:
        RecordDamaged: If the key has another length.
    """
    if len(key) != _INDEX_KEY.size:
        raise RecordDamaged(f"index key of {len(key)} bytes, expected {_INDEX_KEY.size}")
    uid, number = _INDEX_KEY.unpack(key)
    return uid, number


def queue_range(uid: int) -> tuple[bytes, bytes]:
    """Start and end of all index keys of a queue."""
    return _INDEX_KEY.pack(uid, 0), _INDEX_KEY.pack(uid + 1, 0)


def embedded_record(message: Message) -> bytes:
    """Index record of a message that carries its own content."""
    rest = _encoder.encode(message)
    return _HEAD.pack(VERSION, 0, zlib.crc32(rest, _SEED[0])) + rest


def external_record(message: Message, body: BodyAddress) -> bytes:
    """Index record of a message whose content is stored at `body`."""
    stub = msgspec.structs.replace(message, content=b"")
    rest = _ADDRESS.pack(body.body_id, body.size_bytes) + _encoder.encode(stub)
    return _HEAD.pack(VERSION, _EXTERNAL, zlib.crc32(rest, _SEED[_EXTERNAL])) + rest


def peek_body(value: bytes) -> BodyAddress | None:
    """Where an index record's content is, without decoding the rest; None if embedded.

    Raises:
        RecordDamaged: If the record is too short or of another version.
    """
    if len(value) < _HEAD.size or value[0] != VERSION or value[1] > _EXTERNAL:
        raise RecordDamaged(f"index record starts with {value[:2]!r}, expected version {VERSION}")
    if not value[1] & _EXTERNAL:
        return None
    if len(value) < _HEAD.size + _ADDRESS.size:
        raise RecordDamaged(f"index record of {len(value)} bytes lacks its body's address")
    return BodyAddress(*_ADDRESS.unpack_from(value, _HEAD.size))


def parse_record(value: bytes) -> IndexRecord:
    """Check and decode an index record.

    Raises:
        RecordDamaged: If it is not what was written.
    """
    body = peek_body(value)
    _, flags, checksum = _HEAD.unpack_from(value)
    if zlib.crc32(value[_HEAD.size :], _SEED[flags]) != checksum:
        raise RecordDamaged("checksum of the index record does not match")
    start = _HEAD.size if body is None else _HEAD.size + _ADDRESS.size
    try:
        message = _decoder.decode(memoryview(value)[start:])
    except ValueError as error:
        raise RecordDamaged(f"index record does not decode: {error}") from error
    return IndexRecord(message, body)


def body_key(body_id: int, part: int) -> bytes:
    """Key of one part of a stored content."""
    return _BODY_KEY.pack(body_id, part)


def parse_body_key(key: bytes) -> tuple[int, int]:
    """Body id and part of a key in `bodies`.

    Raises:
        RecordDamaged: If the key has another length.
    """
    if len(key) != _BODY_KEY.size:
        raise RecordDamaged(f"body key of {len(key)} bytes, expected {_BODY_KEY.size}")
    body_id, part = _BODY_KEY.unpack(key)
    return body_id, part


def body_range(body_id: int) -> tuple[bytes, bytes]:
    """Start and end of all parts of a content."""
    return _BODY_KEY.pack(body_id, 0), _BODY_KEY.pack(body_id + 1, 0)


def cut_body(content: bytes) -> list[bytes]:
    """The values of a content's parts, in order."""
    if len(content) <= PART_BYTES_MAX:
        return [_U32.pack(zlib.crc32(content)) + content]
    whole = memoryview(content)
    parts = (whole[at : at + PART_BYTES_MAX] for at in range(0, len(content), PART_BYTES_MAX))
    return [_U32.pack(zlib.crc32(part)) + part for part in parts]


def parse_body_part(value: bytes) -> bytes:
    """Check one part.

    Raises:
        RecordDamaged: If its checksum does not match.
    """
    if len(value) < _U32.size or zlib.crc32(value[4:]) != _U32.unpack_from(value)[0]:
        raise RecordDamaged("checksum of a body part does not match")
    return value[4:]


def number_key(uid: int) -> bytes:
    """Key of a queue's number mark."""
    return _NUMBER_PREFIX + _U64.pack(uid)


def number_range() -> tuple[bytes, bytes]:
    """Start and end of all number marks."""
    return _NUMBER_PREFIX, _NUMBER_PREFIX + b"\xff" * 9


def parse_number_key(key: bytes) -> int:
    """The queue's uid in a number mark's key."""
    return int(_U64.unpack_from(key, len(_NUMBER_PREFIX))[0])


def number_mark(number: int) -> bytes:
    """Value of a number mark."""
    return _U64.pack(number)


def parse_number_mark(value: bytes) -> int:
    """The highest number (or body id) that may have been used.

    Raises:
        RecordDamaged: If the value has another length.
    """
    if len(value) != _U64.size:
        raise RecordDamaged(f"number mark of {len(value)} bytes, expected {_U64.size}")
    return int(_U64.unpack(value)[0])


def copy_key(uid: int) -> bytes:
    """Key of the note whose copy of a mirrored queue lies here."""
    return _COPY_PREFIX + _U64.pack(uid)


def copy_range() -> tuple[bytes, bytes]:
    """Start and end of all such notes."""
    return _COPY_PREFIX, _COPY_PREFIX + b"\xff" * 9


def parse_copy_key(key: bytes) -> int:
    """The queue's uid in such a note's key."""
    return int(_U64.unpack_from(key, len(_COPY_PREFIX))[0])


def copy_note(member: bytes) -> bytes:
    """Value of such a note."""
    return _U32.pack(zlib.crc32(member)) + member


def parse_copy_note(value: bytes) -> bytes:
    """The identity that was noted.

    Raises:
        RecordDamaged: If its checksum does not match.
    """
    if len(value) < _U32.size or zlib.crc32(value[4:]) != _U32.unpack_from(value)[0]:
        raise RecordDamaged("checksum of a copy's note does not match")
    return value[4:]
