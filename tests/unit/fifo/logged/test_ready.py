"""Queues of several blocks: `tests/model/test_fifo_logged.py` has all that few messages show."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker.fifo.commands import VERSION, CommandBatch, Enqueue, QueueEntry
from broker.fifo.config import quorum_config
from broker.fifo.logged.blocks import BLOCK
from broker.fifo.logged.positions import Positions
from broker.fifo.logged.ready import EXPIRED_MAX, LoggedFifo
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.queue import body_bytes
from broker.fifo.snapshot import SnapshotError
from broker.message import Delivery
from tests.model.fifo_model import again, message

WINDOW_BYTES = 20_000
CONFIG = quorum_config("q", "/", None)


def facts(items: Sequence[Delivery]) -> list[tuple[int, int, int, int]]:
    return [
        (each.number, each.delivery_count, each.message.body_size, each.message.expires_ms)
        for each in items
    ]


def test_it_hands_out_what_a_fifo_in_memory_does() -> None:
    draw = random.Random(5)
    logged, plain = LoggedFifo(Positions(), WINDOW_BYTES), PagedFifo(by_number=False)
    out: list[Delivery] = []
    number = 1
    for _ in range(400):
        chance = draw.random()
        if chance < 0.4:
            count, expires = draw.choice((1, 30, BLOCK + 50)), draw.choice((0, 0, 5))
            items = [
                Delivery(n, 0, message(n % 90, expires_ms=expires))
                for n in range(number, number + count)
            ]
            number += count
        elif chance < 0.5 and out:
            items = [again(out.pop(draw.randrange(len(out)))) for _ in range(min(9, len(out)))]
            if draw.random() < 0.5:
                logged.give_back(items)
                plain.give_back(items)
                continue
        elif chance < 0.6:
            numbers = draw.sample(range(1, number + 1), min(number, 40))
            assert facts(logged.drop(numbers)) == facts(plain.drop(numbers))
            continue
        elif chance < 0.65:
            assert facts(logged.take_expired(6)) == facts(plain.take_expired(6)[:EXPIRED_MAX])
            continue
        else:
            count = draw.choice((1, 7, 600, 2 * BLOCK))
            some, size_bytes = logged.take(count)
            items, expected = plain.take(count)
            assert facts(some) == facts(items)
            assert size_bytes == expected
            out += draw.sample(items, min(len(items), 20))
            continue
        logged.append(items, body_bytes(items))
        plain.append(items, body_bytes(items))
        assert len(logged) == len(plain)
        assert logged.size_bytes == plain.size_bytes
    assert facts(logged.in_order()) == facts(plain.in_order())


def published(count: int, ttl_ms: int = -1) -> QueueMachine:
    machine = QueueMachine(CONFIG, WINDOW_BYTES)
    first = 1
    for index in range(count // 100):
        enqueue = Enqueue([message(70, ttl_ms=ttl_ms)] * 100)
        batch = CommandBatch("a/1/7/0", first, first, [enqueue])
        machine.apply_entry(QueueEntry(VERSION, 1_000 + index, [batch]), index + 1)
        first += 100
    machine.take_effects()
    return machine


@pytest.mark.parametrize(("ttl_ms", "bytes_max"), [(-1, 9), (50_000, 17)])
def test_a_message_takes_a_few_bytes_in_memory_and_in_a_checkpoint(
    ttl_ms: int, bytes_max: int
) -> None:
    machine = published(100_000, ttl_ms)
    assert machine.messages.ready.ram_bytes < WINDOW_BYTES + 100_000 * bytes_max
    parts = machine.snapshot()
    assert sum(map(len, parts)) < 100_000 * bytes_max
    other = QueueMachine(CONFIG, WINDOW_BYTES)
    other.restore(parts)
    assert other.snapshot() == parts
    assert facts(other.messages.peek(0, 1 << 30)) == facts(machine.messages.peek(0, 1 << 30))
    assert other.messages.is_timed is (ttl_ms > 0)


def test_many_messages_expire_at_once() -> None:
    machine = published(30_000, 5_000)
    machine.apply_entry(QueueEntry(VERSION, 100_000, []), 1_000)
    assert machine.take_effects().died == {"expired": 30_000}
    assert not machine.ready_count


def test_a_damaged_checkpoint_is_refused() -> None:
    parts = published(3_000).snapshot()
    for damaged in ([parts[0][:-5]], [parts[0][:200]], [b""], []):
        with pytest.raises(SnapshotError):
            QueueMachine(CONFIG, WINDOW_BYTES).restore(damaged)
