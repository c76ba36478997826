"""Consumers of a stream at a node whose replica comes and goes."""

from __future__ import annotations

from typing import Any

from broker.feature_flags import STREAM_QUEUE
from broker.fifo import commands as fifo
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.streams.client import TELL_TICKS, StreamClient
from broker.queues.streams.log import StreamLog
from broker.streams.machine import Place, StreamMachine
from broker.streams.questions import StreamQuestion
from tests.unit.queues.rig import A, B, C, Channel, World


class Logs:
    """What can be read at a node."""

    def __init__(self) -> None:
        self.log = broken()
        self.told = -1
        self.handled: list[tuple[int, int]] = []

    def readable(self, uid: int) -> StreamLog:
        return self.log

    def tell_consumers(self, queue: Queue, count: int, handled: tuple[int, int]) -> None:
        self.told = count
        self.handled.append(handled)


def broken() -> StreamLog:
    """A log of which nothing can be read."""
    log = StreamLog(StreamMachine())
    log.place = lambda _spec, done: done(Place(1, 0))  # type: ignore[method-assign]
    log.applied_index = 5
    return log


def stream() -> tuple[World, Any]:
    world = World(A, B, C)
    world.apply(commands.EnableFeatures((STREAM_QUEUE,)))
    return world, world.declare("s", B, arguments={"x-queue-type": "stream"}, members=(B, C))


def question(uid: int) -> StreamQuestion:
    return StreamQuestion(uid, 1, 1_000)


def test_a_consumer_that_was_cancelled_is_not_brought_back_by_another_log() -> None:
    world, record = stream()
    node, logs, channel = world.nodes[A], Logs(), Channel()
    client = StreamClient(record, node.registry._context, logs)
    client.attach(node.spec("t", prefetch=5), channel, lambda _: None)
    world.settle()
    assert channel.lost == ["t"]
    for _ in range(TELL_TICKS):
        client.tick()
    assert (client.consumer_count, logs.told) == (0, 0)
    logs.log = broken()
    client.members_changed()
    world.settle()
    assert channel.lost == ["t"]


def test_a_question_that_was_not_answered_goes_to_the_leader_too() -> None:
    world, record = stream()
    node = world.nodes[A]
    asked: list[str] = []
    node.ask_stream = lambda to, _question, _done: asked.append(to)  # type: ignore[attr-defined]
    for _ in range(4):
        node.registry.reading.ask(question(record.uid), lambda _: None, is_again=False)
    assert set(asked) == {C}  # the leader, as far as is known here, is B
    for _ in range(4):
        node.registry.reading.ask(question(record.uid), lambda _: None, is_again=True)
    assert set(asked) == {B, C}


def test_the_leader_hears_once_of_what_ended_consumers_got_and_of_acks() -> None:
    world, record = stream()
    node, logs = world.nodes[A], Logs()
    client = StreamClient(record, node.registry._context, logs)
    client.attach(node.spec("t", prefetch=5), Channel(), lambda _: None)
    ((channel_id, tag),) = client._readers
    client._readers[channel_id, tag].delivered = 7
    client.submit(fifo.Settle(channel_id, tag, [1, 2, 3]))
    client.submit(fifo.Discard(channel_id, tag, [4]))
    client.submit(fifo.Requeue(channel_id, tag, [5]))
    client.tick()
    client.submit(fifo.Cancel(channel_id, tag))
    world.settle()
    for _ in range(TELL_TICKS):
        client.tick()
    assert [each for each in logs.handled if each != (0, 0)] == [(7, 4)]
