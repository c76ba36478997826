"""Where a consumer of a stream begins: the value of x-stream-offset. Pure.

| value | begins at |
|---|---|
| absent, `next` | what is published from now on |
| `first` | the oldest message kept |
| `last` | the first message of the last chunk |
| an integer | that offset: the first one kept if it is gone; it waits for one yet to come |
| a timestamp | the chunk written then, or the first one after |
| an age (`10m`, `broker.streams.ages`) | as the timestamp so long ago |

Source: rabbit_stream_queue.erl parse_offset_arg/1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from broker.amqp.fields import Timestamp
from broker.streams.ages import age_ms

OFFSET_ARGUMENT: Final = "x-stream-offset"

TIME_MAX_MS: Final = (1 << 63) - 1
"""Later times, which clients can send, count as this one: nodes ask each other for it."""


class OffsetSpec(NamedTuple):
    """Where a consumer begins.

    Attributes:
        kind: How `value` is to be read.
        value: The offset of "offset"; for "timestamp" milliseconds since the epoch; else 0.
    """

    kind: Literal["first", "last", "next", "offset", "timestamp"]
    value: int = 0


FIRST: Final = OffsetSpec("first")
LAST: Final = OffsetSpec("last")
NEXT: Final = OffsetSpec("next")
_WORDS: Final = {"first": FIRST, "last": LAST, "next": NEXT}


def offset_spec(arguments: Mapping[str, object], now_ms: int) -> OffsetSpec | None:
    """Read the offset of a consume.

    Args:
        arguments: Of the consume.
        now_ms: Milliseconds since the epoch, from which ages count back.

    Returns:
        Where to begin; None if the value is none that says so.
    """
    value = arguments.get(OFFSET_ARGUMENT, "next")
    if isinstance(value, str):
        age = age_ms(value)
        if age is not None:
            return OffsetSpec("timestamp", max(0, now_ms - age))
        return _WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if isinstance(value, Timestamp):
        return OffsetSpec("timestamp", min(value * 1_000, TIME_MAX_MS))
    return OffsetSpec("offset", max(0, value))
