"""P1, P6, P10: messages held by a dead boot are requeued, however the node learns of its death."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Checkout, CommandBatch, Enqueue, session_name
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import QueueStat
from tests.unit.queues.rig import A, B, C, Channel, World, message


def stat(world: World, queue: Queue, node: str = A) -> QueueStat:
    found: list[object] = []
    world.nodes[node].registry.open(queue).stat(found.append)
    world.settle()
    (one,) = found
    assert isinstance(one, QueueStat), one
    return one


def consuming(world: World, queue: Queue, node: str, channel: Channel | None = None) -> Channel:
    """A consumer on `node` that holds the one message of the queue."""
    channel = channel or Channel()
    handle = world.nodes[node].registry.open(queue)
    refusals: list[object] = []
    handle.attach(world.nodes[node].spec(), channel, refusals.append)
    handle.publish([message()], [1], channel)
    world.settle()
    assert refusals == [None]
    assert [item.number for item in channel.delivered] == [1]
    return channel


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_what_a_dead_boot_held_comes_back(by_snapshot: bool) -> None:
    """P6: a snapshot of group 0 says it too, without an event for each boot."""
    world = World()
    queue = world.declare()
    consuming(world, queue, B)
    boot = world.nodes.pop(B).boot
    world.apply(commands.EndBoot(B, boot), by_snapshot=by_snapshot)
    after = stat(world, queue)
    assert (after.ready, after.unacked, after.consumers) == (1, 0, 0)


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_consumers_hear_that_their_queues_home_has_a_new_boot(
    by_snapshot: bool,
) -> None:
    """P6: nothing is under way, so no answer would ever tell."""
    world = World()
    queue = world.declare()
    channel = consuming(world, queue, B)
    world.apply(commands.BootNode(A, "e" * 16, A), by_snapshot=by_snapshot)
    world.settle()
    assert channel.lost == ["t"]


def test_a_leader_ends_a_boot_again_when_its_proposal_was_dropped() -> None:
    """P6, P10: the end of a boot is proposed until the queue knows of it."""
    world = World()
    queue = world.declare_quorum()
    world.lead(queue, A)
    consuming(world, queue, B)
    world.is_dropping = True
    world.kill(B)
    world.settle()
    world.is_dropping = False
    world.tick()
    after = stat(world, queue)
    assert (after.ready, after.unacked, after.consumers) == (1, 0, 0)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_batches_of_an_ended_boot_are_dropped(kind: str) -> None:
    """P1: also where the queue has never heard of that boot."""
    world = World()
    queue = world.declare() if kind == "classic" else world.declare_quorum()
    if kind == "quorum":
        world.lead(queue, A)
    boot = world.nodes[B].boot
    world.kill(B)
    channel_id = f"{B}/{boot}/1/1.1"
    session = session_name(B, boot, queue.uid, 0)
    late = [Checkout(channel_id, "t", False, False, 0, 0, {}), Enqueue([message()])]
    world.nodes[A].registry.receive_commands(queue.uid, CommandBatch(session, 1, 1, late))
    world.settle()
    after = stat(world, queue)
    assert (after.ready, after.consumers) == (0, 0)


def test_batches_of_a_boot_that_is_not_known_yet_are_taken() -> None:
    """A node that has restarted very often may be ahead of this node's group 0."""
    world = World()
    queue = world.declare_quorum()
    world.lead(queue, A)
    for number in range(20):
        world.apply(commands.BootNode(B, f"f{number:015x}", B))
    session = session_name(B, "e" * 16, queue.uid, 0)
    batch = CommandBatch(session, 1, 1, [Enqueue([message()])])
    world.nodes[A].registry.receive_commands(queue.uid, batch)
    world.tick()
    assert stat(world, queue).ready == 1
    assert (B, "e" * 16) in world.replicas[queue.uid][A]._machine.boots()
    world.tick(120)  # still unknown: it ended longer ago than group 0 remembers
    assert (B, "e" * 16) not in world.replicas[queue.uid][A]._machine.boots()


def test_a_record_from_before_a_delete_revives_nothing() -> None:
    """A transaction may name queues that were deleted since it was begun."""
    world = World()
    for home in (A, B):
        queue = world.declare(home=home)
        registry, channel = world.nodes[A].registry, Channel()
        registry.open(queue)
        world.apply(commands.DeleteQueue(queue.uid))
        registry.open(queue).publish([message()], [1], channel)
        refusals: list[object] = []
        registry.open(queue).attach(world.nodes[A].spec(), channel, refusals.append)
        world.settle()
        assert channel.verdicts == [(1, True)]  # as RabbitMQ: the queue went in good order
        assert len(refusals) == 1
        assert refusals[0] is not None
        assert registry.find(queue.uid) is None
        assert not registry.served_here()


def test_a_publish_whose_transient_queue_died_with_its_home_is_nacked() -> None:
    """P12: group 0 deletes such a queue, but it did not go in good order."""
    world = World(A, B, C)
    queue = world.declare(durable=False)
    channel = Channel()
    world.cut.add((B, A))
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    world.settle()
    world.kill(A)
    world.settle()
    assert channel.verdicts == [(1, False)]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_replica_that_was_moved_away_is_erased(by_snapshot: bool) -> None:
    """P6."""
    world = World()
    queue = world.declare_quorum()
    assert set(world.replicas[queue.uid]) == {A, B}
    world.apply(commands.MoveMembers(queue.uid, (A,)), by_snapshot=by_snapshot)
    assert set(world.replicas[queue.uid]) == {A}


def test_the_tick_of_many_queues_has_a_step_for_each_and_passes_over_those_that_went() -> None:
    """A turn of the loop is a slice of it, however many queues a node has."""
    world = World()
    queues = [world.declare(f"q{number}") for number in range(30)]
    registry = world.nodes[queues[0].home].registry
    steps = registry.tick()
    next(steps)
    for queue in queues[10:]:
        world.apply(commands.DeleteQueue(queue.uid))
    assert sum(1 for _ in steps) == 9
    assert sum(1 for _ in registry.tick()) == 10
