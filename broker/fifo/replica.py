"""A mirror's copy of a queue, by replay of its master's ledger (protocol.md P15, P16).

The mirror has no consumers, no credit, no limits and no clock: the master decides, and the ledger
tells what came of it. When a message expires stands in the message; one that died and waits to be
buried is still there for its mirrors. A mirror may hold less than its master (it joined later),
never more: it ignores numbers it does not have. Pure; the shell writes what changes to the mirror's
disk.

    a new queue     all members begin empty: `apply` from the first record on
    a joiner        `adopt` the handshake, then `apply` what follows it in the ring
    synchronised    by `begin_fill`, `fill`, `end_fill`, while `apply` goes on
    the master dies `promote`: the queue goes on here

Invariants:
1. After the same ledger, a mirror holds what the master holds, less what is older than its
   handshake and was not filled in.
2. What a mirror saw settled never comes back: not by a batch of a synchronisation that was under
   way, not at promotion.
3. Evidence (P11) names what it holds or saw settled, nothing that it emptied itself of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.fifo.commands import owner_of
from broker.fifo.config import QueueConfig
from broker.fifo.digest import digest_of
from broker.fifo.fate.dedup import Dedup
from broker.fifo.fill import Fill
from broker.fifo.handshake import Handshake, Ranges, ranges_of
from broker.fifo.ledger import Enqueued, LedgerRecord, Opened, Rejected, Removed, Settled, Skipped
from broker.fifo.machine import QueueMachine
from broker.fifo.sessions import SessionTable
from broker.message import Message


class Filled(NamedTuple):
    """What a batch changed, for the mirror's disk.

    Attributes:
        added: New here, ascending.
        dropped: Held until now, and gone from the master.
    """

    added: list[tuple[int, Message]]
    dropped: list[int]


class Replica:
    """The state of one mirror: empty at first.

    Args:
        dedup_size: `QueueConfig.dedup_size` of the queue.
        dedup_ttl_ms: `QueueConfig.dedup_ttl_ms` of the queue.

    Attributes:
        next_number: One more than the highest message number heard of.
    """

    __slots__ = ("_contents", "_dedup", "_gone", "_sessions", "next_number")

    def __init__(self, dedup_size: int = 0, dedup_ttl_ms: int | None = None) -> None:
        self._dedup = Dedup(dedup_size, dedup_ttl_ms)
        self._contents: dict[int, Message] = {}
        self._sessions = SessionTable()
        self._gone: set[int] | None = None  # settled since `begin_fill`
        self.next_number = 1

    @property
    def depth(self) -> int:
        """How many messages are here."""
        return len(self._contents)

    @property
    def is_filling(self) -> bool:
        """True between `begin_fill` and `end_fill` or `empty`."""
        return self._gone is not None

    def holds(self, number: int) -> bool:
        """Tell whether a message is here."""
        return number in self._contents

    def numbers(self) -> list[int]:
        """The numbers of all messages here, ascending."""
        return sorted(self._contents)

    def ranges(self) -> Ranges:
        """`numbers`, as ranges."""
        return ranges_of(self.numbers())

    def messages(self) -> list[tuple[int, Message]]:
        """All messages here with their numbers, ascending."""
        contents = self._contents
        return [(number, contents[number]) for number in self.numbers()]

    # Replay.

    def apply(self, records: list[LedgerRecord]) -> None:
        """Do what the master did. Numbers that are not here are ignored.

        Args:
            records: One payload, in the ring's order.
        """
        contents, gone = self._contents, self._gone
        for record in records:
            if isinstance(record, Enqueued):
                self._enqueued(record)
            elif isinstance(record, Settled | Removed):
                pop = contents.pop
                for number in record.numbers:
                    pop(number, None)
                if gone is not None:
                    gone.update(record.numbers)
            elif isinstance(record, Rejected | Skipped):
                self._sessions.replay_passed(
                    record.session,
                    record.first,
                    record.last,
                    is_rejected=isinstance(record, Rejected),
                )
            elif isinstance(record, Opened):
                self._sessions.replay_opened(record.session)

    def adopt(self, handshake: Handshake) -> None:
        """Begin again, empty, at the master's place in the ledger (P20)."""
        self._contents = {}
        self._gone = None
        self.next_number = handshake.next_number
        self._sessions = SessionTable()
        self._sessions.load(handshake.sessions, handshake.ended)
        self._sessions.is_whole = handshake.is_whole
        self._dedup.load(handshake.dedup)
        absent = {n for first, last in handshake.absent for n in range(first, last + 1)}
        self._sessions.mark_absent(absent)

    def end_boot(self, node: str, boot: str) -> None:
        """Forget the sessions of a boot that group 0 ended (P1)."""
        self._sessions.end_boot(node, boot)

    def boots(self) -> list[tuple[str, str]]:
        """(node, boot) of every session known here, sorted."""
        return sorted({owner_of(name) for name in self._sessions.names()})

    def empty(self) -> None:
        """Drop all messages, and with them what they prove (P11, P26)."""
        self._sessions.mark_absent(self._contents)
        self._contents = {}
        self._gone = None

    # Synchronisation (P26).

    def begin_fill(self) -> None:
        """The master took its contents at this place of the ledger: batches follow."""
        self._gone = set()

    def fill(self, batch: Fill) -> Filled:
        """Take one batch.

        Returns:
            What it changed here; nothing where no fill is under way.
        """
        contents, gone = self._contents, self._gone
        if gone is None:
            return Filled([], [])
        dropped = self._gone_between(batch)
        if dropped:
            self._sessions.mark_absent(frozenset(dropped))
            for number in dropped:
                del contents[number]
        added = [
            item
            for item in zip(batch.numbers, batch.messages, strict=True)
            if item[0] not in gone and item[0] not in contents
        ]
        contents.update(added)
        self._sessions.mark_present(batch.numbers)
        return Filled(added, dropped)

    def end_fill(self) -> None:
        """Every batch has come: what is here is what the master has."""
        self._gone = None

    # The end of being a mirror.

    def promote(self, config: QueueConfig) -> QueueMachine:
        """Become the queue: everything ready at its old place, and redelivered (P16).

        Args:
            config: `config.mirrored_config`.

        Returns:
            The machine; this replica is over. Duplicates are answered by P11. It does not know
            the time yet, and its rules are the config's: the shell tells both.
        """
        machine = QueueMachine(config)
        contents, numbers = self._contents, self.numbers()
        machine.restore_messages(
            zip(numbers, map(contents.__getitem__, numbers), strict=True), self.next_number
        )
        machine.remember(self._dedup.records())
        machine.sessions = self._sessions
        machine.sessions.take_over()
        return machine

    def digest(self) -> str:
        """Equal for a mirror and a master with the same contents (`QueueMachine.digest`)."""
        return digest_of(self.messages())

    # Parts.

    def _enqueued(self, record: Enqueued) -> None:
        numbers, messages = record.numbers, record.messages
        if not numbers:
            return
        first = numbers[0]
        self._contents.update(zip(numbers, messages, strict=True))
        self.next_number = max(self.next_number, numbers[-1] + 1)
        if record.now_ms:
            for message in messages:
                self._dedup.is_double(message.dedup, record.now_ms)
        if record.session:
            self._sessions.replay_enqueued(
                record.session, record.first, len(numbers), record.lowest, first
            )

    def _gone_between(self, batch: Fill) -> list[int]:
        """Messages here that the master did not have at the mark."""
        held, at = batch.held, 0
        dropped: list[int] = []
        for number in self._between(batch.low, batch.high):
            while at < len(held) and held[at][1] < number:
                at += 1
            if at == len(held) or number < held[at][0]:
                dropped.append(number)
        return dropped

    def _between(self, low: int, high: int) -> Iterable[int]:
        contents = self._contents
        if len(contents) < high - low:
            return sorted([number for number in contents if low <= number <= high])
        return [number for number in range(low, high + 1) if number in contents]
