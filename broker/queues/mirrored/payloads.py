"""What travels round the ring of a mirrored queue: one byte that says what, then its bytes.

What is longer than a ring payload may be travels in parts, which nothing comes between (P13). A
member that joins meanwhile may get the later parts alone; without the first they are nothing, for a
joiner ignores what came before it (P20).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.metadata.rings import RingMember

LEDGER: Final = b"\x01"
"""`fifo.ledger.encode_records`: replayed by every member that has its handshake."""

HANDSHAKE: Final = b"\x02"
"""`Addressed`, `fifo.handshake.encode_handshake`: where one member begins (P20)."""

SYNC: Final = b"\x03"
"""`Addressed`, for `sync`: a synchronisation of one member begins, ends or is cancelled (P26)."""

PART: Final = b"\x04"
"""A part of a payload, neither the first nor the last."""

LAST_PART: Final = b"\x05"

FIRST_PART: Final = b"\x06"

PART_BYTES_MAX: Final = 1 << 20
WHOLE_BYTES_MAX: Final = (2 << 20) - 64
"""Longer payloads are cut. A round's payload is seldom over 1 MiB, so this spares most a copy."""


class Addressed(msgspec.Struct, array_like=True, frozen=True):
    """Something one member acts on; the others only forward it.

    Attributes:
        member: Whom it is for.
        body: What.
    """

    member: RingMember
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Addressed)


def addressed(kind: bytes, member: RingMember, body: bytes) -> bytes:
    """Return a payload for one member."""
    return kind + _encode(Addressed(member, body))


def decode_addressed(payload: bytes) -> Addressed:
    """Read what `addressed` wrote.

    Raises:
        msgspec.DecodeError: It is something else.
    """
    return _decoder.decode(memoryview(payload)[1:])


def cut(payload: bytes) -> Iterator[bytes]:
    """Cut a payload that is too long for the ring; mostly it stays as it is."""
    if len(payload) <= WHOLE_BYTES_MAX:
        yield payload
        return
    for start in range(0, len(payload), PART_BYTES_MAX):
        end = start + PART_BYTES_MAX
        kind = PART if end < len(payload) else LAST_PART
        yield (kind if start else FIRST_PART) + payload[start:end]


class Joiner:
    """Puts the parts of one publisher's payloads together again; drops parts without a first."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def take(self, payload: bytes) -> bytes | None:
        """Return a whole payload, None while parts are missing."""
        kind = payload[:1]
        if kind not in {FIRST_PART, PART, LAST_PART}:
            self._parts.clear()
            return payload
        if kind == FIRST_PART:
            self._parts = [payload[1:]]
        elif self._parts:
            self._parts.append(payload[1:])
        if kind != LAST_PART or not self._parts:
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
