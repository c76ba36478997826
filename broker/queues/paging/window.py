"""Paging of one classic queue: messages are written out where memory is short, read when needed.

The machine says which messages are to leave or to come (`broker.fifo`), and never reads. This reads
and writes for it, in the same turn, a little at a time: whatever takes longer goes on in the loop's
next turn, for a deep queue must not hold up the node.

Invariants:
1. What leaves the memory is on disk before the turn ends: the ledger is handed in first, and what
   no ledger records is written as pages.
2. Nothing leaves the queue without its content: stubs are filled before the ledger that removes
   their records is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker.fifo.commands import Get, Offer, split_at_gets, split_at_looks
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.paged import CHUNK
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import QueueStat
from broker.queues.dead_letters import DeadLetters
from broker.queues.disk_copy import DiskCopy
from broker.queues.node import NodeContext
from broker.queues.paging.level import DEEP_RAM_BYTES, LAZY_RAM_BYTES, LAZY_READ_BYTES

_log = logging.getLogger(__name__)

CHUNK_RAM_BYTES: Final = 4 * CHUNK + 300
"""What so many neighbours take that are on disk (`Paged.ram_bytes`)."""

SHARE_MIN_BYTES: Final = 1 << 15
"""Less than this is not worth the reading and writing."""

NO_LIMIT_BYTES: Final = 1 << 60

STEP_BYTES: Final = 1 << 20
"""At most so much leaves the memory in one turn: some 5 ms."""

STUCK_BYTES: Final = 1 << 16
"""A queue that can't page out enough is looked at again when it has grown by that much."""

TARGETS_S: Final = 0.1
"""A queue whose messages die unread waits so long where their targets are behind."""

RESTORE_MESSAGES: Final = 500
"""So many are read at a time where a restart has to read all."""

RESTORE_BYTES: Final = 16 * 1024 * 1024
"""So much of it stays in memory."""

HEAD_READS: Final = 2
"""A basic.get reads so often in one turn; it goes on in the next."""

LOST_SHOWN: Final = 10


