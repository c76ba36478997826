"""The order in which consumers get messages, for any order of commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.fifo.commands import Get, Requeue
from broker.metadata.records import Queue
from broker.ports import GetResult
from tests.unit.queues.rig import A, B, Channel, World, message


def _classic(**arguments: object) -> tuple[World, Queue]:
    world = World(A, B)
    return world, world.declare(arguments=arguments)


def _quorum(**arguments: object) -> tuple[World, Queue]:
    world = World(A, B)
    kind = {"x-queue-type": "quorum", **arguments}
    queue = world.declare(arguments=kind, members=(A, B))
    world.lead(queue, A)
    return world, queue


Kind = Callable[..., tuple[World, Queue]]


@pytest.mark.parametrize("declare", [_classic, _quorum])
@pytest.mark.parametrize("node", [A, B])
def test_a_consumer_that_waits_is_served_before_a_get_in_the_same_turn(
    declare: Kind, node: str
) -> None:
    """Rows: 1.9 basic.get"""
    world, queue = declare()
    here, channel, results = world.nodes[node], Channel(), list[object]()
    handle = here.registry.open(queue)
    handle.attach(here.spec(), channel, results.append)
    world.settle()
    handle.publish([message()], None, channel)
    handle.submit(Get(here.channel_id("1.2"), True), results.append)
    world.settle()
    assert results == [None, GetResult(None, 0)]
    assert [item.number for item in channel.delivered] == [1]


@pytest.mark.parametrize("declare", [_classic, _quorum])
@pytest.mark.parametrize("node", [A, B])
def test_ttl_zero_is_not_delivered_again_in_the_same_millisecond(declare: Kind, node: str) -> None:
    """The clock stands still.

    Rows: 1.4 TTL 0; 1.9 ack / nack / reject
    """
    world, queue = declare(**{"x-message-ttl": 0})
    here, channel = world.nodes[node], Channel()
    handle = here.registry.open(queue)
    handle.attach(here.spec(prefetch=1), channel, lambda _result: None)
    world.settle()
    handle.publish([message()], None, channel)
    world.settle()
    handle.submit(Requeue(here.channel_id(), "t", [item.number for item in channel.delivered]))
    world.settle()
    assert [item.number for item in channel.delivered] == [1]
