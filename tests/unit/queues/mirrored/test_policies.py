"""Policies that come, change and go while a queue is in use; nodes that stop in good order."""

from __future__ import annotations

import itertools

import pytest

from broker.fifo.commands import Settle
from broker.metadata import commands
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, message


def plain(*, durable: bool = True) -> Trio:
    """A trio with a queue that no policy concerns."""
    trio = Trio(is_declared=False)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.uid = trio.declare("q", durable=durable).uid
    trio.settle()
    return trio


@pytest.mark.parametrize("durable", [True, False])
def test_a_plain_queue_becomes_mirrored_under_its_channels(durable: bool) -> None:
    trio = plain(durable=durable)
    here, there = trio.consume(A), trio.consume(B, prefetch=1)
    before = trio.publish(A, 1)
    trio.settle()
    assert before.verdicts == [(1, True)]
    trio.policy(ha_sync_mode="manual")
    trio.tick(2)
    assert len(trio.ring.alive()) == 3
    trio.confirmed(A, 2)
    trio.confirmed(B, 3)
    trio.settle()
    assert sorted(trio.bodies(here) + trio.bodies(there)) == [b"1", b"2", b"3"]
    assert here.lost == there.lost == []


def test_what_was_published_directly_is_confirmed_by_the_ring_once_there_is_one() -> None:
    trio = plain()
    trio.publish(A, 1)  # opens the queue directly
    trio.settle()
    trio.policy(ha_sync_mode="manual")
    trio.tick(2)
    trio.cut = {(B, C), (C, B)}
    channel = trio.publish(A, 2)
    trio.settle()
    assert channel.verdicts == []
    trio.cut = set()
    for name in (A, B, C):
        for other in (A, B, C):
            trio.nodes[name].registry.ring_link_up(other)
    trio.settle()
    assert channel.verdicts == [(2, True)]


def test_direct_channels_follow_their_queue_when_its_master_moves_away() -> None:
    trio = plain()
    consumer = trio.consume(A)
    trio.policy(ha_sync_mode="manual")
    trio.tick(2)
    trio.policy(ha_mode="nodes", ha_params=[B, C])
    trio.tick(3)
    assert trio.master == B
    assert consumer.lost == []
    trio.confirmed(A, 5)
    assert trio.bodies(consumer)[-1] == b"5"


def test_a_policy_taken_back_while_the_queue_stands_still_leaves_no_trace() -> None:
    trio = Trio()
    trio.confirmed(B, 1, 2)
    master = trio.membership(A).master
    assert master is not None
    master.queue.pause("sync")
    trio.policy(max_length=1)
    trio.policy()
    master.queue.unpause("sync")
    trio.settle()
    assert master.queue.settings.max_length is None
    assert trio.depth(A) == 2, "nothing was dropped, not even for a moment"
    trio.confirmed(B, 3)
    assert trio.depth(A) == 3


def test_without_its_policy_a_queue_is_plain_again_and_keeps_everything() -> None:
    trio = Trio()
    consumer = trio.consume(B, prefetch=1)
    trio.confirmed(C, 1, 2)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.tick(2)
    assert trio.queue.ring is None
    trio.confirmed(C, 3)
    handle = trio.nodes[B].registry.open(trio.queue)
    for _ in range(3):
        handle.submit(Settle(trio.nodes[B].channel_id(), "t", [consumer.delivered[-1].number]))
        trio.tick()
    assert trio.bodies(consumer) == [b"1", b"2", b"3"]
    assert trio.nodes[C].registry.mirrored.membership(trio.uid) is None


def test_exactly_two_is_restored_after_a_loss() -> None:
    trio = Trio(ha_mode="exactly", ha_params=2, ha_sync_mode="manual")
    first = [member.node for member in trio.ring.alive()]
    assert len(first) == 2
    trio.confirmed(C, 1)
    lost = first[1]
    trio.kill(lost)
    trio.tick(2)
    assert len(trio.ring.alive()) == 2
    assert lost not in [member.node for member in trio.ring.alive()]


