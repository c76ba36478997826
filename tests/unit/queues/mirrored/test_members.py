"""Members come and go: joins, notes, who may succeed, what a disk brings back (P20, P23)."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Get
from broker.metadata import commands
from broker.metadata.results import Changes
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def settled(trio: Trio, node: str, count: int) -> None:
    """Get and acknowledge some messages at a node."""
    handle = trio.nodes[node].registry.open(trio.queue)
    channel_id = trio.nodes[node].channel_id("9.1")
    for _ in range(count):
        answers: list[object] = []
        handle.submit(Get(channel_id, True), answers.append)
        trio.settle()
        assert answers
    trio.tick()


def test_a_mirror_that_returns_joins_empty_and_is_synchronised_once_the_old_are_gone() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1, 2)
    trio.boot(C, trio.kill(C))
    trio.tick(2)
    member = trio.ring.member_on(C)
    assert member in trio.ring.joined
    assert member not in trio.ring.synced
    trio.confirmed(B, 3)
    assert trio.depth(C) == 1
    settled(trio, A, 2)
    assert member in trio.ring.synced
    assert len(trio.digests()) == 1


def test_a_mirror_of_an_empty_queue_is_synchronised_at_once() -> None:
    trio = Trio()
    trio.boot(C, trio.kill(C))
    trio.settle()
    assert trio.ring.member_on(C) in trio.ring.synced


def test_the_oldest_synchronised_mirror_succeeds_not_the_oldest() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1)
    trio.boot(B, trio.kill(B))
    trio.tick(2)
    trio.kill(A)
    trio.tick()
    assert trio.master == C
    assert trio.depth(C) == 1


def test_a_restarted_master_is_a_new_empty_mirror() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1, 2)
    trio.boot(A, trio.kill(A))
    trio.tick(2)
    assert trio.master == B
    assert trio.depth(A) == 0
    assert trio.depth(B) == 2


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, A, C)])
def test_after_a_full_stop_the_last_master_brings_everything_back(order: tuple[str, ...]) -> None:
    trio = Trio()
    trio.confirmed(A, 1, 2)
    trio.kill(A)
    trio.settle()
    trio.confirmed(C, 3)
    assert trio.master == B
    disks = {name: trio.kill(name) for name in (C, B)}
    for name in order:
        trio.boot(name, disks.get(name))
        trio.tick()
    trio.tick(3)
    assert trio.master == B
    channel = trio.consume(A)
    trio.tick()
    assert trio.bodies(channel) == [b"1", b"2", b"3"]
    assert len(trio.ring.alive()) == 3


def test_a_queue_without_a_synchronised_mirror_waits_for_its_master_when_synced() -> None:
    trio = Trio(ha_promote_on_failure="when-synced", ha_sync_mode="manual")
    trio.confirmed(A, 1)
    disks = {name: trio.kill(name) for name in (B, C)}
    for name in (B, C):
        trio.boot(name, disks[name])
    trio.tick(3)
    disk = trio.kill(A)
    trio.tick(70)
    assert trio.master is None
    trio.boot(A, disk)
    trio.tick(3)
    assert trio.master == A
    assert trio.depth(A) == 1


def test_without_a_synchronised_mirror_an_old_one_is_named_once_the_master_is_long_gone() -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1)
    disks = {name: trio.kill(name) for name in (B, C)}
    for name in (B, C):
        trio.boot(name, disks[name])
    trio.tick(3)
    trio.confirmed(A, 2)
    trio.kill(A)
    for name in (B, C):
        trio.nodes[name].neighbours.gone.add(A)
    trio.tick(2)
    assert trio.master is None
    trio.tick(3)
    assert trio.master in {B, C}
    assert trio.ring.lossy == 1
    assert trio.depth(B) == trio.depth(C) == 1


def test_a_queue_whose_policy_went_while_it_was_down_is_served_again() -> None:
    """Without a policy RabbitMQ's defaults hold, and they promote (`steps.designable`)."""
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1)
    disks = {name: trio.kill(name) for name in (B, C)}
    for name in (B, C):
        trio.boot(name, disks[name])
    trio.tick(3)
    trio.kill(A)
    trio.apply(commands.ClearPolicy("/", "p"))
    for name in (B, C):
        trio.nodes[name].neighbours.gone.add(A)
    trio.tick(8)
    queue = trio.catalogue.queue_by_uid(trio.uid)
    assert queue is not None
    assert queue.home in {B, C}
    trio.confirmed(queue.home, 2)


def test_a_leader_that_has_never_heard_the_master_waits_as_others_do() -> None:
    """P23: it has just started, and can't know how long the master has been silent."""
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(A, 1)
    disks = {name: trio.kill(name) for name in (B, C)}
    for name in (B, C):
        trio.boot(name, disks[name])
    trio.tick(3)
    trio.kill(A)
    for name in (B, C):
        trio.nodes[name].neighbours.silence[A] = 1 << 40
    trio.tick(50)
    assert trio.master is None
    trio.tick(15)
    assert trio.master in {B, C}


def test_a_join_whose_outcome_is_unknown_holds_back_every_verdict() -> None:
    trio = Trio(ha_sync_mode="manual")
    disk = trio.kill(C)
    trio.settle()
    trio.agrees = False
    trio.boot(C, disk)
    trio.settle()
    assert any(isinstance(each, commands.ChangeRings) for each in trio.in_doubt)
    channel = trio.publish(A, 1)
    trio.settle()
    assert channel.verdicts == []
    trio.agrees = True
    trio.tick(3)
    assert channel.verdicts == [(1, True)]


@pytest.mark.parametrize("node", [A, B])
def test_a_member_that_a_bug_has_stopped_leaves_and_joins_again(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = Trio(ha_sync_mode="manual")
    trio.confirmed(C, 1)
    broken = trio.membership(node)

    def fail(_batch: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(broken, "deliver", fail)
    monkeypatch.setattr(broken, "returned", fail)
    channel = trio.publish(C, 2)
    trio.tick(3)
    assert channel.verdicts == [(2, True)]
    assert trio.ring.member_on(node) != broken.me
    assert len(trio.ring.alive()) == 3


def test_a_mirrors_copy_goes_with_the_policy() -> None:
    trio = Trio()
    trio.confirmed(A, 1)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.tick(2)
    assert [len(trio.nodes[name].disk.families["queue_index"]) for name in (A, B, C)] == [1, 0, 0]


def test_a_mirror_that_learns_from_a_snapshot_that_its_ring_is_gone_is_gone_too() -> None:
    trio = Trio()
    trio.confirmed(A, 1)
    lagging = trio.nodes[C].registry
    lagging.reconcile, reconcile = (lambda _changes: None), lagging.reconcile  # type: ignore[method-assign]
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.tick(2)
    reconcile(Changes(restored=True))
    trio.settle()
    assert lagging.mirrored.membership(trio.uid) is None
