"""A short name for a queue's contents, to tell whether two members hold the same."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from broker.message import Message

_encoder = msgspec.msgpack.Encoder()


def digest_of(items: Iterable[tuple[int, Message]]) -> str:
    """Return a digest of numbered messages, in the order given, as hexadecimal digits."""
    digest = blake2b(digest_size=16)
    for item in items:
        digest.update(_encoder.encode(item))
    return digest.hexdigest()
