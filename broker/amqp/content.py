"""Content headers: what the broker must know of a message's properties, and all of them on demand.

A content header frame's payload:

    0        2        4                    12      14
    | class  | weight | body size (octets) | flags | values of the flagged properties, in order ...
    | 60     | 0      | 64 bits            | 15..2 |

`facts_at` takes the bytes from `flags` on and answers what publishing itself asks: persistent?
priority? expiration? Every message has properties of its own, so it steps over those that decide
nothing and makes no object for a message that asks for nothing special. What it does not like goes
to `facts_of`, which looks at every property and alone decides what is an error. All 14 properties
and the headers table are decoded only by `decode_properties`.

Invariants: 1. Bytes that `facts_at` or `facts_of` accepted decode without an error. 2. Both give
equal facts for equal bytes, and refuse the same. 3. At most FACTS_MAX facts are remembered.

Called by the assembler (facts), session and queues (properties), management (build_message).

Source: amqp0-9-1 2.3.5.2 (header frame), amqp0-9-1.extended.xml class basic (property order).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from broker.amqp import fields
from broker.amqp.frames import FRAME, FRAME_BODY, FRAME_HEADER, FRAME_OVERHEAD
from broker.errors import AmqpError, ReplyCode
from broker.message import Message

FACTS_MAX: Final = 4096
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The `reply_to` that asks for a direct answer."""

EXPIRATION_MAX_MS: Final = 315_360_000_000
"""Ten years."""

FRAME_MAX_DEFAULT: Final = 131_072
PERSISTENT: Final = 2
HEADER_FIXED_SIZE: Final = 12
"""Bytes of a content header before `flags`."""

_FIXED: Final = struct.Struct(">HHQ")
_CLASS_BASIC: Final = 60
_WHOLE: Final = re.compile(r"\+?[0-9]{1,18}")
_FLAGS_UNDEFINED: Final = 0b11
_HEADERS_FLAG: Final = 1 << 5  # in the upper octet of the flags
_ROUTING_KEYS: Final = (b"CC", b"BCC")
_ROUTING_KEY_SIZE: Final = 3

_TIMESTAMP_BIT: Final = 1 << 6  # of all flags

_ORDER: Final = (
    ("content_type", 1 << 15, "shortstr"),
    ("content_encoding", 1 << 14, "shortstr"),
    ("headers", 1 << 13, "table"),
    ("delivery_mode", 1 << 12, "octet"),
    ("priority", 1 << 11, "octet"),
    ("correlation_id", 1 << 10, "shortstr"),
    ("reply_to", 1 << 9, "shortstr"),
    ("expiration", 1 << 8, "shortstr"),
    ("message_id", 1 << 7, "shortstr"),
    ("timestamp", _TIMESTAMP_BIT, "longlong"),
    ("type", 1 << 5, "shortstr"),
    ("user_id", 1 << 4, "shortstr"),
    ("app_id", 1 << 3, "shortstr"),
    ("cluster_id", 1 << 2, "shortstr"),
)
_WIDTHS: Final = {"octet": 1, "longlong": 8}
_KEPT_TEXTS: Final = ("expiration", "user_id", "reply_to")

_SHORTSTR, _TABLE, _DELIVERY_MODE, _TIMESTAMP, _PRIORITY, _EXPIRATION, _USER_ID, _REPLY_TO = range(
    8
)
_STEPS: Final = {
    "headers": _TABLE,
    "delivery_mode": _DELIVERY_MODE,
    "timestamp": _TIMESTAMP,
    "priority": _PRIORITY,
    "expiration": _EXPIRATION,
    "user_id": _USER_ID,
    "reply_to": _REPLY_TO,
}


class _Layouts(dict[int, tuple[int, ...]]):
    """How to go through the properties, by the flags of those that are there."""

    def __missing__(self, flags: int) -> tuple[int, ...]:
        if flags & _FLAGS_UNDEFINED:
            raise KeyError(flags)
        steps = tuple([_STEPS.get(name, _SHORTSTR) for name, bit, _ in _ORDER if flags & bit])
        self[flags] = steps
        return steps


_LAYOUTS: Final = _Layouts()


class PropertyFacts(msgspec.Struct, frozen=True, gc=False):
    """What publishing needs to know of a message's properties. Equal ones are mostly one object.

    Attributes:
        is_plain: Nothing of what follows `ttl_ms` is there, and an expiration is a good one: no
            check is needed, and the message is passed on as it is.
        persistent: delivery_mode is 2.
        priority: 0 to 255, 0 where there is none.
        ttl_ms: `expiration` as a number, -1 where there is none or it is not one.
        expiration: As sent, not yet checked to be a number.
        user_id: As sent.
        asks_direct_reply: reply_to is `DIRECT_REPLY_TO`.
        has_routing_headers: There is a header CC or BCC.
    """

    is_plain: bool = True
    persistent: bool = False
    priority: int = 0
    ttl_ms: int = -1
    expiration: str | None = None
    user_id: str | None = None
    asks_direct_reply: bool = False
    has_routing_headers: bool = False


