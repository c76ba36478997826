"""Places in a queue: where someone who looks through it goes on. Nothing is taken or changed.

A place stays meaningful while messages come and go: it names the message that was seen last. If
that has left, what stood behind it is found by its number, which is where it stood in nearly every
queue. Messages that come back to a place already passed are not seen again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from broker.message import Delivery

_number: Callable[[Delivery], int] = attrgetter("number")


class Place(NamedTuple):
    """Where a message stands.

    Attributes:
        rank: As the queue's kind counts: the part of the queue, or the position.
        number: The message's number.
    """

    rank: int
    number: int


BEGINNING: Final = Place(-(1 << 62), 0)
"""Before the head of any queue."""

Placed = tuple[Place, Delivery]


def by_numbers(
    low: int,
    count: int,
    returned: Iterable[tuple[int, Delivery]],
    parts: Sequence[deque[Delivery]],
    delta: Iterator[Delivery] | None,
) -> list[Placed]:
    """Return the messages with the lowest numbers, of a queue that is handed out by number.

    Args:
        low: The lowest number that counts.
        count: At most so many.
        returned: Numbers and messages, in any order.
        parts: Each ascending.
        delta: Those on disk from `low` on, ascending.
    """
    found = [item for number, item in returned if number >= low]
    for part in parts:
        found += from_index(part, bisect_left(part, low, key=_number), count)
    if delta is not None:
        found += islice(delta, count)
    return [(Place(0, item.number), item) for item in nsmallest(count, found, key=_number)]


def in_order(along: Callable[[], Iterator[Delivery]], after: Place, count: int) -> list[Placed]:
    """Return the messages behind a place, of a queue that is gone through from its head."""
    at = 0
    if after != BEGINNING:
        found = index_of(along(), after.number)
        at = index_above(along(), after.number) if found is None else found + 1
    return [(Place(0, item.number), item) for item in islice(along(), at, at + count)]


def from_index(part: deque[Delivery], start: int, count: int) -> list[Delivery]:
    """Return up to `count` messages from an index on; a deque is walked from its nearer end."""
    left = len(part) - start
    if left <= 0:
        return []
    if start <= left:
        return list(islice(part, start, start + count))
    found = list(islice(reversed(part), max(0, left - count), left))
    found.reverse()
    return found


def index_of(items: Iterable[Delivery], number: int) -> int | None:
    """Return the index of a message; None where it is not among them."""
    return next((at for at, item in enumerate(items) if item.number == number), None)


def index_above(items: Iterable[Delivery], number: int) -> int:
    """Return the index of the first message with a higher number; their count without any."""
    at = -1
    for at, item in enumerate(items):
        if item.number > number:
            return at
    return at + 1
