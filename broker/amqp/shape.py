"""The shape of a publish: all of its octets that decide something, and where they lie.

Messages of one publisher have ids, times, traces and bodies of their own. What decides something
mostly stays: channel, exchange and routing key, which properties and headers there are and how long
each is, delivery mode, priority, expiration. Where all of these octets are those of a publish that
is sound, every walk over the bytes goes to the same places, so the publish is as sound and has the
same facts, whatever else it says. One unpack and two comparisons stand for all parsing then.

    | method frame | header frame: type, channel ... weight | body size |
    `------------------------ start -----------------------'   number
    | flags, properties ... | end | body frame: type, channel | size |
    `------- deciding, but for what is free of them ---------' number

Source: amqp0-9-1 2.3.5 (frames of a content), `content.free_spans` (what decides nothing).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import msgspec

from broker.amqp.content import HEADER_FIXED_SIZE, PropertyFacts, free_spans
from broker.amqp.frames import FRAME, FRAME_END, FRAME_OVERHEAD
from broker.amqp.partial import Route
from broker.message import Message

HEADER_MAX: Final = 1024
"""Payload of a content header in bytes; a larger one has no shape. Each connection that publishes
keeps one."""

LAYOUTS_MAX: Final = 1024
"""How many layouts are remembered; connections share them."""

BODY_SIZE_AT: Final = FRAME.size + 4
"""Where in a header frame the body size stands: behind class and weight."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What a publish shares with the next ones of its publisher.

    Attributes:
        start: Method frame and header frame, up to the body size; empty in `NO_SHAPE`.
        method_size: Size of the method frame in bytes.
        total_size: Size of all three frames without the body.
        layout: Reads (body size, the deciding octets in order, size of the body frame) from behind
            `start`.
        deciding: These octets.
        channel: Its channel.
        route: Its method.
        facts: Of its properties.
        header_size: Size in bytes of the header frame's payload.
        body_max: Largest body in bytes that may come in one frame.
        exchange: Of the route. This and what follows is here again so that `single` reads one
            object: a burst of many publishers finds little of it in the processor's caches.
        routing_key: Of the route.
        persistent: Of the facts.
        ttl_ms: Of the facts.
        priority: Of the facts.
    """

    start: bytes
    method_size: int
    total_size: int
    layout: struct.Struct
    deciding: tuple[bytes, ...]
    channel: int
    route: Route
    facts: PropertyFacts
    header_size: int
    body_max: int
    exchange: str
    routing_key: str
    persistent: bool
    ttl_ms: int
    priority: int

    def single(self, data: bytes) -> Message | None:
        """Return the message of a chunk that is one publish of this shape and nothing else.

        Args:
            data: The chunk. No frame or content is unfinished before it.

        Returns:
            None where it is anything else.
        """
        body_size = len(data) - self.total_size
        if (
            not 0 < body_size <= self.body_max
            or not data.startswith(self.start)
            or data[-1] != FRAME_END
        ):
            return None
        values = self.layout.unpack_from(data, len(self.start))
        if values[0] != body_size or values[-1] != body_size or values[1:-1] != self.deciding:
            return None
        return Message(
            self.exchange,
            self.routing_key,
            data[self.method_size :],
            self.channel,
            self.header_size,
            body_size,
            self.persistent,
            self.ttl_ms,
            self.priority,
        )


@lru_cache(maxsize=LAYOUTS_MAX)
def _layout(codes: str) -> struct.Struct:
    return struct.Struct(codes)


NO_SHAPE: Final = Shape(
    start=b"",
    method_size=0,
    total_size=0,
    layout=_layout(""),
    deciding=(),
    channel=0,
    route=Route("", "", False, False),
    facts=PropertyFacts(),
    header_size=0,
    body_max=0,
    exchange="",
    routing_key="",
    persistent=False,
    ttl_ms=-1,
    priority=0,
)


def shape_of(
    data: bytes,
    pos: int,
    header: int,
    route: Route,
    message: Message,
    facts: PropertyFacts,
    body_max: int,
) -> Shape:
    """Return the shape of a publish that is complete and sound.

    Args:
        data: Bytes that hold it, with a body in one frame.
        pos: Where its method frame starts.
        header: Where its header frame starts.
        route: Its method.
        message: What it brings.
        facts: Of its properties.
        body_max: Largest body in bytes that may come in one frame.

    Returns:
        `NO_SHAPE` where its header is larger than `HEADER_MAX`.
    """
    header_size = message.header_size
    if header_size > HEADER_MAX:
        return NO_SHAPE
    raw = data[header + FRAME.size + HEADER_FIXED_SIZE : header + FRAME.size + header_size]
    codes, at = [">Q"], 0
    for start, end in free_spans(raw):
        if end > start:
            codes.append(f"{start - at}s{end - start}x")
            at = end
    codes.append(f"{len(raw) - at + 4}sI")  # the frame's end octet, the next one's type and channel
    layout = _layout("".join(codes))
    sizes_at = header + BODY_SIZE_AT
    return Shape(
        start=data[pos:sizes_at],
        method_size=header - pos,
        total_size=header - pos + header_size + 2 * FRAME_OVERHEAD,
        layout=layout,
        deciding=layout.unpack_from(data, sizes_at)[1:-1],
        channel=message.channel,
        route=route,
        facts=facts,
        header_size=header_size,
        body_max=body_max,
        exchange=route.exchange,
        routing_key=route.routing_key,
        persistent=facts.persistent,
        ttl_ms=facts.ttl_ms,
        priority=facts.priority,
    )
