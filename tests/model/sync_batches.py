"""A member's disk in a model test, and the batches of a synchronisation cut from a machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.fifo.join_state import Ranges
from broker.fifo.ledger import Cleared, Enqueued, LedgerRecord, Removed, Settled
from broker.fifo.machine import QueueMachine
from broker.fifo.sync_batch import SyncBatch, plan_sync_batch
from broker.message import Message

Numbered = Iterable[tuple[int, Message]]


class Disk:
    """What a member of a durable queue has on disk: its persistent messages, and its pages."""

    def __init__(self) -> None:
        self.records: dict[int, Message] = {}
        self.pages: dict[int, Message] = {}

    def write(self, records: list[LedgerRecord]) -> None:
        for record in records:
            if isinstance(record, Enqueued):
                self.put(zip(record.numbers, record.messages, strict=True))
            elif isinstance(record, Settled | Removed):
                self.settle(record.numbers)
            elif isinstance(record, Cleared):
                here = {*self.records, *self.pages}
                self.settle([n for n in here if record.first <= n <= record.last])

    def put(self, messages: Numbered) -> None:
        self.records.update([item for item in messages if item[1].persistent])

    def settle(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.records.pop(number, None)
            self.pages.pop(number, None)

    def page_out(self, pages: Numbered) -> None:
        for number, message in pages:
            assert message.content, "a stub is no page"
            self.pages[number] = message

    def read(self, numbers: Iterable[int], *, keep: bool = False) -> list[tuple[int, Message]]:
        """A page that was read is gone; a record stays."""
        found = []
        for number in numbers:
            message = self.records.get(number)
            if message is None:
                message = self.pages[number] if keep else self.pages.pop(number)
            found.append((number, message))
        return found


def page_in(machine: QueueMachine, disk: Disk, count: int = 0) -> None:
    """Read what the machine waits for, as its shell would.

    Args:
        count: Messages a `Get` will ask for now.
    """
    while needed := machine.paging.needed(count):
        assert machine.paging.page_in(needed, disk.read(needed)) == [], "nothing is lost here"


def whole(machine: QueueMachine, disk: Disk) -> list[tuple[int, Message]]:
    """All a machine has, wherever it is."""
    items = machine.messages.from_number(0, 1 << 60)
    return [
        (number, message)
        if message is not None and message.content
        else disk.read([number], keep=True)[0]
        for number, _, message in items
    ]


def next_batch(
    machine: QueueMachine, disk: Disk, low: int, last: int, has: Ranges, *, items_max: int = 7
) -> SyncBatch:
    """The next batch of a synchronisation, cut from what the machine has now.

    Args:
        low: First number it is about.
        last: Last number batches are about.
        has: What the mirror has.
    """
    count = items_max + 2
    items = machine.messages.from_number(low, count)
    is_rest = len(items) < count
    cut = plan_sync_batch(items, last, has, is_rest=is_rest, items_max=items_max, bytes_max=60)
    numbers = [number for number, _, _ in cut.wanted]
    here = dict(disk.read([n for n, _, m in cut.wanted if m is None or not m.content], keep=True))
    messages = [here.get(number) or message for number, _, message in cut.wanted]
    assert all(message is not None for message in messages)
    return SyncBatch(low, cut.high, cut.held, numbers, messages)


def batches_of(
    machine: QueueMachine, disk: Disk, has: Ranges, *, items_max: int = 7
) -> Iterator[SyncBatch]:
    """All batches of a synchronisation."""
    low, last = 1, machine.next_number - 1
    while True:
        batch = next_batch(machine, disk, low, last, has, items_max=items_max)
        yield batch
        low = batch.high + 1
        if low > last:
            return
