"""Sessions of the page: a cookie that a browser keeps and no script can read. Pure.

A session is a token that any node of the cluster can verify: nothing is stored, so a session
survives a node, and a load balancer may send each request to another one.

    v1.USER.EXPIRES.NONCE.MAC
       |    |       |     HMAC-SHA256 of what stands before it and of the stored password
       |    |       16 bytes, hex: by it a session that was logged out is known
       |    seconds since the epoch, hex
       base64url of the name

The key is derived from the cluster's secret. The stored password takes part in the MAC: who changes
a password, or deletes a user, ends its sessions everywhere. A logout is known to the node that was
told, and the browser forgets the cookie.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

from broker.metadata.records import User

NONCE_BYTES: Final = 16
ENDED_MAX: Final = 10_000
"""Sessions that were logged out and would still be valid: 2 MB."""

_VERSION: Final = "v1"
_PARTS: Final = 5
_TOKEN_MAX: Final = 1_024
_NAME_CHARACTERS: Final = 12


class Session(NamedTuple):
    """What a token says; whether that is true, `is_valid` tells.

    Attributes:
        user: Who logged in.
        expires_s: When it ends, in seconds since the epoch.
        nonce: Drawn at the login, hex.
        signed: What the MAC was made of.
        mac: Base64url.
    """

    user: str
    expires_s: int
    nonce: str
    signed: str
    mac: str


def cookie_name(cluster_id: str) -> str:
    """The name of the cookie.

    Browsers send a host's cookies to all of its ports: nodes of two clusters on one machine must
    not overwrite each other's, nodes of one cluster may share one.

    Args:
        cluster_id: The cluster's; "" before there is one.
    """
    return f"warrenmq-{hashlib.sha256(cluster_id.encode()).hexdigest()[:_NAME_CHARACTERS]}"


def issue(key: bytes, user: User, expires_s: int, nonce: bytes) -> str:
    """Make a token.

    Args:
        key: The cluster's, for sessions.
        user: Who has logged in.
        expires_s: When it ends, in seconds since the epoch.
        nonce: `NONCE_BYTES` random bytes.
    """
    name = base64.urlsafe_b64encode(user.name.encode("utf-8", "surrogateescape")).decode()
    signed = f"{_VERSION}.{name}.{expires_s:x}.{nonce.hex()}"
    return f"{signed}.{_mac(key, user, signed)}"


def read(token: str) -> Session | None:
    """Take a token apart; None if it is none.

    Args:
        token: As a client sent it.
    """
    parts = token.split(".") if len(token) <= _TOKEN_MAX and token.isascii() else []
    if len(parts) != _PARTS or parts[0] != _VERSION:
        return None
    _, name, expires, nonce, mac = parts
    try:
        user = base64.b64decode(name, b"-_", validate=True).decode("utf-8", "surrogateescape")
        expires_s = int(expires, 16)
    except (binascii.Error, ValueError):
        return None
    return Session(user, expires_s, nonce, token.rpartition(".")[0], mac)


def is_valid(key: bytes, session: Session, user: User, now_s: int) -> bool:
    """True if a token was made by this cluster for a user as it is now, and has not ended.

    Args:
        key: The cluster's, for sessions.
        session: What the token says.
        user: The user of that name.
        now_s: Seconds since the epoch.
    """
    mac = _mac(key, user, session.signed)
    return hmac.compare_digest(mac, session.mac) and now_s < session.expires_s


class EndedSessions:
    """Sessions that were logged out at this node, until they would have ended anyway."""

    def __init__(self) -> None:
        self._ends_s: dict[str, int] = {}

    def end(self, session: Session, now_s: int) -> None:
        """Note a logout.

        Args:
            session: A valid one.
            now_s: Seconds since the epoch.
        """
        if len(self._ends_s) >= ENDED_MAX:
            kept = {nonce: end for nonce, end in self._ends_s.items() if end > now_s}
            while len(kept) >= ENDED_MAX:
                del kept[next(iter(kept))]
            self._ends_s = kept
        self._ends_s[session.nonce] = session.expires_s

    def __contains__(self, session: Session) -> bool:
        return session.nonce in self._ends_s


def _mac(key: bytes, user: User, signed: str) -> str:
    proof = f"{signed}\0{user.name}\0{user.hashing_algorithm}\0{user.password_hash}"
    digest = hmac.digest(key, proof.encode("utf-8", "surrogateescape"), "sha256")
    return base64.urlsafe_b64encode(digest).decode()
