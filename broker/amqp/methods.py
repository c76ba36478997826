"""Method payloads to records and back, by reading `wire` of `spec`.

One small interpreter for all 66 methods: they come a few times per connection or queue. What comes
per message (publish, deliver, ack) has code of its own in `assembler` and `frames`.

Source: amqp0-9-1 4.2.5 (domains), rabbit_misc:frame_error/2 (the text of a decode failure).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.amqp import fields, spec
from broker.errors import AmqpError, ReplyCode

_IDS: Final = struct.Struct(">HH")
_NUMBERS: Final = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}
_ZEROS: Final = {"octet": 0, "short": 0, "long": 0, "longlong": 0, "shortstr": "", "longstr": b""}
_BITS_IN_OCTET: Final = 8
_SNIPPET_MAX: Final = 64
_ASCII: Final = range(32, 127)


class _Argument(NamedTuple):
    """One argument; a run of bits is one argument of domain `bits`."""

    names: tuple[str, ...]
    domain: str


def _layout(wire: str) -> tuple[_Argument, ...]:
    found: list[_Argument] = []
    for word in wire.split():
        name, _, domain = word.partition(":")
        if domain != "bit":
            found.append(_Argument((name,), domain))
        elif found and found[-1].domain == "bits" and len(found[-1].names) < _BITS_IN_OCTET:
            found[-1] = _Argument((*found[-1].names, name), "bits")
        else:
            found.append(_Argument((name,), "bits"))
    return tuple(found)


_LAYOUTS: Final = {kind: _layout(kind.wire) for kind in spec.METHODS.values()}


class _Short(Exception):
    """The arguments end early."""


def decode(payload: bytes) -> spec.Method:
    """Read a method frame's payload.

    Args:
        payload: Class id, method id and arguments.

    Raises:
        AmqpError: 503 for an unknown method, 501 for arguments that are cut short, too long or
            malformed, 502 for a table that breaks `fields`' bounds.
    """
    if len(payload) < _IDS.size:
        raise AmqpError(ReplyCode.FRAME_ERROR, f"cannot decode {erlang_binary(payload)}")
    class_id, method_id = _IDS.unpack_from(payload)
    kind = spec.METHODS.get((class_id, method_id))
    if kind is None:
        raise AmqpError(
            ReplyCode.COMMAND_INVALID,
            f"unknown method {{{class_id},{method_id}}}",
            class_id,
            method_id,
        )
    try:
        return _decode_arguments(kind, payload)
    except _Short:
        text = f"cannot decode {erlang_binary(payload[_IDS.size :])}"
        raise AmqpError(ReplyCode.FRAME_ERROR, text, class_id, method_id) from None
    except AmqpError as error:
        raise AmqpError(error.code, error.text, class_id, method_id) from None


def _decode_arguments(kind: type[spec.Method], payload: bytes) -> spec.Method:
    values: dict[str, object] = {}
    pos = _IDS.size
    for names, domain in _LAYOUTS[kind]:
        if domain == "bits":
            if pos >= len(payload):
                raise _Short
            octet = payload[pos]
            pos += 1
            for bit, name in enumerate(names):
                values[name] = bool(octet >> bit & 1)
        else:
            values[names[0]], pos = _decode_one(domain, payload, pos)
    if pos != len(payload):
        raise _Short
    values.pop("-", None)
    return kind(**values)


def _decode_one(domain: str, payload: bytes, pos: int) -> tuple[object, int]:
    number = _NUMBERS.get(domain)
    if number is not None:
        end = pos + number.size
        if end > len(payload):
            raise _Short
        return number.unpack_from(payload, pos)[0], end
    if domain == "table":
        return fields.decode_table(payload, pos, is_text=True)
    width = 1 if domain == "shortstr" else 4
    start = pos + width
    end = start + int.from_bytes(payload[pos:start], "big")
    if start > len(payload) or end > len(payload):
        raise _Short
    raw = payload[start:end]
    return (shortstr(raw) if domain == "shortstr" else raw), end


def shortstr(raw: bytes) -> str:
    """Decode a short string's bytes.

    Raises:
        AmqpError: 501 when they are not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr") from None


def encode(method: spec.Method) -> bytes:
    """Write a method frame's payload.

    Raises:
        ValueError: For a short string over 255 bytes or an integer too wide for a table.
        TypeError: For a table value that has no AMQP type.
        struct.error: For a number outside its domain.
    """
    parts = [_IDS.pack(method.class_id, method.method_id)]
    for names, domain in _LAYOUTS[type(method)]:
        if domain == "bits":
            octet = 0
            for bit, name in enumerate(names):
                octet |= (name != "-" and bool(getattr(method, name))) << bit
            parts.append(bytes((octet,)))
        else:
            name = names[0]
            value = _ZEROS[domain] if name == "-" else getattr(method, name)
            parts.append(_encode_one(domain, value))
    return b"".join(parts)


def _encode_one(domain: str, value: object) -> bytes:
    number = _NUMBERS.get(domain)
    if number is not None:
        return number.pack(value)
    if isinstance(value, str):
        return fields.encode_shortstr(value)
    if isinstance(value, dict):
        return fields.encode_table(value)
    assert isinstance(value, bytes)
    return len(value).to_bytes(4, "big") + value


def erlang_binary(raw: bytes) -> str:
    """Show bytes as RabbitMQ's error texts do, at most 64 of them: `<<"abc">>` or `<<0,1>>`."""
    head = raw[:_SNIPPET_MAX]
    more = "..." if len(raw) > _SNIPPET_MAX else ""
    if head and all(octet in _ASCII for octet in head):
        return f'<<"{head.decode()}"{more}>>'
    return f"<<{','.join(map(str, head))}{more}>>"
