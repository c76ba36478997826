"""Limits of what one member of a ring may hold or send at once."""

from __future__ import annotations

import msgspec


class MemberLimits(msgspec.Struct, frozen=True):
    """Bounds of one member.

    Attributes:
        message_bytes_max: Payload bytes in one ring message, unless a single payload has more.
            Links take 4 MiB and more at once; 1 MiB keeps other traffic of the stream moving.
        payload_bytes_max: Longest broadcast. What is longer travels in parts (P13).
        held_bytes_max: Messages of later views that wait for them. Each publisher bounds what it
            has in flight, so this is reached only where group 0 can't be followed for long.
    """

    message_bytes_max: int = 1 << 20
    payload_bytes_max: int = 2 << 20
    held_bytes_max: int = 64 << 20
