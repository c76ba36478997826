"""What a stream's leader gathers from the publishing nodes, and the entries that it becomes. Pure.

A node's batch may come again (docs/protocol-rules.md P10). Numbers that are applied are answered at
once; numbers that were proposed are not proposed again, and answered with their entry; after a gap
the batch is refused, and the node is told what is missing. So an entry never holds a message twice.

Messages are numbered from the end of the log, which may be ahead of what is applied. A leader
begins when all that its log holds is applied, so both ends are the same then.

Invariant: positions are counted in entries. What is owed at position n is answered when the n-th
entry of this leader is applied, or never by this leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch, Enqueue, EnqueueUnit, SessionCommand, owner_of, width
from broker.fifo.effects import Effects, Reply
from broker.fifo.sessions import VALUED, SessionTable
from broker.message import Message
from broker.streams.entry import Delta, Span, StreamEntry
from broker.streams.machine import StreamMachine
from broker.streams.publishers import PublishingId, by_publishing_id, is_named, publishing_id

ENTRY_BYTES_MAX: Final = (1 << 20) - (64 << 10)
"""Contents of one entry (P13), with room for what is added; a larger message goes alone."""

ENTRY_MESSAGES_MAX: Final = 10_000

_MESSAGE_BYTES: Final = 16
_UNDECIDED: Final = 1 << 62
"""A position that no entry has."""

EncodeChunk = Callable[[list[Message], int], bytes]
"""Makes a chunk of messages, the first of which has the offset given."""


class _Unit:
    """A unit of which parts are to come."""

    __slots__ = ("first", "messages")

    def __init__(self, first: int) -> None:
        self.first = first
        self.messages: list[Message] = []


class _Gathered:
    """What becomes one entry."""

    __slots__ = ("messages", "publishers", "size_bytes", "spans")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self.publishers: dict[str, tuple[int, int]] = {}
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.spans)


class Intake:
    """A leader's intake. Made anew whenever the replica begins to lead.

    Args:
        machine: Its state, with everything of the log applied.

    Attributes:
        effects: Answers to give; taken by `take_effects`.
        next_offset: Of the next message proposed.
        entries: How many entries were made.
    """

    def __init__(self, machine: StreamMachine) -> None:
        self.effects = Effects()
        self.next_offset = machine.begin_offset
        self.entries = 0
        self._machine = machine
        self._sessions = SessionTable()
        self._sessions.load(machine.sessions.records(), machine.sessions.ended())
        self._ahead: dict[str, int] = {}  # ids of named publishers on their way
        self._full: list[_Gathered] = []
        self._open = _Gathered()
        self._units: dict[str, _Unit] = {}  # begun, by session
        self._first_free = machine.begin_offset

    @property
    def waiting_bytes(self) -> int:
        """Contents of what waits to be proposed."""
        return self._open.size_bytes + sum([each.size_bytes for each in self._full])

    @property
    def has_waiting(self) -> bool:
        """True if something waits to be proposed."""
        return bool(self._full) or bool(self._open)

    def take_effects(self) -> Effects:
        """Return the answers that are due, and begin anew."""
        effects, self.effects = self.effects, Effects()
        return effects

    def take(self, batch: CommandBatch) -> None:
        """Gather what is new of a batch, and answer the rest."""
        admitted = self._sessions.admit(batch, self.effects)
        if admitted is None:
            return
        number, commands, skipped, _ = admitted
        if skipped is not None:
            first, last = skipped
            self._pass(batch, first, last - first + 1)
        for command in commands:
            self._add(batch, number, command)
            number += width(command)
        self._sessions.advance(batch.session, number)

    def _add(self, batch: CommandBatch, number: int, command: SessionCommand) -> None:
        if type(command) is EnqueueUnit:
            self._enqueue_unit(batch, number, command)
            return
        if self._units:
            self._drop_unit(batch)
        if type(command) is Enqueue:
            self._enqueue(batch, number, command.messages)
            return
        count = width(command)
        if type(command) in VALUED:  # the channel refuses these: a node of another version asks
            refusal = Refusal(ReplyCode.NOT_IMPLEMENTED, "not supported by stream queues")
            self._sessions.reply(batch.session, number, refusal)
            self.effects.replies.append(Reply(batch.session, number, refusal))
        self._pass(batch, number, count)
        if type(command) not in VALUED:
            self._owe(batch.session, number, count)

    def _enqueue(self, batch: CommandBatch, number: int, messages: list[Message]) -> None:
        if any(map(is_named, messages)):
            for place, message in enumerate(messages):
                self._enqueue_named(batch, number + place, message)
            return
        gathered = self._open
        room = ENTRY_BYTES_MAX - gathered.size_bytes
        count_max = ENTRY_MESSAGES_MAX - len(gathered.messages)
        size_bytes = sum([_MESSAGE_BYTES + len(message.content) for message in messages])
        if size_bytes <= room and len(messages) <= count_max:
            self._store(batch, number, messages, size_bytes)
            return
        start = size_bytes = 0
        for place, message in enumerate(messages):
            more = _MESSAGE_BYTES + len(message.content)
            if size_bytes + more > room or place - start >= count_max:
                self._store(batch, number + start, messages[start:place], size_bytes)
                self._close()
                start, size_bytes = place, 0
                room, count_max = ENTRY_BYTES_MAX, ENTRY_MESSAGES_MAX
            size_bytes += more
        self._store(batch, number + start, messages[start:], size_bytes)

    def _enqueue_named(self, batch: CommandBatch, number: int, message: Message) -> None:
        """Store a message of a named publisher, unless its id was stored before."""
        session = batch.session
        try:
            who = publishing_id(message)
        except ValueError:
            self._refuse(batch, number, 1)
            return
        if who is not None and self._is_known(who):
            self._pass(batch, number, 1)
            self._owe(session, number, 1)
            return
        more = _MESSAGE_BYTES + len(message.content)
        if self._open.size_bytes + more > ENTRY_BYTES_MAX:
            self._close()
        if who is not None:
            self._note(who)
        self._store(batch, number, [message], more)

    def _enqueue_unit(self, batch: CommandBatch, number: int, part: EnqueueUnit) -> None:
        """Gather a part of a unit; the last one makes it an entry of its own."""
        session = batch.session
        unit = self._units.setdefault(session, _Unit(number))
        unit.messages += part.messages
        last = number + len(part.messages) - 1
        self._sessions.owe(session, number, last, _UNDECIDED)
        if not part.is_last:
            return
        del self._units[session]
        self._sessions.withdraw(session, unit.first)
        try:
            groups = list(by_publishing_id(unit.messages))
        except ValueError:
            self._refuse(batch, unit.first, len(unit.messages))
            return
        self._close()
        begun: dict[str, int] = {}
        place = unit.first
        for who, messages in groups:
            count = len(messages)
            if who is not None and begun.get(who.name) != who.number and self._is_known(who):
                self._pass(batch, place, count)
                self._owe(session, place, count)
            else:
                if who is not None:
                    begun[who.name] = who.number
                    self._note(who)
                size_bytes = sum([_MESSAGE_BYTES + len(message.content) for message in messages])
                self._store(batch, place, messages, size_bytes)
            place += count
        self._close()

    def _drop_unit(self, batch: CommandBatch) -> None:
        """Its node has given up the rest of a unit: nothing of it is stored, and it is refused."""
        unit = self._units.pop(batch.session, None)
        if unit is None:
            return
        self._sessions.withdraw(batch.session, unit.first)
        if unit.first < batch.lowest:  # nobody waits for a verdict
            self._pass(batch, unit.first, len(unit.messages))
        else:
            self._refuse(batch, unit.first, len(unit.messages))

    def _refuse(self, batch: CommandBatch, number: int, count: int) -> None:
        """Note numbers whose messages can't be stored, and say so."""
        session, last = batch.session, number + count - 1
        self._pass(batch, number, count, is_rejected=True)
        self._sessions.reject(session, number, last)
        self.effects.add_verdict(session, number, last, ok=False)

    def _is_known(self, who: PublishingId) -> bool:
        """True if a message under this id is stored, or on its way."""
        known = self._machine.publishers.get(who.name, (-1, 0))[0]
        return who.number <= max(known, self._ahead.get(who.name, -1))

    def _note(self, who: PublishingId) -> None:
        """The next message stored is this publisher's."""
        self._ahead[who.name] = who.number
        self._open.publishers[who.name] = (who.number, self._first_free)

    def _store(
        self, batch: CommandBatch, number: int, messages: list[Message], size_bytes: int
    ) -> None:
        if not messages:
            return
        gathered, count = self._open, len(messages)
        gathered.messages += messages
        gathered.size_bytes += size_bytes
        self._first_free += count
        self._owe(batch.session, number, count)
        spans = gathered.spans
        if spans:
            last = spans[-1]
            if (
                last.session == batch.session
                and last.first + last.count == number
                and last.is_stored
            ):
                spans.pop()
                number, count = last.first, last.count + count
        spans.append(Span(batch.session, batch.lowest, number, count))

    def _pass(
        self, batch: CommandBatch, number: int, count: int, *, is_rejected: bool = False
    ) -> None:
        """Note numbers that bring no message."""
        span = Span(batch.session, batch.lowest, number, count, False, is_rejected)
        self._open.spans.append(span)

    def _owe(self, session: str, number: int, count: int) -> None:
        position = self.entries + len(self._full) + 1
        self._sessions.owe(session, number, number + count - 1, position)

    def _close(self) -> None:
        """What follows goes into another entry."""
        if self._open:
            self._full.append(self._open)
            self._open = _Gathered()

    def next_entry(
        self, now_ms: int, encode: EncodeChunk, *, flags: int = 0, delta: Delta | None = None
    ) -> StreamEntry | None:
        """Return the next entry to propose; None if nothing waits.

        Args:
            now_ms: Milliseconds since the epoch; at least that of the entry before.
            encode: Makes the chunk.
            flags: Of the entry.
            delta: What else changes; then there is an entry even if nothing waits.
        """
        self._close()
        if not self._full and delta is None:
            return None
        gathered = self._full.pop(0) if self._full else _Gathered()
        first, count = self.next_offset, len(gathered.messages)
        self.next_offset += count
        self.entries += 1
        base = delta or Delta()
        changes = Delta(
            gathered.spans,
            [(name, *known) for name, known in gathered.publishers.items()],
            base.ended,
            base.cut,
            base.offsets,
        )
        chunk = encode(gathered.messages, first) if count else b""
        return StreamEntry(first, now_ms, count, changes, chunk, flags)

    def applied(self, entries: int) -> None:
        """Answer what is owed: the first `entries` entries of this leader are applied."""
        self._sessions.mark_durable(entries, self.effects)

    def end_boot(self, node: str, boot: str) -> None:
        """Group 0 has ended a boot: nothing more is taken from it."""
        for session in [name for name in self._units if owner_of(name) == (node, boot)]:
            del self._units[session]
        self._sessions.end_boot(node, boot)

    def boots(self) -> set[tuple[str, str]]:
        """(node, boot) of all sessions."""
        return {owner_of(name) for name in self._sessions.names()}
