"""Messages as real publishers send them: no two are alike. Pure.

Each has a content type, a W3C trace header, a correlation id, a message id and a timestamp of its
own; bodies may differ in size and routing keys in what they name. What messages share is rendered
once, so that distinct ones cost the generator little more than copies.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from broker.cli.perf import wire

VARIETY: Final = 16
"""How many sizes there are, evenly from half the size to twice the size."""

_FLAGS: Final = 0x8000 | 0x2000 | 0x1000 | 0x0400 | 0x0080 | 0x0040
"""content type, headers, delivery mode, correlation id, message id, timestamp"""

_TRACE_ID_CHARS: Final = 32
_SPAN_ID_CHARS: Final = 16
_CORRELATION_CHARS: Final = 8
_MESSAGE_ID_CHARS: Final = 32
_TRACE_CHARS: Final = len("00-") + _TRACE_ID_CHARS + len("-") + _SPAN_ID_CHARS + len("-01")
_SPAN_AT: Final = _TRACE_ID_CHARS
_CORRELATION_AT: Final = _SPAN_AT + _SPAN_ID_CHARS
_MESSAGE_ID_AT: Final = _CORRELATION_AT + _CORRELATION_CHARS
_DRAWN_CHARS: Final = _MESSAGE_ID_AT + _MESSAGE_ID_CHARS
_OWN_BYTES: Final = 1 + 1 + _CORRELATION_CHARS + 1 + _MESSAGE_ID_CHARS + wire.STAMP_BYTES
"""delivery mode, correlation id, message id and timestamp"""

_PER_SECOND: Final = 1_000  # messages with the same timestamp


class Distinct:
    """Messages of one publisher.

    Args:
        exchange: Where to publish.
        routing_key: With which key; %d stands for a number below `keys`.
        size_bytes: Body size, at least 16 where it varies, else 8.
        frame_max: Negotiated frame size; a body must fit in one frame.
        rng: What ids, keys and sizes are drawn from.
        epoch_s: Timestamps begin here, seconds.
        keys: How many routing keys there are.
        persistent: delivery_mode 2.
        varies: Bodies are of half to twice the size.

    Raises:
        ValueError: A body is too small for a time stamp or too large for a frame.
    """

    def __init__(
        self, exchange: str, routing_key: str, size_bytes: int, frame_max: int, *,
        rng: random.Random, epoch_s: int, keys: int, persistent: bool, varies: bool,
    ) -> None:  # fmt: skip
        self._publishes = [
            _publish(exchange, routing_key.replace("%d", str(number)))
            for number in range(max(1, keys))
        ]
        half = size_bytes // 2
        span = size_bytes * 2 - half
        sizes = [half + span * step // (VARIETY - 1) for step in range(VARIETY)]
        if not varies:
            sizes = [size_bytes]
        if min(sizes) < wire.STAMP_BYTES or max(sizes) > frame_max - wire.FRAME_OVERHEAD:
            raise ValueError(f"distinct messages of {size_bytes} bytes")
        self._shapes = [_shape(size, persistent=persistent) for size in sizes]
        self._rng = rng
        self._epoch_s = epoch_s
        self._sent = 0

    def batch(self, now_ns: int, count: int) -> bytes:
        """The frames of some messages sent at `now_ns`."""
        rng = self._rng
        stamp = wire.STAMP.pack(now_ns)
        text = rng.randbytes(_DRAWN_CHARS // 2 * count).hex().encode()
        first = self._sent
        seconds = wire.STAMP.pack(self._epoch_s + first // _PER_SECOND)
        self._sent = first + count
        return b"".join(
            [
                shape
                % (
                    publish,
                    text[at : at + _SPAN_AT],
                    text[at + _SPAN_AT : at + _CORRELATION_AT],
                    text[at + _CORRELATION_AT : at + _MESSAGE_ID_AT],
                    text[at + _MESSAGE_ID_AT : at + _DRAWN_CHARS],
                    seconds,
                    stamp,
                )
                for at, shape, publish in zip(
                    range(0, _DRAWN_CHARS * count, _DRAWN_CHARS),
                    rng.choices(self._shapes, k=count),
                    rng.choices(self._publishes, k=count),
                    strict=True,
                )
            ]
        )


def _publish(exchange: str, routing_key: str) -> bytes:
    names = wire.short(exchange) + wire.short(routing_key)
    return wire.method(1, 60, 40, b"\0\0" + names + b"\0")


def _shape(size_bytes: int, *, persistent: bool) -> bytes:
    """A message whose body has so many bytes; %b is where messages differ.

    In order: publish method, trace id, span id, correlation id, message id, timestamp, and the time
    stamp that latencies are taken from.
    """
    table = wire.short("traceparent") + b"S" + struct.pack(">I", _TRACE_CHARS)
    shared = (
        struct.pack(">HHQH", 60, 0, size_bytes, _FLAGS)
        + wire.short("application/json")
        + struct.pack(">I", len(table) + _TRACE_CHARS)
        + table
    )
    header = struct.pack(">BHI", wire.HEADER, 1, len(shared) + _TRACE_CHARS + _OWN_BYTES) + shared
    mode = b"\x02" if persistent else b"\x01"
    body = wire.FRAME_END + struct.pack(">BHI", wire.BODY, 1, size_bytes)
    filling = b"x" * (size_bytes - wire.STAMP_BYTES) + wire.FRAME_END
    behind = (
        header + b"00-",
        b"-",
        b"-01" + mode + bytes([_CORRELATION_CHARS]),
        bytes([_MESSAGE_ID_CHARS]),
        b"",
        body,
        filling,
    )
    return b"".join(b"%b" + part.replace(b"%", b"%%") for part in behind)
