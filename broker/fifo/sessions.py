"""Publisher sessions as the queue sees them: a numbered command is done at most once (P10, P11).

A session is named by (node, boot, queue, count). The table keeps, for each node boot, the newest
session only: its next number, the verdicts it is still owed, and the values it was answered, until
the session says (`lowest`) that it needs them no more.

Invariants: 1. commands of a session are applied in the order of their numbers, each once.
2. a duplicate is answered as the original was, and not before the original is.
3. a session never seen that has answers already is lost: what it did before is unknown here. One
   without any answer is asked to begin at 1.
4. sessions of an ended boot stay ended.

Bounds: one session a node boot; `REPLIES_MAX` values a session; `ENDED_MAX` ended boots. The owed
verdicts are bounded by what the publishing node holds (P12).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import (
    Cancel,
    Checkout,
    Enqueue,
    Get,
    Offer,
    Purge,
    SessionCommand,
    Skip,
    owner_of,
    width,
)
from broker.fifo.effects import Effects, OutOfSequence, Reply, pack_value, unpack_value

REPLIES_MAX: Final = 1_000
"""Values remembered for a session: as many commands as one offer may hold."""

ENDED_MAX: Final = 64
"""Ended boots remembered, to refuse their late offers; a node restarts far less often."""

VALUED: Final = frozenset({Checkout, Cancel, Get, Purge})
"""Commands that are answered by a `Reply` with a value; all others by a `Verdict`."""


class SessionRecord(msgspec.Struct, array_like=True):
    """A session in a snapshot."""

    owner: str
    count: int
    next_number: int
    lowest: int
    owed: list[tuple[int, int, int]]
    rejected: list[tuple[int, int]]
    replies: list[tuple[int, list[object]]]


class _Session:
    """State of one session: see the module."""

    __slots__ = ("count", "lowest", "name", "next_number", "owed", "rejected", "replies")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.next_number = 1
        self.lowest = 1
        self.owed: deque[tuple[int, int, int]] = (
            deque()
        )  # first, last, message number to be durable
        self.rejected: list[tuple[int, int]] = []
        self.replies: dict[int, object] = {}

    def give_up_below(self, lowest: int) -> tuple[int, int] | None:
        """Forget what nobody waits for; return the numbers that are now skipped, if any."""
        if lowest <= self.lowest:
            return None
        self.lowest = lowest
        while self.owed and self.owed[0][1] < lowest:
            self.owed.popleft()
        self.rejected = [span for span in self.rejected if span[1] >= lowest]
        if self.replies:
            self.replies = {n: value for n, value in self.replies.items() if n >= lowest}
        if lowest <= self.next_number:
            return None
        skipped = (self.next_number, lowest - 1)
        self.next_number = lowest
        return skipped


class SessionTable:
    """The publisher sessions of one queue."""

    __slots__ = ("_ended", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}  # by name without the count
        self._ended: dict[tuple[str, str], None] = {}  # oldest first

    def admit(
        self, offer: Offer, effects: Effects
    ) -> tuple[int, list[SessionCommand], tuple[int, int] | None] | None:
        """Decide what of an offer is to be applied, and answer the rest.

        Args:
            offer: As it came, perhaps for the second time.
            effects: Gets what is answered at once: duplicates, a lost session, a gap.

        Returns:
            The number of the first new command, the new commands, and the numbers the session
            skipped; None where nothing is to be applied.
        """
        session = self._find(offer, effects)
        if session is None:
            return None
        skipped = session.give_up_below(offer.lowest)
        if offer.first > session.next_number:
            effects.out_of_sequence.append(OutOfSequence(session.name, session.next_number))
            return None if skipped is None else (session.next_number, [], skipped)
        if offer.first == session.next_number:
            return offer.first, offer.commands, skipped
        return session.next_number, self._new_part(session, offer, effects), skipped

    def advance(self, name: str, next_number: int) -> None:
        """Note that everything below `next_number` has been applied."""
        self._named(name).next_number = next_number

    def owe(self, name: str, first: int, last: int, message_number: int) -> None:
        """Note a verdict that is due once message `message_number` is durable."""
        self._named(name).owed.append((first, last, message_number))

    def reject(self, name: str, first: int, last: int) -> None:
        """Note that these numbers were refused, for duplicates of them."""
        self._named(name).rejected.append((first, last))

    def reply(self, name: str, number: int, value: object) -> None:
        """Note the value a command was answered, for duplicates of it."""
        replies = self._named(name).replies
        replies[number] = value
        if len(replies) > REPLIES_MAX:
            del replies[next(iter(replies))]

    def mark_durable(self, upto_number: int, effects: Effects) -> None:
        """Give the owed verdicts of all messages up to a number, that one included."""
        for session in self._sessions.values():
            owed = session.owed
            while owed and owed[0][2] <= upto_number:
                first, last, _ = owed.popleft()
                effects.add_verdict(session.name, max(first, session.lowest), last, ok=True)

    def end_boot(self, node: str, boot: str) -> None:
        """Forget the sessions of a boot that ended, and refuse what still comes from it."""
        start = f"{node}/{boot}/"
        for owner in [owner for owner in self._sessions if owner.startswith(start)]:
            del self._sessions[owner]
        self._ended[node, boot] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def has_ended(self, name: str) -> bool:
        """Tell whether a holder or session belongs to a boot that ended."""
        return bool(self._ended) and owner_of(name) in self._ended

    def names(self) -> list[str]:
        """The names of all living sessions."""
        return [session.name for session in self._sessions.values()]

    def records(self) -> list[SessionRecord]:
        """Return all sessions (snapshots)."""
        return [
            SessionRecord(
                owner,
                s.count,
                s.next_number,
                s.lowest,
                list(s.owed),
                list(s.rejected),
                [(number, pack_value(value)) for number, value in s.replies.items()],
            )
            for owner, s in self._sessions.items()
        ]

    def ended(self) -> list[tuple[str, str]]:
        """Return the ended boots, oldest first (snapshots)."""
        return list(self._ended)

    def load(self, records: list[SessionRecord], ended: list[tuple[str, str]]) -> None:
        """Take over what `records` and `ended` of another table said."""
        self._sessions = {}
        for record in records:
            session = _Session(f"{record.owner}/{record.count}", record.count)
            session.next_number = record.next_number
            session.lowest = record.lowest
            session.owed = deque(record.owed)
            session.rejected = list(record.rejected)
            session.replies = {number: unpack_value(value) for number, value in record.replies}
            self._sessions[record.owner] = session
        self._ended = dict.fromkeys(ended)

    def _named(self, name: str) -> _Session:
        return self._sessions[name.rpartition("/")[0]]

    def _find(self, offer: Offer, effects: Effects) -> _Session | None:
        """Return the offer's session, a new one if it may begin here, or None."""
        owner, _, count_text = offer.session.rpartition("/")
        count = int(count_text)
        session = self._sessions.get(owner)
        if session is not None:
            if count == session.count:
                return session
            if count < session.count:
                return None  # late; its node has long gone on with a newer session
        if offer.lowest != 1 or self.has_ended(offer.session):
            effects.session_lost.append(offer.session)
            return None
        if offer.first != 1:  # nothing of it was ever answered: its beginning was lost on the way
            effects.out_of_sequence.append(OutOfSequence(offer.session, 1))
            return None
        session = self._sessions[owner] = _Session(offer.session, count)
        return session

    def _new_part(self, session: _Session, offer: Offer, effects: Effects) -> list[SessionCommand]:
        """Answer the duplicates at the front of an offer; return the commands after them."""
        number = offer.first
        for index, command in enumerate(offer.commands):
            done = session.next_number - number
            if done <= 0:
                return offer.commands[index:]
            count = width(command)
            if count > done:  # an Enqueue or Skip of which a part is done
                self._answer_again(session, command, number, session.next_number - 1, effects)
                return [_without(command, done), *offer.commands[index + 1 :]]
            self._answer_again(session, command, number, number + count - 1, effects)
            number += count
        return []

    def _answer_again(
        self, session: _Session, command: SessionCommand, first: int, last: int, effects: Effects
    ) -> None:
        first = max(first, session.lowest)
        if first > last:
            return
        if type(command) in VALUED:
            forgotten = Refusal(ReplyCode.INTERNAL_ERROR, "the answer is no longer known")
            value = session.replies.get(first, forgotten)
            effects.replies.append(Reply(session.name, first, value))
            return
        spans = [(low, high, False) for low, high, _ in session.owed]
        spans += [(low, high, True) for low, high in session.rejected]
        for low, high, is_rejected in sorted(spans):
            if high < first or low > last:
                continue
            if low > first:
                effects.add_verdict(session.name, first, low - 1, ok=True)
            if is_rejected:
                effects.add_verdict(session.name, max(first, low), min(last, high), ok=False)
            first = high + 1
        if first <= last:
            effects.add_verdict(session.name, first, last, ok=True)


def _without(command: SessionCommand, done: int) -> SessionCommand:
    """Return a command of several numbers without its first `done`."""
    if type(command) is Enqueue:
        return Enqueue(command.messages[done:], command.redelivered)
    assert type(command) is Skip
    return Skip(command.count - done)
