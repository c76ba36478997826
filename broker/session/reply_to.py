"""Direct reply-to: addresses of channels that take replies without a queue.

An address is `amq.rabbitmq.reply-to.TOKEN.KEY`. TOKEN is the base64 of `MAC | place`, the place
being node, boot, connection and channel, so that any node can find the channel, and the MAC
(HMAC-SHA256 of place and key with the cluster's secret, cut to 16 bytes) proves that a broker made
it: a client can't aim replies at connections that did not ask for them. KEY is drawn for each
consumer, so a late reply misses a channel number that was used again.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from broker.amqp.content import DIRECT_REPLY_TO

PSEUDO_QUEUE = DIRECT_REPLY_TO
PREFIX = PSEUDO_QUEUE + "."
_MAC_BYTES = 16
_PLACE_FIELDS = 4


class ReplyAddress(NamedTuple):
    """The destination of a direct reply. See `effects.ReplyTo`."""

    node: str
    boot: str
    connection_id: int
    channel: int
    key: str


def _mac(secret: bytes, place: bytes, key: str) -> bytes:
    signed = place + b"\n" + key.encode("utf-8", "surrogateescape")
    return hmac.new(secret, signed, hashlib.sha256).digest()[:_MAC_BYTES]


def encode_address(address: ReplyAddress, secret: bytes) -> str:
    """Write an address as the reply_to property that the peer sees."""
    place = "\n".join(str(part) for part in address[:_PLACE_FIELDS]).encode()
    token = urlsafe_b64encode(_mac(secret, place, address.key) + place).decode().rstrip("=")
    return f"{PREFIX}{token}.{address.key}"


def decode_address(routing_key: str, secret: bytes) -> ReplyAddress | None:
    """Read an address; None for anything that this cluster did not write."""
    token, dot, key = routing_key.removeprefix(PREFIX).partition(".")
    if not dot or not token.isascii():
        return None
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return None
    place = raw[_MAC_BYTES:]
    if not hmac.compare_digest(raw[:_MAC_BYTES], _mac(secret, place, key)):
        return None
    node, boot, connection_id, channel = place.decode().split("\n")
    return ReplyAddress(node, boot, int(connection_id), int(channel), key)
