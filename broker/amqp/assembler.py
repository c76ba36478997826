"""Bytes to commands, the broker's hottest loop. Never raises, waits or allocates ahead.

A chunk is walked once. What most chunks hold is recognised in one step each:

1. *A publish whose three frames lie complete in the chunk*: one unpack for each frame's start. Its
   method is looked up by its raw bytes in a bounded cache that holds only what was checked; its
   properties are stepped over (`content.facts_at`).
2. *A publish of the same shape*: its bytes are those of a publish before in all that decides
   something (`shape`), so one unpack stands for all parsing. Most publishers send such: ids, times
   and bodies differ. Where such a publish is all that a read has brought, the connection asks the
   shape itself and comes by here no more (`Shape.single`).
3. *The same publish again*: method frame, header frame and body frame header are byte for byte
   those of the publish before, so one comparison stands for all parsing. Load generators send
   such.
4. *basic.ack*: one unpack.

In 1 to 3 the content is one slice of the chunk. Everything else, and everything that these steps
do not like, goes the general way, which alone decides what is an error; so the fast steps cannot
change a meaning, and a property test holds both ways equal for any splitting of the bytes.

    state of a channel         method frame             header frame         body frame
    (none)                     command; publish opens   505                  505
    content header awaited     505 (close-ok: abandon)  basic, weight 0: on  505
    content body awaited       505 (close-ok: abandon)  505                  count down to (none)

channel.close-ok abandons a content: the client may have been told to close in the middle of it.

Invariants: 1. Bytes are buffered only after they have come: an unfinished frame (at most frame_max,
in pieces) and unfinished contents (`partial_bytes`, at most max_message_size a channel). 2. After a
hard Fault nothing comes out but connection.close and close-ok; after one that lost the frame
boundaries, nothing at all. 3. A message over max_message_size is refused at its header and its
bodies are dropped as they come.

Called by `connection`, once a chunk.

Source: rabbit_reader.erl (frame errors and their texts), rabbit_command_assembler.erl (505 cases),
rabbit_basic.erl (message size).
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from broker.amqp import methods, spec
from broker.amqp.commands import Ack, Command, Fault, MethodCommand, Publish
from broker.amqp.content import PropertyFacts, facts_at
from broker.amqp.frames import (
    FRAME,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
)
from broker.amqp.partial import CONTENT, PUBLISH_IDS, Partial, Route, route_of, routes
from broker.amqp.shape import BODY_SIZE_AT, NO_SHAPE, Shape, shape_of
from broker.errors import AmqpError, ReplyCode
from broker.message import Message

_SNIPPET: Final = 16

_START: Final = struct.Struct(">BHII")
"""Type, channel and size of a frame; class and method."""

_ACK_REST: Final = struct.Struct(">QBB")
_HEADER: Final = struct.Struct(">IIIQ")
"""End of the frame before, type and channel; size; class and weight; body size."""

_BODY: Final = struct.Struct(">II")
"""End of the frame before, type and channel; size."""

_HEADER_START: Final = FRAME_END << 24 | FRAME_HEADER << 16
_BODY_START: Final = FRAME_END << 24 | FRAME_BODY << 16
_START_SIZE: Final = _START.size
_HEADER_SIZE: Final = _HEADER.size
_unpack_start: Final = _START.unpack_from
_unpack_ack: Final = _ACK_REST.unpack_from
_unpack_header: Final = _HEADER.unpack_from
_unpack_body: Final = _BODY.unpack_from
_BASIC: Final = 60 << 16
LOOK_AGAIN: Final = 32
"""After so many publishes that were unlike the one before it is looked again at the next one."""

_PUBLISH: Final = 60 << 16 | 40
_ACK: Final = 60 << 16 | 80
_ACK_SIZE: Final = 13
_CHANNEL_CLOSE_OK: Final = (20 << 16 | 41).to_bytes(4, "big")


class _Repeat(msgspec.Struct, frozen=True, gc=False):
    """All about the last publish that the next may share."""

    prefix: bytes  # method frame, header frame, body frame header; empty: none
    method_size: int
    total_size: int
    channel: int
    route: Route
    facts: PropertyFacts
    header_size: int
    body_size: int


_NO_REPEAT: Final = _Repeat(b"", 0, 0, 0, Route("", "", False, False), PropertyFacts(), 0, 0)


class _Hard(Exception):
    """A hard fault on its way to `feed`.

    Attributes:
        channel: Channel of the frame at fault.
        error: What the peer is told.
        next_frame: Where the frame after it starts; None when the frame boundaries are lost.
    """

    def __init__(self, channel: int, error: AmqpError, next_frame: int | None) -> None:
        super().__init__(channel, error)
        self.channel = channel
        self.error = error
        self.next_frame = next_frame


class Assembler:
    """Turns one connection's bytes into commands.

    Args:
        frame_max: Largest payload accepted is this many bytes (RabbitMQ's limit plus its 8 bytes
            of leniency). Negotiated later; may be set at any frame boundary.
        max_message_size: Largest body in bytes.

    Attributes:
        partial_bytes: Bytes buffered of contents that are not complete.
        has_channel_zero: A method of channel 0 came out; the caller resets it.
        has_content: A content has come, or begun to.
        is_lost: The frame boundaries are lost: nothing comes out any more.
        shape: Of the publishes that come now; `NO_SHAPE` while none is known, and once refusing.
    """

    __slots__ = (
        "_buffered",
        "_is_refusing",
        "_last_prefix",
        "_needed",
        "_partials",
        "_pieces",
        "_repeat",
        "_single_max",
        "frame_max",
        "has_channel_zero",
        "has_content",
        "is_lost",
        "max_message_size",
        "partial_bytes",
        "shape",
    )

    def __init__(self, *, frame_max: int, max_message_size: int) -> None:
        self.max_message_size = max_message_size
        self.partial_bytes = 0
        self.has_channel_zero = False
        self.has_content = False
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._needed = 0
        self._partials: dict[int, Partial] = {}
        self._repeat = _NO_REPEAT
        self.shape = NO_SHAPE
        self._last_prefix = b""  # of a publish: the next one is looked at beside it
        self._is_refusing = False  # a hard fault was found or sent
        self.is_lost = False
        self.set_frame_max(frame_max)

    def set_frame_max(self, frame_max: int) -> None:
        """Take the negotiated limit, at a frame boundary."""
        self.frame_max = frame_max
        self._single_max = min(frame_max, self.max_message_size)
        self.shape = NO_SHAPE

    @property
    def missing_bytes(self) -> int:
        """Bytes still to come of bodies that are buffered."""
        partials = self._partials.values()
        return sum(partial.remaining for partial in partials if not partial.is_dropped)

    @property
    def is_whole(self) -> bool:
        """Nothing is unfinished: no frame, and no content of any channel."""
        return not (self._pieces or self._partials)

    def refuse(self) -> None:
        """From now on only connection.close and close-ok come out: we have sent a close."""
        self._is_refusing = True
        self.shape = NO_SHAPE
        self._drop_partials()

    def forget(self) -> None:
        """Let go of everything buffered: no more input comes, and nothing would come out."""
        self.is_lost = True
        self._pieces.clear()
        self.refuse()

    def feed(self, data: bytes) -> list[Command]:
        """Parse a chunk.

        Args:
            data: What the socket gave, cut anywhere.

        Returns:
            The commands it completed, in order. At most one hard Fault, and then as the last.
        """
        out: list[Command] = []
        pos = 0
        while self._pieces:  # only the frame that was cut is put together, not all that follows
            missing = self._needed - self._buffered
            if len(data) - pos < missing:
                self._pieces.append(data[pos:])
                self._buffered += len(data) - pos
                return out
            self._pieces.append(data[pos : pos + missing])
            pos += missing
            frame = b"".join(self._pieces)
            self._pieces.clear()
            self._take(frame, 0, out)
        shape = self.shape  # most chunks of a publisher are such publishes, to their end
        if (
            shape.start
            and data.startswith(shape.start, pos)
            and shape.channel not in self._partials
        ):
            pos = self._same_shape(data, pos, shape, out)
            if pos == len(data):
                return out
        self._take(data, pos, out)
        return out

    def _take(self, data: bytes, pos: int, out: list[Command]) -> None:
        """Parse from `pos` on, and keep what is incomplete."""
        if self.is_lost:
            return
        try:
            if self._is_refusing:
                rest = self._refused(data, out, pos)
            else:
                rest = self._walk(data, pos, out)
        except _Hard as fault:
            out.append(Fault(fault.channel, fault.error))
            self.refuse()
            if fault.next_frame is None:
                self.is_lost = True
                return
            rest = self._refused(data, out, fault.next_frame)
        if rest < len(data):
            self._keep(data, rest)

    def feed_to_content(self, data: bytes) -> tuple[list[Command], bytes | None]:
        """Parse a chunk as `feed`, but no further than its first frame of a content.

        Returns:
            The commands, and what lies behind that frame; None when no such frame is complete.
        """
        end = self._first_content(data)
        if not end:
            return self.feed(data), None
        out, rest = self.feed(data[:end]), data[end:]
        if self._is_refusing:
            return out + self.feed(rest), None
        return out, rest

    def _first_content(self, data: bytes) -> int:
        """Return where the first content frame completed by this chunk ends; 0 for none."""
        buffered = self._buffered if self._pieces else 0
        whole = b"".join((*self._pieces, data))
        pos = 0
        while pos + FRAME.size <= len(whole):
            kind, _, size = FRAME.unpack_from(whole, pos)
            pos += size + FRAME_OVERHEAD
            if size > self.frame_max or pos > len(whole):
                return 0
            if kind in (FRAME_HEADER, FRAME_BODY):
                return int(pos - buffered)
        return 0

    def _walk(self, data: bytes, pos: int, out: list[Command]) -> int:
        """Parse whole frames from `pos` on; returns where the first incomplete one starts."""
        size_of_chunk = len(data)
        frame_max = self.frame_max
        while True:
            if pos + _START_SIZE > size_of_chunk:
                break
            kind, channel, size, ids = _unpack_start(data, pos)
            end = pos + size + FRAME_OVERHEAD
            if kind == FRAME_METHOD and channel not in self._partials and size <= frame_max:
                if ids == _PUBLISH:
                    after = self._like_before(data, pos, out)
                    if after == pos:
                        after = self._publishes(data, pos, out)
                    if after > pos:
                        pos = after
                        continue
                elif ids == _ACK and size == _ACK_SIZE and end <= size_of_chunk:
                    tag, bits, octet = _unpack_ack(data, pos + _START_SIZE)
                    if octet == FRAME_END and channel:
                        out.append(Ack(channel, tag, bits & 1 == 1))
                        pos = end
                        continue
            if size > frame_max or end <= size_of_chunk:
                pos = self._general(data, pos, out)
                continue
            return pos
        return pos if pos == size_of_chunk else self._tail(data, pos, out)

    def _like_before(self, data: bytes, pos: int, out: list[Command]) -> int:
        """Take publishes like one before; returns where something else starts."""
        repeat = self._repeat
        if repeat.prefix and data.startswith(repeat.prefix, pos):
            pos = self._same_again(data, pos, repeat, out)
        shape = self.shape
        is_next = shape.start and data.startswith(shape.start, pos)
        if is_next and shape.channel not in self._partials:
            pos = self._same_shape(data, pos, shape, out)
        return pos

    def _same_again(self, data: bytes, pos: int, repeat: _Repeat, out: list[Command]) -> int:
        """Take publishes that repeat the last one; returns where something else starts."""
        prefix, total, method_size = repeat.prefix, repeat.total_size, repeat.method_size
        channel, facts, route = repeat.channel, repeat.facts, repeat.route
        exchange, routing_key = route.exchange, route.routing_key
        mandatory, immediate = route.mandatory, route.immediate
        header_size, body_size = repeat.header_size, repeat.body_size
        persistent, ttl_ms, priority = facts.persistent, facts.ttl_ms, facts.priority
        append, starts, size_of_chunk = out.append, data.startswith, len(data)
        while starts(prefix, pos):
            end = pos + total
            if end > size_of_chunk or data[end - 1] != FRAME_END:
                break
            append(
                Publish(
                    channel,
                    mandatory,
                    immediate,
                    Message(
                        exchange,
                        routing_key,
                        data[pos + method_size : end],
                        channel,
                        header_size,
                        body_size,
                        persistent,
                        ttl_ms,
                        priority,
                    ),
                    facts,
                )
            )
            pos = end
        return pos

    def _same_shape(self, data: bytes, pos: int, shape: Shape, out: list[Command]) -> int:
        """Take publishes of a shape; returns where something else starts."""
        start, unpack, deciding = shape.start, shape.layout.unpack_from, shape.deciding
        method_size, total, header_size = shape.method_size, shape.total_size, shape.header_size
        channel, facts, route = shape.channel, shape.facts, shape.route
        exchange, routing_key = shape.exchange, shape.routing_key
        mandatory, immediate = route.mandatory, route.immediate
        persistent, ttl_ms, priority = shape.persistent, shape.ttl_ms, shape.priority
        append, starts, size_of_chunk = out.append, data.startswith, len(data)
        behind, body_max = len(start), shape.body_max
        last, had = size_of_chunk - total, len(out)
        while pos < last and starts(start, pos):
            values = unpack(data, pos + behind)
            body_size = values[0]
            end = pos + total + body_size
            if (
                end > size_of_chunk
                or data[end - 1] != FRAME_END
                or values[-1] != body_size
                or values[1:-1] != deciding
                or not 0 < body_size <= body_max
            ):
                break
            append(
                Publish(
                    channel,
                    mandatory,
                    immediate,
                    Message(
                        exchange,
                        routing_key,
                        data[pos + method_size : end],
                        channel,
                        header_size,
                        body_size,
                        persistent,
                        ttl_ms,
                        priority,
                    ),
                    facts,
                )
            )
            pos = end
        if len(out) > had + 1:
            self._drop_shape_of_copies(out, header_size)
        return pos

    def _drop_shape_of_copies(self, out: list[Command], header_size: int) -> None:
        """Let `_learn` look again if the last two publishes of a shape were the same one."""
        before, last = out[-2:]
        assert isinstance(before, Publish), "only publishes have shapes"
        assert isinstance(last, Publish), "only publishes have shapes"
        size = header_size + FRAME_OVERHEAD + FRAME.size
        if last.message.content.startswith(before.message.content[:size]):
            self.shape = NO_SHAPE

    def _publishes(self, data: bytes, pos: int, out: list[Command]) -> int:
        """Take publishes that lie complete and sound at `pos`.

        Returns:
            Where something else starts: the general way finds what is wrong with it, if anything.
        """
        size_of_chunk, frame_max, single_max = len(data), self.frame_max, self._single_max
        append, partials, known_routes = out.append, self._partials, routes
        until_look = 0
        while pos + _START_SIZE <= size_of_chunk:
            kind, channel, size, ids = _unpack_start(data, pos)
            header = pos + size + FRAME_OVERHEAD  # where the header frame starts
            if (
                ids != _PUBLISH
                or kind != FRAME_METHOD
                or not channel
                or channel in partials
                or size > frame_max
                or header + _HEADER_SIZE > size_of_chunk
            ):
                break
            mark, header_size, class_and_weight, body_size = _unpack_header(data, header - 1)
            body = header + header_size + FRAME_OVERHEAD
            end = body + body_size + FRAME_OVERHEAD if body_size else body
            if (
                mark != _HEADER_START | channel
                or class_and_weight != _BASIC
                or header_size > frame_max
                or body_size > single_max
                or end > size_of_chunk
                or data[end - 1] != FRAME_END
                or (
                    body_size and _unpack_body(data, body - 1) != (_BODY_START | channel, body_size)
                )
            ):
                break
            try:
                arguments = data[pos + 11 : header - 1]  # after _START
                route = known_routes.get(arguments) or route_of(arguments)
                facts = facts_at(data, header + 19, body - 1)  # after the body size
            except AmqpError:
                break  # the general way finds the same error and says where
            message = Message(
                route.exchange,
                route.routing_key,
                data[header:end],
                channel,
                header_size,
                body_size,
                facts.persistent,
                facts.ttl_ms,
                facts.priority,
            )
            append(Publish(channel, route.mandatory, route.immediate, message, facts))
            start, pos = pos, end
            if until_look:
                until_look -= 1
                continue
            self._learn(data, start, header, route, message, facts)
            pos = self._like_before(data, end, out)
            if pos == end:
                until_look = LOOK_AGAIN
        return pos

    def _learn(
        self,
        data: bytes,
        pos: int,
        header: int,
        route: Route,
        message: Message,
        facts: PropertyFacts,
    ) -> None:
        """Keep what the next publishes may share with one, if a neighbour of it looks so.

        Args:
            data: The chunk.
            pos: Where the publish starts in it.
            header: Where its header frame starts.
            route: Of the publish.
            message: Of the publish.
            facts: Of the publish.
        """
        self.has_content = True  # the first of them all comes by here, others need not
        body = header + message.header_size + FRAME_OVERHEAD
        end = header + len(message.content)
        prefix, before = data[pos : body + FRAME.size], self._last_prefix
        self._last_prefix = prefix
        if end == body:
            return
        if prefix == before or data.startswith(prefix, end):
            self._repeat = _Repeat(
                prefix,
                header - pos,
                end - pos,
                message.channel,
                route,
                facts,
                message.header_size,
                message.body_size,
            )
            return
        start = prefix[: header - pos + BODY_SIZE_AT]
        if before.startswith(start) or data.startswith(start, end):
            self.shape = shape_of(data, pos, header, route, message, facts, self._single_max)

    def _tail(self, data: bytes, pos: int, out: list[Command]) -> int:
        """Take the frames too small for `_START`: heartbeats, and garbage."""
        while pos + FRAME.size <= len(data):
            size = FRAME.unpack_from(data, pos)[2]
            if size <= self.frame_max and pos + size + FRAME_OVERHEAD > len(data):
                break
            pos = self._general(data, pos, out)
        return pos

    def _keep(self, data: bytes, rest: int) -> None:
        """Hold what is there of a frame, and note how much must come before looking again."""
        self._pieces.append(data[rest:])
        self._buffered = len(data) - rest
        self._needed = FRAME.size
        if self._buffered >= FRAME.size:
            self._needed = FRAME.unpack_from(data, rest)[2] + FRAME_OVERHEAD

    def _refused(self, data: bytes, out: list[Command], pos: int = 0) -> int:
        """Look for connection.close and close-ok only; returns where an incomplete frame starts."""
        while pos + FRAME.size <= len(data):
            kind, channel, size = FRAME.unpack_from(data, pos)
            end = pos + size + FRAME_OVERHEAD
            if size > self.frame_max or (end <= len(data) and data[end - 1] != FRAME_END):
                self.is_lost = True
                return len(data)
            if end > len(data):
                break
            if kind == FRAME_METHOD and channel == 0:
                try:
                    method = methods.decode(data[pos + FRAME.size : end - 1])
                except AmqpError:
                    method = None
                if isinstance(method, spec.ConnectionClose | spec.ConnectionCloseOk):
                    out.append(MethodCommand(0, method))
                    self.has_channel_zero = True
            pos = end
        return pos

    def _general(self, data: bytes, pos: int, out: list[Command]) -> int:
        """Take one frame, of any kind, in any state; returns where the next one starts.

        The frame is complete, or too large.

        Raises:
            _Hard: The frame is an error that ends the connection.
        """
        kind, channel, size = FRAME.unpack_from(data, pos)
        if size > self.frame_max:
            fault = f"{{frame_too_large,{size},{self.frame_max - FRAME_OVERHEAD}}}"
            raise _Hard(channel, _frame_error(kind, b"", fault), None)
        end = int(pos + size + FRAME_OVERHEAD)
        payload = data[pos + FRAME.size : end - 1]
        if data[end - 1] != FRAME_END:
            fault = f"{{invalid_frame_end_marker,{data[end - 1]}}}"
            raise _Hard(channel, _frame_error(kind, payload, fault), None)
        try:
            if not _is_known(kind, payload):
                raise _frame_error(kind, payload, "unknown_frame")
            if channel == 0:
                self._on_channel_zero(kind, payload, out)
            elif kind == FRAME_HEARTBEAT:
                raise _unexpected_frame(kind, payload)
            elif kind == FRAME_METHOD:
                self._on_method(channel, payload, out)
            else:
                self._on_content(channel, kind, payload, data[pos:end], out)
        except AmqpError as error:
            raise _Hard(channel, error, end) from None
        return end

    def _on_channel_zero(self, kind: int, payload: bytes, out: list[Command]) -> None:
        if kind == FRAME_METHOD:
            out.append(MethodCommand(0, methods.decode(payload)))
            self.has_channel_zero = True
        elif kind != FRAME_HEARTBEAT:
            raise _unexpected_frame(kind, payload)

    def _on_method(self, channel: int, payload: bytes, out: list[Command]) -> None:
        partial = self._partials.get(channel)
        if partial is not None:
            if payload != _CHANNEL_CLOSE_OK:
                raise partial.misplaced()
            self._forget(channel, partial)
        if payload.startswith(PUBLISH_IDS):
            self._partials[channel] = Partial(route_of(payload[len(PUBLISH_IDS) :]))
            self._repeat = _NO_REPEAT
            return
        method = methods.decode(payload)
        if isinstance(method, spec.BasicAck):
            out.append(Ack(channel, method.delivery_tag, method.multiple))
        else:
            out.append(MethodCommand(channel, method))

    def _on_content(
        self, channel: int, kind: int, payload: bytes, frame: bytes, out: list[Command]
    ) -> None:
        partial = self._partials.get(channel)
        if partial is None:
            text = "expected method frame, got non method frame instead"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text)
        buffered = partial.buffered
        if kind == FRAME_HEADER:
            self.has_content = True
            too_large = partial.take_header(payload, frame, self.max_message_size)
            if too_large is not None:
                out.append(Fault(channel, too_large))
        else:
            partial.take_body(len(payload), frame)
        self.partial_bytes += partial.buffered - buffered
        if partial.remaining == 0:
            self._forget(channel, partial)
            if not partial.is_dropped:
                out.append(partial.complete(channel))

    def _forget(self, channel: int, partial: Partial) -> None:
        del self._partials[channel]
        self.partial_bytes -= partial.buffered

    def _drop_partials(self) -> None:
        self._partials.clear()
        self.partial_bytes = 0
        self._repeat = _NO_REPEAT
        self._last_prefix = b""


def _is_known(kind: int, payload: bytes) -> bool:
    if kind == FRAME_HEADER:
        return len(payload) >= CONTENT.size
    if kind == FRAME_HEARTBEAT:
        return not payload
    return kind == FRAME_BODY or (kind == FRAME_METHOD and len(payload) >= len(PUBLISH_IDS))


def _frame_error(kind: int, payload: bytes, fault: str) -> AmqpError:
    return AmqpError(ReplyCode.FRAME_ERROR, f"{_snippet(kind, payload)}: {fault}")


def _unexpected_frame(kind: int, payload: bytes) -> AmqpError:
    return AmqpError(ReplyCode.UNEXPECTED_FRAME, _snippet(kind, payload))


def _snippet(kind: int, payload: bytes) -> str:
    which = "all" if len(payload) <= _SNIPPET else f"first {_SNIPPET}"
    return f"type {kind}, {which} octets = {methods.erlang_binary(payload[:_SNIPPET])}"


__all__ = ["Ack", "Assembler", "Command", "Fault", "MethodCommand", "Publish"]
