"""A view: the members of a ring in order, as group 0 agrees on them.

The list's order is the ring's order: each member sends to the next living one. The dead stay in
the list, so that everyone sees who inherits them, until what they had in flight is complete.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class MemberId(NamedTuple):
    """One life of a node in one ring; never used twice (P1).

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
        ring: Living and dead in ring order. At most one living slot a node.
    """

    version: int
    ring: tuple[Slot, ...]

    def alive(self) -> tuple[MemberId, ...]:
        """The living, in ring order."""
        return tuple(slot.member for slot in self.ring if slot.alive)

    def known(self) -> tuple[MemberId, ...]:
        """The living and the dead that are not erased yet, in ring order."""
        return tuple(slot.member for slot in self.ring)

    def contains_alive(self, member: MemberId) -> bool:
        """True if a member belongs to the ring and lives."""
        return Slot(member, alive=True) in self.ring

    def right(self, member: MemberId) -> MemberId:
        """To whom a living member sends: the next living one, itself when it is alone.

        Raises:
            ValueError: If it is not a living member of this view.
        """
        alive = self.alive()
        return alive[(alive.index(member) + 1) % len(alive)]

    def left(self, member: MemberId) -> MemberId:
        """From whom a living member receives: the one before it, itself when it is alone.

        Raises:
            ValueError: If it is not a living member of this view.
        """
        alive = self.alive()
        return alive[alive.index(member) - 1]

    def aliases(self, member: MemberId) -> tuple[MemberId, ...]:
        """The dead a living member inherits: those directly before it, nearest last.

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
