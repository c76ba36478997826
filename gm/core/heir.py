"""The heir: which dead neighbours a member completes, and its progress (GM4, GM6).

A member completes the broadcasts of the dead members directly before it. It sends a mark around
behind everything it has of them. Every member passes the mark on behind all that came before it,
and takes nothing from the dead any more, since the mark is of a view in which they are dead. So
when the mark is back, all that any member had of them has gone round before it: every member has
the same. Then their slots may be erased, and their deaths are told.

It would not be enough that everything the heir has of a dead member is acknowledged: an heir that
joined late got its state from before the dead member's place, and may have less than members behind
it.
"""

from __future__ import annotations

from gm.core.view import MemberId


class Heir:
    """The dead members that one member inherits.

    Attributes:
        dead: The dead members directly before it in the ring.
        complete: Those whose mark is back, in order of completion.
    """

    __slots__ = ("_marks", "complete", "dead")

    def __init__(self) -> None:
        self.dead: tuple[MemberId, ...] = ()
        self.complete: dict[MemberId, None] = {}
        self._marks: dict[MemberId, int] = {}  # own number of the mark sent for each

    def inherit(self, dead: tuple[MemberId, ...]) -> list[MemberId]:
        """Take the aliases of a new view; return those that are new here."""
        new = [member for member in dead if member not in self.dead]
        self.dead = dead
        self._marks = {member: mark for member, mark in self._marks.items() if member in dead}
        self.complete = {member: None for member in self.complete if member in dead}
        return new

    def unmarked(self) -> list[MemberId]:
        """Return the dead members for which no mark is in flight."""
        return [m for m in self.dead if m not in self._marks and m not in self.complete]

    def marked(self, members: list[MemberId], number: int) -> None:
        """Note that the mark with this number was sent for these members."""
        for member in members:
            self._marks[member] = number

    def learned(self, member: MemberId) -> bool:
        """Note a late broadcast of `member`; True if it is inherited: another mark follows."""
        if member not in self.dead:
            return False
        self._marks.pop(member, None)
        self.complete.pop(member, None)
        return True

    def came_round(self, number: int) -> list[MemberId]:
        """Note that own broadcasts up to `number` are back; return members newly complete."""
        done = [member for member, mark in self._marks.items() if mark <= number]
        for member in done:
            del self._marks[member]
            self.complete[member] = None
        return done

    @property
    def is_waiting(self) -> bool:
        """True while an inherited member is not complete."""
        return len(self.complete) < len(self.dead)
