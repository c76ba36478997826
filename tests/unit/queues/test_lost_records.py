"""Records whose checksum is wrong, in queues that a restart has to read."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.records import Queue
from tests.memory_journal import MemoryDisk
from tests.unit.queues.rig import A, Channel, World, message

COUNT = 10


def damaged(**arguments: object) -> tuple[World, Queue, MemoryDisk]:
    """A node that ended, and one of its records with it."""
    world = World(A)
    queue = world.declare(arguments={key.replace("_", "-"): arguments[key] for key in arguments})
    handle = world.nodes[A].registry.open(queue)
    bodies = [b"%d" % number + b"." * 6_000 for number in range(COUNT)]
    handle.publish([message(body) for body in bodies], list(range(1, COUNT + 1)), Channel())
    world.settle()
    disk = world.kill(A)
    records = disk.families["queue_index"]
    key = sorted(records)[4]
    records[key] = records[key][:-1] + bytes((records[key][-1] ^ 1,))
    return world, queue, disk


def ready(world: World, queue: Queue) -> int:
    found: list[Any] = []
    world.nodes[A].registry.open(queue).stat(found.append)
    world.settle()
    count: int = found[0].ready
    return count


@pytest.mark.parametrize(
    "arguments", [{"x_max_priority": 3}, {"x_message_deduplication": True}], ids=str
)
def test_a_damaged_record_is_told_once_and_removed(
    arguments: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    world, queue, disk = damaged(**arguments)
    world.boot(A, disk)
    world.settle()
    (told,) = [each for each in caplog.records if each.message == "queue.messages_lost"]
    assert (told.__dict__["queue"], told.__dict__["numbers"]) == ("q", [5])
    assert ready(world, queue) == COUNT - 1
    assert len(disk.families["queue_index"]) == len(disk.families["bodies"]) == COUNT - 1
    caplog.clear()
    world.kill(A)
    world.boot(A, disk)
    world.settle()
    assert "lost" not in caplog.text
    assert ready(world, queue) == COUNT - 1
