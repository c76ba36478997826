"""What an event says of its message, a message's card, and which cards which claim suspects.

An event's marks are bits. A card counts the marks of a message, five bits for each count, in one
number: a sum makes it. A message of more than 31 events might overflow, and is suspected of
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Final, NamedTuple

import pyarrow as pa

ABOUT_MESSAGES: Final = (
    "publish", "confirm", "nack", "unknown", "return", "deliver", "get", "ack", "requeue",
)  # fmt: skip
"""Operations of which a history has as many as messages; all others are kept."""
HAVE_OP_ID: Final = ("publish", "confirm", "nack", "unknown", "return")
GIVEN_UP_CODES: Final = ("unanswered", "timeout")
NO_MESSAGE: Final = -1
"""Instead of marks: not about a message."""


class Mark(IntFlag):
    """What an event says of its message."""

    SENT = 1
    CONFIRM = 2
    NACK = 4
    REFUSAL = 8
    GIVEN_UP = 16
    DELIVERY = 32
    FRESH = 64
    ACK = 128
    MISNAMED = 256
    STRAY = 512
    ODD = 1024
    PUSHED = 2048


class Card(NamedTuple):
    """A message, summed up.

    Attributes:
        sent: Publishes that were handed to connections.
        confirms: Confirms.
        answers: Confirms and nacks.
        refusals: Returns, and publishes that failed.
        given_up: Publishes that waited in vain.
        deliveries: Deliveries and gets.
        fresh: Those without the redelivered flag.
        acks: Acks.
        misnamed: Publishes and deliveries of another publisher or number than `msg_id` says.
        strays: Events whose `op_id` does not fit to `msg_id`, and those that name this message
            by their `op_id` alone.
        odd: Events whose message has no key.
        late: Publishes since everybody had to be served.
        is_late_delivery: A delivery is later than the first ack.
        is_changed: Not all publishes and deliveries have the same body.
    """

    sent: int = 0
    confirms: int = 0
    answers: int = 0
    refusals: int = 0
    given_up: int = 0
    deliveries: int = 0
    fresh: int = 0
    acks: int = 0
    misnamed: int = 0
    strays: int = 0
    odd: int = 0
    late: int = 0
    is_late_delivery: bool = False
    is_changed: bool = False


SUSPICIONS: Final[Mapping[str, Callable[[Card], bool]]] = {
    # Only what was confirmed and has no ack at all can be lost.
    "lost": lambda card: card.confirms > 0 and card.acks == 0,
    # A message that was published is no phantom.
    "phantom": lambda card: card.deliveries > 0 and card.sent == 0,
    # All publishes and deliveries have the same body.
    "corrupt": lambda card: card.is_changed,
    # Nothing of it was returned, or failed to be sent.
    "refused": lambda card: card.refusals > 0,
    # No delivery is later than the first ack, sure or not.
    "duplicated": lambda card: card.is_late_delivery,
    # At most one delivery lacks the flag.
    "flag": lambda card: card.fresh > 1,
    # There is no second delivery.
    "held-twice": lambda card: card.deliveries > 1,
    # One answer at most, and it is the publish's: no stray, and something was sent.
    "confirm-once": lambda card: card.answers > 1 or (card.answers > 0 and card.sent == 0),
    # It was answered, or its connection broke: nobody gave it up.
    "unanswered": lambda card: card.given_up > 0,
}
"""Claim -> when the card of a message can raise a finding of it."""
ORDER: Final = "order"
"""The claim that is about neighbours, `lines`."""

COUNT_BITS: Final = 5
COUNT_MAX: Final = (1 << COUNT_BITS) - 1
_COUNTED: Final = {
    "sent": Mark.SENT,
    "confirms": Mark.CONFIRM,
    "answers": Mark.CONFIRM | Mark.NACK,
    "refusals": Mark.REFUSAL,
    "given_up": Mark.GIVEN_UP,
    "deliveries": Mark.DELIVERY,
    "fresh": Mark.FRESH,
    "acks": Mark.ACK,
    "misnamed": Mark.MISNAMED,
    "strays": Mark.STRAY,
    "odd": Mark.ODD,
}
LATE_ONE: Final = 1 << COUNT_BITS * len(_COUNTED)
"""What a late publish adds to its card."""


def marks_of(op: str, type_: str, *, is_given_up: bool) -> int:
    """The marks of an event, as far as these columns tell; `NO_MESSAGE` if it is about none.

    Args:
        op: Its operation.
        type_: Its type.
        is_given_up: Whether its code is one of `GIVEN_UP_CODES`.
    """
    if op not in ABOUT_MESSAGES:
        return NO_MESSAGE
    is_ok = type_ == "ok"
    told = {
        Mark.SENT: op == "publish" and type_ == "invoke",
        Mark.CONFIRM: op == "confirm",
        Mark.NACK: op == "nack",
        Mark.REFUSAL: op == "return" or (op == "publish" and type_ == "fail"),
        Mark.GIVEN_UP: op == "unknown" and is_given_up,
        Mark.DELIVERY: op in ("deliver", "get") and is_ok,
        Mark.PUSHED: op == "deliver" and is_ok,
        Mark.ACK: op == "ack",
    }
    return int(sum(mark for mark, holds in told.items() if holds))


def _spread(marks: int) -> int:
    return sum(
        1 << COUNT_BITS * place for place, mark in enumerate(_COUNTED.values()) if marks & mark
    )


SPREAD: Final = pa.array([_spread(marks) for marks in range(2 * max(Mark))], pa.int64())
"""What an event with these marks adds to its message's card."""


def card(counts: int, *, is_late_delivery: bool = False, is_changed: bool = False) -> Card:
    """A card.

    Args:
        counts: The sum of what its events add.
        is_late_delivery: As `Card` has it.
        is_changed: As `Card` has it.
    """
    numbers = [counts >> COUNT_BITS * place & COUNT_MAX for place in range(len(_COUNTED) + 1)]
    found = dict(zip((*_COUNTED, "late"), numbers, strict=True))
    return Card(**found, is_late_delivery=is_late_delivery, is_changed=is_changed)


def claims(found: Card, *, is_unsure: bool = False) -> int:
    """Bit n is the n-th claim of `SUSPICIONS`, if it suspects this card.

    Args:
        found: The card.
        is_unsure: It has more events than can be counted, or is in several queues.
    """
    if is_unsure or found.strays or found.misnamed or found.odd or found.sent > 1:
        # Its events are joined with others than those that are counted here, or all counts lie.
        return (1 << len(SUSPICIONS)) - 1
    return sum(1 << n for n, suspects in enumerate(SUSPICIONS.values()) if suspects(found))


def names_of(mask: int) -> frozenset[str]:
    """The claims of a mask."""
    return frozenset(name for n, name in enumerate(SUSPICIONS) if mask >> n & 1)
