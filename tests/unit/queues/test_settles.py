"""P18: the outcome of a settle is told once, and not before it is safe."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.fifo.commands import Discard, Requeue, Settle
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.handle import QueueHandle
from tests.unit.queues.rig import A, B, Channel, World, message

WAYS = (Settle, Requeue, Discard)


def holding(world: World, queue: Queue, node: str) -> QueueHandle:
    """A handle on `node` whose channel holds message 1."""
    handle, channel = world.nodes[node].registry.open(queue), Channel()
    handle.attach(world.nodes[node].spec(prefetch=1), channel, lambda _result: None)
    handle.publish([message()], [1], channel)
    world.settle()
    assert channel.verdicts == [(1, True)]
    assert [item.number for item in channel.delivered] == [1]
    return handle


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("node", [A, B])
def test_what_was_held_is_settled(way: type[Settle | Requeue | Discard], node: str) -> None:
    world = World()
    handle, told = holding(world, world.declare(), node), list[object]()
    handle.submit(way(world.nodes[node].channel_id(), "t", [1]), told.append)
    world.settle()
    assert told == [None]


@pytest.mark.parametrize("node", [A, B])
def test_what_is_not_held_any_more_is_lost(node: str) -> None:
    world = World()
    handle, told = holding(world, world.declare(), node), list[object]()
    handle.submit(Settle(world.nodes[node].channel_id(), "t", [1, 2]), told.append)
    world.settle()
    assert [type(each) for each in told] == [Refusal]


def test_at_its_home_a_durable_queue_tells_after_the_sync() -> None:
    world = World()
    handle, told = holding(world, world.declare(), A), list[object]()
    world.is_synced = False
    handle.submit(Settle(world.nodes[A].channel_id(), "t", [1]), told.append)
    world.settle()
    assert told == []
    world.is_synced = True
    world.settle()
    assert told == [None]


def test_a_settle_on_its_way_is_lost_with_the_queues_home() -> None:
    world = World()
    handle, told = holding(world, world.declare(), B), list[object]()
    world.cut.add((B, A))
    handle.submit(Settle(world.nodes[B].channel_id(), "t", [1]), told.append)
    world.settle()
    world.kill(A)
    handle.submit(Settle(world.nodes[B].channel_id(), "t", [1]), told.append)
    assert [type(each) for each in told] == [Refusal, Refusal]


def test_a_settle_on_its_way_to_a_queue_that_is_deleted_is_done() -> None:
    world = World()
    queue = world.declare()
    handle, told = holding(world, queue, B), list[object]()
    world.cut.add((B, A))
    handle.submit(Settle(world.nodes[B].channel_id(), "t", [1]), told.append)
    world.settle()
    world.apply(commands.DeleteQueue(queue.uid))
    assert told == [None]


def test_a_settle_on_its_way_survives_a_change_of_leader() -> None:
    world = World()
    queue = world.declare_quorum()
    world.lead(queue, A)
    handle, told = holding(world, queue, B), list[object]()
    world.cut.add((B, A))
    handle.submit(Settle(world.nodes[B].channel_id(), "t", [1]), told.append)
    world.settle()
    assert told == []
    world.lead(queue, B)
    world.settle()
    assert told == [None]
    assert world.replicas[queue.uid][B].stat().unacked == 0