class Window:
    """Decides which messages of one classic queue are in memory; writes and reads them.

    Args:
        record: The queue.
        machine: Its machine.
        disk: Where its messages are.
        node: Where the queue lives.
        dead_letters: Tells whether the targets of what dies are behind.
        hand_in: Writes the machine's ledger.
        serve: Serves the queue's consumers again, from `pump` on.
        is_lazy: It keeps next to nothing in memory.

    Attributes:
        disk: As given; a promoted mirror's takes its place.
        is_over: The queue is served here no more.
        level: Above so many bytes in memory some have to leave; None is `DEEP_RAM_BYTES`.
    """

    __slots__ = (
        "_dead_letters",
        "_hand_in",
        "_is_lazy",
        "_is_looking_again",
        "_is_pumping_on",
        "_is_shrinking",
        "_is_told",
        "_machine",
        "_node",
        "_node_level",
        "_record",
        "_serve",
        "_stuck_bytes",
        "_was_consumed",
        "disk",
        "is_over",
        "level",
    )

    def __init__(
        self,
        record: Queue,
        machine: QueueMachine,
        disk: DiskCopy,
        node: NodeContext,
        dead_letters: DeadLetters,
        hand_in: Callable[[], None],
        serve: Callable[[], None],
        *,
        is_lazy: bool,
    ) -> None:
        self._record = record
        self._machine = machine
        self._hand_in = hand_in
        self._serve = serve
        self._node = node
        self._dead_letters = dead_letters
        self._is_pumping_on = False
        self._is_looking_again = False
        self.disk = disk
        self._is_shrinking = False
        self._is_lazy = is_lazy
        self.is_over = False
        self._node_level: int | None = None
        self._stuck_bytes = 0
        self._is_told = False
        self._was_consumed = False
        self.level: int | None = None
        self._set_level()

    # How much there may be. A `pager.Pageable`.

    @property
    def ram_bytes(self) -> int:
        """What the queue's messages take of the memory, about."""
        return self._machine.paging.ram_bytes

    @property
    def is_paging(self) -> bool:
        """Does it write, or soon, what nobody asked to keep?"""
        return self.level is not None or 2 * self._machine.paging.ram_bytes > DEEP_RAM_BYTES

    def follow(self, *, is_lazy: bool) -> None:
        """The queue's mode is another now."""
        if is_lazy is not self._is_lazy and not self.is_over:
            self._is_lazy = is_lazy
            self._set_level()

    def end(self) -> None:
        """The queue is served here no more: nothing leaves the memory."""
        self.is_over = True
        self.level = None

    def page_to(self, level: int | None) -> None:
        """What the node gives each of its queues now."""
        if level != self._node_level and not self.is_over:
            self._node_level = level
            self._set_level()
        self.keep_to_level()

    def _set_level(self) -> None:
        self._stuck_bytes = 0
        self._is_told = False
        levels = [LAZY_RAM_BYTES] if self._is_lazy else []
        if self._node_level is not None:
            levels.append(self._node_level)
        self.level = min(levels, default=None)

    def _limit(self) -> int:
        """Most memory the queue may take now; never less than what can't leave, and a little.

        A lazy queue has more while somebody consumes from it.
        """
        fixed_bytes = CHUNK_RAM_BYTES * (1 + self._machine.paging.counts().delta // CHUNK)
        limits = [DEEP_RAM_BYTES + fixed_bytes]
        if self._is_lazy:
            share = LAZY_READ_BYTES if self._is_consumed() else LAZY_RAM_BYTES
            limits.append(share + fixed_bytes)
        if self._node_level is not None:
            limits.append(max(self._node_level, SHARE_MIN_BYTES + fixed_bytes))
        return min(limits)

    def _is_consumed(self) -> bool:
        return self._machine.consumer_count > 0

    def keep_to_level(self) -> None:
        """After each batch: let go of what is above the level, a step each turn."""
        level = DEEP_RAM_BYTES if self.level is None else self.level
        if self._machine.paging.ram_bytes <= level or self.is_over:
            return
        self._hand_in()
        if self._shrink() and not self._is_shrinking:
            self._is_shrinking = True
            self._node.defer(self._shrink_on)

    def _shrink_on(self) -> None:
        self._is_shrinking = False
        self.keep_to_level()

    def _shrink(self) -> bool:
        """Take one step towards the level; True where another is due."""
        machine = self._machine
        before = machine.paging.ram_bytes
        limit = self._limit()
        if 2 * before < self._stuck_bytes:
            self._stuck_bytes = 0  # what could not leave has gone since
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
            # What can't leave is not tried again at once: there has to be more of it.
            self._stuck_bytes = after + max(after // 4, STUCK_BYTES)
            return False
        return after > limit

    def _sweep(self) -> None:
        lowest = self._machine.messages.lowest_number()
        self.disk.sweep(self._machine.next_number if lowest is None else lowest)

    # What is waited for.

    def pump(self) -> None:
        """Hand out what consumers can take, and read what they wait for, a batch of it.

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
            self._serve()

    def _waits_for_targets(self) -> bool:
        """Whether what dies unread shall do so later: where it goes takes no more now."""
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
            self._serve()

    def bring_head(self) -> bool:
        """Have the next message at hand; False where that takes longer: much has expired."""
        for _ in range(HEAD_READS):
            numbers = self._machine.paging.needed(1)
            if not numbers:
                return True
            self._read(numbers)
        return not self._machine.paging.needed(1)

    def apply_offer(self, offer: Offer, now_ms: int) -> None:
        """Apply an offer; consumers that wait come first, and a basic.get finds the head at hand.

        Args:
            offer: Of another node, or of a channel here.
            now_ms: Milliseconds since the epoch.
        """
        for part in split_at_looks(offer):
            self._apply_part(part, now_ms)

    def _apply_part(self, offer: Offer, now_ms: int) -> None:
        machine = self._machine
        if not machine.paging.is_paged:
            machine.apply_offer(offer, now_ms)
            return
        for part in split_at_gets(offer):
            if part.commands and type(part.commands[0]) is Get:
                machine.set_time(now_ms)
                while not self.bring_head():
                    pass  # few: what had expired was let die before (`gate.wait_for_head`)
            machine.apply_offer(part, now_ms)

    def bring(self) -> bool:
        """Read what the head of the queue is needed for, a batch of it; `pump` follows.

        Returns:
            False where nothing is waited for.
        """
        if not self._is_told or (self._is_lazy and self._is_consumed() is not self._was_consumed):
            self._tell()
        numbers = self._machine.paging.needed()
        if numbers:
            self._read(numbers)
        return bool(numbers)

    def _tell(self) -> None:
        """Let the machine read in batches that fit: it goes by the last limit it was told."""
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
        """Read the contents of what died, while it is on the disk."""
        dead = self._machine.effects.dead
        for index, each in enumerate(dead):
            filled = self.disk.filled(each.items, keep=each.is_held)
            dead[index] = each._replace(items=filled)

    def unpage(self) -> None:
        """Remove the pages of what has ended; the dead were filled before."""
        effects = self._machine.effects
        ended, effects.unpaged = effects.unpaged, []
        self.disk.unpage(ended)

    def fill_deliveries(self) -> None:
        """Read the contents of what is delivered again."""
        if not self._machine.paging.is_paged:
            return
        deliveries = self._machine.effects.deliveries
        for key, items in deliveries.items():
            deliveries[key] = self.disk.filled(items, keep=True)

    # Whole queues.

    def restore(self) -> None:
        """Begin with what the disk holds after a restart, unread where that can be."""
        machine, disk = self._machine, self.disk
        disk.forget_pages()
        stored, fresh = disk.stored(), disk.take_fresh()
        if machine.config.is_restored_unread:
            machine.restore_paged(
                stored.paged, disk.next_number, is_timed=stored.is_timed, fresh=fresh
            )
        else:
            messages = self._stored_messages(list(stored.paged))
            limit = RESTORE_BYTES if self.level is None else min(self.level, RESTORE_BYTES)
            machine.restore_messages(messages, disk.next_number, limit_bytes=limit, fresh=fresh)

    def _stored_messages(self, numbers: list[int]) -> Iterator[tuple[int, Message]]:
        """What the disk has of these; the records of the others go, for nothing comes of them."""
        for start in range(0, len(numbers), RESTORE_MESSAGES):
            asked = numbers[start : start + RESTORE_MESSAGES]
            found = self.disk.read(asked)
            if len(found) < len(asked):
                lost = sorted({*asked} - {number for number, _ in found})
                self._tell_lost(lost)
                self.disk.settle(lost)
            yield from found

    def stat(self, stat: QueueStat) -> QueueStat:
        """Say where the messages are, for listings."""
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
            ram_target_bytes=self.level,
            mode="lazy" if self._is_lazy else "default",
        )
