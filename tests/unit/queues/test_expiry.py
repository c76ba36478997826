"""Queues that are deleted because they are unused: x-expires and auto-delete."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import Cancel, Get, Release
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import Done
from broker.queues.queue_expiry import QueueExpiry
from tests.unit.queues.rig import A, B, C, Channel, Clock, World, message


def expiring(ms: int = 500, **more: object) -> tuple[World, Queue]:
    world = World(A, B, timers=True)
    arguments: dict[str, object] = {"x-expires": ms}
    return world, world.declare(arguments=arguments, **more)


def exists(world: World, queue: Queue) -> bool:
    return world.catalogue.queue_by_uid(queue.uid) is not None


def consume(world: World, queue: Queue, node: str = A) -> Channel:
    channel = Channel()
    world.nodes[node].registry.open(queue).attach(world.nodes[node].spec(), channel, _ignore)
    world.settle()
    return channel


def test_an_unused_queue_goes_in_its_time() -> None:
    """Rows: 1.4 x-expires"""
    world, queue = expiring()
    world.advance(490)
    assert exists(world, queue)
    world.advance(20)
    assert not exists(world, queue)


@pytest.mark.parametrize("node", [A, B])
def test_a_consumer_a_get_and_a_declare_are_uses(node: str) -> None:
    """Whichever node they come by; publishing is none.

    Rows: 1.4 x-expires; 1.3 passive
    """
    world, queue = expiring()
    handle = world.nodes[node].registry.open(queue)
    world.advance(400)
    handle.submit(Get(world.nodes[node].channel_id(), True), _ignore)
    world.advance(400)
    handle.stat(_ignore, is_declare=True)
    world.advance(400)
    assert exists(world, queue)
    consume(world, queue, node)
    world.advance(5_000)
    assert exists(world, queue)
    handle.submit(Cancel(world.nodes[node].channel_id(), "t"), _ignore)
    world.advance(400)
    handle.publish([message()], None, Channel())
    handle.stat(_ignore)
    world.advance(200)
    assert not exists(world, queue)


def test_a_node_that_starts_counts_anew() -> None:
    """Rows: 1.4 x-expires"""
    world, queue = expiring()
    world.advance(400)
    world.boot(A, world.kill(A))
    world.advance(400)
    assert exists(world, queue)
    world.advance(200)
    assert not exists(world, queue)


def test_a_policy_gives_a_queue_its_time() -> None:
    world = World(A, B, timers=True)
    queue = world.declare()
    world.apply(commands.SetPolicy("/", "p", ".*", {"expires": 300}))
    world.advance(200)
    assert exists(world, queue)
    world.advance(200)
    assert not exists(world, queue)


def test_while_its_end_is_in_doubt_nothing_is_accepted() -> None:
    """P5: the delete may be committed yet, and would take the message with it."""
    world, queue = expiring()
    world.agrees = False
    world.advance(600)
    assert exists(world, queue)
    channel = Channel()
    world.nodes[A].registry.open(queue).publish([message()], [1], channel)
    world.settle()
    assert channel.verdicts == []
    world.agrees = True
    world.advance(1_000)
    assert not exists(world, queue)


def test_an_auto_delete_queue_goes_with_its_last_consumer_and_not_before_the_first() -> None:
    """Rows: 1.3 durable / exclusive / auto_delete"""
    world = World(A, B, timers=True)
    queue = world.declare(auto_delete=True)
    world.advance(60_000)
    assert exists(world, queue)
    consume(world, queue, A)
    consume(world, queue, B)
    world.nodes[A].registry.open(queue).submit(Cancel(world.nodes[A].channel_id(), "t"), _ignore)
    world.advance(1_000)
    assert exists(world, queue)
    world.nodes[B].registry.open(queue).submit(Release(world.nodes[B].channel_id()))
    world.advance(10)
    assert not exists(world, queue)


def quorum(**arguments: object) -> tuple[World, Queue]:
    world = World(A, B, C, timers=True)
    named: dict[str, object] = {key.replace("_", "-"): value for key, value in arguments.items()}
    queue = world.declare(arguments=named | {"x-queue-type": "quorum"}, members=(A, B, C))
    world.lead(queue, A)
    world.settle()
    return world, queue


def test_a_quorum_queue_goes_too_and_a_declare_does_not_keep_it() -> None:
    """Rows: 1.16 x-expires"""
    world, queue = quorum(x_expires=500)
    handle = world.nodes[B].registry.open(queue)
    world.advance(400)
    handle.submit(Get(world.nodes[B].channel_id(), True), _ignore)
    world.advance(400)
    handle.stat(_ignore, is_declare=True)
    assert exists(world, queue)
    world.advance(200)
    assert not exists(world, queue)


def test_a_quorum_queue_with_consumers_stays_and_its_next_leader_counts_anew() -> None:
    world, queue = quorum(x_expires=500)
    consume(world, queue, B)
    world.advance(5_000)
    assert exists(world, queue)
    world.nodes[B].registry.open(queue).submit(Cancel(world.nodes[B].channel_id(), "t"), _ignore)
    world.advance(400)
    world.lead(queue, C)
    world.advance(400)
    assert exists(world, queue)
    world.advance(200)
    assert not exists(world, queue)


def test_a_quorum_queue_accepts_nothing_while_its_end_is_in_doubt() -> None:
    """P5."""
    world, queue = quorum(x_expires=500)
    world.agrees = False
    world.advance(600)
    channel = Channel()
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    world.advance(900)
    assert exists(world, queue)
    assert channel.verdicts == []


def test_a_delete_in_doubt_is_not_proposed_again_by_a_later_leadership() -> None:
    """P5: others may have used the queue meanwhile, so its time counts anew."""
    world, queue = quorum(x_expires=2_000)
    world.agrees = False
    world.advance(2_100)
    assert len(world.in_doubt) == 1
    world.lead(queue, B)
    world.settle()
    world.lead(queue, A)
    world.settle()
    channel = consume(world, queue, B)
    world.agrees = True
    world.advance(3_000)
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    world.advance(10_000)
    assert exists(world, queue)
    assert channel.verdicts == [(1, True)]
    assert len(channel.delivered) == 1
    world.nodes[B].registry.open(queue).submit(Cancel(world.nodes[B].channel_id(), "t"), _ignore)
    world.nodes[B].registry.open(queue).submit(Release(world.nodes[B].channel_id()))
    world.advance(1_900)
    assert exists(world, queue)
    world.advance(200)
    assert not exists(world, queue), "unused again for its time"


def test_a_delete_in_doubt_is_forgotten_while_another_node_leads() -> None:
    world, queue = quorum(x_expires=2_000)
    world.agrees = False
    world.advance(2_100)
    world.lead(queue, B)
    world.agrees = True
    consume(world, queue, C)
    world.advance(20_000)
    world.lead(queue, A)
    world.advance(5_000)
    assert exists(world, queue)
    assert world.replicas[queue.uid][A].stat().consumers == 1


def test_a_leader_whose_delete_is_under_way_accepts_nothing_in_its_next_term_either() -> None:
    """P5: it may be committed yet."""
    world, queue = quorum(x_expires=2_000)
    asked: list[Done] = []
    world.nodes[A].registry._deletes._propose = lambda _command, done, _by: asked.append(done)
    world.advance(2_100)
    world.lead(queue, B)
    world.settle()
    world.lead(queue, A)
    channel = Channel()
    world.nodes[C].registry.open(queue).publish([message()], [1], channel)
    world.advance(1_500)
    assert channel.verdicts == []
    asked.pop()(Refusal(ReplyCode.INTERNAL_ERROR, "not decided in time"))
    world.advance(3_000)
    assert channel.verdicts == [(1, True)]


def test_a_life_without_limits_is_never_over() -> None:
    clock = Clock()
    life = QueueExpiry(clock, is_auto_delete=False, expires_ms=None)
    clock.ms += 1 << 40
    assert not life.is_limited
    assert not life.is_over(0)
    assert life.left_ms() is None


def _ignore(result: Any) -> None:
    pass
