"""Keys and values of classic queues' messages on disk. Pure: bytes in, bytes out.

```
queue_index,  key    | queue uid, 8 BE | message number, 8 BE |
pages         value  | version 2 | flags 1 | body size 4 BE | crc32 4 BE | [address] | Message |
                       flags bit 0: the content is elsewhere, at the address; empty here
                       flags bit 1: the message expires in its queue
                       body size: the message's, without frames
                       crc32 covers the key, version, flags, body size and all behind it
                       the Message is a msgpack array of its fields
              address| body id, 8 BE | content size 8 BE | crc32 of body id and content, 4 BE |

bodies,       key    | body id, 8 BE | part 4 BE, from 0 |
page_bodies   value  | at most 1 MiB of content |

meta          key    "number/" | queue uid, 8 BE |
              value  | every number up to this one may have been used, 8 BE |
              key    "copy/" | queue uid, 8 BE |
              value  | crc32 4 BE | identity of the ring member whose copy this is |
              key    "bodies"
              value  | every body id up to this one may have been used, 8 BE |
```

Big-endian keys sort as numbers do, so one queue's records are one range in order of arrival.
The embedding limit is RabbitMQ's `queue_index_embed_msgs_below`, which counts properties too.

The fixed head says what a start must know of a message (its size, where its content is, whether
it expires), so a start decodes none. A content's checksum lies in the records that name it, so
the content itself is written and read as it is.

Source:
    docs/protocol-rules.md P13 (parts of 1 MiB), P29.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from zlib_ng.zlib_ng import crc32

from broker.message import Message

VERSION: Final = 2
EMBEDDED_BYTES_MAX: Final = 4096
PART_BYTES_MAX: Final = 1024 * 1024
NUMBER_MAX: Final = (1 << 64) - 2
"""No message has a higher number."""

KEYS_END: Final = b"\xff" * 17
"""Behind every key of `queue_index` and `bodies`."""

EXTERNAL: Final = 1
TIMED: Final = 2
FLAGS_MAX: Final = EXTERNAL | TIMED
_INDEX_KEY: Final = struct.Struct(">QQ")
_BODY_KEY: Final = struct.Struct(">QI")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
HEAD: Final = struct.Struct(">BBII")
_pack_head: Final = HEAD.pack
_ADDRESS: Final = struct.Struct(">QQI")
# Where a record's checksum starts, by flags; the body size is mixed in, then comes the key.
_SEED: Final = tuple(crc32(bytes((VERSION, flags))) for flags in range(FLAGS_MAX + 1))
BODY_MARK_KEY: Final = b"bodies"
_NUMBER_PREFIX: Final = b"number/"
_COPY_PREFIX: Final = b"copy/"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class RecordDamaged(Exception):
    """A record's bytes are not what was written: wrong checksum, length or version."""


class BodyAddress(NamedTuple):
    """The place of a message's content.

    Attributes:
        body_id: Its id in `bodies`.
        size_bytes: Its size, all parts together.
        checksum: See `body_checksum`.
    """

    body_id: int
    size_bytes: int
    checksum: int

    @property
    def parts(self) -> int:
        """The number of records that it takes."""
        return parts_of(self.size_bytes)


class IndexHead(NamedTuple):
    """The facts of a message that a record's head has without decoding.

    Attributes:
        body_size: Size of the message's body in bytes.
        is_timed: True when it expires in its queue.
        body: Where the content is, None when it is embedded.
    """

    body_size: int
    is_timed: bool
    body: BodyAddress | None


