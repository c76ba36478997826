"""A mirror's copy of a queue, by replay of its master's ledger (docs/protocol-rules.md P15, P16).

A mirror has no consumers, credit, limits or clock: the master decides, and the ledger has the
results. Each message carries its own expiry time. A mirror keeps a dead message for as long as its
master does for the dead-letter targets. A mirror may hold less than its master (it joined later),
never more: it ignores numbers that it does not have. Pure; the shell writes changes to the mirror's
disk.

    a new queue     all members begin empty: `apply` from the first record on
    a joiner        `adopt` the join state, then `apply` what follows it in the ring
    synchronised    by `begin_sync`, `apply_sync_batch`, `end_sync`, while `apply` goes on
    short of memory `page_out`: number and size stay in memory, the message is on disk only
    the master dies `promote`: the queue goes on here

Invariants:
1. After the same ledger, a mirror holds what the master holds, less what is older than its
   join state and was not filled in.
2. What a mirror saw settled never comes back: not by a batch of a synchronisation that was under
   way, not at promotion.
3. Evidence (P11) names only messages that it holds or saw settled, none that `empty` dropped.
4. A message is in memory or paged out, never both; `depth`, `holds` and `numbers` count either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Final, NamedTuple

from broker.fifo.commands import owner_of
from broker.fifo.config import QueueConfig
from broker.fifo.dedup import Dedup
from broker.fifo.join_state import JoinState, Ranges, joined_ranges, ranges_of
from broker.fifo.ledger import (
    Cleared,
    Enqueued,
    LedgerRecord,
    Opened,
    Rejected,
    Removed,
    Settled,
    Skipped,
)
from broker.fifo.machine import QueueMachine
from broker.fifo.message_state import digest_of
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES, PageOut
from broker.fifo.sessions import SessionTable
from broker.fifo.sync_batch import EndedSinceMark, SyncBatch, gaps
from broker.message import Message

SAMPLE: Final = 32
"""Messages at each end of the queue from which `ram_bytes` is estimated."""

PAGE_OUT_MAX: Final = 2_000
"""Most messages that one call moves out of memory: a few milliseconds of work."""

PAGE_OUT_BYTES_MAX: Final = 4 << 20
"""Most body bytes that one call moves out, as some must be written; a larger body goes alone."""

RANGES_MAX: Final = 10_000
"""Most ranges that `ranges` returns: messages beyond them are sent again, which does no harm."""

SMALL_GAP: Final = 1_024
"""In a gap of at most this many numbers, each is looked up."""


class SyncChanges(NamedTuple):
    """What a batch of a synchronisation changed; to be written to the mirror's disk.

    Attributes:
        added: Messages that the mirror did not have, ascending.
        dropped: Numbers that the mirror had and the master no longer has.
    """

    added: list[tuple[int, Message]]
    dropped: list[int]


class LedgerReplica:
    """The state of one mirror; it begins empty.

    Args:
        dedup_size: `QueueConfig.dedup_size` of the queue.
        dedup_ttl_ms: `QueueConfig.dedup_ttl_ms` of the queue.
        priority_max: The queue's highest priority, 0 for one without.

    Attributes:
        next_number: One more than the highest message number seen.
    """

    __slots__ = (
        "_contents",
        "_dedup",
        "_gone",
        "_is_timed",
        "_paged",
        "_ram",
        "_sessions",
        "_top",
        "next_number",
    )

    def __init__(
        self, dedup_size: int = 0, dedup_ttl_ms: int | None = None, priority_max: int = 0
    ) -> None:
        self._dedup = Dedup(dedup_size, dedup_ttl_ms)
        self._top = priority_max
        self._sessions = SessionTable()
        self._clear()
        self.next_number = 1

    def _clear(self) -> None:
        self._contents: dict[int, Message] = {}  # in memory
        self._ram: int | None = None  # sum of their body sizes, once `weigh` has begun
        self._paged: dict[int, Paged] = {}  # by priority; no set is empty
        self._is_timed = False  # True if a message that expires may be paged out
        self._gone: EndedSinceMark | None = None  # settled since `begin_sync`

    @property
    def depth(self) -> int:
        """How many messages are here."""
        return len(self._contents) + self.paged

    @property
    def ram_bytes(self) -> int:
        """About how much memory the messages take, in bytes; by a sample until `weigh`."""
        paged_bytes = sum([paged.ram_bytes for paged in self._paged.values()])
        body_bytes = self._sampled() if self._ram is None else self._ram
        return body_bytes + MESSAGE_RAM_BYTES * len(self._contents) + paged_bytes

    def weigh(self) -> None:
        """Count `ram_bytes` exactly from now on; replay then takes a fifth longer."""
        if self._ram is None:
            self._ram = _body_bytes(self._contents.values())

    @property
    def paged(self) -> int:
        """How many messages are paged out."""
        return sum(map(len, self._paged.values()))

    @property
    def is_filling(self) -> bool:
        """True between `begin_sync` and `end_sync` or `empty`."""
        return self._gone is not None

    def holds(self, number: int) -> bool:
        """True if a message is here."""
        return number in self._contents or self._is_paged(number)

    def lowest(self) -> int | None:
        """The lowest number here; None without any."""
        lowest = [paged.lowest() for paged in self._paged.values()]
        lowest.append(min(self._contents, default=None))
        return min([number for number in lowest if number is not None], default=None)

    def numbers(self) -> list[int]:
        """The numbers of all messages here, ascending."""
        return sorted([*self._contents, *self.paged_numbers()])

    def paged_numbers(self) -> list[int]:
        """The numbers of all messages that are paged out, ascending."""
        return sorted([number for paged in self._paged.values() for number in paged])

    def ranges(self) -> Ranges:
        """`numbers`, as ranges; the lowest `RANGES_MAX` of them."""
        runs = ranges_of(self._contents)
        for paged in self._paged.values():
            runs += paged.ranges(count=RANGES_MAX)
        return joined_ranges(runs)[:RANGES_MAX]

    def messages(self) -> list[tuple[int, Message]]:
        """All messages in memory with their numbers, ascending."""
        return sorted(self._contents.items())

    # Replay.

    def apply(self, records: list[LedgerRecord]) -> None:
        """Replay what the master did. Numbers that are not here are ignored.

        Args:
            records: One payload, in the ring's order.
        """
        for record in records:
            if isinstance(record, Enqueued):
                self._enqueued(record)
            elif isinstance(record, Settled | Removed):
                self._ended(record.numbers)
            elif isinstance(record, Cleared):
                self._cleared(record)
            elif isinstance(record, Rejected | Skipped):
                self._sessions.replay_passed(
                    record.session,
                    record.first,
                    record.last,
                    is_rejected=isinstance(record, Rejected),
                )
            elif isinstance(record, Opened):
                self._sessions.replay_opened(record.session)

    def adopt(self, join_state: JoinState) -> None:
        """Begin again, empty, at the master's position in the ledger (P20)."""
        self._clear()
        self.next_number = join_state.next_number
        self._sessions = SessionTable()
        self._sessions.load(join_state.sessions, join_state.ended)
        self._sessions.is_whole = join_state.is_whole
        self._dedup.load(join_state.dedup)
        absent = {n for first, last in join_state.absent for n in range(first, last + 1)}
        self._sessions.mark_absent(absent)

    def end_boot(self, node: str, boot: str) -> None:
        """Forget the sessions of a boot that group 0 ended (P1)."""
        self._sessions.end_boot(node, boot)

    def boots(self) -> list[tuple[str, str]]:
        """(node, boot) of every session known here, sorted."""
        return sorted({owner_of(name) for name in self._sessions.names()})

    def empty(self) -> None:
        """Drop all messages, and the evidence of their publishes (P11, P26)."""
        named = [n for each in self._sessions.named_messages() for n in each]
        self._sessions.mark_absent({n for n in named if self.holds(n)})
        self._clear()

    # Paging.

    def page_out(self, limit_bytes: int, *, durable: bool) -> PageOut:
        """Page messages out until the rest fits, or as many as one turn of the loop may take.

        The newest go first: the master delivers the others before them, and a promoted mirror has
        the head of its queue in memory.

        Args:
            limit_bytes: The most that `ram_bytes` shall be.
            durable: The queue's persistent messages are on this disk already.

        Returns:
            The messages that must be written to pages now: this node has no other copy.
        """
        self.weigh()
        contents = self._contents
        over = self.ram_bytes - limit_bytes
        room_bytes = PAGE_OUT_BYTES_MAX
        taken: list[tuple[int, Message]] = []
        while over > 0 and room_bytes > 0 and contents and len(taken) < PAGE_OUT_MAX:
            item = contents.popitem()
            over -= item[1].body_size + MESSAGE_RAM_BYTES
            room_bytes -= item[1].body_size
            taken.append(item)
        return self._page(taken, durable=durable)

    # Synchronisation (P26).

    def begin_sync(self) -> None:
        """Begin a synchronisation at this position of the ledger: batches follow."""
        self._gone = EndedSinceMark()

    def apply_sync_batch(self, batch: SyncBatch) -> SyncChanges:
        """Apply one batch of a synchronisation.

        Returns:
            The changes; empty if no synchronisation is under way.
        """
        gone = self._gone
        if gone is None:
            return SyncChanges([], [])
        dropped = self._gone_between(batch)
        if dropped:
            self._sessions.mark_absent(frozenset(dropped))
            self._drop(dropped)
        contents, is_paged = self._contents, self._is_paged
        added = [
            item
            for item in zip(batch.numbers, batch.messages, strict=True)
            if item[0] not in gone and item[0] not in contents and not is_paged(item[0])
        ]
        contents.update(added)
        if self._ram is not None:
            self._ram += _body_bytes([message for _, message in added])
        self._sessions.mark_present(batch.numbers)
        gone.forget_up_to(batch.high)
        return SyncChanges(added, dropped)

    def end_sync(self) -> None:
        """End a synchronisation: every batch has come, and the mirror is complete."""
        self._gone = None

    # Promotion.

    def promote(self, config: QueueConfig) -> QueueMachine:
        """Become the master: all messages ready at their old places, as redelivered (P16).

        Paged messages stay where they are: nothing is read.

        Args:
            config: `config.mirrored_config`.

        Returns:
            The machine, which answers duplicates by P11; this replica must not be used any more.
            The shell sets the machine's time, and its rules, which are the config's until then.
        """
        machine = QueueMachine(config)
        if not self._paged:
            machine.restore_messages(self.messages(), self.next_number)
        else:
            machine.restore_paged(
                self._paged, self.next_number, is_timed=self._is_timed, head=self.messages()
            )
        machine.messages.remember(self._dedup.records())
        machine.sessions = self._sessions
        machine.sessions.take_over()
        return machine

    def digest(self, read: Callable[[list[int]], list[tuple[int, Message]]] | None = None) -> str:
        """Equal for a mirror and a master with the same contents (`MessageState.digest`).

        Args:
            read: Reads paged messages by number; None if none is paged.
        """
        items = self.messages()
        if read is not None:
            items = sorted(items + read(self.paged_numbers()))
        return digest_of(items)

    # Parts.

    def _enqueued(self, record: Enqueued) -> None:
        numbers, messages = record.numbers, record.messages
        if not numbers:
            return
        first = numbers[0]
        self._contents.update(zip(numbers, messages, strict=True))
        if self._ram is not None:
            self._ram += _body_bytes(messages)
        self.next_number = max(self.next_number, numbers[-1] + 1)
        if record.now_ms:
            for message in messages:
                self._dedup.is_double(message.dedup, record.now_ms)
        if record.session:
            self._sessions.replay_enqueued(
                record.session, record.first, len(numbers), record.lowest, first
            )

    def _ended(self, numbers: list[int]) -> None:
        self._drop(numbers)
        self._sessions.mark_present(numbers)  # seen settled, perhaps without having been here
        if self._gone is not None:
            self._gone.add(numbers)

    def _cleared(self, record: Cleared) -> None:
        first, last = record.first, record.last
        for paged in self._paged.values():
            paged.remove_range(first, last)
        self._forget_empty()
        self._drop([number for number in self._contents if first <= number <= last])
        for named in self._sessions.named_messages():
            self._sessions.mark_present(range(max(first, named.start), min(last + 1, named.stop)))
        if self._gone is not None:
            self._gone.add_range(first, last)

    def _drop(self, numbers: list[int]) -> None:
        pop = self._contents.pop
        if self._ram is None:  # then nothing is paged out either
            for number in numbers:
                pop(number, None)
            return
        taken = [message for number in numbers if (message := pop(number, None)) is not None]
        self._ram -= _body_bytes(taken)
        if len(taken) < len(numbers) and self._paged:
            for paged in self._paged.values():
                paged.remove(numbers)
            self._forget_empty()

    def _sampled(self) -> int:
        """Estimate the body bytes in memory from the oldest and the newest messages."""
        messages = self._contents.values()
        some = [*islice(messages, SAMPLE), *islice(reversed(messages), SAMPLE)]
        return len(messages) * _body_bytes(some) // len(some) if some else 0

    def _forget_empty(self) -> None:
        if not all(self._paged.values()):
            self._paged = {level: paged for level, paged in self._paged.items() if paged}

    def _is_paged(self, number: int) -> bool:
        return any(number in paged for paged in self._paged.values())

    def _page(self, items: list[tuple[int, Message]], *, durable: bool) -> PageOut:
        """Note messages that were taken out of memory; say which of them must be written."""
        assert self._ram is not None, "only what was weighed is paged out"
        items.sort()
        groups: dict[int, list[tuple[int, int]]] = {}
        for number, message in items:
            self._ram -= message.body_size
            self._is_timed |= message.expires_ms > 0
            level = min(message.priority, self._top)
            groups.setdefault(level, []).append((number, message.body_size))
        for level, group in groups.items():
            self._paged.setdefault(level, Paged()).add(group)
        return PageOut([item for item in items if not (durable and item[1].persistent)])

    def _gone_between(self, batch: SyncBatch) -> list[int]:
        """Messages here that the master does not have any more."""
        dropped: list[int] = []
        for first, last in gaps(batch.low, batch.high, batch.held):
            dropped += self._between(first, last)
        return dropped

    def _between(self, first: int, last: int) -> list[int]:
        """The numbers here from `first` to `last`, ascending."""
        contents, here = self._contents, len(self._contents) + self.paged
        if last - first <= min(SMALL_GAP, here):
            return [n for n in range(first, last + 1) if n in contents or self._is_paged(n)]
        found: list[int] = []
        for paged in self._paged.values():
            found += takewhile(lambda n: n <= last, paged.numbers_from(first))
        if len(contents) < last - first:
            found += [number for number in contents if first <= number <= last]
        else:
            found += [number for number in range(first, last + 1) if number in contents]
        found.sort()
        return found


def _body_bytes(messages: Iterable[Message]) -> int:
    return sum([message.body_size for message in messages])
