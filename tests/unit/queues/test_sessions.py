"""P10-P12 from end to end: batches that were lost, and leaders that come and go."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from broker.fifo.commands import Get
from broker.metadata.results import Changes
from broker.ports import QueueStat
from tests.unit.queues.rig import A, B, C, Channel, World, message


def test_a_batch_that_came_before_the_first_leader_is_not_missed() -> None:
    """P10: nothing of the session was answered, so it begins here; nothing is nacked."""
    world = World()
    queue = world.declare_quorum()
    node, channel, refusals = world.nodes[B], Channel(), list[object]()
    handle = node.registry.open(queue)
    handle.attach(node.spec(), channel, refusals.append)
    world.settle()  # A does not lead yet and drops it
    world.cut.add((A, B))
    world.lead(queue, A)
    world.settle()
    world.cut.clear()
    handle.publish([message(b"1"), message(b"2")], [1, 2], channel)
    world.settle()
    assert refusals == [None]
    assert channel.verdicts == [(1, True), (2, True)]
    assert [item.number for item in channel.delivered] == [1, 2]


def test_a_publish_in_flight_when_the_leader_goes_is_neither_lost_nor_doubled() -> None:
    """P10, P11: the answer was lost with the leader; the next one gives it again."""
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    node, channel = world.nodes[B], Channel()
    handle = node.registry.open(queue)
    handle.publish([message(b"1")], [1], channel)
    world.settle()
    world.cut.add((A, B))
    handle.publish([message(b"2")], [2], channel)
    world.settle()
    assert channel.verdicts == [(1, True)]
    world.lead(queue, C)
    world.settle()
    assert channel.verdicts == [(1, True), (2, True)]
    assert world.replicas[queue.uid][C].stat().ready == 2


def test_what_a_channel_holds_is_sent_again_by_a_new_leader_and_dropped_when_seen() -> None:
    """P17."""
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    node, channel = world.nodes[B], Channel()
    handle = node.registry.open(queue)
    handle.attach(node.spec(), channel, lambda _result: None)
    handle.publish([message(b"1")], None, channel)
    world.settle()
    world.cut.add((A, B))
    handle.publish([message(b"2")], None, channel)
    world.settle()
    assert [item.number for item in channel.delivered] == [1]
    world.lead(queue, C)
    world.settle()
    assert [item.number for item in channel.delivered] == [1, 2]


def test_a_publish_is_given_up_after_sixty_seconds() -> None:
    """P12."""
    world = World()
    queue = world.declare_quorum()
    channel = Channel()
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    world.tick(59)
    assert channel.verdicts == []
    world.tick(2)
    assert channel.verdicts == [(1, False)]


def test_a_publish_to_a_queue_that_is_down_is_nacked_at_once() -> None:
    """P12."""
    world = World()
    queue = world.declare()
    world.kill(A)
    channel = Channel()
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    assert channel.verdicts == [(1, False)]


def test_a_persistent_message_is_confirmed_after_its_sync() -> None:
    """P12, never report early: not from the home and not from another node."""
    world = World()
    queue = world.declare()
    world.is_synced = False
    channel, far = Channel(), Channel()
    handle = world.nodes[A].registry.open(queue)
    handle.publish([message(), message(persistent=False)], [1, 2], channel)
    world.nodes[B].registry.open(queue).publish([message()], [1], far)
    world.settle()
    assert channel.verdicts == [(2, True)]
    assert far.verdicts == []
    world.is_synced = True
    world.settle()
    assert channel.verdicts == [(2, True), (1, True)]
    assert far.verdicts == [(1, True)]


def test_a_batch_made_again_before_the_sync_is_not_confirmed_early() -> None:
    """P11: a duplicate gets the original's verdict, when the original gets it."""
    world = World()
    queue = world.declare()
    world.is_synced = False
    channel = Channel()
    world.nodes[B].registry.open(queue).publish([message()], [1], channel)
    world.tick(5)
    assert channel.verdicts == []
    world.is_synced = True
    world.settle()
    assert channel.verdicts == [(1, True)]


def test_confirmed_messages_are_back_after_a_restart_as_delivered_before() -> None:
    """P16."""
    world = World()
    queue = world.declare()
    channel = Channel()
    world.nodes[A].registry.open(queue).publish([message(b"1"), message(b"2")], [1, 2], channel)
    world.settle()
    disk = world.kill(A)
    node = world.boot(A, disk)
    node.registry.open(queue).attach(node.spec(), channel, lambda _result: None)
    assert [(item.number > 0, item.delivery_count) for item in channel.delivered] == [(True, 1)] * 2


@pytest.mark.parametrize("is_seen_down", [False, True])
@pytest.mark.parametrize("is_get", [False, True])
def test_what_a_restarted_home_handed_out_before_it_was_known_comes_back(
    is_get: bool, is_seen_down: bool
) -> None:
    """P18: commands for the home's last boot are carried out by the next one, and it is heard.

    A node that stood still learns only then that the last boot has ended, and with it all that its
    channels had there. A simulator's seed found three messages that nobody held and nobody got.
    """
    world = World()
    queue = world.declare()
    home, away, channel, got = world.nodes[A], world.nodes[B], Channel(), list[object]()
    home.registry.open(queue).publish([message(b"1"), message(b"2")], None, channel)
    world.settle()
    handle = away.registry.open(queue)
    if is_get:
        handle.submit(Get(away.channel_id(), False), got.append)
    else:
        handle.attach(away.spec(), channel, got.append)
    del world.nodes[B]  # it stands still, its command is on its way
    world.boot(A, world.kill(A))
    world.nodes[B] = away
    away.registry.link_up(A)
    world.settle()
    assert got[:1] != [None] if is_get else len(channel.delivered) == 2
    if is_seen_down:
        record = world.catalogue.node(A)
        assert record is not None
        world.catalogue.put_node(replace(record, boot=None))
        away.registry.reconcile(Changes(restored=True))
        world.catalogue.put_node(record)
    away.registry.reconcile(Changes(restored=True))
    world.settle()
    assert channel.lost == ([] if is_get else ["t"])
    stats = list[QueueStat]()
    world.nodes[A].registry.open(queue).stat(lambda stat: stats.append(cast("QueueStat", stat)))
    assert [(stat.ready, stat.unacked, stat.consumers) for stat in stats] == [(2, 0, 0)]
