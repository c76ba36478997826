"""Mirrored queues: confirmed messages survive the death of the master."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Settle
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def test_founders_are_synchronised_when_the_queue_is_declared() -> None:
    trio = Trio()
    assert trio.master == A
    assert [member.node for member in trio.ring.alive()] == [A, B, C]
    assert set(trio.ring.synced) == set(trio.ring.alive())


@pytest.mark.parametrize("node", [A, B])
def test_a_confirmed_message_is_at_every_member(node: str) -> None:
    trio = Trio()
    trio.confirmed(node, 1, 2, 3)
    assert [trio.depth(each) for each in (A, B, C)] == [3, 3, 3]
    assert len(trio.digests()) == 1


@pytest.mark.parametrize("silent", [B, C])
def test_nothing_is_confirmed_while_a_mirror_is_silent(silent: str) -> None:
    trio = Trio()
    others = {A, B, C} - {silent}
    trio.cut = {(silent, other) for other in others}
    channel = trio.publish(A, 1)
    trio.settle()
    assert channel.verdicts == []
    trio.kill(silent)  # group 0 removes it: the others are enough (P19)
    trio.settle()
    assert channel.verdicts == [(1, True)]


@pytest.mark.parametrize("late", [A, B, C])
def test_nothing_is_confirmed_before_every_disk_is_synced(late: str) -> None:
    trio = Trio()
    trio.unsynced = {late}
    channel = trio.publish(B, 1)
    trio.settle()
    assert channel.verdicts == []
    trio.unsynced = set()
    trio.settle()
    assert channel.verdicts == [(1, True)]


def test_a_transient_message_waits_for_the_mirrors_but_for_no_disk() -> None:
    trio = Trio()
    trio.unsynced = {A, B, C}
    channel = trio.publish(A, 1, persistent=False)
    trio.settle()
    assert channel.verdicts == [(1, True)]
    assert [trio.depth(each) for each in (A, B, C)] == [1, 1, 1]


def test_a_confirmed_message_survives_the_death_of_its_master() -> None:
    trio = Trio()
    trio.confirmed(B, 1, 2)
    trio.kill(A)
    trio.settle()
    assert trio.master == B
    channel = trio.consume(C)
    assert trio.bodies(channel) == [b"1", b"2"]
    assert all(each.delivery_count == 1 for each in channel.delivered), "redelivered (P16)"


def test_consumers_stay_attached_through_a_failover() -> None:
    trio = Trio()
    channel = trio.consume(C)
    trio.confirmed(C, 1)
    trio.kill(A)
    trio.settle()
    assert channel.lost == []
    trio.confirmed(B, 2)
    assert trio.bodies(channel)[-1] == b"2"


def test_what_was_in_flight_is_sent_to_the_next_master() -> None:
    trio = Trio()
    trio.cut = {(B, A), (C, A)}
    channel = trio.publish(C, 7)
    trio.settle()
    assert channel.verdicts == []
    trio.cut = set()
    trio.kill(A)
    trio.settle()
    assert channel.verdicts == [(7, True)]
    assert {trio.depth(B), trio.depth(C)} == {1}


def test_settled_messages_are_gone_at_every_member() -> None:
    trio = Trio()
    channel = trio.consume(C)
    trio.confirmed(B, 1, 2)
    numbers = [each.number for each in channel.delivered]
    handle = trio.nodes[C].registry.open(trio.queue)
    handle.submit(Settle(trio.nodes[C].channel_id(), "t", numbers))
    trio.tick()
    assert [trio.depth(each) for each in (A, B, C)] == [0, 0, 0]
