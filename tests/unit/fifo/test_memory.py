"""The cost of a long queue for the garbage collector: decision 0032."""

from __future__ import annotations

import gc

import pytest

from broker.fifo.commands import (
    Checkout,
)
from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from tests.model.fifo_model import message
from tests.unit.fifo.test_paging import CHANNEL

WAITING = 100_000
WALKED_MAX = 2_000
"""A queue may have objects for each few hundred messages, not for each."""


@pytest.mark.parametrize("order", ["fifo", "priority", "due"])
def test_the_collector_has_nothing_to_walk_in_a_long_queue(order):
    machine = QueueMachine(QueueConfig(name="q", order=order, priority_max=3))
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(WAITING // 1_000):
        machine.enqueue([message(100) for _ in range(1_000)])
        machine.take_effects()
    gc.collect()
    assert machine.stat().ready == WAITING
    assert len(gc.get_objects()) - before < WALKED_MAX


def test_nor_in_what_a_consumer_holds():
    machine = QueueMachine(QueueConfig(name="q"))
    gc.collect()
    before = len(gc.get_objects())
    machine.enqueue([message(100) for _ in range(WAITING)])
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=0))
    while machine.pump():
        machine.take_effects()
    machine.take_effects()
    gc.collect()
    assert machine.stat().unacked == WAITING
    assert len(gc.get_objects()) - before < WALKED_MAX
