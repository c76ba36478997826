"""Messages between neighbours. Frozen, no behaviour; as msgpack arrays also on the wire.

`Activity` and `Catchup` travel around the ring, from left to right; only `Need` goes to the left.
Each is sent with the view version of its sender, which orders it among the views (P21). Numbers of
a publisher start at 1 and have no gap.

An empty payload is a mark: it travels like any other but is not delivered. An heir sends one around
to learn that everything its dead neighbour had in flight has gone before it.

Fields are only ever appended, with defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from gm.core.view import MemberId

MARK: Final = b""

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A broadcast's number, or a count of steps; bytes with a negative one are no message."""


class Item(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Broadcasts and acks of one publisher.

    Attributes:
        publisher: The member that broadcast them.
        first: Number of the first of `pubs`; 0 without any.
        pubs: Payloads, numbered without gaps.
        acked: Everything up to this number has gone round the ring and is to be forgotten; 0 for no
            ack. Acks are in order, so one number stands for all of them.
        seen: Only to the publisher, instead of its own payloads: everything up to this number has
            come round; 0 for none.
    """

    publisher: MemberId
    first: Number
    pubs: Sequence[bytes]
    acked: Number = 0
    seen: Number = 0


class Activity(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Broadcasts and acks from the left neighbour.

    Attributes:
        step: Counts the activities and catch-ups its sender has sent to anyone on its right. A
            leap within one stream means that something was lost on the way.
        items: At most one for each publisher.
    """

    step: Number
    items: list[Item]


class PublisherState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A member's state for one publisher.

    Attributes:
        done: Everything up to this number has gone round and is forgotten; in a later part of a
            catch-up, it was in an earlier part.
        pubs: Payloads done+1, done+2 and so on, as far as it has forwarded them. To the publisher
            itself there are none, and `done` says how far they have come round.
    """

    done: Number
    pubs: Sequence[bytes]


class Catchup(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """All that the left neighbour has forwarded; begins every stream to the right (P21).

    It counts as a whole: a joiner that had half of it would wait for what all others forgot.

    Attributes:
        step: As in `Activity`; the next part or activity has the next one.
        states: By publisher; one that is missing has sent nothing.
        is_first: True for the only part, or the first of a catch-up too long for one message.
        is_last: True for the only or the last part.
    """

    step: Number
    states: dict[MemberId, PublisherState]
    is_first: bool = True
    is_last: bool = True


class Need(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """To the left neighbour: asks for a catch-up; everything before it is dropped."""


Message: TypeAlias = Activity | Catchup | Need
