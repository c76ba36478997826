"""The checkers of GM1 to GM8, run after every event against what really happened.

The checkers know more than any member: every broadcast with the view it was made in, everything
delivered and synced anywhere, and the head of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from gm.core.effects import RingDelivery
from gm.core.view import MemberId, View
from tests.sim.checkers import LivenessViolation, SafetyViolation
from tests.sim.gm.store import Command, Erase, State

__all__ = ["Broadcast", "Checker", "Journal", "LivenessViolation", "SafetyViolation"]


class Broadcast:
    """One broadcast, as its publisher made it."""

    __slots__ = ("is_returned", "number", "owed", "payload", "version")

    def __init__(self, number: int, payload: bytes, view: View, me: MemberId) -> None:
        self.number = number
        self.payload = payload
        self.version = view.version
        self.owed = [member for member in view.alive() if member != me]
        self.is_returned = False


class Journal:
    """What one member got, in a form that is quick to ask."""

    __slots__ = ("born", "dead", "durable", "last", "me", "seen")

    def __init__(self, me: MemberId) -> None:
        self.me = me
        self.seen: dict[MemberId, list[int]] = {}  # delivered numbers by publisher
        self.last: dict[MemberId, int] = {}  # index of the last one among the publisher's
        self.durable: set[tuple[MemberId, int]] = set()
        self.born: set[MemberId] = set()
        self.dead: set[MemberId] = set()

    def synced(self, batch: list[RingDelivery]) -> None:
        self.durable.update((d.publisher, d.number) for d in batch)


class Checker:
    """All invariants of one ring."""

    def __init__(self, head: Callable[[], State], is_there: Callable[[MemberId], bool]) -> None:
        self._head = head
        self._is_there = is_there  # whether the process of a member's boot runs
        self.journals: dict[MemberId, Journal] = {}  # of members whose process is there
        self.broadcasts: dict[MemberId, list[Broadcast]] = {}
        self.indexes: dict[tuple[MemberId, int], int] = {}
        self.deliveries = 0
        self.returns = 0
        self.violation: SafetyViolation | None = None

    def fail(self, rule: str, text: str) -> NoReturn:
        """Note the first violation, since the host takes what its owners raise for a bug there."""
        found = SafetyViolation(f"{rule}: {text}")
        self.violation = self.violation or found
        raise found

    # -- members ------------------------------------------------------------------------------

    def joined(self, me: MemberId) -> Journal:
        if me in self.journals:
            self.fail("P1", f"{me} is there twice")
        journal = self.journals[me] = Journal(me)
        return journal

    def ended(self, me: MemberId) -> None:
        self.journals.pop(me, None)

    def stopped(self, journal: Journal, why: str) -> None:
        """GM5: a member stops when it is not in the view, and for no other reason."""
        if self.violation is None and self._head().view.contains_alive(journal.me):
            self.fail("GM5", f"{journal.me} stopped though it is in the ring: {why}")
        if self.violation is None and "bug" in why:
            self.fail("bug", why)

    def births(self, journal: Journal, members: list[MemberId]) -> None:
        for member in members:
            if member in journal.born:
                self.fail("births", f"{journal.me} was told twice of {member}")
            journal.born.add(member)

    def deaths(self, journal: Journal, members: list[MemberId]) -> None:
        """GM6: a death is told after everything the dead one had in flight."""
        for dead in members:
            if dead in journal.dead:
                self.fail("GM6", f"{journal.me} was told twice of the death of {dead}")
            journal.dead.add(dead)
            self._complete_at(journal, dead, "GM6 a death is told")

    def _complete_at(self, journal: Journal, dead: MemberId, when: str) -> None:
        for number in self._delivered_by_living(dead):
            broadcast = self._of(dead, number)
            if journal.me in broadcast.owed and number not in journal.seen.get(dead, ()):
                text = f"{journal.me} lacks {number} of {dead}, which another living member has"
                self.fail(f"{when} before its last message", text)

    def _delivered_by_living(self, publisher: MemberId) -> list[int]:
        alive = self._head().view.alive()
        journals = [self.journals[m] for m in alive if m in self.journals]
        return sorted({n for journal in journals for n in journal.seen.get(publisher, ())})

    def _of(self, publisher: MemberId, number: int) -> Broadcast:
        return self.broadcasts[publisher][self.indexes[publisher, number]]

    # -- broadcasts ---------------------------------------------------------------------------

    def broadcast(self, me: MemberId, number: int, payload: bytes, view: View) -> None:
        made = self.broadcasts.setdefault(me, [])
        if made and number <= made[-1].number:
            self.fail("GM1", f"{me} gave {number} after {made[-1].number}")
        self.indexes[me, number] = len(made)
        made.append(Broadcast(number, payload, view, me))

    def delivered(self, journal: Journal, batch: list[RingDelivery], version: int) -> None:
        ticket = 0
        for delivery in batch:
            self.deliveries += 1
            self._delivered(journal, delivery, version)
            if delivery.ticket < ticket:
                self.fail("tickets", f"{journal.me} got {delivery.ticket} after {ticket}")
            ticket = delivery.ticket

    def _delivered(self, journal: Journal, delivery: RingDelivery, version: int) -> None:
        """GM1 and GM3: in order, without gap, what was broadcast, in a view that knows of it."""
        me, publisher, number = journal.me, delivery.publisher, delivery.number
        index = self.indexes.get((publisher, number), -1)
        if index < 0 or publisher == me:
            self.fail("GM1", f"{me} got {number} of {publisher}, which it never broadcast to it")
        made = self.broadcasts[publisher]
        if made[index].payload != delivery.payload:
            self.fail("GM1", f"{me} got another {number} of {publisher}")
        if publisher in journal.dead:
            self.fail("GM6", f"{me} got {number} of {publisher} after it was told of its death")
        last = journal.last.get(publisher)
        if last is None:
            skipped = next((b for b in made[:index] if me in b.owed), None)
            if skipped is not None:
                self.fail(
                    "GM1", f"{me} got {number} of {publisher}, not {skipped.number} before it"
                )
        elif index != last + 1:
            self.fail("GM1", f"{me} got {number} of {publisher} after {made[last].number}")
        if version < made[index].version:
            text = f"{me} got {number} of {publisher} in view {version}"
            self.fail("GM3", f"{text}, broadcast in {made[index].version}")
        journal.last[publisher] = index
        journal.seen.setdefault(publisher, []).append(number)

    def returned(self, journal: Journal, numbers: list[int]) -> None:
        """P19: all members of the broadcast's view have it and synced it, less those removed."""
        alive = self._head().view.alive()
        for number in numbers:
            self.returns += 1
            broadcast = self._of(journal.me, number)
            if broadcast.is_returned:
                self.fail("P19", f"{number} came round to {journal.me} twice")
            broadcast.is_returned = True
            for member in broadcast.owed:
                if member not in alive:
                    continue
                if not self._is_there(member):
                    continue  # its process ended, and its removal is on its way
                there = self.journals.get(member)
                if there is None or (journal.me, number) not in there.durable:
                    self.fail(
                        "P19", f"{number} came round to {journal.me}, {member} has not synced it"
                    )

    # -- the log ------------------------------------------------------------------------------

    def erase_asked(self, member: MemberId) -> None:
        if self._head().view.contains_alive(member):
            self.fail("GM4", f"{member} lives and is to be erased")

    def committed(self, command: Command, state: State) -> None:
        """GM4: each dead member has exactly one heir; an erased one is complete everywhere."""
        view = state.view
        alive = view.alive()
        if alive:
            heirs = [dead for member in alive for dead in view.aliases(member)]
            dead = [slot.member for slot in view.ring if not slot.alive]
            if sorted(heirs) != sorted(dead):
                self.fail("GM4", f"the heirs of {dead} have {heirs}")
            if len({member.node for member in alive}) != len(alive):
                self.fail("GM4", f"a node is in the ring twice: {alive}")
        if isinstance(command, Erase):
            for member in alive:
                if self._is_there(member):
                    journal = self.journals.get(member) or Journal(member)
                    self._complete_at(journal, command.member, "GM2 it is erased")

    # -- at the end ---------------------------------------------------------------------------

    def complete(self) -> None:
        """GM2: what one member that stayed has got, every one that was owed it has got."""
        alive = self._head().view.alive()
        for publisher, made in self.broadcasts.items():
            known = set(self._delivered_by_living(publisher))
            for broadcast in made:
                if publisher in alive and not broadcast.is_returned:
                    self.fail(
                        "GM2", f"{broadcast.number} never came back to {publisher}, which lives"
                    )
                if broadcast.number not in known and publisher not in alive:
                    continue
                for member in broadcast.owed:
                    journal = self.journals.get(member)
                    if member not in alive or journal is None:
                        continue
                    if broadcast.number not in journal.seen.get(publisher, ()):
                        self.fail("GM2", f"{member} never got {broadcast.number} of {publisher}")
