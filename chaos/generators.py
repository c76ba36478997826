"""Generators of what each client does. Pure: everything comes out of the seed.

A body is `publisher|seq|crc|pad`: publisher and seq in ASCII decimal and letters, crc the CRC-32
of the pad in eight hex digits, pad any bytes. So a message says what it is wherever it turns up.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BATCH_MAX = 20
_REQUEUE_SHARE = 0.01
_PARTS = 4

# Share of messages up to and including this kind, bytes of pad from, to. Beyond 4,096 bytes a
# body is stored apart from its index record; beyond 131,072 it takes more than one frame.
_SIZES = ((0.90, 0, 1_000), (0.995, 1_000, 10_000), (1.0, 140_000, 300_000))


class Publish(NamedTuple):
    """The next publish of a publisher."""

    pause_s: float
    pad_bytes: int


class Handling(NamedTuple):
    """How a consumer handles a delivery: give it back, or ack it with up to `batch` others."""

    is_requeued: bool
    batch: int


class Identity(NamedTuple):
    """The publisher and the number that a body names."""

    publisher: str
    seq: int


def publishes(seed: int, publisher: str, rate_per_s: float) -> Iterator[Publish]:
    """Pauses and sizes of one publisher, for ever.

    Args:
        seed: The run's seed.
        publisher: The client's name.
        rate_per_s: Mean messages per second of this publisher.
    """
    rng = random.Random(f"{seed}/{publisher}")
    while True:
        draw = rng.random()
        low, high = next((low, high) for share, low, high in _SIZES if draw < share)
        yield Publish(pause_s=rng.uniform(0, 2 / rate_per_s), pad_bytes=rng.randint(low, high))


def handlings(seed: int, consumer: str) -> Iterator[Handling]:
    """Yield how one consumer handles its deliveries, without end."""
    rng = random.Random(f"{seed}/{consumer}")
    while True:
        yield Handling(
            is_requeued=rng.random() < _REQUEUE_SHARE, batch=rng.choice((1, 1, 5, BATCH_MAX))
        )


def nodes_from(nodes: Sequence[str], start: int) -> Iterator[str]:
    """The nodes a client tries in turn, from a node on, for ever."""
    turn = start
    while True:
        yield nodes[turn % len(nodes)]
        turn += 1


def body(publisher: str, seq: int, pad_bytes: int) -> bytes:
    """The body of a message."""
    pad = random.Random(f"{publisher}/{seq}").randbytes(pad_bytes)
    return b"%s|%d|%08x|%s" % (publisher.encode(), seq, zlib.crc32(pad), pad)


def identity(content: bytes) -> Identity | None:
    """Return the identity in a body; None if it is not ours or damaged."""
    parts = content.split(b"|", _PARTS - 1)
    if len(parts) != _PARTS:
        return None
    publisher, seq, crc, pad = parts
    if not (publisher.isascii() and seq.isdigit()) or b"%08x" % zlib.crc32(pad) != crc:
        return None
    return Identity(publisher.decode(), int(seq))


def msg_id(publisher: str, seq: int) -> str:
    """A message's name in the history."""
    return f"{publisher}|{seq}"
