"""A replica whose log turns out damaged is begun anew, if others have what it had."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Refusal, ReplyCode
from broker.feature_flags import STREAM_QUEUE
from broker.metadata import commands
from broker.metadata.records import Queue
from tests.unit.queues.rig import A, B, C, Channel, World, message


def declared(world: World, kind: str) -> Queue:
    world.apply(commands.EnableFeatures((STREAM_QUEUE,)))
    given: dict[str, Any] = {"x-queue-type": kind}
    queue = world.declare("q", A, arguments=given, members=tuple(world.nodes))
    world.lead(queue, A)
    return queue


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_it_is_replaced_when_it_is_let_in_again(kind: str) -> None:
    world = World(A, B, C)
    queue = declared(world, kind)
    registry = world.nodes[B].registry
    before = world.replicas[queue.uid][B]
    assert not registry.begin_anew(queue.uid), "nothing is wrong with it"
    registry.replica_failed(queue.uid, "a bit")
    world.tick(3)
    assert world.replicas[queue.uid][B] is before, "others may lack what it has"
    assert registry.damaged_here() == [queue.uid]
    assert registry.begin_anew(queue.uid)
    after = world.replicas[queue.uid][B]
    assert after is not before
    assert registry.local_replicas() == [after]
    assert registry.damaged_here() == []
    assert not registry.begin_anew(queue.uid), "once"


def test_what_is_deleted_meanwhile_is_not_begun_again() -> None:
    world = World(A, B, C)
    queue = declared(world, "stream")
    registry = world.nodes[B].registry
    registry.replica_failed(queue.uid, "a bit")
    world.apply(commands.DeleteQueue(queue.uid))
    assert not registry.begin_anew(queue.uid)
    assert registry.local_replicas() == []


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_queue_whose_only_replica_is_damaged_says_so_at_once(kind: str) -> None:
    world = World(A)
    queue = declared(world, kind)
    before, channel = world.nodes[A].registry.open(queue), Channel()
    world.nodes[A].registry.replica_failed(queue.uid, "a bit")
    assert before is world.nodes[A].registry.open(queue)
    text = "queue 'q' in vhost '/' is down: the log of its only replica, on node 'rabbit@a'"
    answers: list[object] = []
    before.stat(answers.append)
    before.attach(world.nodes[A].spec(prefetch=1), channel, answers.append)
    for answer in answers:
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.text) == (ReplyCode.NOT_FOUND, f"{text}, is damaged")
    assert len(answers) == 2
    before.publish([message(b"x")], [1], channel)
    assert channel.verdicts == [(1, False)]
