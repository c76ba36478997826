"""A table with every type that AMQP 0-9-1 and RabbitMQ know, by itself, in a table and in an array.

Written as bytes: our own encoder writes fewer types than it reads. Tests send it wherever a client
may send a table, for whatever it holds has to pass the log, the links, snapshots and listings.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.amqp import methods, spec
from broker.amqp.fields import DEPTH_MAX, decode_table
from tests.wire.raw import call, long, short

SIMPLE: Final[dict[str, bytes]] = {
    "bool": b"t\x01",
    "int8": b"b\x80",
    "uint8": b"B\xff",
    "int16": b"s\x80\x00",
    "uint16": b"u\xff\xff",
    "int32": b"I\x80\x00\x00\x00",
    "uint32": b"i\xff\xff\xff\xff",
    "int64": b"l\x80" + bytes(7),
    "int64-of-specification": b"L\x7f" + b"\xff" * 7,
    "float": b"f" + struct.pack(">f", 1.5),
    "double": b"d" + struct.pack(">d", 2.5),
    "double-not-finite": b"d" + struct.pack(">d", float("-inf")),
    "decimal": b"D\xff\xff\xff\xff\xff",
    "string": b"S" + long("näme".encode()),
    "string-that-is-no-text": b"S" + long(b"\xfe\x00"),
    "bytes": b"x" + long(b"\xff\x00"),
    "timestamp": b"T" + b"\xff" * 8,
    "void": b"V",
}
"""Name to type octet and value."""


def _entries(values: dict[str, bytes]) -> bytes:
    return b"".join(short(key.encode()) + value for key, value in values.items())


def _deep() -> bytes:
    """A timestamp as deep as a table may hold one."""
    value = SIMPLE["timestamp"]
    for _ in range(DEPTH_MAX - 1):
        value = b"F" + long(_entries({"deeper": value}))
    return value


EVERY: Final[dict[str, bytes]] = {
    **SIMPLE,
    "table": b"F" + long(_entries(SIMPLE)),
    "array": b"A" + long(b"".join(SIMPLE.values())),
    "tables-in-array": b"A" + long(b"F" + long(_entries(SIMPLE)) + b"F" + long(b"")),
    "deep": _deep(),
}


def table(more: dict[str, bytes] | None = None) -> bytes:
    """The table with its size in front; `more` as in `EVERY`."""
    return long(_entries(EVERY | (more or {})))


HEADERS: Final = _entries(EVERY) + short(b"\xfe") + b"F" + long(short(b"\xff") + b"V")
"""Entries of a message's headers: their keys need not be text."""


def values() -> dict[str, object]:
    """What a session gets of it."""
    return decode_table(table())[0]


def method_with(channel: int, method: spec.Method, arguments: bytes) -> bytes:
    """A method frame whose last argument is this table."""
    payload = methods.encode(method)
    assert payload.endswith(long(b"")), "a method that ends with an empty table"
    class_id, method_id = struct.unpack_from(">HH", payload)
    return call(channel, class_id, method_id, payload[4:-4] + arguments)
