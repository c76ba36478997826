"""What queues can be sorted by without being asked: columns of the last sample. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.counters import MESSAGE_KEYS
from broker.ports import QueueStat

_PREFIX: Final = "message_stats."
_DETAILS: Final = "_details.rate"

OF_STAT: Final[Mapping[str, Callable[[QueueStat], int]]] = {
    "consumers": lambda stat: stat.consumers,
    "message_bytes": lambda stat: stat.ready_bytes + stat.unacked_bytes,
    "message_bytes_ready": lambda stat: stat.ready_bytes,
    "message_bytes_unacknowledged": lambda stat: stat.unacked_bytes,
    "messages": lambda stat: stat.ready + stat.unacked,
    "messages_ready": lambda stat: stat.ready,
    "messages_unacknowledged": lambda stat: stat.unacked,
}

_OF_QUEUE: Final = frozenset(MESSAGE_KEYS) - {"confirm", "return_unroutable", "drop_unroutable"}

OF_COUNTS: Final[Mapping[str, tuple[int, ...]]] = {
    **{key: (MESSAGE_KEYS.index(key),) for key in _OF_QUEUE},
    "deliver_get": tuple(
        [MESSAGE_KEYS.index(key) for key in ("deliver", "deliver_no_ack", "get", "get_no_ack")]
    ),
}
"""The numbers that a key of a queue's `message_stats` is the sum of."""

RANKED: Final = frozenset(
    [
        *OF_STAT,
        *[_PREFIX + key for key in OF_COUNTS],
        *[_PREFIX + key + _DETAILS for key in OF_COUNTS],
    ]
)


def is_rate(column: str) -> bool:
    """True if a column is a rate; it must be one of `message_stats`."""
    return column.endswith(_DETAILS)


def counted(column: str) -> tuple[int, ...]:
    """Return which numbers a column of `message_stats` is the sum of; none of other columns."""
    return OF_COUNTS.get(column.removeprefix(_PREFIX).removesuffix(_DETAILS), ())
