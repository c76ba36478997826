"""A publish that is not complete yet: its decoded method, and its content frame by frame.

    header awaited --header--> body awaited --last body byte--> complete
                    (a header of body size 0 completes at once)

Frames are kept as they came, but for endless tiny ones: their headers would outweigh the body many
times, in memory, in every store and on every link. So a content is at most its body, an eighth more
(`SQUEEZED_FRAMES`) and its header frame, which is what links between nodes have room for.

Called by the assembler's general way; `route_of` by its fast way too.

Source: rabbit_command_assembler.erl (505 and its texts), rabbit_basic.erl (message size).
Stricter than RabbitMQ: too much body, endless empty bodies, and size refused at the header.
"""

from __future__ import annotations

import struct
import sys
from typing import Final

import msgspec

from broker.amqp import methods
from broker.amqp.commands import Publish
from broker.amqp.content import FRAME_MAX_DEFAULT, HEADER_FIXED_SIZE, PropertyFacts, facts_at
from broker.amqp.frames import FRAME, FRAME_BODY, FRAME_END, FRAME_OVERHEAD
from broker.errors import AmqpError, ReplyCode
from broker.message import Message

MESSAGE_SIZE_CAP: Final = 536_870_912
"""Largest max_message_size RabbitMQ accepts, in bytes; its error text differs there."""

EMPTY_BODIES_MAX: Final = 16
"""Empty body frames in a row before we call it an attack."""

SQUEEZED_FRAMES: Final = 4096
"""Each time so many body frames have come, they are cut anew where their headers add more than an
eighth. 512 MiB in frames of the default size are as many: nobody else is ever looked at."""

ROUTES_MAX: Final = 4096
ROUTE_KEY_MAX: Final = 160
"""How many decoded publish methods are remembered, and of what size in bytes at most."""

PUBLISH_IDS: Final = struct.pack(">HH", 60, 40)
CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight and body size: a content header before its properties."""

_BASIC: Final = 60
_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


class Route(msgspec.Struct, frozen=True, gc=False):
    """A decoded basic.publish; equal ones share their strings."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool


routes: dict[bytes, Route] = {}
"""Decoded publish methods by their payload after class and method id: `route_of` fills it."""


def route_of(arguments: bytes) -> Route:
    """Decode basic.publish, through a bounded cache.

    Args:
        arguments: The method's payload after class and method id.

    Raises:
        AmqpError: As `methods.decode`.
    """
    route = routes.get(arguments)
    if route is None:
        route = _read_route(arguments)
        if len(arguments) <= ROUTE_KEY_MAX:
            if len(routes) >= ROUTES_MAX:
                routes.clear()
            routes[arguments] = route
    return route


def _read_route(arguments: bytes) -> Route:
    try:
        exchange_end = 3 + arguments[2]
        key_end = exchange_end + 1 + arguments[exchange_end]
        if len(arguments) == key_end + 1:
            return Route(
                sys.intern(arguments[3:exchange_end].decode()),
                sys.intern(arguments[exchange_end + 1 : key_end].decode()),
                bool(arguments[key_end] & _MANDATORY),
                bool(arguments[key_end] & _IMMEDIATE),
            )
    except (IndexError, UnicodeDecodeError):
        pass
    methods.decode(PUBLISH_IDS + arguments)  # raises, with the right words
    raise AssertionError(f"two decoders disagree about {arguments!r}")


