"""Limits of the rings of one node."""

from __future__ import annotations

import msgspec

from gm.core.limits import MemberLimits


class RingHostConfig(msgspec.Struct, frozen=True):
    """Limits of the rings of a node, in bytes and seconds.

    Attributes:
        early_ms: How long a message for a member that is not open here yet is kept: views travel
            apart from messages, and may take as long as group 0 does.
        early_bytes_max: Most bytes of such messages.
        erase_again_ms: An erasure that was asked for and has not shown is asked for again.
        limits: Of each member.
    """

    early_ms: int = 5_000
    early_bytes_max: int = 16 << 20
    erase_again_ms: int = 1_000
    limits: MemberLimits = MemberLimits()
