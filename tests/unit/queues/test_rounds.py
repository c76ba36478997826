"""The once-a-second round: who has something to do comes each time, the idle ones in turn."""

from __future__ import annotations

from broker.queues.registry import SWEEP_TICKS
from tests.unit.queues.rig import A, B, Channel, World, message


def idle_world(count: int) -> World:
    world = World()
    for number in range(count):
        world.lead(world.declare_quorum(f"q{number}"), A)
    world.settle()
    world.tick(3)
    world.nodes[A].registry.take_untended()
    return world


def visited(world: World) -> set[int]:
    registry = world.nodes[A].registry
    list(registry.tick())
    return {replica.record.uid for replica in registry.take_untended()}


def test_idle_replicas_are_visited_once_in_so_many_ticks() -> None:
    world = idle_world(40)
    rounds = [visited(world) for _ in range(SWEEP_TICKS)]
    assert sum(map(len, rounds)) == 40
    local = world.nodes[A].registry.local_replicas()
    assert set().union(*rounds) == {replica.record.uid for replica in local}


def test_who_had_something_to_do_is_visited_next() -> None:
    world = idle_world(40)
    queue = world.nodes[A].registry.local_replicas()[7].record
    for _ in range(3):  # whatever part of the idle ones is due
        world.nodes[A].registry.open(queue).publish([message()], [1], Channel())
        world.settle()
        assert queue.uid in visited(world)
        assert len(visited(world)) < 40


def test_a_replica_that_begins_to_lead_and_one_that_is_stirred_are_visited_next() -> None:
    world = idle_world(40)
    first, second = [each.record for each in world.nodes[A].registry.local_replicas()[:2]]
    world.lead(first, A)
    world.nodes[A].registry.stir([second.uid])
    assert {first.uid, second.uid} <= visited(world)


def test_all_are_visited_when_a_node_is_heard_again() -> None:
    """It may be the one to which a replica is to be added."""
    world = idle_world(40)
    world.nodes[A].registry.link_up(B)
    assert len(visited(world)) == 40


def test_a_client_that_waits_for_an_answer_is_visited_each_second() -> None:
    """What was lost on its way is sent again soon, whatever the queue's number (P10)."""
    for count in range(1, SWEEP_TICKS + 1):
        world = idle_world(count)
        queue = world.nodes[A].registry.local_replicas()[-1].record
        channel = Channel()
        handle = world.nodes[B].registry.open(queue)
        world.tick(SWEEP_TICKS)  # a new client is idle, too
        world.cut |= {(B, A)}
        handle.publish([message()], [1], channel)
        world.settle()
        world.cut.clear()
        assert channel.verdicts == []
        world.tick(3)
        assert channel.verdicts == [(1, True)]
