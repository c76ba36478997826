"""Fresh messages: never handed to a consumer. An orderly stop records which they are (P16).

In a queue that serves in the order of arrival they are the highest numbers, whatever came back;
with priorities, nearly so. So a few numbers tell it. What can't be told in so few counts as
delivered before: to say that of a message is safe, the reverse is not.
"""

from __future__ import annotations

from typing import Final

import msgspec

TAKEN_MAX: Final = 10_000
"""Numbers noted one by one; where more were handed out, what is below them counts as that too."""


class Fresh(msgspec.Struct, array_like=True, frozen=True):
    """Numbers of messages that were never handed out.

    Attributes:
        first: What is lower was handed out, or may have been.
        last: Likewise what is higher.
        taken: Those between that were, or may have been, ascending.
    """

    first: int
    last: int
    taken: list[int]


NOTHING_FRESH: Final = Fresh(1, 0, [])


def fresh_among(below: int, next_number: int, taken: list[int]) -> Fresh:
    """Return which messages of a queue were never handed out.

    Args:
        below: Everything with a lower number may have been.
        next_number: The queue's next number.
        taken: What was handed out, in any order; doubles do no harm.
    """
    numbers = sorted({number for number in taken if number >= below})
    if len(numbers) > TAKEN_MAX:
        below = numbers[-TAKEN_MAX - 1] + 1
        numbers = numbers[-TAKEN_MAX:]
    return Fresh(below, next_number - 1, numbers)