class Partial:
    """A content on its way in on one channel.

    Attributes:
        is_header_awaited: The header frame has not come yet.
        is_dropped: Too large; what still comes is counted and not kept.
        remaining: Bytes of body still to come, once the header is there.
        buffered: Bytes of frames kept so far.
    """

    __slots__ = (
        "_body_size",
        "_empty_bodies",
        "_facts",
        "_frames",
        "_header_size",
        "_looked_at",
        "_route",
        "buffered",
        "is_dropped",
        "is_header_awaited",
        "remaining",
    )

    def __init__(self, route: Route) -> None:
        self._route = route
        self._facts = PropertyFacts()
        self._frames: list[bytes] = []
        self._header_size = 0
        self._looked_at = 1  # the header frame and the body frames that stay as they are
        self._body_size = 0
        self._empty_bodies = 0
        self.buffered = 0
        self.remaining = 0
        self.is_header_awaited = True
        self.is_dropped = False

    def take_header(self, payload: bytes, frame: bytes, size_max: int) -> AmqpError | None:
        """Take the header frame.

        Args:
            payload: Its payload, at least `CONTENT.size` bytes.
            frame: The whole frame, kept.
            size_max: Largest body in bytes.

        Returns:
            406 when the body will be too large: the channel closes, and the body is dropped.

        Raises:
            AmqpError: 505 out of place or of another class, else as `facts_at`.
        """
        if not self.is_header_awaited:
            raise self.misplaced()
        class_id, weight, body_size = CONTENT.unpack_from(payload)
        if class_id != _BASIC or weight:
            text = f"expected content header for class 60, got one for class {class_id} instead"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text, _BASIC, 40)
        try:
            self._facts = facts_at(payload, HEADER_FIXED_SIZE, len(payload))
        except AmqpError as error:
            raise AmqpError(error.code, error.text, _BASIC, 40) from None
        self.is_header_awaited = False
        self._header_size = len(payload)
        self._body_size = self.remaining = body_size
        if body_size > size_max:
            self.is_dropped = True
            return _too_large(body_size, size_max)
        self._keep(frame)
        return None

    def take_body(self, size: int, frame: bytes) -> None:
        """Take a body frame.

        Args:
            size: Bytes of its payload.
            frame: The whole frame; an empty one is not kept.

        Raises:
            AmqpError: 505 out of place, 501 for more body than announced or too many empty frames.
        """
        if self.is_header_awaited:
            raise self.misplaced()
        if size > self.remaining:
            text = "content body frame exceeds remaining content size"
            raise AmqpError(ReplyCode.FRAME_ERROR, text, _BASIC, 40)
        self.remaining -= size
        self._empty_bodies = 0 if size else self._empty_bodies + 1
        if self._empty_bodies > EMPTY_BODIES_MAX:
            text = f"more than {EMPTY_BODIES_MAX} empty content body frames in a row"
            raise AmqpError(ReplyCode.FRAME_ERROR, text, _BASIC, 40)
        if size and not self.is_dropped:
            self._keep(frame)
            if len(self._frames) - self._looked_at >= SQUEEZED_FRAMES:
                self._squeeze()

    def _squeeze(self) -> None:
        """Keep the last body frames in larger ones if they are tiny.

        Any size will do: what is larger than a consumer's frames is cut anew for it.
        """
        tiny = self._frames[self._looked_at :]
        size = sum(map(len, tiny))
        if len(tiny) * FRAME_OVERHEAD * 8 > size - len(tiny) * FRAME_OVERHEAD:
            del self._frames[self._looked_at :]
            self.buffered -= size
            channel = FRAME.unpack_from(self._frames[0])[1]
            body = b"".join([frame[FRAME.size : -1] for frame in tiny])
            room = FRAME_MAX_DEFAULT - FRAME_OVERHEAD
            for start in range(0, len(body), room):
                piece = body[start : start + room]
                head = FRAME.pack(FRAME_BODY, channel, len(piece))
                self._keep(b"%b%b%c" % (head, piece, FRAME_END))
        self._looked_at = len(self._frames)

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.buffered += len(frame)

    def complete(self, channel: int) -> Publish:
        """The publish, once nothing remains."""
        route, facts = self._route, self._facts
        message = Message(
            route.exchange,
            route.routing_key,
            b"".join(self._frames),
            channel,
            self._header_size,
            self._body_size,
            facts.persistent,
            facts.ttl_ms,
            facts.priority,
        )
        return Publish(channel, route.mandatory, route.immediate, message, facts)

    def misplaced(self) -> AmqpError:
        """Return the error of a frame that is not the awaited one."""
        if self.is_header_awaited:
            text = "expected content header for class 60, got non content header frame instead"
        else:
            text = "expected content body, got non content body frame instead"
        return AmqpError(ReplyCode.UNEXPECTED_FRAME, text, _BASIC, 40)


def _too_large(size: int, size_max: int) -> AmqpError:
    limit = "max size" if size_max == MESSAGE_SIZE_CAP else "configured max size"
    text = f"message size {size} is larger than {limit} {size_max}"
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text, _BASIC, 40)
