"""The message as it travels through the broker: routing facts beside untouched wire bytes.

A message's content (header frame and body frames) is kept exactly as the publisher sent it, frame
headers included. A consumer whose channel number equals the publisher's gets those bytes as they
are; for another channel number only the two channel bytes of each frame change. (Of bodies in
thousands of tiny frames `broker.amqp.partial` makes larger ones.) Properties are
decoded only when something asks (`broker.amqp.content`).
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One published message. Also its own record in Raft entries and on disk (msgpack array).

    Fields are only ever appended, with defaults, so that old records stay readable.

    Attributes:
        exchange: Exchange it was published to; "" is the default exchange.
        routing_key: Routing key it was published with.
        content: The content header frame followed by the body frames, complete with frame headers
            and end octets, on channel `channel`; empty in a stub, whose content is on disk only.
        channel: The channel number inside `content`'s frame headers.
        header_size: Size in bytes of the header frame's payload: `content[7:7 + header_size]`.
        body_size: Size in bytes of the body, all frames together.
        persistent: True for delivery_mode 2.
        ttl_ms: Its `expiration` in milliseconds, -1 without one.
        priority: Its `priority`, 0 without one.
        expires_ms: When it expires in the queue that holds this copy, in milliseconds since the
            epoch; 0 is never. Set by the queue, from `ttl_ms` and its own TTL.
        bcc: Routing keys of its BCC header, which was taken out; dead-lettering goes by them too.
        dedup: What tells publishes apart where the queue drops doubles; "" is never a double.
    """

    exchange: str
    routing_key: str
    content: bytes
    channel: int
    header_size: int
    body_size: int
    persistent: bool
    ttl_ms: int = -1
    priority: int = 0
    expires_ms: int = 0
    bcc: tuple[str, ...] = ()
    dedup: str = ""

    @property
    def is_stub(self) -> bool:
        """True where the content is on disk only; a real content begins with a header frame."""
        return not self.content


class Delivery(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message on its way from a queue to a consumer.

    The garbage collector doesn't follow it: with ten million waiting each of its full collections
    stopped the node for a second (docs/decisions/0032).

    Attributes:
        number: The message's sequence number in its queue (msn); settles name it.
        delivery_count: How often it was handed out before; above zero means redelivered.
        message: The message.
    """

    number: int
    delivery_count: int
    message: Message
