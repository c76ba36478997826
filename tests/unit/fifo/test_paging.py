"""A machine that pages messages out and in; the test plays its disk."""

from __future__ import annotations

import sys

import pytest

from broker.fifo.checked_out import HELD_MIN_BYTES
from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Enqueue,
    Get,
    Purge,
    Release,
    Requeue,
    Settle,
    split_at_gets,
    split_at_looks,
)
from broker.fifo.config import QueueConfig, classic_config, quorum_config
from broker.fifo.ledger import Cleared, Removed
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.ram import HEAD_MESSAGES, MESSAGE_RAM_BYTES, STUB_RAM_BYTES
from broker.message import Message
from tests.model.fifo_model import message

CHANNEL = "a/1/1/1"
MIB = 1 << 20


class Disk:
    """A queue's shell as far as paging goes: it counts what it writes and reads."""

    def __init__(self, machine: QueueMachine, *, durable: bool = False) -> None:
        self.machine = machine
        self.durable = durable
        self.stored: dict[int, Message] = {}
        self.written = self.read = 0
        self.ram_max = 0

    def publish(self, messages: list[Message], level: int | None = None) -> None:
        first = self.machine.next_number
        self.machine.enqueue(messages)
        if self.durable:
            recorded = enumerate(messages, first)
            self.stored |= {number: each for number, each in recorded if each.persistent}
        if level is not None:
            self.page_out(level)

    def page_out(self, level: int) -> None:
        pages = self.machine.paging.page_out(level, durable=self.durable).pages
        assert not {number for number, _ in pages} & self.stored.keys()
        self.stored |= dict(pages)
        self.written += len(pages)

    def serve(self) -> list[tuple[int, int]]:
        """Serve until nothing is to be done; return number and delivery count of what was given."""
        machine = self.machine
        given: list[tuple[int, int]] = []
        is_due = True
        while is_due:
            is_due = machine.pump()
            for items in machine.take_effects().deliveries.values():
                assert all(item.message.content for item in items)
                given += [(item.number, item.delivery_count) for item in items]
            if not is_due and (numbers := machine.paging.needed()):
                found = [(number, self.stored[number]) for number in numbers]
                for number, each in found:
                    if not (self.durable and each.persistent):
                        del self.stored[number]
                assert machine.paging.page_in(numbers, found) == []
                self.read += len(numbers)
                self.ram_max = max(self.ram_max, machine.paging.ram_bytes)
                is_due = True
        return given


def _machine(*, durable: bool = False, **options: object) -> QueueMachine:
    machine = QueueMachine(QueueConfig(name="q", burst_max=2_000, **options))
    machine.set_time(1)
    machine.set_ledger("persistent" if durable else "none")
    return machine


@pytest.mark.parametrize("persistent", [True, False])
def test_a_deep_queue_takes_little_memory_and_keeps_its_order(persistent):
    disk = Disk(_machine(durable=True), durable=True)
    for _ in range(200):
        disk.publish([message(1_000, persistent=persistent)] * 100, MIB)
        assert disk.machine.paging.ram_bytes <= MIB
    counts = disk.machine.paging.counts()
    assert (counts.alpha + counts.delta, counts.beta, counts.gamma) == (20_000, 0, 0)
    assert counts.alpha <= MIB // 1_600
    assert disk.written == (0 if persistent else counts.delta)
    disk.machine.apply_command(Checkout(CHANNEL, "t", no_ack=True))
    assert disk.serve() == [(number, 0) for number in range(1, 20_001)]
    assert disk.read == counts.delta
    assert disk.ram_max <= 2 * MIB
    assert disk.machine.paging.ram_bytes == 0
    assert not disk.machine.paging.is_paged


def test_large_bodies_leave_stubs_first():
    disk = Disk(_machine(durable=True), durable=True)
    some = [message(8_000, persistent=number % 2 == 0) for number in range(200)]
    disk.publish(some, 500_000)
    counts = disk.machine.paging.counts()
    assert counts.delta == 0
    assert counts.beta == counts.gamma > 50
    assert counts.alpha * (8_000 + MESSAGE_RAM_BYTES) < 500_000
    disk.page_out(100_000)
    deeper = disk.machine.paging.counts()
    assert deeper.delta > 0
    assert (deeper.beta + deeper.gamma) * STUB_RAM_BYTES <= 50_000
    kept = {item.number for item in disk.machine.messages.contents() if item.message.content}
    assert disk.written == len({*range(2, 201, 2)} - kept)
    disk.machine.apply_command(Checkout(CHANNEL, "t", no_ack=True))
    assert [number for number, _ in disk.serve()] == list(range(1, 201))


