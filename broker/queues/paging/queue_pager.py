"""Paging of one classic queue: messages are written to disk and read back when needed.

The machine (`broker.fifo`) decides which messages leave the memory or are read, and does no IO. The
pager reads and writes for it in the same turn, in small steps: longer work goes on in the loop's
next turn, because a long queue must not block the node.

Invariants:
1. Messages that leave the memory are on disk before the turn ends: the ledger is handed in first,
   and messages that no ledger records are written as pages.
2. Every message leaves the queue with its content: stubs are filled before the ledger that removes
   their records is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Protocol

from broker.fifo.commands import CommandBatch, Get, split_at_gets, split_at_looks
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.paged import CHUNK
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import NO_DETAILS, NOTHING, QueueDetails, QueueLook, QueueStat
from broker.queues.dead_letters import DeadLetters
from broker.queues.disk_copy import DiskCopy
from broker.queues.node import NodeContext
from broker.queues.paging.memory_budget import DEEP_RAM_BYTES, LAZY_RAM_BYTES, LAZY_READ_BYTES

_log = logging.getLogger(__name__)

CHUNK_RAM_BYTES: Final = 4 * CHUNK + 300
"""Memory for `CHUNK` consecutive numbers of messages on disk (`Paged.ram_bytes`)."""

SHARE_MIN_BYTES: Final = 1 << 15
"""Least memory of a queue: below it, paging costs more than it frees."""

NO_LIMIT_BYTES: Final = 1 << 60

STEP_BYTES: Final = 1 << 20
"""Most bytes that leave the memory in one turn: some 5 ms."""

STUCK_BYTES: Final = 1 << 16
"""A queue that can't page out enough is tried again when it has grown by this much."""

TARGETS_S: Final = 0.1
"""The wait of a queue whose expired messages go to dead-letter targets that are behind."""

RESTORE_MESSAGES: Final = 500
"""Messages read at a time if a restart has to read all of them."""

RESTORE_BYTES: Final = 16 * 1024 * 1024
"""The most of them that stay in memory."""

HEAD_READS: Final = 2
"""The most reads of one basic.get in a turn; it goes on in the next."""

LOST_SHOWN: Final = 10


class PagedQueue(Protocol):
    """A classic queue, as its pager sees it."""

    def hand_in_ledger(self) -> None:
        """Write what the machine has recorded."""
        ...

    def serve(self) -> None:
        """Serve the queue's consumers again: calls `pump` of the pager."""
        ...


