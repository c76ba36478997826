"""Paging of a queue: which messages leave the memory, and which must be read from disk.

The queue does no IO. Its shell reads in the same turn, and serves again:

    while machine.pump() or (numbers := machine.paging.needed()):
        machine.paging.page_in(numbers, disk.read(numbers))

Ready messages leave from the tail (`ready.fifo`), then unacknowledged ones: stubs of these remain,
and they are read when they are returned and at the head again.

Invariants: 1. consumers are given whole messages only. 2. `ram_bytes` is the sum over all messages,
by their states. 3. messages that left the memory are on disk: `PageOut.pages` were written in the
same turn, and all others before.
"""

from __future__ import annotations

from typing import Final

from broker.fifo import ledger
from broker.fifo.consumers import Consumers
from broker.fifo.message_state import MessageState
from broker.fifo.ready.queue import Eviction
from broker.fifo.ready.ram import (
    MESSAGE_RAM_BYTES,
    PAGE_IN_BYTES,
    STUB_RAM_BYTES,
    Counts,
    PageOut,
)
from broker.message import Message

CHUNKS_BYTES: Final = 1 << 16
"""Most bytes by which paging out may first fall short, as a delta takes memory in chunks."""


class Paging:
    """The memory of one queue.

    Args:
        messages: The queue's messages.
        consumers: The consumers that may want the head.
    """

    __slots__ = ("_consumers", "_is_durable", "_messages", "_window_bytes")

    def __init__(self, messages: MessageState, consumers: Consumers) -> None:
        self._messages = messages
        self._consumers = consumers
        self._window_bytes = PAGE_IN_BYTES
        self._is_durable = True

    @property
    def is_paged(self) -> bool:
        """True if a `Get` or a consumer may have to wait for the disk."""
        messages = self._messages
        return messages.checked_out.stubs.count > 0 or messages.ready.is_paged

    @property
    def ram_bytes(self) -> int:
        """About what all messages here take of the memory, in bytes."""
        messages = self._messages
        held, held_dead = messages.checked_out, messages.dead_letters
        ram_bytes = messages.ready.ram_bytes
        if held.count:
            ram_bytes += held.ram_bytes
        if held_dead.count:
            ram_bytes += held_dead.count * MESSAGE_RAM_BYTES + held_dead.size_bytes
        return ram_bytes

    def counts(self) -> Counts:
        """Count the messages here by their states."""
        messages = self._messages
        ready, held, held_dead = messages.ready, messages.checked_out, messages.dead_letters
        ready_stubs = ready.stubs
        delta, delta_bytes = ready.delta
        stubs = ready_stubs.count + held.stubs.count
        gamma = ready_stubs.recorded + held.stubs.recorded if self._is_durable else 0
        whole = len(ready) + held_dead.count - ready_stubs.count - delta
        whole_bytes = ready.size_bytes + held_dead.size_bytes
        unacked = held.count - held.stubs.count
        unacked_bytes = held.size_bytes - held.stubs.size_bytes
        return Counts(
            alpha=whole + unacked,
            beta=stubs - gamma,
            gamma=gamma,
            delta=delta,
            ram_bytes=self.ram_bytes,
            unacked_ram=unacked,
            alpha_bytes=whole_bytes - ready_stubs.size_bytes - delta_bytes + unacked_bytes,
            unacked_alpha_bytes=unacked_bytes,
        )

    def page_out(self, limit_bytes: int, *, durable: bool) -> PageOut:
        """Page messages out until the rest takes no more than a limit.

        Part of the head stays, about half of the limit, and at least one message. Queues whose
        order is not that of numbers (`QueueConfig.may_page`) keep everything.

        Args:
            limit_bytes: The memory that may be used.
            durable: The queue's persistent messages are on disk: its ledger was written.

        Returns:
            The messages that must be written now.
        """
        messages = self._messages
        if not messages.config.may_page:
            return PageOut([])
        ready, held = messages.ready, messages.checked_out
        self._is_durable = durable
        self._window_bytes = min(PAGE_IN_BYTES, limit_bytes // 2)
        excess_bytes = self.ram_bytes - limit_bytes
        stubs = ready.stubs.count + held.stubs.count
        eviction = Eviction(
            excess_bytes,
            window_bytes=self._window_bytes,
            stub_bytes=limit_bytes // 2 - stubs * STUB_RAM_BYTES,
            durable=durable,
        )
        if excess_bytes > 0:
            messages.recorder.is_spilled = True
            ready.page_out(eviction)
            eviction.excess_bytes = self.ram_bytes - limit_bytes
            if 0 < eviction.excess_bytes < CHUNKS_BYTES:  # a delta takes its memory by the chunk
                ready.page_out(eviction)
        if eviction.excess_bytes > 0:
            held.page_out(eviction)
        return PageOut(eviction.pages)

    def needed(self, count: int = 0) -> list[int]:
        """Return what must be read before the queue can go on; expired messages are removed first.

        Args:
            count: How many messages a `Get` will ask for now: 0 or 1.

        Returns:
            Numbers, ascending; none if nothing waits for the disk.
        """
        messages = self._messages
        ready = messages.ready
        if not ready.is_paged:
            return []
        if messages.is_timed:
            messages.expire(messages.now_ms if count else messages.now_ms - 1)
        if not len(ready) or ready.at_hand():
            return []
        is_wanted = count > 0 or self._consumers.next_ring() is not None
        if is_wanted or (ready.head() is None and self._dies_next()):
            return ready.needed(self._window_bytes)
        return []

    def _dies_next(self) -> bool:
        """True if the head must be read because it may have expired or be dead-lettered."""
        messages = self._messages
        limits = messages.limits
        if messages.is_timed:
            return True
        return limits.drops_head and limits.rules.is_dead_lettered and messages.is_too_long()

    def page_in(self, numbers: list[int], found: list[tuple[int, Message]]) -> list[int]:
        """Take messages that were read; `pump` must follow.

        Args:
            numbers: As `needed` gave them.
            found: Those that were found.

        Returns:
            The numbers that were not found: these messages are lost, and removed.
        """
        recorder = self._messages.recorder
        lost = self._messages.ready.page_in(numbers, dict(found))
        if lost and recorder.mode != "none":
            recorder.note(ledger.Removed(lost))
        return lost
