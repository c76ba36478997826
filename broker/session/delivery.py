"""Consumers of a channel, and their deliveries as bytes.

A batch is encoded in one loop: the frame of basic.deliver is the same for a whole batch but for
its delivery tag as long as exchange, routing key and the redelivered flag stay the same, and the
content goes out as it came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from broker.amqp.frames import content_frames
from broker.message import Delivery
from broker.metadata.records import Queue
from broker.session.unacked import Source

_HEAD = Struct(">BHIHH")
_TAG = Struct(">Q")
_METHOD_FRAME = 1
_BASIC, _DELIVER = 60, 60
_TAIL_CACHE_MAX = 256
_FRAME_END = b"\xce"
_FRAME_OVERHEAD_BYTES = 8


class Consumer(Source):
    """One consumer of a channel.

    Attributes:
        queue: The queue's record as it was when the consumer came.
        no_ack: Deliveries are settled when they are written.
        prefetch: The per-consumer limit; 0 is without limit.
        is_attached: The queue has said yes.
    """

    __slots__ = ("_tails", "is_attached", "no_ack", "prefetch", "queue", "tag_bytes")

    def __init__(self, queue: Queue, tag: str, *, no_ack: bool, prefetch: int) -> None:
        super().__init__(queue.uid, tag)
        self.queue = queue
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.is_attached = False
        encoded = tag.encode()
        self.tag_bytes = bytes((len(encoded),)) + encoded
        self._tails: dict[tuple[str, str, bool], tuple[bytes, bytes]] = {}

    def frame_parts(
        self, channel: int, exchange: str, routing_key: str, *, redelivered: bool
    ) -> tuple[bytes, bytes]:
        """What stands before and behind the delivery tag in this consumer's deliver frames."""
        key = (exchange, routing_key, redelivered)
        found = self._tails.get(key)
        if found is None:
            found = _frame_parts(channel, self.tag_bytes, exchange, routing_key, redelivered)
            if len(self._tails) >= _TAIL_CACHE_MAX:
                self._tails.clear()
            self._tails[key] = found
        return found


def _frame_parts(
    channel: int,
    tag_bytes: bytes,
    exchange: str,
    routing_key: str,
    redelivered: bool,  # noqa: FBT001 - one octet of the frame
) -> tuple[bytes, bytes]:
    exchange_bytes = exchange.encode()
    key_bytes = routing_key.encode()
    tail = b"".join(
        (
            b"\x01" if redelivered else b"\x00",
            bytes((len(exchange_bytes),)),
            exchange_bytes,
            bytes((len(key_bytes),)),
            key_bytes,
        )
    )
    size = 4 + len(tag_bytes) + 8 + len(tail)
    head = _HEAD.pack(_METHOD_FRAME, channel, size, _BASIC, _DELIVER) + tag_bytes
    return head, tail + _FRAME_END


def write_deliveries(
    out: list[bytes],
    channel: int,
    consumer: Consumer,
    first_tag: int,
    deliveries: Sequence[Delivery],
    frame_max: int,
) -> None:
    """Write a batch as basic.deliver with content, delivery tags counting up from `first_tag`.

    Args:
        out: Where to.
        channel: Channel number.
        consumer: Whose deliveries.
        first_tag: Tag of the first.
        deliveries: In order.
        frame_max: The connection's limit in bytes, 0 without one.
    """
    append = out.append
    pack = _TAG.pack
    exchange = routing_key = None
    fresh = True
    head = tail = b""
    whole_max = frame_max - _FRAME_OVERHEAD_BYTES if frame_max else 1 << 62
    for tag, (_, delivery_count, message) in enumerate(deliveries, first_tag):
        if (
            message.routing_key is not routing_key
            or message.exchange is not exchange
            or (not delivery_count) is not fresh
        ):
            exchange = message.exchange
            routing_key = message.routing_key
            fresh = not delivery_count
            head, tail = consumer.frame_parts(channel, exchange, routing_key, redelivered=not fresh)
        append(head + pack(tag) + tail)
        if (
            message.channel == channel
            and message.body_size <= whole_max
            and message.header_size <= whole_max
        ):
            append(message.content)
        else:
            append(content_frames(message, channel, frame_max))
