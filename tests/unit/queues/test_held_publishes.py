"""The limits of what a publisher's node keeps for a queue that does not answer (P12)."""

from __future__ import annotations

import pytest

from broker.metadata.records import Queue
from tests.unit.queues.rig import A, B, C, Channel, World, message

HOLD_S = 60
MIB = 1024 * 1024


def silent_queue(kind: str) -> tuple[World, Queue]:
    """A queue whose home lives and can't be reached from B any more; one message is in it."""
    world = World(A, B, C)
    queue = world.declare_quorum() if kind == "quorum" else world.declare()
    if kind == "quorum":
        world.lead(queue, A)
    world.nodes[B].registry.open(queue).publish([message(b"first")], None, Channel())
    world.settle()
    world.cut |= {(A, B), (B, A), (B, C), (C, B)}
    return world, queue


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_nacked_after_60_seconds_and_not_before(kind: str) -> None:
    world, queue = silent_queue(kind)
    channel = Channel()
    handle = world.nodes[B].registry.open(queue)
    handle.publish([message(b"1"), message(b"2")], [1, 2], channel)
    world.tick(HOLD_S - 2)
    handle.publish([message(b"3")], [3], channel)
    assert channel.verdicts == []
    world.tick(3)
    assert channel.verdicts == [(1, False), (2, False)]
    world.cut.clear()
    world.tick(3)
    assert channel.verdicts[2:] == [(3, True)]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_abandoned_number_is_not_waited_for(kind: str) -> None:
    """P10: what comes after it is enqueued, once (the queue's next number is raised)."""
    world, queue = silent_queue(kind)
    channel = Channel()
    handle = world.nodes[B].registry.open(queue)
    handle.publish([message(b"lost")], None, channel)
    world.tick(HOLD_S + 2)
    world.cut.clear()
    handle.publish([message(b"kept")], [1], channel)
    world.tick(3)
    assert channel.verdicts == [(1, True)]
    stats: list[object] = []
    world.nodes[A].registry.stat_here(queue.uid, stats.append)
    assert getattr(stats[0], "ready", None) == 2  # the first, and what was kept


def test_over_16_mib_is_nacked_at_once() -> None:
    world, queue = silent_queue("classic")
    channel = Channel()
    handle = world.nodes[B].registry.open(queue)
    body = bytes(MIB)
    for seqno in range(1, 21):
        handle.publish([message(body)], [seqno], channel)
    assert handle.is_congested
    refused = [seqno for seqno, ok in channel.verdicts if not ok]
    assert refused == list(range(refused[0], 21))
    assert refused[0] == 16  # what is around a body counts too
    resumed: list[bool] = []
    handle.when_drained(lambda: resumed.append(True))
    world.cut.clear()
    world.tick(3)
    assert sorted(channel.verdicts)[:15] == [(seqno, True) for seqno in range(1, 16)]
    assert resumed == [True]


def test_waiting_publishers_go_on_when_the_home_dies() -> None:
    """Flow ends with what was held: all of it is nacked at once, and sockets are read again."""
    world, queue = silent_queue("classic")
    channel = Channel()
    handle = world.nodes[B].registry.open(queue)
    handle.publish([message(b"%d" % i) for i in range(300)], list(range(1, 301)), channel)
    assert handle.is_congested
    resumed: list[bool] = []
    handle.when_drained(lambda: resumed.append(True))
    world.kill(A)
    assert channel.verdicts == [(seqno, False) for seqno in range(1, 301)]
    assert resumed == [True]
    handle.publish([message(b"x")], [301], channel)
    assert channel.verdicts[-1] == (301, False)