class Properties(msgspec.Struct):
    """All properties of a message; None stands for one that is not there."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, object] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def ttl_of(expiration: object) -> int:
    """An `expiration` property in milliseconds; -1 for anything but a whole number from 0 on."""
    if not isinstance(expiration, str) or not _WHOLE.fullmatch(expiration):
        return -1
    return int(expiration)


@lru_cache(maxsize=FACTS_MAX)
def _facts(
    persistent: bool,  # noqa: FBT001 - positional: it is a key of the cache
    priority: int,
    expiration: str | None,
    user_id: str | None,
    asks_direct_reply: bool,  # noqa: FBT001
    has_routing_headers: bool,  # noqa: FBT001
) -> PropertyFacts:
    ttl_ms = ttl_of(expiration)
    is_timely = expiration is None or 0 <= ttl_ms <= EXPIRATION_MAX_MS
    return PropertyFacts(
        is_timely and user_id is None and not asks_direct_reply and not has_routing_headers,
        persistent,
        priority,
        ttl_ms,
        expiration,
        user_id,
        asks_direct_reply,
        has_routing_headers,
    )


_PLAIN: Final = (
    _facts(False, 0, None, None, False, False),
    _facts(True, 0, None, None, False, False),
)


def facts_of(raw: bytes) -> PropertyFacts:
    """Read what publishing needs from a content header, looking at each property.

    Args:
        raw: The header's payload from the property flags on (its byte 12).

    Raises:
        AmqpError: 501 for undefined flags, or values that are cut short or go on too long; 502
            for a headers table of unknown types or beyond `fields`' bounds.
    """
    mode = priority = 0
    texts: dict[str, str] = {}
    has_routing_headers = False
    for name, domain, start, end in _spans(raw):
        if domain == "table":
            fields.check_table(raw, start, end)
            has_routing_headers = _has_routing_headers(raw, start, end)
        elif name == "delivery_mode":
            mode = raw[start]
        elif name == "priority":
            priority = raw[start]
        elif name in _KEPT_TEXTS:
            texts[name] = raw[start + 1 : end].decode("utf-8", "surrogateescape")
    return _facts(
        mode == PERSISTENT,
        priority,
        texts.get("expiration"),
        texts.get("user_id"),
        texts.get("reply_to") == DIRECT_REPLY_TO,
        has_routing_headers,
    )


def _has_routing_headers(data: bytes, start: int, end: int) -> bool:
    """True if a sound table that lies in [start, end) has an entry CC or BCC."""
    if data.find(b"\x02CC", start, end) < 0 and data.find(b"\x03BCC", start, end) < 0:
        return False
    return any(key in _ROUTING_KEYS for key, _, _ in fields.raw_entries(data[start:end]))


def facts_at(data: bytes, start: int, end: int) -> PropertyFacts:
    """As `facts_of`, for properties that lie in [start, end) of more bytes.

    It goes from property to property by their sizes alone. What is cut short, or too long, leads
    somewhere else than to `end`: positions only grow.

    Raises:
        AmqpError: As `facts_of`.
    """
    has_routing_headers = False
    mode = 0
    rare: list[tuple[int, int]] = []
    try:
        pos = start + 2
        for step in _LAYOUTS[data[start] << 8 | data[start + 1]]:
            if step == _SHORTSTR:
                pos += 1 + data[pos]
            elif step == _TABLE:
                at = pos
                pos, shortest_key = fields.end_of_table(data, pos)
                if shortest_key <= _ROUTING_KEY_SIZE and pos <= end:
                    has_routing_headers = _has_routing_headers(data, at, pos)
            elif step == _DELIVERY_MODE:
                mode = data[pos]
                pos += 1
            elif step == _TIMESTAMP:
                pos += 8
            else:
                rare.append((step, pos))
                pos += 1 if step == _PRIORITY else 1 + data[pos]
    except (IndexError, KeyError, struct.error):
        pos = -1
    if pos != end:
        return facts_of(data[start:end])
    if not rare and not has_routing_headers:
        return _PLAIN[mode == PERSISTENT]
    return _rare_facts(data, mode, rare, has_routing_headers=has_routing_headers)


def _rare_facts(
    data: bytes, mode: int, rare: list[tuple[int, int]], *, has_routing_headers: bool
) -> PropertyFacts:
    priority = 0
    texts: dict[int, str] = {}
    for step, pos in rare:
        if step == _PRIORITY:
            priority = data[pos]
        else:
            texts[step] = data[pos + 1 : pos + 1 + data[pos]].decode("utf-8", "surrogateescape")
    return _facts(
        mode == PERSISTENT,
        priority,
        texts.get(_EXPIRATION),
        texts.get(_USER_ID),
        texts.get(_REPLY_TO) == DIRECT_REPLY_TO,
        has_routing_headers,
    )


def free_spans(raw: bytes) -> list[tuple[int, int]]:
    """Where values lie that decide nothing.

    Properties with any other octets there are as sound, and `facts_of` gives the same for them.
    Sizes, types and the keys of headers decide, and so does all of a nested table or array.

    Args:
        raw: As `facts_of` takes it, and accepted it.

    Returns:
        (start, end) of each, in order.
    """
    found = []
    for name, domain, start, end in _spans(raw):
        if domain == "table":
            found += [
                (start + first, start + last) for first, last in fields.free_spans(raw[start:end])
            ]
        elif name == "timestamp":
            found.append((start, end))
        elif domain == "shortstr" and name not in _KEPT_TEXTS:
            found.append((start + 1, end))
    return found


def _spans(raw: bytes) -> list[tuple[str, str, int, int]]:
    """Where each property lies: name, domain, start and end, sizes included."""
    if len(raw) < 2:  # noqa: PLR2004 - the flags
        raise _broken("it ends within the property flags")
    flags = raw[0] << 8 | raw[1]
    if flags & _FLAGS_UNDEFINED:
        raise _broken(f"undefined property flags {flags & _FLAGS_UNDEFINED}")
    spans = []
    pos, size = 2, len(raw)
    for name, bit, domain in _ORDER:
        if not flags & bit:
            continue
        start = pos
        if domain == "shortstr":
            pos += 1 + raw[pos] if pos < size else 1
        elif domain == "table":
            pos += 4 + int.from_bytes(raw[pos : pos + 4], "big")
        else:
            pos += _WIDTHS[domain]
        if pos > size:
            raise _broken(f"it ends within {name}")
        spans.append((name, domain, start, pos))
    if pos != size:
        raise _broken(f"{size - pos} octets follow the last property")
    return spans


def _broken(why: str) -> AmqpError:
    return AmqpError(
        ReplyCode.FRAME_ERROR, f"cannot decode content header: {why}", _CLASS_BASIC, 40
    )


def raw_properties(message: Message) -> bytes:
    """The bytes `facts_of` takes, cut from a message's content."""
    return message.content[FRAME.size + HEADER_FIXED_SIZE : FRAME.size + message.header_size]


