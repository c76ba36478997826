"""Payloads to batches and back: what one stream between two nodes carries. Pure.

Sending: payloads queue up during a tick of the event loop and leave together, at most about 1 MiB
in one batch. A longer payload is cut into parts of 1 MiB, each the end of its own batch, and
nothing comes between the parts of one payload (P13). Receiving puts them together again.

Invariants:
    1. Payloads come out in the order they went in, each exactly once, none changed.
    2. No batch holds more than BATCH_BYTES of payload, nor more than BATCH_PAYLOADS payloads.
    3. What waits is bounded; a full queue says so and never drops by itself. Dropping from the
       middle of a living stream would be a silent loss, so the owner breaks the stream instead.
       Only what has no room in an empty queue is dropped: it would break every stream to come.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from broker.amqp.partial import MESSAGE_SIZE_CAP
from raft.wire.varint import read_varint, varint

BATCH_BYTES = 1 << 20
"""P13: whatever is over 1 MiB travels in parts. gRPC's limit of 8 MiB a message is far off."""

BATCH_PAYLOADS = 4096
"""Bounds the time one batch keeps the receiving event loop busy (about 1 us a payload)."""

PAYLOAD_BYTES_MAX = MESSAGE_SIZE_CAP + MESSAGE_SIZE_CAP // 8 + (2 << 20)
"""The largest message a node may be told to take, its frames (`broker.amqp.partial`), and room for
what surrounds it. Not this node's max_message_size: other nodes and older messages have theirs."""

_TYPES: Final = 128
"""Kinds are below: they are varints of one byte."""

_FIRST_FIELD, _PAYLOAD_FIELD = 0x0A, 0x12


class PayloadBatch(NamedTuple):
    """The payloads of one gRPC message; `has_more`: the next message continues the last one."""

    types: list[int]
    payloads: list[bytes | memoryview]
    has_more: bool


class OutgoingBatch(NamedTuple):
    """A `PayloadBatch` that is to be sent, each payload in pieces."""

    types: list[int]
    payloads: list[tuple[bytes, ...]]
    has_more: bool


def encode_batch(batch: OutgoingBatch) -> list[bytes]:
    """Return the bytes of a `broker.wire.Packet` that holds the batch, in pieces.

    By hand, for protobuf would copy the payloads three times; its own decoder reads them.

    Args:
        batch: Kinds below 128.
    """
    types, payloads, has_more = batch
    if len(types) == 1 and not has_more:  # what a lone publish sends; the same bytes
        size = sum(map(len, payloads[0]))
        head = b"\x0a\x01" + varint(types[0]) + b"\x12" + varint(size)
        return [b"\x0a" + varint(len(head) + size) + head, *payloads[0]]
    parts = [b"\x0a" + varint(len(types)) + bytes(types)]
    for payload in payloads:
        parts += (b"\x12" + varint(sum(map(len, payload))), *payload)
    if has_more:
        parts.append(b"\x18\x01")
    return [b"\x0a" + varint(sum(map(len, parts))), *parts]


def decode_batch(data: bytes | memoryview) -> PayloadBatch | None:
    """Read what `encode_batch` wrote.

    Returns:
        The batch; of a view, its payloads are views, too. None for all else, damaged or not:
        protobuf is to read that.
    """
    try:
        if data[0] != _FIRST_FIELD:
            return None
        size, position = read_varint(data, 1)
        if position + size != len(data) or data[position] != _FIRST_FIELD:
            return None
        count, position = read_varint(data, position + 1)
        types = list(data[position : position + count])
        position += count
        payloads: list[bytes | memoryview] = []
        while position < len(data) and data[position] == _PAYLOAD_FIELD:
            size, position = read_varint(data, position + 1)
            payloads.append(data[position : position + size])
            position += size
        has_more = data[position : position + 2] == b"\x18\x01"
    except IndexError:
        return None
    if position + 2 * has_more != len(data) or max(types, default=0) >= _TYPES:
        return None
    return PayloadBatch(types, payloads, has_more)


class SendQueue:
    """Payloads that wait for their stream.

    Args:
        bytes_max: Most bytes that may wait.
    """

    def __init__(self, bytes_max: int) -> None:
        self._waiting: deque[tuple[int, int, tuple[bytes, ...]]] = deque()  # type, size, pieces
        self._bytes_max = bytes_max
        self._offset = 0  # bytes of the first payload that have left already
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, payload_type: int, *payload: bytes) -> bool:
        """Queue a payload, given in pieces.

        Returns:
            False when there is no room; then nothing was queued. The stream must break, but for
            a payload that it `could_take` never.
        """
        size = sum(map(len, payload))
        if self.size_bytes + size > self._bytes_max or size > PAYLOAD_BYTES_MAX:
            return False
        if size > BATCH_BYTES and len(payload) > 1:  # it will be cut
            payload = (b"".join(payload),)
        self._waiting.append((payload_type, size, payload))
        self.size_bytes += size
        return True

    def could_take(self, size: int) -> bool:
        """True if a payload of so many bytes has room when nothing waits."""
        return size <= min(self._bytes_max, PAYLOAD_BYTES_MAX)

    def clear(self) -> int:
        """Forget everything that waits. Returns how many payloads were dropped."""
        dropped = len(self._waiting)
        self._waiting.clear()
        self._offset = 0
        self.size_bytes = 0
        return dropped

    def take(self) -> OutgoingBatch:
        """The next batch; empty when nothing waits."""
        types: list[int] = []
        payloads: list[tuple[bytes, ...]] = []
        room = BATCH_BYTES
        waiting = self._waiting
        while waiting and len(types) < BATCH_PAYLOADS:
            payload_type, size, payload = waiting[0]
            rest = size - self._offset
            if rest > room:
                if types:
                    break
                start = self._offset
                self._offset += BATCH_BYTES
                self.size_bytes -= BATCH_BYTES
                part = payload[0][start : self._offset]
                return OutgoingBatch([payload_type], [(part,)], has_more=True)
            types.append(payload_type)
            payloads.append((payload[0][self._offset :],) if self._offset else payload)
            waiting.popleft()
            room -= rest
            self.size_bytes -= rest
            self._offset = 0
        return OutgoingBatch(types, payloads, has_more=False)


class Reassembly:
    """Puts payloads that came in parts together again."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size_bytes = 0

    def feed(self, batch: PayloadBatch) -> list[tuple[int, bytes | memoryview]] | None:
        """Take a batch; return the payloads that are whole now, in order.

        Returns:
            None when the peer broke the rules (payload too long, more parts of nothing): the
            stream must be broken.
        """
        types, payloads, has_more = batch
        if len(types) != len(payloads) or (has_more and not types):
            return None
        whole = list(zip(types, payloads, strict=True))
        if self._parts:
            if not whole:
                return None
            self._parts.append(bytes(whole[0][1]))
            self._size_bytes += len(whole[0][1])
            if self._size_bytes > PAYLOAD_BYTES_MAX:
                return None
            if has_more and len(whole) == 1:
                return []
            whole[0] = (whole[0][0], b"".join(self._parts))
            self._parts = []
        if has_more:
            self._parts = [bytes(whole.pop()[1])]
            self._size_bytes = len(self._parts[0])
        return whole
