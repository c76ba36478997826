"""A master that is asked to give its queue to another node, as rebalancing does."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Purge
from broker.metadata.commands import SetMaintenance
from broker.queues.mirrored.mirrored_queues import REQUESTED_MASTER_MS
from broker.queues.mirrored.reconcile import with_requested_master
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def request_master(trio: Trio, node: str) -> bool:
    assert trio.master is not None
    return trio.nodes[trio.master].registry.mirrored.request_master(trio.uid, node)


def test_a_queue_moves_to_its_mirror_under_load_and_the_old_master_returns_as_a_mirror() -> None:
    trio = Trio()
    consumer = trio.consume(B, prefetch=1)
    trio.confirmed(C, 1, 2)
    channel = trio.publish(A, 3)
    assert request_master(trio, B)
    trio.settle()
    assert channel.verdicts == [(3, True)]
    assert trio.master == B
    trio.tick(3)
    assert {member.node for member in trio.ring.alive()} == {A, B, C}
    assert consumer.lost == []
    trio.confirmed(A, 4)
    assert trio.ring.member_on(C) in trio.ring.synced, "C has all of it too"
    assert trio.depth(B) == trio.depth(C) == 4


def test_a_mirror_that_lacks_messages_is_waited_for() -> None:
    trio = Trio(ha_mode="exactly", ha_params=2)
    trio.confirmed(A, 1)
    assert {member.node for member in trio.ring.alive()} == {A, B}
    assert request_master(trio, C)
    trio.tick(3)
    assert {member.node for member in trio.ring.alive()} == {A, B, C}, "one more, nobody dropped"
    assert trio.master == A
    assert trio.ring.member_on(C) not in trio.ring.synced
    handle = trio.nodes[A].registry.open(trio.queue)
    handle.submit(Purge(), lambda _: None)  # now nothing older is left
    trio.settle()
    request_master(trio, C)
    trio.tick(3)
    assert trio.master == C
    trio.tick(3)
    assert {member.node for member in trio.ring.alive()} == {B, C}


def test_a_wish_that_can_not_be_met_ends_and_costs_no_copy() -> None:
    trio = Trio(ha_mode="exactly", ha_params=2)
    trio.confirmed(A, 1)
    request_master(trio, C)
    trio.tick(REQUESTED_MASTER_MS // 1000 + 3)
    assert trio.master == A
    assert {member.node for member in trio.ring.alive()} == {A, B}
    assert trio.ring.member_on(B) in trio.ring.synced
    trio.confirmed(C, 2)


@pytest.mark.parametrize(
    ("policy", "node"),
    [({"ha_mode": "nodes", "ha_params": [A, B]}, C), ({}, "rabbit@nowhere")],
)
def test_what_the_policy_would_undo_is_refused(policy: dict[str, object], node: str) -> None:
    assert not request_master(Trio(**policy), node)


def test_who_is_not_the_master_gives_nothing_away() -> None:
    trio = Trio()
    assert not trio.nodes[B].registry.mirrored.request_master(trio.uid, C)


def test_a_wish_for_the_master_itself_changes_nothing() -> None:
    trio = Trio()
    assert with_requested_master(trio.ring, [A, B, C], A) == [A, B, C]
    assert with_requested_master(trio.ring, [A, B, C], None) == [A, B, C]


def drain(trio: Trio, node: str) -> None:
    trio.apply(SetMaintenance(node, True))
    trio.settle()
    trio.tick(3)


def test_the_queue_of_a_drained_master_moves_to_a_node_that_is_not() -> None:
    trio = Trio()
    trio.confirmed(C, 1, 2)
    drain(trio, B)
    assert trio.master == A, "a drained mirror stays a mirror"
    drain(trio, A)
    assert trio.master == C
    assert {member.node for member in trio.ring.alive()} == {A, B, C}
    trio.confirmed(A, 3)
    assert trio.depth(C) == 3


def test_a_drained_mirror_that_is_promoted_gives_the_queue_on() -> None:
    trio = Trio()
    trio.confirmed(C, 1, 2)
    drain(trio, B)
    trio.kill(A)
    trio.tick(5)
    assert trio.master == C
    assert trio.depth(C) == 2


def test_a_drained_master_without_a_synchronised_heir_keeps_its_queue() -> None:
    trio = Trio()
    for node in (B, C, A):
        drain(trio, node)
    assert trio.master == A