def decode_properties(message: Message) -> Properties:
    """All properties of a message, headers included.

    Raises:
        AmqpError: Never for a message that came through the assembler or `build_message`.
    """
    return properties_in(raw_properties(message))


def properties_in(raw: bytes) -> Properties:
    """All properties in the bytes that `facts_of` takes.

    Raises:
        AmqpError: As `facts_of`.
    """
    found: dict[str, object] = {}
    for name, domain, start, end in _spans(raw):
        if domain == "table":
            found[name] = fields.decode_table(raw, start, end)[0]
        elif domain == "shortstr":
            found[name] = raw[start + 1 : end].decode("utf-8", "surrogateescape")
        else:
            found[name] = int.from_bytes(raw[start:end], "big")
    return Properties(**found)  # type: ignore[arg-type]  # _ORDER's names are its fields


def timestamp_of(message: Message) -> int | None:
    """A message's `timestamp` in seconds since 1970; None without one, and of a stub."""
    flags = int.from_bytes(raw_properties(message)[:2], "big")
    return decode_properties(message).timestamp if flags & _TIMESTAMP_BIT else None


class Decoded:
    """A message's properties for all who ask in turn: decoded once, and not before.

    Args:
        message: As it came through the assembler, or `build_message`.
    """

    __slots__ = ("_found", "_message")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._found: Properties | None = None

    @property
    def properties(self) -> Properties:
        """All of them; not to be changed."""
        if self._found is None:
            self._found = decode_properties(self._message)
        return self._found

    @property
    def headers(self) -> dict[str, object]:
        """The headers table, {} where there is none; not to be changed."""
        return self.properties.headers or {}


