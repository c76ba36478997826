"""One queue's messages on this node's disk, as its ledger says. Used by its home and its mirrors.

Only persistent messages of a durable queue are stored. A mirrored queue's ledger names the others
too; they are remembered, so that their end costs the disk nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.fifo import ledger
from broker.message import Message
from broker.storage.message_store import MessageStore


class DiskCopy:
    """Writes one queue's ledger records to the store.

    Args:
        store: This node's.
        uid: The queue's incarnation.
        durable: False: nothing is ever written.
    """

    def __init__(self, store: MessageStore, uid: int, *, durable: bool) -> None:
        self._store = store
        self._uid = uid
        self._durable = durable
        self._unstored: set[int] = set()

    def write(self, records: list[ledger.LedgerRecord]) -> bool:
        """Write what must survive a restart; True if that was anything."""
        if not self._durable:
            return False
        is_written = False
        for record in records:
            kind = type(record)
            if kind is ledger.Enqueued:
                assert isinstance(record, ledger.Enqueued)
                is_written |= self.put(zip(record.numbers, record.messages, strict=True))
            elif isinstance(record, ledger.Settled | ledger.Removed):
                is_written |= self.settle(record.numbers)
        return is_written

    def put(self, messages: Iterable[tuple[int, Message]]) -> bool:
        """Store the persistent ones of some messages; True if there were any."""
        if not self._durable:
            return False
        stored = []
        for item in messages:
            if item[1].persistent:
                stored.append(item)
            else:
                self._unstored.add(item[0])
        self._store.put_many(self._uid, stored)
        return bool(stored)

    def settle(self, numbers: list[int]) -> bool:
        """Remove messages; True if any of them may be stored."""
        unstored = self._unstored
        if unstored:
            kept = [number for number in numbers if number not in unstored]
            unstored.difference_update(numbers)
            numbers = kept
        if numbers:
            self._store.settle(self._uid, numbers)
        return bool(numbers)

    def recover(self) -> list[tuple[int, Message]]:
        """All that is stored, in order."""
        return self._store.recover(self._uid) if self._durable else []

    @property
    def next_number(self) -> int:
        """The first number that was never stored in an earlier life."""
        return self._store.next_number(self._uid) if self._durable else 1

    def empty(self) -> None:
        """Remove all messages; whose copy this is stays noted."""
        self._store.empty_queue(self._uid)
        self._unstored.clear()

    def erase(self) -> None:
        """Remove everything the queue has on this disk."""
        self._store.delete_queue(self._uid)
        self._unstored.clear()
