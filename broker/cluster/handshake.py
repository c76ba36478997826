"""How two nodes prove to each other who they are, before a link carries anything. Pure.

Both ends know the cluster's shared secret and never send it. Each sends a nonce; each proves the
secret by an HMAC-SHA256 over everything both have claimed, the nonces included, so a proof can't
be replayed on another stream, for another node or in the other direction.

What this does not do: hide or protect what follows. Without TLS a link trusts its network.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import NamedTuple

PROTOCOL_VERSION = 1
NONCE_BYTES = 32
NAME_LENGTH_MAX = 255


class Reason(StrEnum):
    """Why a link was refused, as it stands on the wire and in logs."""

    WRONG_VERSION = "wrong_version"
    WRONG_SECRET = "wrong_secret"  # noqa: S105 - the name of a reason
    WRONG_CLUSTER = "wrong_cluster"
    WRONG_TARGET = "wrong_target"
    UNKNOWN_NODE = "unknown_node"
    STALE_BOOT = "stale_boot"
    MALFORMED = "malformed"
    # Answers to an enquiry only
    NO_CLUSTER = "no_cluster"
    NO_MAJORITY = "no_majority"
    UNREACHABLE = "unreachable"
    ALREADY_MEMBER = "already_member"


class Claim(NamedTuple):
    """What one end says of itself.

    Attributes:
        version: Protocol version it speaks.
        cluster_id: The cluster it belongs to; empty for a node that belongs to none yet.
        node: Its name.
        boot: Its boot id.
        nonce: 32 drawn bytes, used once.
    """

    version: int
    cluster_id: str
    node: str
    boot: str
    nonce: bytes


def proof(secret: bytes, role: str, stream: int, dialler: Claim, acceptor: Claim) -> bytes:
    """Prove the secret for one stream.

    Args:
        secret: The shared secret.
        role: "dialler" or "acceptor": who makes this proof.
        stream: 0 control, 1 data, 2 enquiry.
        dialler: What the dialling end claimed.
        acceptor: What the accepting end claimed.
    """
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    fields = [b"warrenmq-link", role.encode(), stream.to_bytes(4, "big")]
    for claim in (dialler, acceptor):
        fields += [
            claim.version.to_bytes(4, "big"),
            claim.cluster_id.encode(),
            claim.node.encode(),
            claim.boot.encode(),
            claim.nonce,
        ]
    for field in fields:
        mac.update(len(field).to_bytes(4, "big"))
        mac.update(field)
    return mac.digest()


def is_proof(given: bytes, expected: bytes) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(given, expected)


def objection(mine: Claim, theirs: Claim) -> Reason | None:
    """What is wrong with the other end's claim, whoever of us dialled, or None.

    A node without a cluster may talk to anyone who knows the secret: it wants to form or to join.
    """
    if theirs.version != mine.version:
        return Reason.WRONG_VERSION
    if len(theirs.nonce) != NONCE_BYTES or not theirs.boot:
        return Reason.MALFORMED
    if not theirs.node or max(len(theirs.node), len(theirs.boot)) > NAME_LENGTH_MAX:
        return Reason.MALFORMED
    if theirs.cluster_id and mine.cluster_id and theirs.cluster_id != mine.cluster_id:
        return Reason.WRONG_CLUSTER
    return None