def test_what_consumers_hold_leaves_too_and_comes_back_at_the_head():
    disk = Disk(_machine(), durable=False)
    disk.publish([message(1_000)] * 1_000)
    disk.machine.apply_command(Checkout(CHANNEL, "t"))
    assert len(disk.serve()) == 1_000
    disk.page_out(500_000)
    counts = disk.machine.paging.counts()
    assert (counts.beta, counts.unacked_ram) == (1_000, 0)
    assert disk.machine.paging.ram_bytes == 1_000 * STUB_RAM_BYTES
    disk.machine.apply_command(Settle(CHANNEL, "t", list(range(1, 501))))
    disk.machine.apply_command(Release(CHANNEL))
    assert disk.machine.paging.counts().beta == 500
    disk.page_out(100_000)
    assert disk.machine.paging.counts().delta > 250
    assert disk.machine.paging.ram_bytes <= 100_000
    disk.machine.apply_command(Checkout(CHANNEL, "t"))
    assert disk.serve() == [(number, 1) for number in range(501, 1_001)]


def test_little_that_is_held_is_left_alone():
    disk = Disk(_machine())
    disk.publish([message(1_000)] * 20)
    disk.machine.apply_command(Checkout(CHANNEL, "t"))
    disk.serve()
    assert 20 * (1_000 + MESSAGE_RAM_BYTES - STUB_RAM_BYTES) < HELD_MIN_BYTES
    disk.page_out(0)
    assert disk.machine.paging.counts().alpha == 20


def test_a_message_that_is_lost_loses_only_itself():
    disk = Disk(_machine(durable=True), durable=True)
    disk.publish([message(1_000, persistent=True)] * 100, 20_000)
    machine = disk.machine
    machine.take_effects()
    machine.apply_command(Checkout(CHANNEL, "t", no_ack=True))
    while machine.pump() or not machine.paging.needed():
        pass
    first = machine.paging.needed()
    found = [(number, disk.stored[number]) for number in first[1:]]
    assert machine.paging.page_in(first, found) == first[:1]
    assert machine.effects.ledger[-1] == Removed(first[:1])
    given = {item.number for items in machine.effects.deliveries.values() for item in items}
    given |= {number for number, _ in disk.serve()}
    assert given == {*range(1, 101)} - {first[0]}
    assert machine.stat().ready_bytes == 0


def test_nothing_is_read_that_nobody_waits_for():
    disk = Disk(_machine())
    disk.publish([message(100)] * 1_000, 50_000)
    machine = disk.machine
    assert machine.pump() is False
    assert machine.paging.needed() == []
    machine.apply_command(Get(CHANNEL, no_ack=True))
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=3))
    machine.pump()
    assert machine.paging.needed() == []
    assert disk.read == 0


def test_a_get_finds_what_is_on_disk_once_it_was_asked_for():
    disk = Disk(_machine())
    disk.publish([message(100)] * 100, 0)
    machine = disk.machine
    kept = machine.paging.counts().alpha
    assert 0 < kept < 100
    for number in range(1, 101):
        if numbers := machine.paging.needed(1):
            machine.paging.page_in(numbers, [(each, disk.stored[each]) for each in numbers])
        result = machine.apply_command(Get(CHANNEL, no_ack=True))
        assert result.delivery is not None
        assert (result.delivery.number, result.remaining) == (number, 100 - number)


def test_gets_begin_the_parts_of_a_batch():
    enqueue, get, settle = (
        Enqueue([message()] * 3),
        Get(CHANNEL, False),
        Settle(CHANNEL, "", [1]),
    )
    batch = CommandBatch("a/1/7/0", 4, 5, [enqueue, get, settle, get, get])
    assert split_at_gets(batch) == [
        CommandBatch("a/1/7/0", 4, 5, [enqueue]),
        CommandBatch("a/1/7/0", 4, 8, [get, settle]),
        CommandBatch("a/1/7/0", 4, 10, [get]),
        CommandBatch("a/1/7/0", 4, 11, [get]),
    ]
    plain = CommandBatch("a/1/7/0", 4, 5, [enqueue, settle])
    assert split_at_gets(plain) == [plain]


def test_consumers_are_served_before_what_looks_at_what_they_leave():
    enqueue, get, settle = (
        Enqueue([message()] * 3),
        Get(CHANNEL, False),
        Settle(CHANNEL, "", [1]),
    )
    cancel = Cancel(CHANNEL, "t")
    batch = CommandBatch(
        "a/1/7/0", 4, 5, [get, get, enqueue, settle, get, Purge(), get, cancel, get]
    )
    assert [(part.first, part.commands) for part in split_at_looks(batch)] == [
        (5, [get, get, enqueue, settle]),
        (11, [get, Purge(), get, cancel]),
        (15, [get]),
    ]
    plain = CommandBatch("a/1/7/0", 4, 5, [enqueue, settle])
    assert split_at_looks(plain) == [plain]


