"""TTL, limits and refusals at the home of a classic queue, on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp.content import Properties, build_message
from broker.fifo.commands import Cancel, Get
from broker.message import Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import GetResult, QueueStat
from tests.unit.queues.rig import A, B, Channel, World, message


def world_with(*nodes: str, **arguments: object) -> tuple[World, Queue]:
    """A world with timers and one queue, of arguments like `x_message_ttl=5`."""
    world = World(*nodes, timers=True)
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return world, world.declare(arguments=named)


def publish(world: World, queue: Queue, *seqnos: int, node: str = A, **how: Any) -> Channel:
    channel = Channel()
    messages = [message(b"%d" % seqno, **how) for seqno in seqnos]
    world.nodes[node].registry.open(queue).publish(messages, list(seqnos), channel)
    return channel


def ready(world: World, queue: Queue, node: str = A) -> int:
    found: list[Any] = []
    world.nodes[node].registry.open(queue).stat(found.append)
    world.settle()
    (stat,) = found
    assert isinstance(stat, QueueStat), stat
    return stat.ready


def expiring(ttl_ms: int) -> Message:
    return build_message("", "q", Properties(expiration=str(ttl_ms)), b"x")


def limits(world: World, **keys: object) -> None:
    """A policy for all queues."""
    definition = {key.replace("_", "-"): value for key, value in keys.items()}
    world.apply(commands.SetPolicy("/", "limits", ".*", definition))
    world.settle()


def test_a_message_goes_when_its_time_is_over_and_not_before() -> None:
    """T1, T2: by one timer, though nothing else happens.

    Rows: 1.4 per-queue TTL; 1.4 When removed
    """
    world, queue = world_with(x_message_ttl=200)
    publish(world, queue, 1, 2)
    world.advance(190)
    publish(world, queue, 3)
    assert ready(world, queue) == 3
    world.advance(20)
    assert ready(world, queue) == 1
    world.advance(200)
    assert ready(world, queue) == 0


def test_an_expired_message_is_never_got() -> None:
    """Rows: 1.4 When removed"""
    world, queue = world_with(x_message_ttl=200)
    publish(world, queue, 1)
    world.settle()
    world.clock.ms += 500  # no timer has rung yet
    found: list[Any] = []
    world.nodes[A].registry.open(queue).submit(Get(world.nodes[A].channel_id(), True), found.append)
    assert found == [GetResult(None, 0)]


def test_the_smaller_of_the_two_times_counts() -> None:
    """Rows: 1.4 per-message TTL"""
    world, queue = world_with(x_message_ttl=500)
    world.nodes[A].registry.open(queue).publish([expiring(100), expiring(900)], None, Channel())
    world.advance(110)
    assert ready(world, queue) == 1
    world.advance(400)
    assert ready(world, queue) == 0


def test_a_timer_that_was_set_for_later_does_not_keep_an_earlier_end_waiting() -> None:
    world, queue = world_with()
    handle = world.nodes[A].registry.open(queue)
    handle.publish([expiring(60_000)], None, Channel())
    world.settle()
    found: list[Any] = []
    handle.submit(Get(world.nodes[A].channel_id(), True), found.append)
    handle.publish([expiring(50)], None, Channel())
    world.advance(60)
    assert ready(world, queue) == 0


def test_an_idle_queue_has_no_timer_and_a_busy_one_has_one() -> None:
    """Thousands of idle queues cost nothing; a stream of messages costs one timer a queue."""
    world, queue = world_with(x_message_ttl=1_000)
    assert world.nodes[A].timers == []
    for seqno in range(1, 50):
        publish(world, queue, seqno)
        world.settle()
        world.clock.ms += 1
    assert len([each for each in world.nodes[A].timers if not each.is_cancelled]) == 1
    world.advance(2_000)
    assert [each for each in world.nodes[A].timers if not each.is_cancelled] == []


def test_a_restart_keeps_the_time_a_message_has() -> None:
    """Rows: 1.4 per-queue TTL"""
    world, queue = world_with(x_message_ttl=1_000)
    publish(world, queue, 1)
    world.advance(600)
    world.boot(A, world.kill(A))
    world.settle()
    assert ready(world, queue) == 1
    world.advance(300)
    assert ready(world, queue) == 1
    world.advance(200)
    assert ready(world, queue) == 0


@pytest.mark.parametrize("node", [A, B])
def test_what_is_refused_is_nacked_and_the_rest_confirmed(node: str) -> None:
    """Rows: 1.6 reject-publish; 1.10 nack"""
    world, queue = world_with(x_max_length=2, x_overflow="reject-publish")
    channel = publish(world, queue, 1, 2, 3, 4, node=node)
    world.settle()
    assert sorted(channel.verdicts) == [(1, True), (2, True), (3, False), (4, False)]
    assert ready(world, queue) == 2


def test_transient_ones_are_confirmed_beside_refused_ones() -> None:
    """Rows: 1.6 reject-publish"""
    world, queue = world_with(x_max_length=1, x_overflow="reject-publish")
    channel = publish(world, queue, 1, 2, persistent=False)
    assert sorted(channel.verdicts) == [(1, True), (2, False)]


def test_drop_head_keeps_the_youngest() -> None:
    """Rows: 1.6 drop-head (default); 1.6 max-length / -bytes"""
    world, queue = world_with(x_max_length=2)
    channel = publish(world, queue, 1, 2, 3)
    world.settle()
    assert sorted(channel.verdicts) == [(1, True), (2, True), (3, True)]
    consumer = Channel()
    world.nodes[A].registry.open(queue).attach(world.nodes[A].spec(), consumer, _ignore)
    assert [each.number for each in consumer.delivered] == [2, 3]


def test_a_policy_acts_on_a_queue_in_use_and_its_end_ends_that() -> None:
    """Rows: 1.12 policy matching"""
    world, queue = world_with()
    publish(world, queue, 1, 2, 3)
    limits(world, max_length=1)
    assert ready(world, queue) == 1
    limits(world, message_ttl=100)
    publish(world, queue, 4)
    assert ready(world, queue) == 2, "no length any more"
    world.advance(200)
    assert ready(world, queue) == 2, "the head came before the policy and has no end"
    world.apply(commands.ClearPolicy("/", "limits"))
    publish(world, queue, 5)
    world.advance(60_000)
    assert ready(world, queue) == 3


def test_a_policy_reaches_a_queue_by_a_snapshot_too() -> None:
    """P6."""
    world, queue = world_with()
    publish(world, queue, 1, 2, 3)
    world.settle()
    definition: dict[str, object] = {"max-length": 1}
    world.apply(commands.SetPolicy("/", "p", ".*", definition), by_snapshot=True)
    assert ready(world, queue) == 1


def _ignore(result: object) -> None:
    pass


def test_ttl_0_reaches_a_waiting_consumer_even_as_the_clock_moves_on() -> None:
    """Rows: 1.4 TTL 0"""
    world, queue = world_with()
    handle, consumer = world.nodes[A].registry.open(queue), Channel()
    handle.attach(world.nodes[A].spec(), consumer, _ignore)
    read = world.clock.now_ms

    def moving() -> int:
        world.clock.ms += 1
        return read()

    world.clock.now_ms = moving  # type: ignore[method-assign]  # it moves whenever it is read
    handle.publish([expiring(0)], None, Channel())
    world.settle()
    assert len(consumer.delivered) == 1
    handle.submit(Cancel(world.nodes[A].channel_id(), "t"), _ignore)
    handle.publish([expiring(0)], None, Channel())
    world.settle()
    assert ready(world, queue) == 0
