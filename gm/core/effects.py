"""A member's effects and counters: the contract between the core and its host.

The host does, for each `MemberEffects`, in this order:

1. Send `sends`, each to the node of its receiver, in order.
2. Hand the owner `births`, then `deliveries`, then `returned`, then `deaths`.
3. Ask the view store to erase each of `erase_due`, and again from time to time until a view
   without it comes.
4. If `stopped`, close the ring here.

When a delivery is durable at the owner, or need not be, the owner calls `synced(ticket)`, which
covers this ticket and all before it. Until then the delivery is not forwarded, so no member can
take it for confirmed (P15, P19).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gm.core.messages import Message
from gm.core.view import MemberId


class Send(NamedTuple):
    """One message to a neighbour."""

    to: MemberId
    view_version: int
    message: Message


class RingDelivery(NamedTuple):
    """One broadcast of another member.

    Attributes:
        publisher: Who broadcast it.
        number: Its number at the publisher: the one before plus one, or more after a mark.
        payload: What was broadcast.
        ticket: The number to acknowledge when it is durable here. Several deliveries may share it.
    """

    publisher: MemberId
    number: int
    payload: bytes
    ticket: int


class MemberEffects(msgspec.Struct):
    """The work of one turn; the module's docstring has its order.

    Attributes:
        sends: Messages to the neighbours.
        deliveries: Broadcasts of others, each publisher's in order. Own ones are never delivered.
        returned: Own numbers that every member of the view of their broadcast has, and has
            synced, less those removed since (P19); ascending.
        births: Members that are new since the view before, dead already or not. Told before
            anything they broadcast. Those of the first view are not told.
        deaths: Members that are gone for good. Told after the last thing they broadcast (GM6).
        erase_due: Dead members all of whose broadcasts are complete.
        stopped: True if this member was removed from the ring, which is no error.
    """

    sends: list[Send]
    deliveries: list[RingDelivery]
    returned: list[int]
    births: list[MemberId]
    deaths: list[MemberId]
    erase_due: list[MemberId]
    stopped: bool = False


def no_effects() -> MemberEffects:
    """Return effects without any work."""
    return MemberEffects([], [], [], [], [], [])


class Counters(msgspec.Struct):
    """Counts of what happened at one member since it was made.

    Attributes:
        stale: Dropped: from a member that is not the left neighbour now.
        foreign: Dropped: from a member that is not in the view, or for another member.
        future_overflow: Dropped: of a later view, and too much was held already.
        before_catchup: Dropped: an activity where a catch-up must come first.
        duplicate: Dropped: broadcasts that were here already.
        gaps: Leaps in the numbers of the left neighbour or of a publisher.
        held_newer: Held until the view they were sent in was known here.
        older_processed: Sent in an earlier view by the left neighbour, and taken.
        catchups_sent: Catch-ups to the right.
        catchups_taken: Catch-ups from the left.
        needs_sent: Catch-ups asked for.
        needs_answered: Catch-ups sent because they were asked for.
        learned: Broadcasts that came only by a catch-up: sent again after a loss.
        adopted: 1 once a joining member has taken over its neighbour's state.
        replayed: Broadcasts delivered out of that state.
        takeovers: Dead members inherited.
        takeovers_in_flight: Those of them with broadcasts that were not complete here.
        marks: Marks sent round.
        late_for_heir: Broadcasts of a dead member that its heir learned after inheriting it.
        erasures: Erasures asked for.
    """

    stale: int = 0
    foreign: int = 0
    future_overflow: int = 0
    before_catchup: int = 0
    duplicate: int = 0
    gaps: int = 0
    held_newer: int = 0
    older_processed: int = 0
    catchups_sent: int = 0
    catchups_taken: int = 0
    needs_sent: int = 0
    needs_answered: int = 0
    learned: int = 0
    adopted: int = 0
    replayed: int = 0
    takeovers: int = 0
    takeovers_in_flight: int = 0
    marks: int = 0
    late_for_heir: int = 0
    erasures: int = 0
