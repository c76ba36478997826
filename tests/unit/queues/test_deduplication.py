"""Deduplication with channels on several nodes: every publisher gets a verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from broker.message import Message
from broker.metadata.records import Queue
from tests.unit.queues.rig import A, B, Channel, World, message


def keyed(key: str, *, persistent: bool = True) -> Message:
    return msgspec.structs.replace(message(persistent=persistent), dedup=key)


def publish(world: World, node: str, queue: Queue, *messages: Message) -> Channel:
    channel = Channel()
    numbers = [number for number, _ in enumerate(messages, 1)]
    world.nodes[node].registry.open(queue).publish(list(messages), numbers, channel)
    world.settle()
    return channel


def world_with_a_queue() -> tuple[World, Queue]:
    world = World(timers=True)
    return world, world.declare(arguments={"x-message-deduplication": True})


def ready(world: World, queue: Queue) -> int:
    found: list[Any] = []
    world.nodes[A].registry.open(queue).stat(found.append)
    world.settle()
    ready: int = found[0].ready
    return ready


@pytest.mark.parametrize("first", [A, B])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_batch_of_doubles_alone_is_answered_at_once(first: str, persistent: bool) -> None:
    """What they double was written by a channel at the home, or by another node's."""
    world, queue = world_with_a_queue()
    publish(world, first, queue, keyed("a", persistent=persistent))
    for node in (A, B, A):
        channel = publish(world, node, queue, keyed("a", persistent=persistent))
        assert channel.verdicts == [(1, True)]
    assert ready(world, queue) == 1


def test_a_double_is_not_confirmed_before_what_it_doubles_is_safe() -> None:
    world, queue = world_with_a_queue()
    world.is_synced = False
    channels = [publish(world, node, queue, keyed("a")) for node in (A, B, A)]
    assert [channel.verdicts for channel in channels] == [[], [], []]
    world.is_synced = True
    world.settle()
    assert [channel.verdicts for channel in channels] == [[(1, True)]] * 3
    assert ready(world, queue) == 1
