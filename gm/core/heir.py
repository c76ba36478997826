"""The heir: which dead neighbours a member completes, and how far it is (GM4, GM6).

The dead directly before a member are its to complete. It sends a mark around behind everything it
has of them. Everyone passes the mark on behind all that came before it, and takes nothing from the
dead any more, since the mark is of a view in which they are dead. So when it is back, all that
any member had of them has gone round before it: everybody has it, and nobody has more. Then their
slots may be erased, and with that their deaths are told.

That all the heir has of a dead member was acknowledged would not do: an heir that joined late got
its state from before the dead one's place, and may have less than those behind it.
"""

from __future__ import annotations

from gm.core.view import MemberId


class Heir:
    """The dead one member inherits.

    Attributes:
        dead: Those directly before it in the ring.
        complete: Those of them whose mark is back, in order of completion.
    """

    __slots__ = ("_marks", "complete", "dead")

    def __init__(self) -> None:
        self.dead: tuple[MemberId, ...] = ()
        self.complete: dict[MemberId, None] = {}
        self._marks: dict[MemberId, int] = {}  # own number of the mark sent for each

    def inherit(self, dead: tuple[MemberId, ...]) -> list[MemberId]:
        """Take the aliases of a new view; those that are new here."""
        new = [member for member in dead if member not in self.dead]
        self.dead = dead
        self._marks = {member: mark for member, mark in self._marks.items() if member in dead}
        self.complete = {member: None for member in self.complete if member in dead}
        return new

    def unmarked(self) -> list[MemberId]:
        """For whom no mark is on its way."""
        return [m for m in self.dead if m not in self._marks and m not in self.complete]

    def marked(self, members: list[MemberId], number: int) -> None:
        """The mark with this number goes round for these."""
        for member in members:
            self._marks[member] = number

    def learned(self, member: MemberId) -> bool:
        """Something of `member` came only now; if it is ours, another mark must go behind it."""
        if member not in self.dead:
            return False
        self._marks.pop(member, None)
        self.complete.pop(member, None)
        return True

    def came_round(self, number: int) -> list[MemberId]:
        """Own broadcasts up to `number` are back: whose mark is, newly."""
        done = [member for member, mark in self._marks.items() if mark <= number]
        for member in done:
            del self._marks[member]
            self.complete[member] = None
        return done

    @property
    def is_waiting(self) -> bool:
        """True if somebody inherited is not complete."""
        return len(self.complete) < len(self.dead)
