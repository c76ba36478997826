"""The handshake by which two nodes prove their identity before a link carries anything. Pure.

Both ends know the cluster's secret and never send it. Each sends a nonce; each proves a key derived
from the secret by an HMAC-SHA256 over all that both have sent, byte for byte, so a proof can't be
replayed on another stream, for another node, version or verdict, or in the other direction.

The dialler proves first: who can't is told nothing but what it may speak. The acceptor's verdict is
proven with it, a refusal too, for a refusal can end the dialler's boot (P1).

Invariant: nothing that was not proven changes anything at either end but counters and a log line.

What this does not do: hide or protect what follows. TLS does, around it (`link_tls`); without TLS a
link trusts its network.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import Final, NamedTuple

NONCE_BYTES: Final = 32
NAME_LENGTH_MAX: Final = 255

WORD_BYTES_MAX: Final = 4096
"""The longest message of a handshake: names, an address and nonces are less than 2 KiB, the rest is
for fields of later versions."""


class Versions(NamedTuple):
    """Versions of the protocol that a node speaks.

    Attributes:
        lowest: The first.
        highest: The last; every one in between as well.
    """

    lowest: int
    highest: int

    def __str__(self) -> str:
        """As people read it: "2", "2 to 4"."""
        return (
            f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"
        )


SPOKEN: Final = Versions(2, 2)
"""Version 1 was that of 0.1.0, which acts on unproven claims."""


def common_version(mine: Versions, theirs: Versions) -> int | None:
    """The highest version that both speak, None if there is none."""
    version = min(mine.highest, theirs.highest)
    return version if version >= max(mine.lowest, theirs.lowest) else None


class Reason(StrEnum):
    """The reason for refusing a link, as sent on the wire and written to logs."""

    WRONG_VERSION = "wrong_version"
    WRONG_SECRET = "wrong_secret"  # noqa: S105 - the name of a reason
    WRONG_CLUSTER = "wrong_cluster"
    WRONG_TARGET = "wrong_target"
    UNKNOWN_NODE = "unknown_node"
    STALE_BOOT = "stale_boot"
    MALFORMED = "malformed"
    WRONG_CERTIFICATE = "wrong_certificate"
    NO_TLS = "no_tls"
    # Answers to an enquiry only
    NO_CLUSTER = "no_cluster"
    NO_MAJORITY = "no_majority"
    UNREACHABLE = "unreachable"
    ALREADY_MEMBER = "already_member"
    LACKS_FEATURES = "lacks_features"


def reason_of(text: str) -> Reason:
    """The reason a peer names; MALFORMED for one that is not known here."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.MALFORMED


class Claim(NamedTuple):
    """The identity that one end of a link claims.

    Attributes:
        cluster_id: The cluster it belongs to; empty for a node that belongs to none yet.
        node: Its name.
        boot: Its boot id.
        nonce: 32 drawn bytes, used once.
    """

    cluster_id: str
    node: str
    boot: str
    nonce: bytes


class LinkEnd(StrEnum):
    """The end that proves: a dialler's proof is not valid as an acceptor's."""

    DIALLER = "dialler"
    ACCEPTOR = "acceptor"


def proof(key: bytes, role: LinkEnd, hello: bytes, challenge: bytes, verdict: bytes = b"") -> bytes:
    """Prove the key for one stream.

    Args:
        key: Derived from the cluster's secret for this purpose.
        role: Who makes this proof.
        hello: The dialler's first message as it was sent.
        challenge: The acceptor's as it was sent.
        verdict: What the acceptor has decided, as it is sent; empty in the dialler's proof.
    """
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for field in (b"warrenmq-link", role.encode(), hello, challenge, verdict):
        mac.update(len(field).to_bytes(4, "big"))
        mac.update(field)
    return mac.digest()


def is_proof(given: bytes, expected: bytes) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(given, expected)


def is_well_formed(claim: Claim) -> bool:
    """True when a dialler's claim has all its parts, none too long."""
    is_named = bool(claim.node and claim.boot)
    is_short = max(len(claim.node), len(claim.boot), len(claim.cluster_id)) <= NAME_LENGTH_MAX
    return len(claim.nonce) == NONCE_BYTES and is_named and is_short


def objection(mine: Claim, cluster_id: str, meant: str, found: str) -> Reason | None:
    """Return why the other end, which has proven the secret, is refused; None if it is not.

    A node without a cluster may talk to anyone who knows the secret: it wants to form or to join.

    Args:
        mine: What this end claims.
        cluster_id: The other end's cluster.
        meant: The node that the dialler means.
        found: The node that it has reached.
    """
    if meant != found:
        return Reason.WRONG_TARGET
    if cluster_id and mine.cluster_id and cluster_id != mine.cluster_id:
        return Reason.WRONG_CLUSTER
    return None