def test_a_deep_queue_is_purged_by_ranges_that_spare_what_is_held():
    disk = Disk(_machine(durable=True), durable=True)
    machine = disk.machine
    disk.publish([message(10, persistent=True)] * 1_000)
    for _ in range(600):
        machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(
        Requeue(CHANNEL, "", [n for n in range(1, 601) if n not in (300, 301, 500)])
    )
    disk.page_out(0)
    machine.take_effects()
    assert machine.paging.counts().delta > 990
    assert machine.apply_command(Purge()) == 997
    ledger = machine.take_effects().ledger
    spans = [record for record in ledger if isinstance(record, Cleared)]
    named = [n for record in ledger if isinstance(record, Removed) for n in record.numbers]
    assert len(named) < 10
    gone = {n for span in spans for n in range(span.first, span.last + 1)} | {*named}
    assert gone == {*range(1, 1_001)} - {300, 301, 500}
    assert (machine.stat().ready, machine.stat().unacked, machine.paging.is_paged) == (0, 3, False)


def test_over_a_length_limit_the_unread_go_by_number():
    disk = Disk(_machine(rules=Rules(max_length=100)))
    machine = disk.machine
    machine.set_rules(Rules())
    disk.publish([message(10)] * 1_000, 5_000)
    machine.set_rules(Rules(max_length=100))
    assert machine.pump() is False
    assert machine.paging.needed() == []
    assert (machine.stat().ready, machine.stat().ready_bytes) == (100, 1_000)
    assert machine.messages.lowest_number() == 901


def test_a_far_too_long_queue_is_shortened_a_little_at_a_time():
    machine = QueueMachine(QueueConfig(name="q", burst_max=2_000))
    machine.restore_paged(Paged((n, 10) for n in range(1, 25_001)), 25_001, is_timed=False)
    machine.set_rules(Rules(max_length=100))
    left = []
    while machine.pump():
        left.append(machine.stat().ready)
    assert [*left, machine.stat().ready] == [15_000, 5_000, 100]
    machine.set_rules(Rules(max_length_bytes=50))
    assert machine.pump() is False
    assert machine.stat().ready == 5


def test_dead_lettered_over_a_limit_they_are_read_first():
    disk = Disk(_machine(rules=Rules(is_dead_lettered=True)))
    machine = disk.machine
    disk.publish([message(10)] * 100, 5_000)
    machine.set_rules(Rules(max_length=10, is_dead_lettered=True))
    dead = []
    while machine.pump() or (numbers := machine.paging.needed()):
        dead += [item for each in machine.take_effects().dead for item in each.items]
        machine.paging.page_in(numbers, [(number, disk.stored[number]) for number in numbers])
    dead += [item for each in machine.take_effects().dead for item in each.items]
    assert [item.number for item in dead] == list(range(1, 91))
    assert all(item.message.content for item in dead)


def _given_after(machine: QueueMachine, stored: dict[int, Message]) -> list[tuple[int, int]]:
    disk = Disk(machine)
    disk.stored = dict(stored)
    machine.apply_command(Checkout(CHANNEL, "t", no_ack=True))
    return disk.serve()


@pytest.mark.parametrize("in_memory", [(0, 0), (5, 5), (400, 0), (0, 400), (2_000, 0)])
def test_a_queue_restored_unread_is_the_one_that_was_read(in_memory):
    stored = {n: message(n % 50, persistent=True) for n in range(7, 1_500) if n % 7}
    whole = QueueMachine(classic_config("q", "/", durable=True))
    whole.restore_messages(stored.items(), 2_000)
    unread = QueueMachine(classic_config("q", "/", durable=True))
    items = list(stored.items())
    head, tail = items[: in_memory[0]], items[len(items) - in_memory[1] :]
    rest = items[len(head) : len(items) - len(tail)]
    paged = Paged((number, each.body_size) for number, each in rest)
    unread.restore_paged(paged, 2_000, is_timed=False, head=head, tail=tail)
    for machine in (whole, unread):
        machine.enqueue([message(3)])
    stored[2_000] = message(3)
    assert unread.stat() == whole.stat()
    assert unread.messages.lowest_number() == whole.messages.lowest_number()
    assert unread.messages.from_number(500, 9)[0][:2] == whole.messages.from_number(500, 9)[0][:2]
    given = _given_after(unread, stored)
    assert given == _given_after(whole, stored)
    assert given[-2:] == [(1_499, 1), (2_000, 0)]


def test_what_a_mirror_had_in_memory_may_lie_anywhere():
    stored = {n: message(n, persistent=True) for n in range(1, 101)}
    head = [(n, stored[n]) for n in (1, 2, 50, 51, 99, 100)]
    paged = Paged((n, n) for n in stored if n not in dict(head))
    machine = QueueMachine(classic_config("q", "/", durable=True))
    machine.restore_paged(paged, 101, is_timed=False, head=head)
    assert [item.number for item in machine.messages.contents()] == list(range(1, 101))
    assert _given_after(machine, stored) == [(n, 1) for n in range(1, 101)]


