"""Messages to publish, as frames."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pipeline.wire import fields, frames
from pipeline.wire.deliveries import PROPERTIES

_BASIC: Final = struct.pack(">HH", 60, 0)
_MANDATORY: Final = b"\1"
_NUMBERS: Final = {name: 15 - number for number, (name, _) in enumerate(PROPERTIES)}


def properties(values: Mapping[str, object]) -> bytes:
    """Flags and properties of a content header.

    Args:
        values: By name, as `deliveries.PROPERTIES` has them; those that are None are left out.

    Raises:
        ValueError: A value has no form there.
    """
    flags = 0
    parts: list[bytes] = []
    for name, kind in PROPERTIES:
        value = values.get(name)
        if value is None:
            continue
        flags |= 1 << _NUMBERS[name]
        if kind == "F" and isinstance(value, Mapping):
            parts.append(fields.table(value))
        elif kind == "s" and isinstance(value, str):
            parts.append(fields.short(value))
        elif kind == "o" and isinstance(value, int) and 0 <= value < 1 << 8:
            parts.append(bytes((value,)))
        elif kind == "T" and isinstance(value, int) and value >= 0:
            parts.append(value.to_bytes(8, "big"))
        else:
            raise ValueError(f"{value!r} is no value of the property {name}")
    return flags.to_bytes(2, "big") + b"".join(parts)


class Publishes:
    """Frames of messages on one channel; what they have in common is made once.

    Args:
        channel: Its number.
        frame_max: Of the connection.
    """

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._body_max = frame_max - frames.OVERHEAD
        self._methods: dict[tuple[str, str], bytes] = {}
        self._body_head = frames.BODY.to_bytes(1, "big") + channel.to_bytes(2, "big")

    def message(self, exchange: str, routing_key: str, content: bytes, body: bytes) -> bytes:
        """One mandatory message.

        Args:
            exchange: Its exchange.
            routing_key: Its routing key.
            content: Of `properties`.
            body: Its body.

        Raises:
            ValueError: A name is longer than 255 bytes.
        """
        name = (exchange, routing_key)
        method = self._methods.get(name)
        if method is None:
            names = b"\0\0" + fields.short(exchange) + fields.short(routing_key)
            method = frames.method(self._channel, frames.PUBLISH, names + _MANDATORY)
            if len(self._methods) >= 1024:  # noqa: PLR2004  as many as are worth remembering
                self._methods.clear()
            self._methods[name] = method
        size = len(body)
        head = _BASIC + size.to_bytes(8, "big") + content
        header = frames.FRAME.pack(frames.CONTENT_HEADER, self._channel, len(head))
        if 0 < size <= self._body_max:
            return b"%b%b%b\xce%b%b%b\xce" % (
                method, header, head, self._body_head, size.to_bytes(4, "big"), body,
            )  # fmt: skip
        parts = [method, header, head, frames.END]
        for at in range(0, size, self._body_max):
            piece = body[at : at + self._body_max]
            parts += self._body_head, len(piece).to_bytes(4, "big"), piece, frames.END
        return b"".join(parts)
