"""P16: after an orderly stop only messages that were delivered before are redelivered."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Get, Requeue
from broker.metadata import commands
from broker.metadata.records import Queue
from tests.memory_journal import MemoryDisk
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, Node, World, message

ARGUMENTS: list[dict[str, object]] = [
    {},
    {"x-queue-mode": "lazy"},
    {"x-max-priority": 3},
    {"x-message-deduplication": True},
]


@pytest.fixture(params=ARGUMENTS, ids=lambda each: next(iter(each), "plain"))
def served(request: pytest.FixtureRequest) -> tuple[World, Queue]:
    """Six messages of which the first two were handed out: one came back, one is held."""
    world = World()
    queue = world.declare(arguments=request.param)
    node, channel = world.nodes[A], Channel()
    handle = node.registry.open(queue)
    handle.publish([message(b"%d" % each) for each in range(1, 7)], list(range(1, 7)), channel)
    for _ in range(2):
        handle.submit(Get(node.channel_id(), False), _ignore)
    handle.submit(Requeue(node.channel_id(), "", [1]))
    world.settle()
    return world, queue


def _ignore(_result: object) -> None:
    pass


def started(world: World, disk: MemoryDisk, summary: list[bytes] | None) -> Node:
    node = world.boot(A, disk, summary)
    world.settle()
    return node


def counts(node: Node, queue: Queue) -> list[int]:
    """How often each message was delivered before; they are handed out by this."""
    channel = Channel()
    node.registry.open(queue).attach(node.spec(), channel, _ignore)
    node.world.settle()
    return [item.delivery_count for item in channel.delivered]


def test_what_nobody_was_handed_comes_as_new(served: tuple[World, Queue]) -> None:
    world, queue = served
    node = started(world, *world.stop_cleanly(A))
    assert counts(node, queue) == [1, 1, 0, 0, 0, 0]


def test_it_is_known_over_several_stops(served: tuple[World, Queue]) -> None:
    world, queue = served
    for _ in range(2):
        node = started(world, *world.stop_cleanly(A))
    assert counts(node, queue) == [1, 1, 0, 0, 0, 0]
    node = started(world, *world.stop_cleanly(A))
    assert counts(node, queue) == [1] * 6


def test_after_a_crash_everything_counts_as_delivered(served: tuple[World, Queue]) -> None:
    """What was new after the stop before it, too."""
    world, queue = served
    started(world, *world.stop_cleanly(A))
    node = started(world, world.kill(A), None)
    assert counts(node, queue) == [1] * 6


def test_a_broker_that_is_stopped_and_started_in_its_process_knows_too() -> None:
    """stop_app, start_app: another registry on the same store."""
    world = World()
    queue = world.declare()
    node, channel = world.nodes[A], Channel()
    node.registry.open(queue).publish([message(b"1"), message(b"2")], [1, 2], channel)
    node.registry.open(queue).submit(Get(node.channel_id(), False), _ignore)
    world.settle()
    node.registry.stop()
    node.registry.reconcile_all()
    assert counts(node, queue) == [1, 0]
    node.registry.stop()
    node.registry.reconcile_all()
    assert counts(node, queue) == [1, 1]


def test_a_mirrored_queue_that_nobody_took_over_knows_it_a_promoted_one_does_not() -> None:
    """P16: a mirror does not know what its master handed out."""
    trio = Trio()
    for name in (B, C):
        trio.kill(name)
    trio.tick(3)
    trio.confirmed(A, 1, 2)
    node = trio.nodes[A]
    node.registry.open(trio.queue).submit(Get(node.channel_id(), False), _ignore)
    trio.settle()
    trio.boot(A, *_stopped(trio, A))
    trio.tick(3)
    assert trio.master == A
    assert counts(trio.nodes[A], trio.queue) == [1, 0]

    trio = Trio()
    trio.confirmed(A, 1)
    trio.stop(A)
    trio.tick(3)
    assert trio.master == B
    assert counts(trio.nodes[B], trio.queue) == [1]


def _stopped(trio: Trio, name: str) -> tuple[MemoryDisk, list[bytes]]:
    """Its queues are handed over first, if anybody takes them."""
    mirrored = trio.nodes[name].registry.mirrored
    mirrored.pause(_nothing)
    trio.settle()
    trio.apply(commands.ChangeRings(tuple(mirrored.shutdown_handovers())))
    trio.settle()
    return trio.stop_cleanly(name)


def _nothing() -> None:
    pass
