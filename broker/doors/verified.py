"""Passwords that were right a moment ago, so that a slow hash is not computed for each request.

Of each user the last right password is kept as a keyed digest that is worth nothing outside this
process, together with the stored hash it was checked against: a changed password is asked anew.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

USERS_MAX: Final = 1_024


class Verified:
    """A password that was right.

    Args:
        key: Random bytes, drawn at the start of the process.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._digests: dict[str, bytes] = {}

    def digest(self, user: str, stored: str, password: str) -> bytes:
        """What stands for a password.

        Args:
            user: The user's name.
            stored: The hash it is checked against.
            password: In clear.
        """
        text = "\0".join((user, stored, password)).encode()
        return hmac.digest(self._key, text, hashlib.sha256)

    def has(self, user: str, stored: str, password: str) -> bool:
        """True if this password was right for this hash."""
        found = self._digests.get(user)
        digest = self.digest(user, stored, password)
        return found is not None and hmac.compare_digest(found, digest)

    def add(self, user: str, stored: str, password: str) -> None:
        """Note that it was right."""
        self._digests.pop(user, None)
        self._digests[user] = self.digest(user, stored, password)
        if len(self._digests) > USERS_MAX:
            del self._digests[next(iter(self._digests))]