def encode_properties(properties: Properties) -> bytes:
    """Property flags and values, as `facts_of` takes them.

    Raises:
        ValueError: As `fields.encode_table`.
        TypeError: As `fields.encode_table`.
        OverflowError: For a number outside its domain.
    """
    flags = 0
    parts = [b""]
    for name, bit, domain in _ORDER:
        value = getattr(properties, name)
        if value is None:
            continue
        flags |= bit
        if domain == "shortstr":
            parts.append(fields.encode_shortstr(value))
        elif domain == "table":
            parts.append(fields.encode_table(value))
        else:
            parts.append(int(value).to_bytes(_WIDTHS[domain], "big"))
    parts[0] = flags.to_bytes(2, "big")
    return b"".join(parts)


def _header_frame(channel: int, body_size: int, raw: bytes) -> bytes:
    return (
        FRAME.pack(FRAME_HEADER, channel, HEADER_FIXED_SIZE + len(raw))
        + _FIXED.pack(_CLASS_BASIC, 0, body_size)
        + raw
        + b"\xce"
    )


def with_properties(message: Message, properties: Properties) -> Message:
    """The same message with other properties; its body frames are kept as they are.

    Raises:
        ValueError: As `encode_properties`.
        TypeError: As `encode_properties`.
        OverflowError: As `encode_properties`.
    """
    raw = encode_properties(properties)
    bodies = message.content[FRAME_OVERHEAD + message.header_size :]
    return Message(
        message.exchange,
        message.routing_key,
        _header_frame(message.channel, message.body_size, raw) + bodies,
        message.channel,
        HEADER_FIXED_SIZE + len(raw),
        message.body_size,
        properties.delivery_mode == PERSISTENT,
        ttl_of(properties.expiration),
        properties.priority or 0,
        message.expires_ms,
        message.bcc,
        message.dedup,
    )


def raw_headers(message: Message) -> bytes:
    """A message's headers table with its size in front; b"" where it has none."""
    raw = raw_properties(message)
    if not raw[0] & _HEADERS_FLAG:
        return b""
    return next(raw[start:end] for _, domain, start, end in _spans(raw) if domain == "table")


def with_raw_headers(message: Message, headers: bytes, *, without_expiration: bool) -> Message:
    """The same message with another headers table; every other byte stays as it came.

    Args:
        message: As it came through the assembler, or `build_message`.
        headers: A table with its size in front.
        without_expiration: Take its `expiration` out.

    Returns:
        The message; `ttl_ms` says what its `expiration` says, and it is in no queue (`expires_ms`).
    """
    changed: dict[str, bytes | None] = {"headers": headers}
    if without_expiration:
        changed["expiration"] = None
    return msgspec.structs.replace(with_raw_values(message, changed), expires_ms=0)


def with_raw_values(message: Message, changed: Mapping[str, bytes | None]) -> Message:
    """The same message with other values of some properties; every other byte stays as it came.

    Args:
        message: As it came through the assembler, or `build_message`.
        changed: Names of `Properties` with their values on the wire; None takes one out.

    Returns:
        The message; `ttl_ms` says what its `expiration` says.
    """
    raw = raw_properties(message)
    values = {name: raw[start:end] for name, _, start, end in _spans(raw)}
    for name, value in changed.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    flags = sum([bit for name, bit, _ in _ORDER if name in values])
    parts = [values[name] for name, _, _ in _ORDER if name in values]
    raw = flags.to_bytes(2, "big") + b"".join(parts)
    bodies = message.content[FRAME_OVERHEAD + message.header_size :]
    expiration = values.get("expiration", b"\0")[1:].decode("utf-8", "surrogateescape")
    return msgspec.structs.replace(
        message,
        content=_header_frame(message.channel, message.body_size, raw) + bodies,
        header_size=HEADER_FIXED_SIZE + len(raw),
        ttl_ms=ttl_of(expiration),
    )


def build_message(
    exchange: str,
    routing_key: str,
    properties: Properties,
    body: bytes,
    *,
    channel: int = 1,
    frame_max: int = FRAME_MAX_DEFAULT,
) -> Message:
    """Make a message that no client sent (management's publish, dead letters, tests).

    Args:
        exchange: Exchange it goes to.
        routing_key: Routing key it goes with.
        properties: Its properties.
        body: Its body; cut into as many frames as it takes.
        channel: Channel number in the frames.
        frame_max: Largest frame in bytes, frame header and end octet included.

    Raises:
        ValueError: As `encode_properties`.
        TypeError: As `encode_properties`.
        OverflowError: As `encode_properties`.
    """
    raw = encode_properties(properties)
    parts = [_header_frame(channel, len(body), raw)]
    room = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (FRAME.pack(FRAME_BODY, channel, len(piece)), piece, b"\xce")
    return Message(
        exchange,
        routing_key,
        b"".join(parts),
        channel,
        HEADER_FIXED_SIZE + len(raw),
        len(body),
        properties.delivery_mode == PERSISTENT,
        ttl_of(properties.expiration),
        properties.priority or 0,
    )
