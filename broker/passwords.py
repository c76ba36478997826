"""Passwords as they are stored. Pure; a slow hash is for a thread of the caller's.

RabbitMQ's three are base64(salt + H(salt + utf8(password))), so definitions move between the two
brokers. They take a microsecond, which is little for whoever has stolen them. Ours takes some 40 ms
and 16 MiB; RabbitMQ does not know it, so it is used where the settings say so.

    +---------+------------+        +----------+-------------------------------------------+
    | salt 4  | digest 32  |        | salt 16  | scrypt(password, N=2^14, r=8, p=1): 32    |
    +---------+------------+        +----------+-------------------------------------------+
      rabbit_password_hashing_sha256  warrenmq_password_hashing_scrypt

Source: rabbit_auth_backend_internal.erl hash_password/2; RFC 7914 (scrypt).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.patterns import searcher

SHA256: Final = "rabbit_password_hashing_sha256"
MD5: Final = "rabbit_password_hashing_md5"
SCRYPT: Final = "warrenmq_password_hashing_scrypt"


class Hashing(NamedTuple):
    """One way to store passwords.

    Attributes:
        salt_bytes: Random bytes in front.
        digest_bytes: What follows them.
        is_slow: It takes milliseconds: not for the loop.
        digest: Of salt and password.
    """

    salt_bytes: int
    digest_bytes: int
    is_slow: bool
    digest: Callable[[bytes, bytes], bytes]


def _scrypt(salt: bytes, password: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << 14, r=8, p=1, dklen=32)


HASHINGS: Final = {
    SHA256: Hashing(4, 32, is_slow=False, digest=lambda s, p: hashlib.sha256(s + p).digest()),
    "rabbit_password_hashing_sha512": Hashing(
        4, 64, is_slow=False, digest=lambda s, p: hashlib.sha512(s + p).digest()
    ),
    MD5: Hashing(
        4,
        16,
        is_slow=False,
        digest=lambda s, p: hashlib.md5(s + p, usedforsecurity=False).digest(),
    ),
    SCRYPT: Hashing(16, 32, is_slow=True, digest=_scrypt),
}
"""By the names that users' records and settings have for them."""

PASSWORD_RULES: Final = ("accept_everything", "min_password_length", "password_regexp")
"""Which new passwords are accepted: rabbit_credential_validator_* of RabbitMQ."""

REFUSED_PASSWORD: Final = "credential_validation_failed"  # noqa: S105 - RabbitMQ's text
"""What is told of one that is not."""

SALT_BYTES: Final = HASHINGS[SHA256].salt_bytes


class PasswordRule(NamedTuple):
    """What a new password must be.

    Attributes:
        rule: One of `PASSWORD_RULES`.
        length_min: Bytes, for "min_password_length".
        regexp: Found in it, for "password_regexp".
    """

    rule: str
    length_min: int
    regexp: str


def may_have_password(password: str | None, rule: PasswordRule) -> bool:
    """True if a user may have a new password.

    Args:
        password: In clear; None: the user is to have none.
        rule: The node's.

    Source:
        rabbit_credential_validator_min_password_length.erl, _password_regexp.erl.
    """
    if rule.rule == "min_password_length":
        return password is not None and len(password.encode()) >= rule.length_min
    if rule.rule == "password_regexp":
        return password is not None and searcher(rule.regexp)(password)
    return True


def hash_password(password: str, salt: bytes, algorithm: str = SHA256) -> str:
    """Hash a password for storing.

    Args:
        password: In clear.
        salt: Random, as many bytes as `HASHINGS` says, drawn by the caller.
        algorithm: Its name.

    Raises:
        KeyError: Unknown algorithm.
    """
    return base64.b64encode(salt + HASHINGS[algorithm].digest(salt, password.encode())).decode()


def is_password(password: str, stored_hash: str, algorithm: str) -> bool:
    """Compare a password in time that depends neither on it nor on the stored hash.

    Args:
        password: In clear.
        stored_hash: What `hash_password` made, "" of a user without a password.
        algorithm: Its name.
    """
    hashing = HASHINGS.get(algorithm)
    if hashing is None:
        return False
    try:
        stored = base64.b64decode(stored_hash, validate=True)
    except binascii.Error:
        return False
    salt, digest = stored[: hashing.salt_bytes], stored[hashing.salt_bytes :]
    if len(salt) < hashing.salt_bytes:  # a user without a password costs the same
        salt = bytes(hashing.salt_bytes)
    return hmac.compare_digest(hashing.digest(salt, password.encode()), digest)


def blank_hash(algorithm: str) -> str:
    """A hash for which no password is right, at the cost of one that has one.

    Args:
        algorithm: Its name.
    """
    hashing = HASHINGS[algorithm]
    return base64.b64encode(bytes(hashing.salt_bytes + hashing.digest_bytes)).decode()


def hashing_of(text: str, default: str) -> str:
    """Tell which algorithm made a stored hash, by its length.

    Args:
        text: base64 of salt and digest.
        default: The answer where no length fits, or several do.
    """
    try:
        size = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return default
    found = [name for name, each in HASHINGS.items() if each.salt_bytes + each.digest_bytes == size]
    return default if default in found or len(found) != 1 else found[0]


def hash_fault(text: str, algorithm: str) -> str | None:
    """Say why no password could match a stored hash, None if one could.

    Args:
        text: base64 of salt and digest.
        algorithm: Its name.
    """
    try:
        size = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return "password_hash must be base64"
    wanted = HASHINGS[algorithm].salt_bytes + HASHINGS[algorithm].digest_bytes
    if size != wanted:
        return f"password_hash has {size} bytes; {algorithm} makes {wanted} with the salt"
    return None
