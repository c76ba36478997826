"""The messages of one queue on disk: recorded, paged out, and read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.content import Properties, build_message
from broker.fifo import ledger
from broker.fifo.ready.ram import stub_of
from broker.message import Delivery, Message
from broker.queues.disk_copy import PAGES_PER_SWEEP, DiskCopy
from broker.storage.message_store import MessageStore
from tests.memory_journal import MemoryJournal

UID = 7


def message(body: bytes, *, persistent: bool) -> Message:
    properties = Properties(delivery_mode=2 if persistent else 1)
    return build_message("", "q", properties, body)


class World:
    def __init__(self, *, durable: bool = True) -> None:
        self.journal = MemoryJournal()
        self.store = MessageStore(self.journal)
        self.copy = DiskCopy(self.store, UID, durable=durable)

    def enqueue(self, *items: tuple[int, Message]) -> bool:
        numbers = [number for number, _ in items]
        return self.copy.write([ledger.Enqueued(numbers, [each for _, each in items])])


KEPT, PASSING = message(b"kept", persistent=True), message(b"passing", persistent=False)
LARGE = message(b"l" * 9000, persistent=False)


def test_only_persistent_messages_of_durable_queues_are_recorded() -> None:
    world = World()
    assert world.enqueue((1, KEPT), (2, PASSING))
    assert not world.enqueue((3, PASSING))
    assert list(world.copy.stored().paged) == [1]
    assert not World(durable=False).enqueue((1, KEPT))


def test_the_end_of_what_is_not_recorded_costs_the_disk_nothing() -> None:
    """A mirrored queue's ledger names all messages; the end of a transient one needs no sync."""
    world = World()
    world.enqueue((1, KEPT), (2, PASSING))
    assert not world.copy.write([ledger.Settled([2])])
    assert not world.copy.write([ledger.Cleared(2, 900)])
    assert world.copy.write([ledger.Removed([1, 2])])
    assert not world.copy.write([ledger.Settled([1])])


def test_a_cleared_range_takes_records_and_pages_along() -> None:
    world = World()
    world.enqueue(*((number, KEPT) for number in range(1, 7)))
    world.copy.page_out([(7, PASSING), (8, LARGE), (9, PASSING)])
    assert world.copy.write([ledger.Cleared(3, 8)])
    assert [number for number, _ in world.copy.read([*range(1, 10)])] == [1, 2, 9]


def test_stubs_get_their_contents_back_in_their_order() -> None:
    world = World()
    world.enqueue((1, KEPT), (2, KEPT))
    world.copy.page_out([(3, LARGE)])
    items = [
        Delivery(3, 1, stub_of(LARGE)),
        Delivery(5, 0, PASSING),
        Delivery(1, 0, stub_of(KEPT)),
        Delivery(4, 2, stub_of(KEPT)),  # nowhere: left out
    ]
    whole = [Delivery(3, 1, LARGE), Delivery(5, 0, PASSING), Delivery(1, 0, KEPT)]
    assert world.copy.filled(items, keep=True) == whole
    assert world.copy.filled(items) == whole
    assert world.copy.filled(items[:1]) == []  # its page was taken
    assert world.copy.filled(items[1:2]) == items[1:2]


def test_pages_that_nobody_needs_are_swept_once_there_are_many() -> None:
    world = World(durable=False)
    world.copy.page_out([(number, PASSING) for number in range(1, PAGES_PER_SWEEP)])
    world.copy.sweep(lowest=PAGES_PER_SWEEP)
    assert len(world.copy.read([1, 2], keep=True)) == 2
    world.copy.page_out([(PAGES_PER_SWEEP, PASSING)])
    assert world.copy.is_sweep_due
    world.copy.sweep(lowest=PAGES_PER_SWEEP)
    assert not world.copy.is_sweep_due
    assert world.copy.read([*range(1, PAGES_PER_SWEEP + 1)]) == [(PAGES_PER_SWEEP, PASSING)]


@pytest.mark.parametrize("end", [ledger.Settled([3, 1]), ledger.Removed([1, 3])])
def test_the_page_of_what_ended_goes_with_it(end: ledger.Settled | ledger.Removed) -> None:
    """As a mirrored queue's ledger names it, or a plain queue's machine beside the ledger."""
    for name in ("write", "unpage"):
        world = World()
        world.copy.page_out([(1, PASSING), (2, LARGE), (3, LARGE)])
        getattr(world.copy, name)([end])
        world.journal.sync()
        assert len(world.journal.disk.families["pages"]) == 1
        assert len(world.journal.disk.families["page_bodies"]) == 1
        assert world.copy.read([1, 2, 3]) == [(2, LARGE)]


@settings(max_examples=30)
@given(st.sets(st.integers(1, 3000)), st.sets(st.integers(1, 3000)))
def test_a_restart_finds_what_was_recorded_and_no_page(recorded: set[int], paged: set[int]) -> None:
    world = World()
    world.enqueue(*((number, KEPT) for number in sorted(recorded)))
    world.copy.page_out([(number, PASSING) for number in sorted(paged - recorded)])
    world.journal.sync()
    again = DiskCopy(MessageStore(MemoryJournal(disk=world.journal.disk)), UID, durable=True)
    assert again.recover() == [(number, KEPT) for number in sorted(recorded)]
