"""Publisher sessions in the queue: a numbered command is executed at most once (P10, P11).

A session is named by (node, boot, queue, count). The table keeps, for each node boot, the newest
session only: its next number, its pending verdicts, and the values of its replies, until the
session says (`lowest`) that it does not need them any more.

Invariants: 1. commands of a session are applied in the order of their numbers, each once.
2. a duplicate gets the answer of the original, and not before the original does.
3. an unknown session is lost if it has had answers, or publishes that were sent to an earlier
   machine: their outcome is unknown here. Any other is asked to begin at 1.
4. sessions of an ended boot stay ended.

In a mirrored queue a mirror keeps the same table by replay (`replay_*`), and serves from it once
it is promoted (`take_over`). Commands below a session's `floor` were done by an earlier master. Of
their duplicates, an enqueue is confirmed only if `evidence` has it, and refused otherwise; settles
are refused, as nothing is checked out any more (P18); everything else is done again, as its effect
ended with that master.

Bounds: one session a node boot; `REPLIES_MAX` values a session; `ENDED_MAX` ended boots. The owed
verdicts are bounded by what the publishing node holds (P12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Final

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    Enqueue,
    Get,
    Purge,
    Requeue,
    SessionCommand,
    Settle,
    Skip,
    owner_of,
    width,
)
from broker.fifo.effects import Effects, OutOfSequence, Reply, pack_value, unpack_value
from broker.message import Delivery
from broker.ports import GetResult

REPLIES_MAX: Final = 1_000
"""Reply values remembered for a session: one for each command that a batch may hold."""

ENDED_MAX: Final = 64
"""Ended boots remembered, to refuse their late batches; a node restarts far less often."""

VALUED: Final = frozenset({Checkout, Cancel, Get, Purge, Drop})
"""Commands that are answered by a `Reply` with a value; all others by a `Verdict`."""

_ABOUT_HELD: Final = frozenset({Settle, Requeue, Discard})

Numbered = tuple[int, SessionCommand]

Admitted = tuple[int, list[SessionCommand], tuple[int, int] | None, list[Numbered]]
"""The part of a batch to apply: the number of the first new command, the new commands, the
numbers the session skipped, and the old commands to be done again first."""


Span = tuple[int, int, int]
"""First and last number of a session, and the message number of the first."""


class ReplayEvidence:
    """The message that each number of a session brought, by which duplicates are answered (P11).

    A promoted member gets the commands again that its predecessor had not answered. It may confirm
    only a message that it holds, or that it saw enqueued and settled. So the ledger's enqueues are
    noted here, as spans: numbers `first` to `last` of the session are messages `number` and the
    following. The table knows which messages this member never had (`absent`).

    Bound: what lies below the session's lowest unanswered number is forgotten, so spans cover no
    more than what the publishing node holds (P12).

    Args:
        spans: The `spans` of another instance.
    """

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: deque[Span] = deque(spans)

    def add(self, first: int, last: int, number: int) -> None:
        """Note an enqueue; its numbers are above all noted before."""
        spans = self._spans
        if spans:
            low, high, start = spans[-1]
            if high + 1 == first and start + first - low == number:
                spans[-1] = (low, last, start)
                return
        spans.append((first, last, number))

    def forget_below(self, lowest: int) -> None:
        """Forget numbers below the lowest unanswered one."""
        spans = self._spans
        while spans and spans[0][0] < lowest:
            low, high, start = spans.popleft()
            if high >= lowest:
                spans.appendleft((lowest, high, start + lowest - low))
                return

    def spans(self) -> list[Span]:
        """All noted spans, ascending."""
        return list(self._spans)

    def messages(self) -> Iterator[range]:
        """The message numbers noted, as ranges."""
        for low, high, start in self._spans:
            yield range(start, start + high - low + 1)

    def judge(
        self, first: int, last: int, absent: Container[int]
    ) -> Iterator[tuple[int, int, bool]]:
        """Decide for numbers `first` to `last` whether their enqueue is known here.

        Args:
            first: First number asked for.
            last: Last number asked for.
            absent: Message numbers that count as never seen.

        Yields:
            (first, last, is_known), together all that was asked for, in order.
        """
        for low, high, start in self._spans:
            if high < first or low > last:
                continue
            if low > first:
                yield first, low - 1, False
                first = low
            end = min(high, last)
            for number in range(first, end + 1):
                yield number, number, (start + number - low) not in absent
            first = end + 1
        if first <= last:
            yield first, last, False


class SessionRecord(msgspec.Struct, array_like=True):
    """A session in a snapshot or a join state."""

    owner: str
    count: int
    next_number: int
    lowest: int
    owed: list[tuple[int, int, int]]
    rejected: list[tuple[int, int]]
    replies: list[tuple[int, list[object]]]
    spans: list[Span] = []
    floor: int = 0


class _Session:
    """One publisher session."""

    __slots__ = (
        "count",
        "evidence",
        "floor",
        "lowest",
        "name",
        "next_number",
        "owed",
        "redone",
        "rejected",
        "replies",
    )

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.next_number = 1
        self.lowest = 1
        self.owed: deque[tuple[int, int, int]] = deque()  # first, last, ledger position to wait for
        self.rejected: list[tuple[int, int]] = []
        self.replies: dict[int, object] = {}
        self.evidence = ReplayEvidence()
        self.floor = 0
        self.redone: set[int] = set()  # numbers below the floor that were done again

    def give_up_below(self, lowest: int) -> tuple[int, int] | None:
        """Forget answered numbers; return the range that is now skipped, or None."""
        if lowest <= self.lowest:
            return None
        self.lowest = lowest
        while self.owed and self.owed[0][1] < lowest:
            self.owed.popleft()
        self.rejected = [span for span in self.rejected if span[1] >= lowest]
        if self.replies:
            self.replies = {n: value for n, value in self.replies.items() if n >= lowest}
        if self.redone:
            self.redone = {n for n in self.redone if n >= lowest}
        self.evidence.forget_below(lowest)
        if lowest <= self.next_number:
            return None
        skipped = (self.next_number, lowest - 1)
        self.next_number = lowest
        return skipped


class SessionTable:
    """The publisher sessions of one queue.

    Attributes:
        is_whole: No session was ever forgotten here.
        safe_position: The ledger is safe up to here (`mark_durable`).
    """

    __slots__ = (
        "_absent",
        "_adopts_unknown",
        "_ended",
        "_sessions",
        "is_whole",
        "safe_position",
    )

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}  # by name without the count
        self._ended: dict[tuple[str, str], None] = {}  # oldest first
        self._absent: set[int] = set()  # messages in the evidence that this member never had
        self._adopts_unknown = False
        self.is_whole = True
        self.safe_position = 0

    def admit(self, batch: CommandBatch, effects: Effects) -> Admitted | None:
        """Decide which commands of a batch are new, and answer the duplicates.

        Args:
            batch: As received, perhaps again.
            effects: Gets the immediate answers: to duplicates, a lost session, a gap.

        Returns:
            None if nothing is to be applied.
        """
        session = self._find(batch, effects)
        if session is None:
            return None
        skipped = session.give_up_below(batch.lowest)
        if batch.first > session.next_number:
            effects.out_of_sequence.append(OutOfSequence(session.name, session.next_number))
            return None if skipped is None else (session.next_number, [], skipped, [])
        if batch.first == session.next_number:
            return batch.first, batch.commands, skipped, []
        again: list[Numbered] = []
        commands = self._new_part(session, batch, effects, again)
        return session.next_number, commands, skipped, again

    def advance(self, name: str, next_number: int) -> None:
        """Note that everything below `next_number` has been applied."""
        self._named(name).next_number = next_number

    def owe(self, name: str, first: int, last: int, position: int) -> None:
        """Note a verdict that is due once the ledger is safe up to a position."""
        self._named(name).owed.append((first, last, position))

    def withdraw(self, name: str, first: int) -> None:
        """Owe nothing any more from a number on: what was owed there is decided otherwise."""
        owed = self._named(name).owed
        while owed and owed[-1][0] >= first:
            owed.pop()

    def reject(self, name: str, first: int, last: int) -> None:
        """Note that these numbers were refused, for duplicates of them."""
        self._named(name).rejected.append((first, last))

    def reply(self, name: str, number: int, value: object) -> None:
        """Note a command's answer, for duplicates of it."""
        replies = self._named(name).replies
        replies[number] = value
        if len(replies) > REPLIES_MAX:
            del replies[next(iter(replies))]

    def got(self) -> list[int]:
        """Return the messages that basic.get was answered with, if answers are remembered."""
        return [item.number for item in self.answered()]

    def answered(self) -> Iterator[Delivery]:
        """Yield what basic.get was answered with, as far as answers are remembered."""
        for session in self._sessions.values():
            for value in session.replies.values():
                if isinstance(value, GetResult) and value.delivery is not None:
                    yield value.delivery

    def mark_durable(self, position: int, effects: Effects) -> None:
        """Give the verdicts owed up to a position of the ledger, that one included."""
        self.safe_position = max(self.safe_position, position)
        for session in self._sessions.values():
            owed = session.owed
            while owed and owed[0][2] <= position:
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
        """True if a channel or session belongs to a boot that has ended."""
        return bool(self._ended) and owner_of(name) in self._ended

    def knows(self, name: str) -> bool:
        """True if this session is known, its count included."""
        session = self._sessions.get(name.rpartition("/")[0])
        return session is not None and session.name == name

    def note_enqueued(self, name: str, first: int, last: int, number: int) -> int:
        """Note which messages these numbers brought, as evidence; return the session's lowest."""
        session = self._named(name)
        session.evidence.add(first, last, number)
        return session.lowest

    # A mirror's table, by replay of the ledger.

    def replay_enqueued(self, name: str, first: int, count: int, lowest: int, number: int) -> None:
        """Note that a session brought `count` messages, `number` and the following.

        Args:
            name: The session.
            first: Its number of the first message.
            count: How many.
            lowest: Its lowest unanswered number then.
            number: Message number of the first.
        """
        session = self._replayed(name)
        if session is None:
            return
        session.give_up_below(lowest)
        last = first + count - 1
        if last >= session.next_number:
            session.next_number = last + 1
            session.evidence.add(first, last, number)

    def replay_passed(self, name: str, first: int, last: int, *, is_rejected: bool) -> None:
        """Note that a session's numbers were refused or skipped."""
        session = self._replayed(name)
        if session is None:
            return
        if is_rejected:
            session.rejected.append((first, last))
        session.next_number = max(session.next_number, last + 1)

    def replay_opened(self, name: str) -> None:
        """Note that a session began."""
        self._replayed(name)

    def mark_absent(self, numbers: Container[int]) -> None:
        """Note that these messages are not here, so that their evidence does not count."""
        absent = self._absent
        named = self.named_messages()
        self._absent = {n for each in named for n in each if n in numbers or n in absent}

    def mark_present(self, numbers: Iterable[int]) -> None:
        """Note that these messages have come."""
        if self._absent:
            self._absent.difference_update(numbers)

    def named_messages(self) -> list[range]:
        """The message numbers that evidence names, as ranges."""
        return [each for s in self._sessions.values() for each in s.evidence.messages()]

    def is_absent(self, number: int) -> bool:
        """True if this member never had a message that evidence names."""
        return number in self._absent

    def take_over(self) -> None:
        """Serve from now on; everything so far was done by another machine.

        An unknown session may now begin at its lowest unanswered number, if the table is whole:
        its answered commands have no lasting effect, and none of the others was done here.
        """
        self._adopts_unknown = self.is_whole
        for session in self._sessions.values():
            session.floor = session.next_number
            session.redone = set()

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
                s.evidence.spans(),
                s.floor,
            )
            for owner, s in self._sessions.items()
        ]

    def ended(self) -> list[tuple[str, str]]:
        """Return the ended boots, oldest first (snapshots)."""
        return list(self._ended)

    def load(self, records: list[SessionRecord], ended: list[tuple[str, str]]) -> None:
        """Load what `records` and `ended` returned."""
        self._sessions = {}
        for record in records:
            session = _Session(f"{record.owner}/{record.count}", record.count)
            session.next_number = record.next_number
            session.lowest = record.lowest
            session.owed = deque(record.owed)
            session.rejected = list(record.rejected)
            session.replies = {number: unpack_value(value) for number, value in record.replies}
            session.evidence = ReplayEvidence(record.spans)
            session.floor = record.floor
            self._sessions[record.owner] = session
        self._ended = dict.fromkeys(ended)

    def _named(self, name: str) -> _Session:
        return self._sessions[name.rpartition("/")[0]]

    def _find(self, batch: CommandBatch, effects: Effects) -> _Session | None:
        """Return the batch's session, a new one if it may begin here, or None."""
        owner, _, count_text = batch.session.rpartition("/")
        count = int(count_text)
        session = self._sessions.get(owner)
        if session is not None:
            if count == session.count:
                return session
            if count < session.count:
                return None  # late: its node already uses a newer session
        has_past = batch.lowest != 1 or _was_sent_before(batch)
        is_forgotten = has_past and not self._adopts_unknown
        if is_forgotten or self.has_ended(batch.session):
            effects.session_lost.append(batch.session)
            return None
        if batch.first != batch.lowest:  # an earlier batch was lost in transit
            effects.out_of_sequence.append(OutOfSequence(batch.session, batch.lowest))
            return None
        session = self._sessions[owner] = _Session(batch.session, count)
        return session

    def _replayed(self, name: str) -> _Session | None:
        """Return the session of a ledger record, a new one if need be; None if it is over."""
        owner, _, count_text = name.rpartition("/")
        session = self._sessions.get(owner)
        if session is not None and session.name == name:
            return session
        count = int(count_text)
        if (session is not None and count < session.count) or self.has_ended(name):
            return None
        session = self._sessions[owner] = _Session(name, count)
        return session

    def _new_part(
        self, session: _Session, batch: CommandBatch, effects: Effects, again: list[Numbered]
    ) -> list[SessionCommand]:
        """Answer the duplicates at the front of a batch; return the commands after them."""
        number = batch.first
        for index, command in enumerate(batch.commands):
            done = session.next_number - number
            if done <= 0:
                return batch.commands[index:]
            count = width(command)
            if count > done:  # an Enqueue or Skip of which a part is done
                last = session.next_number - 1
                self._answer_again(session, command, number, last, effects, again)
                return [_without(command, done), *batch.commands[index + 1 :]]
            last = number + count - 1
            self._answer_again(session, command, number, last, effects, again)
            number += count
        return []

    def _answer_again(
        self,
        session: _Session,
        command: SessionCommand,
        first: int,
        last: int,
        effects: Effects,
        again: list[Numbered],
    ) -> None:
        first = max(first, session.lowest)
        if first < session.floor and first not in session.redone:
            end = min(last, session.floor - 1)
            self._answer_for_another(session, command, first, end, effects, again)
            first = end + 1
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

    def _answer_for_another(
        self,
        session: _Session,
        command: SessionCommand,
        first: int,
        last: int,
        effects: Effects,
        again: list[Numbered],
    ) -> None:
        """Answer, or execute again, commands that an earlier master executed (P11, P18)."""
        kind = type(command)
        if first > last:
            return
        if kind is Enqueue:
            for low, high, is_known in session.evidence.judge(first, last, self._absent):
                effects.add_verdict(session.name, low, high, ok=is_known)
        elif kind is Skip or kind in _ABOUT_HELD:
            effects.add_verdict(session.name, first, last, ok=kind is Skip)
        else:
            session.redone.add(first)
            again.append((first, command))


def _was_sent_before(batch: CommandBatch) -> bool:
    """True if an earlier master may have these publishes (P11)."""
    return any(type(each) is Enqueue and each.redelivered for each in batch.commands)


def _without(command: SessionCommand, done: int) -> SessionCommand:
    """Return a command without the first `done` of its numbers."""
    if type(command) is Enqueue:
        return Enqueue(command.messages[done:], command.redelivered)
    assert type(command) is Skip
    return Skip(command.count - done)
