"""A mirror that is filled while its queue goes on, and both let go of their messages (P26).

The master's ledger and the batches reach the mirror by two ways, one as late as it likes against
the other. What is in a batch is cut from what the master has at that moment, not at the mark.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Enqueue,
    Get,
    Purge,
    Requeue,
    Settle,
)
from broker.fifo.config import mirrored_config
from broker.fifo.join_state import Ranges, decode_join_state, encode_join_state
from broker.fifo.ledger import Cleared, LedgerRecord, cut_records, decode_records, encode_records
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.fifo.sync_batch import SyncBatch
from broker.message import Message
from tests.model.fifo_model import message
from tests.model.sync_batches import Disk, next_batch, page_in, whole

SEEDS = 400
STEPS = 60
CHANNEL = "a/1/1/1"
SESSION = "a/1/7/0"


class Pair:
    """A master, a mirror that joins it when it has messages, and what is under way between them.

    Attributes:
        ring: What the mirror has not read yet: payloads, and marks as calls.
        batches: SyncBatchPlan, and not yet taken by the mirror.
        filled: How many batches it took.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.config = mirrored_config("q", "/")
        self.master = QueueMachine(self.config)
        self.disk = Disk()
        self.replica = LedgerReplica()
        self.copy = Disk()
        self.ring: list[bytes | Callable[[], None]] = []
        self.batches: list[SyncBatch] = []
        self.filled = 0
        self.cleared = 0
        self.low = self.last = 0
        self.has: Ranges | None = None
        self.is_marked = self.is_over = False
        self.published = 0
        self.master.apply_batch(CommandBatch(SESSION, 1, 1, []), 1)

    # The master

    def publish(self) -> None:
        count = self.rng.choice((1, 1, 3, 8))
        messages = [
            message(self.published + n, persistent=self.rng.random() < 0.5)
            for n in range(1, count + 1)
        ]
        first = self.published + 1
        self.published += count
        self.master.apply_batch(CommandBatch(SESSION, 1, first, [Enqueue(messages)]), 1)
        self.turn()

    def get(self) -> None:
        for _ in range(self.rng.choice((1, 1, 4))):
            page_in(self.master, self.disk, 1)
            self.master.apply_command(Get(CHANNEL, no_ack=self.rng.random() < 0.3))
        self.turn()

    def settle(self) -> None:
        held = list(self.master.messages.checked_out.held_by(CHANNEL).get("", {}))
        some = self.rng.sample(held, self.rng.randint(0, len(held)))
        if self.rng.random() < 0.7:
            self.master.apply_command(Settle(CHANNEL, "", some))
        else:
            self.master.apply_command(Requeue(CHANNEL, "", some))
        self.turn()

    def purge(self) -> None:
        if self.rng.random() < 0.2:
            self.master.apply_command(Purge())
            self.turn()

    def page(self) -> None:
        limit = self.rng.choice((0, 2_000, 8_000))
        self.disk.page_out(self.master.paging.page_out(limit, durable=True).pages)

    def turn(self) -> None:
        records = self.master.take_effects().ledger
        self.disk.write(records)
        self.cleared += sum(isinstance(record, Cleared) for record in records)
        self.ring += [encode_records(group) for group in cut_records(records)]

    # The mirror

    def join(self) -> None:
        join_state = encode_join_state(self.master.join_state())
        self.ring.append(lambda: self.replica.adopt(decode_join_state(join_state)))

    def mark(self, *, is_emptied: bool) -> None:
        self.low, self.last = 1, self.master.next_number - 1
        self.is_marked = True

        def reached() -> None:
            if is_emptied:
                self.replica.empty()
                self.copy = Disk()
            self.replica.begin_sync()
            self.has = self.replica.ranges()[: self.rng.choice((0, 1, 99))]

        self.ring.append(reached)

    def cut(self) -> None:
        """The master sends a batch, or says in the ring that it was the last."""
        if self.has is None or self.is_over:
            return
        if self.low > self.last:
            self.is_over = True
            return
        batch = next_batch(self.master, self.disk, self.low, self.last, self.has, items_max=3)
        self.low = batch.high + 1
        self.batches.append(batch)

    def take(self) -> None:
        if self.batches:
            added, dropped = self.replica.apply_sync_batch(self.batches.pop(0))
            self.copy.settle(dropped)
            self.copy.put(added)
            self.filled += 1

    def read(self) -> None:
        for _ in range(min(self.rng.choice((1, 3, 9)), len(self.ring))):
            what = self.ring.pop(0)
            if callable(what):
                what()
            else:
                self.replay(decode_records(what))

    def replay(self, records: list[LedgerRecord]) -> None:
        self.replica.apply(records)
        self.copy.write(records)

    def page_copy(self) -> None:
        limit = self.rng.choice((0, 2_000, 8_000))
        self.copy.page_out(self.replica.page_out(limit, durable=True).pages)

    # All of it

    def run(self) -> None:
        begin = (self.publish, self.publish, self.get, self.settle, self.page)
        for _ in range(20):
            self.rng.choice(begin)()
        self.join()
        for _ in range(10):
            self.rng.choice((*begin, self.read, self.page_copy))()
        self.mark(is_emptied=self.rng.random() < 0.5)
        steps = (*begin, self.purge, self.read, self.read, self.page_copy)
        for _ in range(STEPS):
            self.rng.choice((*steps, self.cut, self.cut, self.take, self.take))()
        while self.ring or self.batches or not self.is_over:
            self.rng.choice((self.read, self.cut, self.take, self.page_copy))()
        self.replica.end_sync()

    def copied(self) -> list[tuple[int, Message]]:
        paged = self.copy.read(self.replica.paged_numbers(), keep=True)
        return sorted(self.replica.messages() + paged)


@pytest.mark.parametrize("block", range(4))
def test_a_mirror_has_what_its_master_has_whatever_happened_during_its_fill(block: int) -> None:
    """P26: nothing is lost, nothing that was settled meanwhile comes back."""
    left = filled = paged = cleared = 0
    for seed in range(block, SEEDS, 4):
        pair = Pair(seed)
        pair.run()
        here = whole(pair.master, pair.disk)
        assert pair.copied() == here, seed
        assert pair.replica.next_number == pair.master.next_number
        left += len(here)
        filled += pair.filled
        paged += pair.replica.paged
        cleared += pair.cleared
        assert set(pair.copy.records) == {n for n, each in here if each.persistent}, seed
    assert left > SEEDS
    assert filled > SEEDS
    assert paged > SEEDS // 2
    assert cleared > 20


@pytest.mark.parametrize("block", range(4))
def test_a_mirror_that_is_promoted_goes_on_with_what_it_has_paged_out(block: int) -> None:
    """P16: everything is there, at its old place, redelivered, and answers for what it saw."""
    for seed in range(block, SEEDS, 4):
        pair = Pair(seed)
        pair.run()
        before = pair.copied()
        machine = pair.replica.promote(pair.config)
        assert whole(machine, pair.copy) == before, seed
        assert machine.stat().ready == len(before)
        batch = CommandBatch(SESSION, 1, 1, [Enqueue([message()] * pair.published)])
        machine.apply_batch(batch, 1)
        verdicts = machine.take_effects().verdicts
        assert all(each.ok for each in verdicts), "it holds it, or saw it settled (P11)"
        found = []
        machine.apply_command(Checkout(CHANNEL, "t"))
        machine.pump()
        while len(found) < len(before):
            page_in(machine, pair.copy)
            machine.pump()
            for items in machine.take_effects().deliveries.values():
                found += items
        assert [(item.number, item.message) for item in found] == before, seed
        assert all(item.delivery_count for item in found)
