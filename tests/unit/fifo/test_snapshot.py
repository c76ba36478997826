from __future__ import annotations

import msgspec
import pytest

from broker.fifo.commands import (
    Checkout,
    Get,
    SetActive,
)
from broker.fifo.config import QueueConfig
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.snapshot import PART_BYTES, SnapshotError
from broker.message import Delivery
from tests.model.fifo_model import message
from tests.wire import every_field

CONFIG = QueueConfig(name="q")


def _restored(parts: list[bytes]) -> QueueMachine:
    machine = QueueMachine(CONFIG)
    machine.restore(parts)
    return machine


def test_an_empty_queue_is_one_small_part():
    parts = QueueMachine(CONFIG).snapshot()
    assert len(parts) == 1
    assert _restored(parts).stat() == QueueMachine(CONFIG).stat()


def test_no_part_is_larger_than_a_megabyte_whatever_the_messages():
    machine = QueueMachine(CONFIG)
    machine.enqueue([message(3 * PART_BYTES), message(5), message(PART_BYTES)])
    parts = machine.snapshot()
    assert max(len(part) for part in parts) == PART_BYTES
    other = _restored(parts)
    assert other.snapshot() == parts
    assert other.stat() == machine.stat()


def test_consumers_come_back_with_their_turn_and_arguments():
    machine = QueueMachine(CONFIG)
    machine.apply_command(
        Checkout("h", "a", prefetch=3, arguments={"x-priority": 1, "note": ["x", None]})
    )
    machine.apply_command(Checkout("h", "b", no_ack=True))
    machine.enqueue([message()])
    machine.pump()
    machine.apply_command(SetActive("h", "b", active=False))
    other = _restored(machine.snapshot())
    assert other.snapshot() == machine.snapshot()
    other.enqueue([message()] * 3)
    other.pump()
    assert list(other.take_effects().deliveries) == [("h", "a")]


def test_consumers_arguments_of_every_field_type_come_back():
    machine = QueueMachine(CONFIG)
    machine.apply_command(Checkout("h", "a", arguments=every_field.values()))
    parts = machine.snapshot()
    assert _restored(parts).snapshot() == parts


@pytest.mark.parametrize("damage", ["none", "short", "long", "text", "version"])
def test_a_damaged_snapshot_is_refused(damage):
    machine = QueueMachine(CONFIG)
    machine.enqueue([message()] * 5)
    (part,) = machine.snapshot()
    parts = {
        "none": [],
        "short": [part[:-3]],
        "long": [part + b"\0"],
        "text": [part[:4] + b"\xc1" + part[5:]],
        "version": [part[:5] + b"\x63" + part[6:]],
    }[damage]
    with pytest.raises(SnapshotError):
        _restored(parts)


def test_restoring_leaves_nothing_to_be_done():
    """P15: a ledger that notes what was taken long ago would be replayed by mirrors twice."""
    machine = QueueMachine(QueueConfig(name="q", ledger="all"))
    machine.enqueue([message()])
    machine.apply_command(Get("h", no_ack=False))
    other = QueueMachine(QueueConfig(name="q", ledger="all"))
    other.restore(machine.snapshot())
    assert not other.take_effects()


def test_a_snapshot_of_an_earlier_version_is_readable():
    """Version 1 as it was before time, rules and doubles came to its head."""
    head = msgspec.msgpack.encode([1, 4, 1, [], [], [], [], 7])
    old = ["", "q", b"h" * 14 + b"bbb", 1, 14, 3, True]
    fresh = msgspec.msgpack.encode([0, "", "", [[0, 3, 1, old]]])
    sections = [len(each).to_bytes(4, "big") + each for each in (head, fresh)]
    machine = QueueMachine(QueueConfig(name="q", rules=Rules(max_length=5), dedup_size=2))
    machine.restore([b"".join(sections)])
    assert machine.messages.peek(0, 9) == [Delivery(3, 1, message(persistent=True))]
    assert (machine.now_ms, machine.rules, machine.position) == (0, Rules(max_length=5), 7)
    assert machine.due_ms() is None