def test_a_replacement_is_found_for_a_node_that_is_only_silent() -> None:
    trio = Trio(ha_mode="exactly", ha_params=2, ha_sync_mode="manual")
    silent, spare = (B, C) if trio.ring.member_on(B) is not None else (C, B)
    trio.confirmed(A, 1)
    trio.cut = {(silent, other) for other in (A, spare)}
    trio.apply(commands.EndMemberships(silent, trio.nodes[silent].boot))
    trio.tick(2)
    assert {member.node for member in trio.ring.alive()} == {A, spare}
    trio.cut = set()
    trio.tick(5)
    assert {member.node for member in trio.ring.alive()} == {A, spare}


def test_fewer_mirrors_are_dropped() -> None:
    trio = Trio()
    trio.confirmed(A, 1)
    trio.policy(ha_mode="exactly", ha_params=1)
    trio.tick(2)
    assert [member.node for member in trio.ring.alive()] == [A]
    trio.confirmed(B, 2)


def test_a_node_that_stops_hands_its_queues_to_the_oldest_synchronised_mirror() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1)
    channel = trio.publish(C, 2)
    trio.stop(A)
    assert trio.master == B
    assert channel.verdicts == [(2, True)]
    assert trio.depth(B) == 2


def test_a_node_that_stops_takes_nobody_in_any_more() -> None:
    trio = Trio(ha_sync_mode="manual")
    disk = trio.kill(C)
    trio.settle()
    trio.nodes[A].registry.mirrored.pause(lambda: None)
    trio.boot(C, disk)
    trio.tick(3)
    assert trio.ring.member_on(C) is None


@pytest.mark.parametrize(("when", "master"), [("when-synced", None), ("always", B)])
def test_a_stop_without_a_synchronised_mirror(when: str, master: str | None) -> None:
    trio = Trio(ha_sync_mode="manual", ha_promote_on_shutdown=when)
    trio.confirmed(A, 1)
    disks = {name: trio.kill(name) for name in (B, C)}
    for name in (B, C):
        trio.boot(name, disks[name])
        trio.tick()
    trio.tick(2)
    disk = trio.stop(A)
    trio.tick(70)
    assert trio.master == master
    trio.boot(A, disk)
    trio.tick(3)
    assert trio.master == (master or A)
    assert trio.depth(trio.master) == (0 if master else 1)


def test_nothing_is_told_without_the_lease() -> None:
    trio = Trio()
    consumer = trio.consume(B)
    trio.leaseless = {A}
    channel = trio.publish(C, 1)
    trio.settle()
    assert channel.verdicts == []
    assert consumer.delivered == []
    trio.leaseless = set()
    trio.nodes[A].registry.lease_back()
    trio.settle()
    assert channel.verdicts == [(1, True)]
    assert trio.bodies(consumer) == [b"1"]


def test_a_confirm_that_becomes_due_without_the_lease_waits_for_it() -> None:
    trio = Trio()
    trio.unsynced = {B}
    channel = Channel()
    trio.nodes[C].registry.open(trio.queue).publish([message()], [1], channel)
    trio.settle()
    trio.leaseless = {A}
    trio.unsynced = set()
    trio.settle()
    assert channel.verdicts == []
    trio.leaseless = set()
    trio.nodes[A].registry.lease_back()
    trio.settle()
    assert channel.verdicts == [(1, True)]


def test_a_mirror_cut_off_from_its_master_leaves_and_returns() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.leader = lambda: C
    trio.confirmed(A, 1)
    trio.cut = {(A, B), (B, A)}
    channel = trio.publish(C, 2)
    trio.tick(5)
    assert trio.ring.member_on(B) is None
    assert channel.verdicts == [(2, True)]
    trio.cut = set()
    trio.tick(5)
    assert trio.ring.member_on(B) is not None


