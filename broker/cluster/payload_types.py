"""The types of payloads on a link, with their receivers. A number is never used again.

Below 16: broker.cluster. 16 and above: broker.queues.
"""

from __future__ import annotations

import msgspec

CALL = 1
REPLY = 2
RAFT = 3
HEARTBEAT = 4
APPLIED = 5
LEASE_REQUEST = 6
LEASE_GRANT = 7


class NodeHeartbeat(msgspec.Struct, array_like=True, gc=False):
    """Each 200 ms on every control stream.

    Attributes:
        heard_boot: The receiver's boot id, as its sender last heard it.
        silence_ms: How long ago that was.
        applied: Group 0 index its sender has applied; heals a lost APPLIED.
        up: Nodes that its sender hears and is heard by (P25).
    """

    heard_boot: str
    silence_ms: int
    applied: int
    up: tuple[str, ...] = ()


class AppliedIndex(msgspec.Struct, array_like=True, gc=False):
    """To the leader of group 0, at once after every apply."""

    index: int


class LeaseRequest(msgspec.Struct, array_like=True, gc=False):
    """To the leader of group 0."""

    number: int


class LeaseGrant(msgspec.Struct, array_like=True, gc=False):
    """From the leader: request `number` is granted, once `index` is applied."""

    number: int
    index: int


encode = msgspec.msgpack.Encoder().encode
decode_heartbeat = msgspec.msgpack.Decoder(NodeHeartbeat).decode
decode_applied = msgspec.msgpack.Decoder(AppliedIndex).decode
decode_lease_request = msgspec.msgpack.Decoder(LeaseRequest).decode
decode_lease_grant = msgspec.msgpack.Decoder(LeaseGrant).decode
