"""Keys derived from the cluster's secret, one for each purpose. Pure.

A value made for one purpose proves nothing for another: a client that sees direct reply-to
addresses learns nothing that helps it to join, and the other way round.

Source:
    RFC 5869 (HKDF), with SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum
from typing import Final

KEY_BYTES: Final = 32
_SALT: Final = b"warrenmq cluster secret"


class Purpose(Enum):
    """The purpose of a key; the value is HKDF's `info`."""

    LINKS = b"handshake of links, version 2"
    DIRECT_REPLIES = b"direct reply-to addresses"
    SESSIONS = b"sessions of the management page"


def derive(secret: bytes, purpose: Purpose) -> bytes:
    """Derive the 32-byte key for a purpose.

    Args:
        secret: The cluster's shared secret.
        purpose: What the key is for.
    """
    return hkdf_sha256(secret, _SALT, purpose.value, KEY_BYTES)


def hkdf_sha256(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HMAC-based key derivation (RFC 5869 2.2 and 2.3).

    Args:
        secret: Input keying material.
        salt: Empty is as many zeros as a digest has bytes.
        info: Names the purpose.
        length: Bytes wanted, at most 255 digests.

    Raises:
        ValueError: More are wanted.
    """
    digest_bytes = hashlib.sha256().digest_size
    if length > 255 * digest_bytes:
        raise ValueError(f"HKDF gives at most {255 * digest_bytes} bytes, asked for {length}")
    extracted = hmac.digest(salt or bytes(digest_bytes), secret, "sha256")
    key = block = b""
    for number in range(1, -(-length // digest_bytes) + 1):
        block = hmac.digest(extracted, block + info + bytes([number]), "sha256")
        key += block
    return key[:length]