@pytest.mark.parametrize("known", [None, A, C])
def test_no_mirror_leaves_a_master_that_nobody_would_have_told_dead(known: str | None) -> None:
    """A master that led group 0 died, and electing another leader took longer than a second.

    Both mirrors took its links for cut and left it, before its death was told: nobody was left to
    succeed, though all three were synchronised.
    """
    trio = Trio()
    trio.confirmed(A, 1)
    trio.leader = lambda: known
    trio.cut = {(A, B), (B, A), (A, C), (C, A)}
    if known == C:
        trio.cut |= {(B, C), (C, B)}  # the leader that B remembers is not heard, either
    trio.tick(5)
    assert {B, A} <= {member.node for member in trio.ring.alive()}
    trio.leader = lambda: B
    trio.tick(1)
    assert {B, A} <= {member.node for member in trio.ring.alive()}, "it has had no time to tell"


def test_no_mirror_leaves_while_the_leader_cannot_tell_a_death_itself() -> None:
    """It has just restarted, and proposes nothing before its own boot is in the log."""
    trio = Trio()
    trio.confirmed(A, 1)
    disk = trio.kill(C)
    trio.leader = lambda: C
    trio.cut = {(A, B), (B, A)}
    trio.tick(5)
    assert trio.ring.member_on(B) is not None
    trio.boot(C, disk)
    trio.tick(1)
    assert trio.ring.member_on(B) is not None, "it has had no time to tell"
    trio.tick(4)
    assert trio.ring.member_on(B) is None


def test_of_two_mirrors_cut_off_from_each_other_the_younger_leaves() -> None:
    trio = Trio()
    trio.cut = {(B, C), (C, B)}
    channel = trio.publish(A, 1)
    trio.tick(5)
    assert [member.node for member in trio.ring.alive()] == [A, B]
    assert channel.verdicts == [(1, True)]


def test_a_node_that_another_living_one_cannot_reach_does_not_join() -> None:
    """It may be the leader of group 0, and would end the membership at once."""
    trio = Trio(ha_mode="nodes", ha_params=[A, B], ha_sync_mode="manual")
    trio.confirmed(A, 1)
    disk = trio.kill(B)
    trio.cut = {(B, C), (C, B)}
    trio.boot(B, disk)
    trio.tick(3)
    assert trio.ring.member_on(B) is None
    trio.cut = set()
    trio.tick(3)
    assert trio.ring.member_on(B) is not None


def test_a_node_that_keeps_coming_back_joins_ever_more_rarely() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.leader = lambda: B
    trio.confirmed(A, 1)
    joins = []
    before = None
    for second in range(120):
        member = trio.ring.member_on(C)
        if member is not None and member != before:
            joins.append(second)
            before = member
        trio.cut = {(A, C), (C, A)} if member is not None else set()
        trio.tick()
    waits = [late - early for early, late in itertools.pairwise(joins)]
    assert len(joins) <= 9
    assert waits[-1] > waits[1]


def test_a_deleted_queue_leaves_nothing_at_its_members() -> None:
    trio = Trio()
    trio.confirmed(A, 1)
    answers: list[object] = []
    registry = trio.nodes[C].registry
    registry.delete(trio.queue, answers.append, if_unused=False, if_empty=False)
    trio.tick()
    assert answers == [1]
    for name in (A, B, C):
        assert trio.nodes[name].registry.mirrored.membership(trio.uid) is None
        assert not list(trio.nodes[name].disk.families.get("queue_index", {}))


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_under_way_in_the_ring_is_answered_when_the_policy_goes(durable: bool) -> None:
    trio = plain(durable=durable)
    consumer = trio.consume(B)
    trio.confirmed(A, 1)  # opens the queue directly at A
    trio.policy(ha_sync_mode="manual")
    trio.tick(2)
    trio.cut = {(B, C), (C, B)}
    channels = [trio.publish(node, 2) for node in (A, B)]
    outcomes: list[object] = []
    handle = trio.nodes[B].registry.open(trio.queue)
    handle.submit(
        Settle(trio.nodes[B].channel_id(), "t", [consumer.delivered[0].number]), outcomes.append
    )
    trio.settle()
    assert [channel.verdicts for channel in channels] == [[], []]
    assert outcomes == []
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.tick(3)
    assert trio.queue.ring is None
    assert [channel.verdicts for channel in channels] == [[(2, True)], [(2, True)]]
    assert outcomes == [None]