class QueuePager:
    """Keeps one classic queue within its memory limit; writes and reads its messages.

    Args:
        record: The queue.
        machine: Its machine.
        disk: Where its messages are.
        node: Where the queue lives.
        dead_letters: Tells whether dead-letter targets are behind.
        queue: Writes the machine's ledger, and serves its consumers.
        is_lazy: True for a lazy queue, which keeps hardly anything in memory.

    Attributes:
        disk: As given; after a promotion, the mirror's.
        is_over: True once the queue is no longer served here.
        is_paging: True if the queue writes transient messages to disk, or soon will.
        limit_bytes: Memory limit of the queue; None is `DEEP_RAM_BYTES`.
    """

    __slots__ = (
        "_dead_letters",
        "_is_lazy",
        "_is_looking_again",
        "_is_pumping_on",
        "_is_shrinking",
        "_is_told",
        "_machine",
        "_node",
        "_node_limit_bytes",
        "_queue",
        "_record",
        "_stuck_bytes",
        "_was_consumed",
        "disk",
        "is_over",
        "is_paging",
        "limit_bytes",
    )

    def __init__(
        self,
        record: Queue,
        machine: QueueMachine,
        disk: DiskCopy,
        node: NodeContext,
        dead_letters: DeadLetters,
        queue: PagedQueue,
        *,
        is_lazy: bool,
    ) -> None:
        self._record = record
        self._machine = machine
        self._queue = queue
        self._node = node
        self._dead_letters = dead_letters
        self._is_pumping_on = False
        self._is_looking_again = False
        self.disk = disk
        self._is_shrinking = False
        self._is_lazy = is_lazy
        self.is_over = False
        self.is_paging = False
        self._node_limit_bytes: int | None = None
        self._stuck_bytes = 0
        self._is_told = False
        self._was_consumed = False
        self.limit_bytes: int | None = None
        self._set_limit()

    # The memory limit (`node_pager.Pageable`).

    @property
    def ram_bytes(self) -> int:
        """About how much memory the queue's messages take, in bytes."""
        return self._machine.paging.ram_bytes

    def follow(self, *, is_lazy: bool) -> None:
        """Apply another mode of the queue."""
        if is_lazy is not self._is_lazy and not self.is_over:
            self._is_lazy = is_lazy
            self._set_limit()

    def end(self) -> None:
        """The queue is no longer served here: stop paging."""
        self.is_over = True
        self.limit_bytes = None

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Set the limit that the node gives each queue, in bytes; None is no limit."""
        if limit_bytes != self._node_limit_bytes and not self.is_over:
            self._node_limit_bytes = limit_bytes
            self._set_limit()
        self.enforce_memory_limit()

    def _set_limit(self) -> None:
        self._stuck_bytes = 0
        self._is_told = False
        limits = [LAZY_RAM_BYTES] if self._is_lazy else []
        if self._node_limit_bytes is not None:
            limits.append(self._node_limit_bytes)
        self.limit_bytes = min(limits, default=None)
        self.is_paging = self.limit_bytes is not None

    def _limit(self) -> int:
        """Most memory the queue may take now; always a little more than what can't leave.

        A lazy queue gets more while it has consumers.
        """
        fixed_bytes = CHUNK_RAM_BYTES * (1 + self._machine.paging.counts().delta // CHUNK)
        limits = [DEEP_RAM_BYTES + fixed_bytes]
        if self._is_lazy:
            share = LAZY_READ_BYTES if self._is_consumed() else LAZY_RAM_BYTES
            limits.append(share + fixed_bytes)
        if self._node_limit_bytes is not None:
            limits.append(max(self._node_limit_bytes, SHARE_MIN_BYTES + fixed_bytes))
        return min(limits)

    def _is_consumed(self) -> bool:
        return self._machine.consumer_count > 0

    def enforce_memory_limit(self) -> None:
        """After each batch: page out what exceeds the limit, one step a turn."""
        ram_bytes, limit_bytes = self._machine.paging.ram_bytes, self.limit_bytes
        if limit_bytes is None:
            limit_bytes = DEEP_RAM_BYTES
            self.is_paging = 2 * ram_bytes > DEEP_RAM_BYTES
        if ram_bytes <= limit_bytes or self.is_over:
            return
        self._queue.hand_in_ledger()
        if self._shrink() and not self._is_shrinking:
            self._is_shrinking = True
            self._node.defer(self._shrink_on)

    def _shrink_on(self) -> None:
        self._is_shrinking = False
        self.enforce_memory_limit()

    def _shrink(self) -> bool:
        """Take one step towards the limit; True where another is due."""
        machine = self._machine
        before = machine.paging.ram_bytes
        limit = self._limit()
        if 2 * before < self._stuck_bytes:
            self._stuck_bytes = 0  # messages that could not leave have gone since
        if before <= max(limit, self._stuck_bytes):
            return False
        step = max(limit, before - STEP_BYTES)
        pages = machine.paging.page_out(step, durable=self._record.durable).pages
        if pages:
            self.disk.page_out(pages)
            if self.disk.is_sweep_due:
                self._sweep()
        after = machine.paging.ram_bytes
        if 2 * (before - after) < before - step:
            # The rest can't leave now: try again when there is more.
            self._stuck_bytes = after + max(after // 4, STUCK_BYTES)
            return False
        return after > limit

    def _sweep(self) -> None:
        lowest = self._machine.messages.lowest_number()
        self.disk.sweep(self._machine.next_number if lowest is None else lowest)

    # Reading messages that are needed.

    def pump(self) -> None:
        """Deliver what consumers can take, and read a batch of the messages that they wait for.

        The rest follows in the next turn.
        """
        machine = self._machine
        is_more = machine.pump()
        if machine.paging.is_paged:
            if self._waits_for_targets():
                self._look_later()
            elif self.bring():
                machine.pump()
                is_more = True
        if is_more and not self._is_pumping_on:
            self._is_pumping_on = True
            self._node.defer(self._pump_on)

    def _pump_on(self) -> None:
        self._is_pumping_on = False
        if not self.is_over:
            self._queue.serve()

    def _waits_for_targets(self) -> bool:
        """True if expired messages wait on disk because their dead-letter targets are behind."""
        if not self._machine.rules.is_dead_lettered or not self._dead_letters.is_behind:
            return False
        return not self._is_consumed()

    def _look_later(self) -> None:
        if not self._is_looking_again:
            self._is_looking_again = True
            self._node.after(TARGETS_S, self._look_again)

    def _look_again(self) -> None:
        self._is_looking_again = False
        if not self.is_over:
            self._queue.serve()

    def bring_head(self) -> bool:
        """Load the next message; False if that takes more turns, because many have expired."""
        for _ in range(HEAD_READS):
            numbers = self._machine.paging.needed(1)
            if not numbers:
                return True
            self._read(numbers)
        return not self._machine.paging.needed(1)

    def apply_batch(self, batch: CommandBatch, now_ms: int) -> None:
        """Apply a batch; waiting consumers come first, and a basic.get finds the head in memory.

        Args:
            batch: A batch of another node, or of a channel here.
            now_ms: Milliseconds since the epoch.
        """
        for part in split_at_looks(batch):
            self._apply_part(part, now_ms)

    def _apply_part(self, batch: CommandBatch, now_ms: int) -> None:
        machine = self._machine
        if not machine.paging.is_paged:
            machine.apply_batch(batch, now_ms)
            return
        for part in split_at_gets(batch):
            if part.commands and type(part.commands[0]) is Get:
                machine.set_time(now_ms)
                while not self.bring_head():
                    pass  # few times: expired messages were removed before (`gate.wait_for_head`)
            machine.apply_batch(part, now_ms)

    def bring(self) -> bool:
        """Read the messages that consumers wait for, one batch of them; `pump` follows.

        Returns:
            False if nothing needs to be read.
        """
        if not self._is_told or (self._is_lazy and self._is_consumed() is not self._was_consumed):
            self._tell()
        numbers = self._machine.paging.needed()
        if numbers:
            self._read(numbers)
        return bool(numbers)

    def _tell(self) -> None:
        """Tell the machine its limit, by which it sizes the batches that it reads."""
        self._is_told = True
        self._was_consumed = self._is_consumed()
        limit = self._limit()
        room = NO_LIMIT_BYTES if limit is None else max(limit, self.ram_bytes)
        self._machine.paging.page_out(room, durable=self._record.durable)

    def _read(self, numbers: list[int]) -> None:
        self._tell_lost(self._machine.paging.page_in(numbers, self.disk.read(numbers)))

    def _tell_lost(self, lost: list[int]) -> None:
        if lost:
            _log.error(
                "queue.messages_lost",
                extra={
                    "queue": self._record.name,
                    "vhost": self._record.vhost,
                    "count": len(lost),
                    "numbers": lost[:LOST_SHOWN],
                },
            )

    def fill_dead(self) -> None:
        """Read the contents of dead messages, while they are on the disk."""
        dead = self._machine.effects.dead
        for index, each in enumerate(dead):
            filled = self.disk.filled(each.items, keep=each.is_held)
            dead[index] = each._replace(items=filled)

    def unpage(self) -> None:
        """Remove the pages of messages that have ended; `fill_dead` comes before."""
        effects = self._machine.effects
        ended, effects.unpaged = effects.unpaged, []
        self.disk.unpage(ended)

    def fill_deliveries(self) -> None:
        """Read the contents of redelivered messages."""
        if not self._machine.paging.is_paged:
            return
        deliveries = self._machine.effects.deliveries
        for key, items in deliveries.items():
            deliveries[key] = self.disk.filled(items, keep=True)

    # Whole queues.

    def restore(self) -> None:
        """Begin with the messages on the disk after a restart, unread if possible."""
        machine, disk = self._machine, self.disk
        disk.forget_pages()
        stored, fresh = disk.stored(), disk.take_fresh()
        if machine.config.is_restored_unread:
            machine.restore_paged(
                stored.paged, disk.next_number, is_timed=stored.is_timed, fresh=fresh
            )
        else:
            messages = self._stored_messages(list(stored.paged))
            limit = (
                RESTORE_BYTES if self.limit_bytes is None else min(self.limit_bytes, RESTORE_BYTES)
            )
            machine.restore_messages(messages, disk.next_number, limit_bytes=limit, fresh=fresh)

    def _stored_messages(self, numbers: list[int]) -> Iterator[tuple[int, Message]]:
        """Yield the messages that can be read; log the others as lost, and remove their records."""
        for start in range(0, len(numbers), RESTORE_MESSAGES):
            asked = numbers[start : start + RESTORE_MESSAGES]
            found = self.disk.read(asked)
            if len(found) < len(asked):
                lost = sorted({*asked} - {number for number, _ in found})
                self._tell_lost(lost)
                self.disk.settle(lost)
            yield from found

    def details(self, now_ms: int) -> QueueDetails:
        """Return what listings show of the queue beside its counts.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        found, stat = self._recorded(now_ms), self._machine.stat()
        out_bytes = (
            stat.ready_bytes + stat.unacked_bytes - self._machine.paging.counts().alpha_bytes
        )
        found.disk_bytes = max(found.persistent_bytes, out_bytes)  # most pages are recorded, too
        return found

    def look(self, now_ms: int) -> QueueLook:
        """Return what metrics show of the queue.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        machine = self._machine
        counts = machine.messages.counts
        if machine.is_idle:
            return QueueLook(counts, NOTHING, NO_DETAILS)
        return QueueLook(counts, self.stat(machine.stat()), self._recorded(now_ms))

    def _recorded(self, now_ms: int) -> QueueDetails:
        """Its details without `disk_bytes`."""
        found = self._machine.details(now_ms)
        found.persistent, found.persistent_bytes = self.disk.recorded()
        return found

    def stat(self, stat: QueueStat) -> QueueStat:
        """Add how many messages are in memory and on disk, for listings."""
        counts = self._machine.paging.counts()
        return stat._replace(
            alpha=counts.alpha,
            beta=counts.beta,
            gamma=counts.gamma,
            delta=counts.delta,
            ram_bytes=counts.ram_bytes,
            unacked_alpha=counts.unacked_ram,
            alpha_bytes=counts.alpha_bytes,
            next_number=self._machine.next_number,
            ram_target_bytes=self.limit_bytes,
            mode="lazy" if self._is_lazy else "default",
        )