def parts_of(size_bytes: int) -> int:
    """Return the number of records that a content of that size takes."""
    return -(-size_bytes // PART_BYTES_MAX)


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


def number_in(key: bytes) -> int:
    """The message's number in an index key that is known to be one."""
    return _U64.unpack_from(key, 8)[0]  # type: ignore[no-any-return]


def queue_range(uid: int) -> tuple[bytes, bytes]:
    """Start and end of all index keys of a queue."""
    return _INDEX_KEY.pack(uid, 0), _INDEX_KEY.pack(uid + 1, 0)


def index_keys(uid: int, numbers: Iterable[int]) -> list[bytes]:
    """Keys of a queue's index records."""
    pack = _INDEX_KEY.pack
    return [pack(uid, number) for number in numbers]


def embedded_record(key: bytes, message: Message) -> bytes:
    """Record of a message that carries its own content.

    Args:
        key: The record's key, which its checksum covers.
        message: The message.
    """
    flags = TIMED if message.expires_ms else 0
    size = message.body_size
    rest = _encode(message)
    return _pack_head(VERSION, flags, size, crc32(rest, crc32(key, _SEED[flags] ^ size))) + rest


def embedded_run(uid: int, items: Iterable[tuple[int, Message]]) -> list[tuple[bytes, bytes]]:
    """Keys and records of messages that carry their own contents, as `embedded_record`."""
    records: list[tuple[bytes, bytes]] = []
    add, pack, pack_head, encode = records.append, _INDEX_KEY.pack, _pack_head, _encode
    plain, timed, version = _SEED[0], _SEED[TIMED], VERSION
    for number, message in items:
        key = pack(uid, number)
        size = message.body_size
        rest = encode(message)
        if message.expires_ms:
            checksum = crc32(rest, crc32(key, timed ^ size))
            add((key, pack_head(version, TIMED, size, checksum) + rest))
        else:
            checksum = crc32(rest, crc32(key, plain ^ size))
            add((key, pack_head(version, 0, size, checksum) + rest))
    return records


def external_record(key: bytes, message: Message, body: BodyAddress) -> bytes:
    """Record of a message whose content is stored at `body`."""
    flags = EXTERNAL | TIMED if message.expires_ms else EXTERNAL
    size = message.body_size
    rest = _ADDRESS.pack(*body) + _encode(msgspec.structs.replace(message, content=b""))
    return _pack_head(VERSION, flags, size, crc32(rest, crc32(key, _SEED[flags] ^ size))) + rest


def peek(value: bytes) -> IndexHead:
    """Return a record's head without checking its checksum.

    Raises:
        RecordDamaged: If the record is too short or of another version.
    """
    if len(value) < HEAD.size:
        raise RecordDamaged(f"index record of {len(value)} bytes, expected {HEAD.size} or more")
    version, flags, body_size, _ = HEAD.unpack_from(value)
    if version != VERSION or flags > FLAGS_MAX:
        raise RecordDamaged(f"index record starts with {value[:2]!r}, expected version {VERSION}")
    if not flags & EXTERNAL:
        return IndexHead(body_size, flags >= TIMED, None)
    if len(value) < HEAD.size + _ADDRESS.size:
        raise RecordDamaged(f"index record of {len(value)} bytes lacks its content's address")
    return IndexHead(
        body_size, flags >= TIMED, BodyAddress(*_ADDRESS.unpack_from(value, HEAD.size))
    )


def is_external(value: bytes) -> bool:
    """True for a record whose content is elsewhere."""
    return len(value) > 1 and bool(value[1] & EXTERNAL)


def parse_record(key: bytes, value: bytes) -> tuple[Message, BodyAddress | None]:
    """Check and decode a record.

    Returns:
        The message, and where its content is; None when it is embedded.

    Raises:
        RecordDamaged: If it is not what was written under this key.
    """
    if len(value) < HEAD.size or value[0] != VERSION or value[1] > FLAGS_MAX:
        peek(value)  # says what is wrong
    _, flags, size, checksum = HEAD.unpack_from(value)
    rest = value[HEAD.size :]
    if crc32(rest, crc32(key, _SEED[flags] ^ size)) != checksum:
        raise RecordDamaged("checksum of the index record does not match")
    body = None
    if flags & EXTERNAL:
        body = BodyAddress(*_ADDRESS.unpack_from(rest))
        rest = rest[_ADDRESS.size :]
    try:
        return _decode(rest), body
    except ValueError as error:
        raise RecordDamaged(f"index record does not decode: {error}") from error


def parse_run(
    uid: int,
    first: int,
    values: Iterable[bytes],
    fill: Callable[[Message, BodyAddress], Message],
) -> list[tuple[int, Message]]:
    """`parse_record` for neighbours, as a deep queue is drained: a third faster.

    Args:
        uid: The queue.
        first: Number of the first; a record of another number than its place says is damaged.
        values: One a number.
        fill: Gives a message its content, which is elsewhere.

    Raises:
        RecordDamaged: If one of them is not what was written under its number.
    """
    found: list[tuple[int, Message]] = []
    add, unpack, pack, decode = found.append, HEAD.unpack_from, _INDEX_KEY.pack, _decode
    seeds, version, behind = _SEED, VERSION, HEAD.size
    number = first
    try:
        for value in values:
            its_version, flags, size, checksum = unpack(value)
            rest = value[behind:]
            seed = seeds[flags] ^ size  # an IndexError where the flags are none of ours
            if crc32(rest, crc32(pack(uid, number), seed)) != checksum or its_version != version:
                raise RecordDamaged("checksum of the index record does not match")
            if flags & EXTERNAL:
                message = fill(
                    decode(rest[_ADDRESS.size :]), BodyAddress(*_ADDRESS.unpack_from(rest))
                )
                add((number, message))
            else:
                add((number, decode(rest)))
            number += 1
    except (struct.error, IndexError, ValueError) as error:
        raise RecordDamaged(f"index record {number} does not decode: {error}") from error
    return found


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
    """The values of a content's parts, in order; a content of one part is not copied."""
    if len(content) <= PART_BYTES_MAX:
        return [content]
    return [content[at : at + PART_BYTES_MAX] for at in range(0, len(content), PART_BYTES_MAX)]


def body_checksum(body_id: int, content: bytes) -> int:
    """Checksum of a content stored under an id, as the records that name it hold it."""
    return crc32(content, crc32(_U64.pack(body_id)))


def join_body(body: BodyAddress, parts: list[bytes]) -> bytes:
    """Put a content together and check it.

    Raises:
        RecordDamaged: If it is not what was stored at this address.
    """
    content = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(content) != body.size_bytes:
        raise RecordDamaged(
            f"body {body.body_id} has {len(content)} bytes, expected {body.size_bytes}"
        )
    if body_checksum(body.body_id, content) != body.checksum:
        raise RecordDamaged(f"checksum of body {body.body_id} does not match")
    return content


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
    return _U32.pack(crc32(member)) + member


def parse_copy_note(value: bytes) -> bytes:
    """The identity that was noted.

    Raises:
        RecordDamaged: If its checksum does not match.
    """
    if len(value) < _U32.size or crc32(value[4:]) != _U32.unpack_from(value)[0]:
        raise RecordDamaged("checksum of a copy's note does not match")
    return value[4:]
