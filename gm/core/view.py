"""A view: the members of a ring in order, as group 0 agrees on them.

The order of the list is the order of the ring: each member sends to the next living one. Dead
members stay in the list, so that every member sees who inherits them, until what they had in flight
is complete.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class MemberId(NamedTuple):
    """The identity of one membership of a node in a ring; never used twice (P1).

    Attributes:
        node: The node's name.
        boot: Its boot id: another start is another member.
        version: Version of the view that added it: leaving and joining again is another member.
    """

    node: str
    boot: str
    version: int


class Slot(NamedTuple):
    """A place in the ring."""

    member: MemberId
    alive: bool


class View(msgspec.Struct, frozen=True):
    """One version of a ring.

    Attributes:
        version: Grows by one or more with every change; orders all views of a ring.
        ring: Living and dead members in ring order. At most one living slot for each node.
    """

    version: int
    ring: tuple[Slot, ...]

    def alive(self) -> tuple[MemberId, ...]:
        """Return the living members, in ring order."""
        return tuple(slot.member for slot in self.ring if slot.alive)

    def known(self) -> tuple[MemberId, ...]:
        """Return the living members, and the dead that are not erased yet, in ring order."""
        return tuple(slot.member for slot in self.ring)

    def contains_alive(self, member: MemberId) -> bool:
        """True if a member belongs to the ring and lives."""
        return Slot(member, alive=True) in self.ring

    def right(self, member: MemberId) -> MemberId:
        """Return the member to which a living one sends: the next one, or itself if alone.

        Raises:
            ValueError: If it is not a living member of this view.
        """
        alive = self.alive()
        return alive[(alive.index(member) + 1) % len(alive)]

    def left(self, member: MemberId) -> MemberId:
        """Return the member from which a living one receives: the one before, or itself.

        Raises:
            ValueError: If it is not a living member of this view.
        """
        alive = self.alive()
        return alive[alive.index(member) - 1]

    def aliases(self, member: MemberId) -> tuple[MemberId, ...]:
        """Return the dead members that a living one inherits: directly before it, nearest last.

        Every dead member is an alias of exactly one living one (GM4).

        Raises:
            ValueError: If it is not a living member of this view.
        """
        place = self.ring.index(Slot(member, alive=True))
        found: list[MemberId] = []
        for back in range(1, len(self.ring)):
            slot = self.ring[place - back]
            if slot.alive:
                break
            found.append(slot.member)
        return tuple(reversed(found))
