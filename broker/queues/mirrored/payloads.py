"""Payloads of a mirrored queue's ring: one byte for the kind, then the content.

A payload that is too long for the ring travels in consecutive parts (P13). A member that joins
meanwhile may get only the later parts. It drops them: a joining member ignores what was broadcast
before its join state (P20).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.metadata.rings import RingMember

LEDGER: Final = b"\x01"
"""`fifo.ledger.encode_records`: replayed by every member that has its join state."""

JOIN_STATE: Final = b"\x02"
"""`Addressed`, `fifo.join_state.encode_join_state`: the state one member begins with (P20)."""

SYNC: Final = b"\x03"
"""`Addressed`, a mark of `sync_frames`: a synchronisation begins, ends or is cancelled (P26)."""

PART: Final = b"\x04"
"""A part of a payload, neither the first nor the last."""

LAST_PART: Final = b"\x05"

FIRST_PART: Final = b"\x06"

PART_BYTES_MAX: Final = 1 << 20
WHOLE_BYTES_MAX: Final = (2 << 20) - 64
"""Longer payloads are cut. Most payloads have at most 1 MiB, so they are sent without a copy."""


class Addressed(msgspec.Struct, array_like=True, frozen=True):
    """A payload for one member; the others only forward it.

    Attributes:
        member: The member that acts on it.
        body: The content for that member.
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
        msgspec.DecodeError: The bytes are something else.
    """
    return _decoder.decode(memoryview(payload)[1:])


def cut(payload: bytes) -> Iterator[bytes]:
    """Yield the payload in parts that are short enough for the ring: mostly the payload itself."""
    if len(payload) <= WHOLE_BYTES_MAX:
        yield payload
        return
    for start in range(0, len(payload), PART_BYTES_MAX):
        end = start + PART_BYTES_MAX
        kind = PART if end < len(payload) else LAST_PART
        yield (kind if start else FIRST_PART) + payload[start:end]


class PayloadAssembler:
    """Joins the parts of one publisher's payloads; drops parts whose first part did not come."""

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
