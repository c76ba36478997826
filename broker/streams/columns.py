"""Messages taken apart for a chunk: bodies, templates, and what is each message's own.

1. Bodies and properties are sliced out of the contents, by the sizes that messages know. All that
   is left to do for messages with equal properties and one route is to write their template.
2. Properties that come more than once become shared templates, the others are cut behind what
   stands before their headers, which becomes a template. A message whose routing key no other one
   has is kept whole: a template costs more than it says.
3. Filter values, and an `x-stream-offset` from another stream, are looked for in all bytes at once,
   and message by message only where that finds their names.

Called by `chunk.encode_chunk`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final

from broker.amqp.content import HEADER_FIXED_SIZE
from broker.amqp.frames import FRAME, FRAME_OVERHEAD, body_of
from broker.message import Message
from broker.streams import templates
from broker.streams.templates import FILTER_MARK, HEADERS_BIT, OFFSET_MARK, TEMPLATES_MAX

WHOLE: Final = 0xFFFF
"""In place of the number of a template: the message is kept whole."""

_RAW_AT: Final = FRAME.size + HEADER_FIXED_SIZE
_HEADER_START: Final = FRAME.size
_BODY_AT: Final = FRAME_OVERHEAD + FRAME.size
_NO_PROPERTIES: Final = b"\xff\xff"
"""Flags that no properties begin with."""

_table_size: Final = struct.Struct(">I").unpack_from


class Columns:
    """The parts of a chunk's data.

    Args:
        messages: At least one, each with its content.

    Attributes:
        bodies: Bodies, without frames.
        kinds: Number of the template of each message, or `WHOLE`.
        templates: Written templates.
        afters: Of messages that have something of their own: all from the first header on, or
            (`WHOLE`) all but the body.
        table_sizes: How much of each of those is headers, in bytes; -1 of a whole one without.
        filters: Number of the filter value of each message, from 1; 0 is none. Empty if all are.
        filter_values: Distinct filter values, by first appearance.
    """

    __slots__ = (
        "_own",
        "_shared",
        "_shared_raws",
        "afters",
        "bodies",
        "filter_values",
        "filters",
        "kinds",
        "table_sizes",
        "templates",
    )

    def __init__(self, messages: Sequence[Message]) -> None:
        self.bodies: list[bytes] = []
        self.kinds: list[int] = []
        self.templates: list[bytes] = []
        self.afters: list[bytes] = []
        self.table_sizes: list[int] = []
        self.filters: list[int] = []
        self.filter_values: list[str] = []
        self._own: dict[tuple[str, str, bytes], int] = {}
        self._shared: dict[tuple[str, str, bytes], int] = {}
        self._shared_raws: dict[int, bytes] = {}
        raws: list[bytes] = []
        is_one_route = self._slice(messages, raws)
        if not is_one_route:
            self._number_routes(messages, raws)
        elif len(raws) > 1 and raws.count(raws[0]) == len(raws):
            self._shared_kind(messages[0], raws[0])
            self.kinds = [0] * len(raws)
        else:
            self._number_one_route(messages[0], raws)
        self._find_filters()

    def _slice(self, messages: Sequence[Message], raws: list[bytes]) -> bool:
        """Slice bodies and properties; True if all messages have one exchange and routing key."""
        add_body, add_raw = self.bodies.append, raws.append
        is_one_route = True
        raw, last_size = b"", -1
        exchange, routing_key = messages[0].exchange, messages[0].routing_key
        for message in messages:
            content, size = message.content, message.header_size
            body = content[_BODY_AT + size : -1]
            if len(body) != message.body_size:
                body = body_of(message)  # in many frames
                assert len(body) == message.body_size, "a chunk holds whole messages"
            add_body(body)
            # One object of equal properties: they are compared and hashed by it.
            if size != last_size or not content.startswith(raw, _RAW_AT):
                last_size, raw = size, content[_RAW_AT : _HEADER_START + size]
            add_raw(raw)
            # Identity first, as in frames.encode_deliveries.
            if (message.routing_key is not routing_key or message.exchange is not exchange) and (
                message.routing_key != routing_key or message.exchange != exchange
            ):
                is_one_route = False
        return is_one_route

    def _number_one_route(self, first: Message, raws: list[bytes]) -> None:
        is_each_own = len(set(raws)) == len(raws)
        counts = Counter(() if is_each_own else raws)
        kinds, sizes, afters = self.kinds, self.table_sizes, self.afters
        before, at, kind, has_table = _NO_PROPERTIES, 0, 0, 0
        for raw in raws:
            if not is_each_own and counts[raw] > 1:
                kinds.append(self._shared_kind(first, raw))
                continue
            if not raw.startswith(before):  # then it is cut at the same place
                at = templates.table_at(raw)
                before = raw[:at]
                kind, has_table = self._own_kind(first, before), before[0] & HEADERS_BIT
            if kind == WHOLE:
                self._keep_whole(first, raw)
                continue
            kinds.append(kind)
            if has_table:
                sizes.append(_table_size(raw, at)[0])
                afters.append(raw[at + 4 :])
            else:
                sizes.append(0)
                afters.append(raw[at:])
        self._clean_afters()

    def _number_routes(self, messages: Sequence[Message], raws: list[bytes]) -> None:
        exchanges = [message.exchange for message in messages]
        routing_keys = [message.routing_key for message in messages]
        routes = Counter(zip(exchanges, routing_keys, strict=True))
        is_each_own = len(set(raws)) == len(raws)
        counts: Counter[tuple[str, str, bytes]] = Counter()
        if not is_each_own:
            counts.update(zip(exchanges, routing_keys, raws, strict=True))
        kinds, sizes, afters = self.kinds, self.table_sizes, self.afters
        before, at, has_table = _NO_PROPERTIES, 0, 0
        for message, raw in zip(messages, raws, strict=True):
            exchange, routing_key = message.exchange, message.routing_key
            if not is_each_own and counts[exchange, routing_key, raw] > 1:
                kinds.append(self._shared_kind(message, raw))
                continue
            if routes[exchange, routing_key] == 1:
                self._keep_whole(message, raw)
                continue
            if not raw.startswith(before):  # then it is cut at the same place
                at = templates.table_at(raw)
                before = raw[:at]
                has_table = before[0] & HEADERS_BIT
            kind = self._own.get((exchange, routing_key, before), -1)
            if kind < 0:
                kind = self._own_kind(message, before)
            if kind == WHOLE:
                self._keep_whole(message, raw)
                continue
            kinds.append(kind)
            if has_table:
                sizes.append(_table_size(raw, at)[0])
                afters.append(raw[at + 4 :])
            else:
                sizes.append(0)
                afters.append(raw[at:])
        self._clean_afters()

    def _shared_kind(self, message: Message, raw: bytes) -> int:
        """Number of the shared template of a message; without room for one it is kept whole."""
        names = message.exchange, message.routing_key, raw
        kind = self._shared.get(names)
        if kind is not None:
            return kind
        if len(self.templates) == TEMPLATES_MAX:
            self._own_whole(message, raw)
            return WHOLE
        kind = self._shared[names] = len(self.templates)
        if OFFSET_MARK in raw:
            raw = _cleaned(raw)
        self._shared_raws[kind] = raw
        self.templates.append(templates.encode_shared(message.exchange, message.routing_key, raw))
        return kind

    def _own_kind(self, message: Message, before: bytes) -> int:
        names = message.exchange, message.routing_key, before
        kind = self._own.get(names)
        if kind is None:
            if len(self.templates) == TEMPLATES_MAX:
                return WHOLE
            kind = self._own[names] = len(self.templates)
            own = templates.encode_own(message.exchange, message.routing_key, before)
            self.templates.append(own)
        return kind

    def _keep_whole(self, message: Message, raw: bytes) -> None:
        self.kinds.append(WHOLE)
        self._own_whole(message, raw)

    def _own_whole(self, message: Message, raw: bytes) -> None:
        if OFFSET_MARK in raw:
            raw = _cleaned(raw)
        size, after = templates.encode_whole(message.exchange, message.routing_key, raw)
        self.table_sizes.append(size)
        self.afters.append(after)

    def _clean_afters(self) -> None:
        """Take `x-stream-offset` out of what is own, if any message brought one."""
        if OFFSET_MARK not in b"".join(self.afters):
            return
        sizes, afters = self.table_sizes, self.afters
        own = (kind for kind in self.kinds if kind not in self._shared_raws)
        for i, kind in enumerate(own):
            if kind != WHOLE and sizes[i] and OFFSET_MARK in afters[i]:
                sizes[i], afters[i] = templates.without_offset(sizes[i], afters[i])

    def _find_filters(self) -> None:
        """Number the filter values, if any message has one."""
        shared = {
            kind: templates.filter_value(*templates.split(raw)[1:])
            for kind, raw in self._shared_raws.items()
            if FILTER_MARK in raw
        }
        if not shared and FILTER_MARK not in b"".join(self.afters):
            return
        numbers: dict[str, int] = {}
        own = zip(self.table_sizes, self.afters, strict=True)
        for kind in self.kinds:
            if kind in self._shared_raws:
                value = shared.get(kind)
            else:
                size, after = next(own)
                if kind == WHOLE:
                    _, _, _, _, size, after = templates.decode_whole(size, after)
                value = templates.filter_value(size, after) if FILTER_MARK in after else None
            number = 0 if value is None else numbers.setdefault(value, len(numbers) + 1)
            self.filters.append(number)
        self.filter_values = list(numbers)
        if not numbers:
            self.filters = []


def _cleaned(raw: bytes) -> bytes:
    """Properties without an `x-stream-offset`."""
    before, size, after = templates.split(raw)
    if size:
        size, after = templates.without_offset(size, after)
    return templates.joined(before, size, after)
