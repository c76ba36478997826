"""One queue's messages on this node's disk, as its ledger says. Used by its home and its mirrors.

There are two kinds. Persistent messages of a durable queue are recorded, to survive a restart.
Other messages may be paged out to free memory; their pages end with the node. The store knows the
kind of each, so the settle of a message that is not recorded costs nothing.
"""

from __future__ import annotations

from typing import Final

from broker.fifo import ledger
from broker.fifo.fresh import NOTHING_FRESH, Fresh
from broker.fifo.ready.paged import Paged
from broker.message import Delivery, Message
from broker.storage.message_store import MessageStore, Stored

PAGES_PER_SWEEP: Final = 10_000
SWEEP_BYTES: Final = 64 * 1024 * 1024
"""After so many pages, or bytes of them, those that are not needed any more are dropped."""


class DiskCopy:
    """Writes one queue's ledger records to the store, and reads messages that left the memory.

    Args:
        store: This node's store.
        uid: The queue's incarnation.
        durable: False: nothing is ever recorded.
    """

    def __init__(self, store: MessageStore, uid: int, *, durable: bool) -> None:
        self._store = store
        self._uid = uid
        self._durable = durable
        self._pages = self._page_bytes = 0  # written since the last sweep
        self._paged = Paged()  # numbers of the pages that are there; their sizes are not noted

    def write(self, records: list[ledger.LedgerRecord]) -> bool:
        """Write what must survive a restart; True if anything must."""
        is_written = False
        for record in records:
            kind = type(record)
            if kind is ledger.Enqueued:
                assert isinstance(record, ledger.Enqueued)
                is_written |= self.put([*zip(record.numbers, record.messages, strict=True)])
            elif isinstance(record, ledger.Settled | ledger.Removed):
                is_written |= self.settle(record.numbers)
            elif isinstance(record, ledger.Cleared):
                is_written |= self.clear(record.first, record.last)
        return is_written

    def put(self, messages: list[tuple[int, Message]]) -> bool:
        """Record the persistent ones of some messages, which ascend; True if there were any."""
        if not self._durable:
            return False
        if not all([message.persistent for _, message in messages]):  # noqa: C419
            messages = [item for item in messages if item[1].persistent]
        self._store.put_many(self._uid, messages)
        return bool(messages)

    def settle(self, numbers: list[int]) -> bool:
        """Remove messages; True if any of them was recorded."""
        self._drop(numbers)
        return self._durable and self._store.settle(self._uid, numbers) > 0

    def clear(self, first: int, last: int) -> bool:
        """Remove all from number `first` to `last`; True if any of them was recorded."""
        self.drop_pages(first, last)
        return self._durable and self._store.clear(self._uid, first, last) > 0

    # Paging.

    def page_out(self, pages: list[tuple[int, Message]]) -> None:
        """Write messages that are not recorded, so that they can leave the memory."""
        self._pages += len(pages)
        self._page_bytes += sum([len(message.content) for _, message in pages])
        self._paged.add([(number, 0) for number, _ in pages])
        self._store.page_out(self._uid, pages)

    def read(self, numbers: list[int], *, keep: bool = False) -> list[tuple[int, Message]]:
        """Read messages; those that are lost are left out.

        Args:
            numbers: Ascending.
            keep: Pages stay; else they are removed, as the messages are in memory from now on.
        """
        if self._paged and not keep:
            self._paged.remove(numbers)
        return self._store.read_many(self._uid, numbers, keep=keep)

    def filled(self, items: list[Delivery], *, keep: bool = False) -> list[Delivery]:
        """Return deliveries with their contents, in the same order; what is lost is left out.

        Args:
            items: Some of them stubs.
            keep: Pages stay, as the queue goes on with its stubs.
        """
        numbers = _numbers_of_stubs(items)
        return _whole(items, dict(self.read(numbers, keep=keep))) if numbers else items

    def started(self, items: list[Delivery]) -> list[Delivery]:
        """As `filled` with `keep`; of large contents the first part alone."""
        numbers = _numbers_of_stubs(items)
        found = dict(self._store.read_starts(self._uid, numbers)) if numbers else {}
        return _whole(items, found) if numbers else items

    def drop_pages(self, first: int, last: int) -> None:
        """Remove all pages from number `first` to `last`, both included."""
        if self._paged and self._paged.remove_range(first, last):
            self._store.drop_pages(self._uid, first, last)

    def unpage(self, ended: list[ledger.LedgerRecord]) -> None:
        """Remove the pages of messages that no ledger names (`Effects.unpaged`)."""
        for record in ended:
            if isinstance(record, ledger.Settled | ledger.Removed):
                self._drop(record.numbers)
            elif isinstance(record, ledger.Cleared):
                self.drop_pages(record.first, record.last)

    def _drop(self, numbers: list[int]) -> None:
        """Remove the pages among some numbers."""
        if not self._paged:
            return
        found = self._paged.remove(numbers)
        if found:
            self._store.remove_pages(self._uid, found)

    def sweep(self, lowest: int) -> None:
        """Drop pages of messages that have left the queue, if there may be many.

        There should be none: `settle`, `clear` and `unpage` remove the pages of ended messages.

        Args:
            lowest: The queue has no message below this number.
        """
        if self.is_sweep_due:
            self._pages = self._page_bytes = 0
            self.drop_pages(0, lowest - 1)

    @property
    def is_sweep_due(self) -> bool:
        """True if `sweep` would do anything."""
        return self._pages >= PAGES_PER_SWEEP or self._page_bytes >= SWEEP_BYTES

    # Whole queues.

    def stored(self) -> Stored:
        """Return which messages are recorded, without reading them."""
        return self._store.stored(self._uid) if self._durable else Stored(Paged(), False)

    def recorded(self) -> tuple[int, int]:
        """Return how many messages are recorded, and their body bytes."""
        return self._store.recorded(self._uid) if self._durable else (0, 0)

    def note_fresh(self, fresh: Fresh) -> None:
        """Note which messages were never delivered, before an orderly stop of the queue (P16)."""
        if self._durable:
            self._store.note_fresh(self._uid, fresh)

    def take_fresh(self) -> Fresh:
        """Return and remove what the last orderly stop noted; nothing after a crash."""
        return self._store.take_fresh(self._uid) if self._durable else NOTHING_FRESH

    def recover(self) -> list[tuple[int, Message]]:
        """Return all recorded messages, in order."""
        return self.read(list(self.stored().paged))

    def forget_pages(self) -> None:
        """Remove pages from when this process served the queue before."""
        self._store.drop_pages(self._uid, 0, self.next_number - 1)

    @property
    def next_number(self) -> int:
        """The first number that was never stored in an earlier life."""
        return self._store.next_number(self._uid) if self._durable else 1

    def empty(self) -> None:
        """Remove all messages, but keep the note of which ring member's copy this is."""
        self._paged.clear()
        self._store.empty_queue(self._uid)

    def erase(self) -> None:
        """Remove everything the queue has on this disk."""
        self._paged.clear()
        self._store.delete_queue(self._uid)


def _numbers_of_stubs(items: list[Delivery]) -> list[int]:
    return sorted([item.number for item in items if item.message.is_stub])


def _whole(items: list[Delivery], found: dict[int, Message]) -> list[Delivery]:
    """Deliveries with the contents that were found, in the same order, without what was not."""
    return [
        Delivery(item.number, item.delivery_count, found[item.number])
        if item.message.is_stub
        else item
        for item in items
        if not item.message.is_stub or item.number in found
    ]
