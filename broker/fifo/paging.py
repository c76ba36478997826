"""A queue that needs not have its messages in memory: what leaves, what is read, what all takes.

The queue never reads. Its shell does, in the same turn, and serves again:

    while machine.pump() ... or (numbers := machine.page_needed()):
        machine.page_in(numbers, disk.read(numbers))

Messages in line leave from the tail (`lines.depths`), then what consumers hold: of that stubs
remain, and it is read when it is returned and at the head again.

Invariants: 1. what a consumer is given was whole. 2. `ram_bytes` is the sum over all messages, by
their states. 3. what left the memory is on disk: `PageOut.pages` were written in the same turn, and
everything else before.
"""

from __future__ import annotations

from typing import Final

from broker.fifo import ledger
from broker.fifo.lines.line import Cut
from broker.fifo.lines.ram import (
    MESSAGE_RAM_BYTES,
    PAGE_IN_BYTES,
    STUB_RAM_BYTES,
    Counts,
    PageOut,
    stub_of,
)
from broker.fifo.queue import Queue
from broker.message import Delivery, Message

HELD_MIN_BYTES: Final = 1 << 16
"""As long as no more than this can be saved, what consumers hold is left alone."""

CHUNKS_BYTES: Final = 1 << 16
"""By so much, at most, the first look at what can be saved is wrong."""


class Paging(Queue):
    """A queue that pages; see the module."""

    __slots__ = ("_is_durable", "_window_bytes")

    def _clear(self) -> None:
        super()._clear()
        self._window_bytes = PAGE_IN_BYTES
        self._is_durable = True

    @property
    def is_paged(self) -> bool:
        """Whether a `Get` or a consumer may have to wait for the disk."""
        return self._ready.is_paged or self._held_stubs.count > 0

    @property
    def ram_bytes(self) -> int:
        """About what all messages here take of the memory, in bytes."""
        stubs, dying = self._held_stubs, self._dying
        count = self.unacked - stubs.count + len(dying)
        size_bytes = self.unacked_bytes - stubs.size_bytes + dying.size_bytes
        held = count * MESSAGE_RAM_BYTES + size_bytes + stubs.count * STUB_RAM_BYTES
        return self._ready.ram_bytes + held

    def counts(self) -> Counts:
        """Count the messages here by their states."""
        ready, held = self._ready.stubs, self._held_stubs
        delta, delta_bytes = self._ready.delta
        stubs = ready.count + held.count
        gamma = ready.recorded + held.recorded if self._is_durable else 0
        whole = len(self._ready) + len(self._dying) - ready.count - delta
        whole_bytes = self._ready.size_bytes + self._dying.size_bytes
        unacked = self.unacked - held.count
        unacked_bytes = self.unacked_bytes - held.size_bytes
        return Counts(
            alpha=whole + unacked,
            beta=stubs - gamma,
            gamma=gamma,
            delta=delta,
            ram_bytes=self.ram_bytes,
            unacked_ram=unacked,
            alpha_bytes=whole_bytes - ready.size_bytes - delta_bytes + unacked_bytes,
            unacked_alpha_bytes=unacked_bytes,
        )

    def page_out(self, limit_bytes: int, *, durable: bool) -> PageOut:
        """Let messages leave the memory until the rest takes no more than a limit.

        Some of the head stays, about half of the limit, and at least one message. Queues whose
        order is not that of numbers (`QueueConfig.may_page`) keep everything.

        Args:
            limit_bytes: As much memory may be used.
            durable: The queue's persistent messages are on disk: its ledger was written.

        Returns:
            What must be written now.
        """
        if not self.config.may_page:
            return PageOut([])
        self._is_durable = durable
        self._window_bytes = min(PAGE_IN_BYTES, limit_bytes // 2)
        excess_bytes = self.ram_bytes - limit_bytes
        stubs = self._ready.stubs.count + self._held_stubs.count
        cut = Cut(
            excess_bytes,
            window_bytes=self._window_bytes,
            stub_bytes=limit_bytes // 2 - stubs * STUB_RAM_BYTES,
            durable=durable,
        )
        if excess_bytes > 0:
            self._is_spilled = True
            self._ready.page_out(cut)
            cut.excess_bytes = self.ram_bytes - limit_bytes
            if 0 < cut.excess_bytes < CHUNKS_BYTES:  # a delta takes its memory by the chunk
                self._ready.page_out(cut)
        if cut.excess_bytes > 0:
            self._page_out_held(cut)
        return PageOut(cut.pages)

    def _page_out_held(self, cut: Cut) -> None:
        """Let stubs remain of what consumers hold, holder by holder."""
        stubs = self._held_stubs
        saved = MESSAGE_RAM_BYTES - STUB_RAM_BYTES
        savable = (self.unacked - stubs.count) * saved + self.unacked_bytes - stubs.size_bytes
        if savable < HELD_MIN_BYTES:
            return
        for held in self._all_held():
            whole: list[Delivery] = []
            for number in reversed(held):  # what was taken last is whole
                item = held[number]
                if not item.message.content:
                    break
                whole.append(item)
            cut.note(whole)
            new = [
                Delivery(item.number, item.delivery_count, stub_of(item.message)) for item in whole
            ]
            held.update([(item.number, item) for item in new])
            before_bytes = stubs.size_bytes
            stubs.add(new)
            cut.excess_bytes -= stubs.size_bytes - before_bytes + len(new) * saved
            if cut.excess_bytes <= 0:
                return

    def page_needed(self, count: int = 0) -> list[int]:
        """Say what must be read before the queue can go on. What has expired is let die first.

        Args:
            count: How many messages a `Get` will ask for now: 0 or 1.

        Returns:
            Numbers, ascending; none where nothing waits for the disk.
        """
        ready = self._ready
        if not ready.is_paged:
            return []
        if self._is_timed:
            self._expire(self.now_ms if count else self.now_ms - 1)
        if not len(ready) or ready.at_hand():
            return []
        if count or self._is_wanted() or (ready.head() is None and self._dies_next()):
            return ready.needed(self._window_bytes)
        return []

    def _dies_next(self) -> bool:
        """Tell whether the head may have to die for what stands in it."""
        if self._is_timed:
            return True
        rules, ready = self.rules, self._ready
        if not (self._drops_head and rules.is_dead_lettered):
            return False
        length_max, bytes_max = rules.max_length, rules.max_length_bytes
        return (length_max is not None and len(ready) > length_max) or (
            bytes_max is not None and ready.size_bytes > bytes_max
        )

    def page_in(self, numbers: list[int], found: list[tuple[int, Message]]) -> list[int]:
        """Take what was read; `pump` follows.

        Args:
            numbers: As `page_needed` gave them.
            found: Those that were found.

        Returns:
            The numbers that were not: lost, and removed.
        """
        lost = self._ready.page_in(numbers, dict(found))
        if lost and self.config.ledger != "none":
            self._note(ledger.Removed(lost))
        return lost