def test_a_timed_queue_restored_unread_knows_when_its_head_is_due():
    def timed(expires_ms):
        return Message("", "q", b"h" * 15, 1, 14, 1, True, expires_ms=expires_ms)

    stored = {1: timed(50), 2: timed(60), 3: timed(0)}
    machine = QueueMachine(classic_config("q", "/", durable=True))
    machine.set_time(55)
    machine.restore_paged(Paged((n, 1) for n in stored), 4, is_timed=True)
    assert machine.due_ms() is None
    disk = Disk(machine)
    disk.stored = dict(stored)
    assert disk.serve() == []
    assert (machine.stat().ready, machine.due_ms()) == (2, 60)


def test_levels_of_priority_are_restored_unread():
    stored = {n: Message("", "q", b"h" * 15, 1, 14, 1, True, priority=n % 3) for n in range(1, 31)}
    machine = QueueMachine(QueueConfig(name="q", order="priority", priority_max=2))
    levels = {level: Paged((n, 1) for n in stored if n % 3 == level) for level in range(3)}
    machine.restore_paged(levels, 31, is_timed=False)
    expected = sorted(stored, key=lambda n: (-(n % 3), n))
    assert _given_after(machine, stored) == [(n, 1) for n in expected]


def test_a_queue_that_must_be_read_is_restored_within_a_limit():
    config = QueueConfig(name="q", order="priority", priority_max=2, ledger="persistent")
    assert not config.is_restored_unread
    machine = QueueMachine(config)
    seen_max = 0

    def read():
        nonlocal seen_max
        for n in range(1, 20_001):
            seen_max = max(seen_max, machine.paging.ram_bytes if n % 1_000 == 1 else 0)
            yield n, Message("", "q", b"h" * 1_014, 1, 14, 1_000, True, priority=n % 3)

    machine.restore_messages(read(), 20_001, limit_bytes=MIB)
    assert seen_max <= MIB
    assert machine.stat().ready == 20_000
    assert machine.paging.counts().delta > 19_000


@pytest.mark.parametrize(("levels", "is_better"), [(10, True), (255, False)])
def test_a_queue_with_many_priorities_never_takes_more_for_paging(levels, is_better):
    machine = QueueMachine(QueueConfig(name="q", order="priority", priority_max=levels))
    some = [Message("", "q", b"h" * 114, 1, 14, 100, False, priority=n) for n in range(levels)]
    for _ in range(20_000 // levels):
        machine.enqueue(some)
    before = machine.paging.ram_bytes
    machine.paging.page_out(0, durable=False)
    assert machine.paging.ram_bytes <= before
    assert (machine.paging.ram_bytes < before // 5) == is_better


def test_queues_whose_order_is_not_that_of_numbers_keep_everything():
    for config in (quorum_config("q", "/", None), QueueConfig(name="q", order="due")):
        machine = QueueMachine(config)
        machine.enqueue([message(100)] * 100)
        assert machine.paging.page_out(0, durable=False).pages == []
        assert machine.paging.counts()[:4] == (100, 0, 0, 0)


def test_the_head_that_was_read_is_not_let_go_again_at_once():
    """Else every read would be done twice."""
    disk = Disk(_machine())
    for _ in range(50):
        disk.publish([message(1_000)] * 100, MIB)
    disk.machine.apply_command(Checkout(CHANNEL, "t", prefetch=1))
    given = []
    while not given or given[-1] < 2_000:
        numbers = [number for number, _ in disk.serve()]
        disk.machine.apply_command(Settle(CHANNEL, "t", numbers))
        disk.page_out(MIB)
        given += numbers
    assert given == list(range(1, given[-1] + 1))
    assert disk.read <= 2_000 + HEAD_MESSAGES
    assert disk.written <= 5_000


def _calls(level: int | None) -> int:
    """Count the calls it takes to publish, and consume, 10,000 messages."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    disk = Disk(_machine())
    batch = [message(100)] * 50
    sys.setprofile(count)
    try:
        for _ in range(200):
            disk.machine.enqueue(batch)
            disk.machine.pump()
            if level is not None:
                disk.stored.update(disk.machine.paging.page_out(level, durable=False).pages)
        disk.machine.apply_command(Checkout(CHANNEL, "t", no_ack=True))
        disk.serve()
    finally:
        sys.setprofile(None)
    return calls


def test_paging_costs_about_as_much_as_the_messages_themselves():
    plain, paged = _calls(None), _calls(MIB // 4)
    assert paged <= 3 * plain
