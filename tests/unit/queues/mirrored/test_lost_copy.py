"""The last master is back and its disk has no copy that counts (P23)."""

from __future__ import annotations

from broker.metadata import commands
from broker.queues.mirrored import promotion
from tests.unit.metadata.ring_cluster import A as NODE
from tests.unit.metadata.ring_cluster import mirrored
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def test_a_master_that_died_before_its_ring_was_noted_on_disk_serves_all_it_had() -> None:
    trio = Trio(is_declared=False)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.uid = trio.declare("q").uid
    trio.settle()
    trio.confirmed(A, 1, 2)
    trio.unsynced.add(A)
    trio.policy(ha_mode="exactly", ha_params=1)
    trio.tick(2)
    assert trio.master == A
    disk = trio.kill(A)
    trio.unsynced.clear()
    trio.tick(2)
    assert trio.ring.is_down
    trio.boot(A, disk)
    trio.tick(3)
    assert trio.master == A, "a ring again, of an epoch of its own"
    assert trio.ring.epoch > 1
    assert trio.bodies(trio.consume(B)) == [b"1", b"2"]


def test_a_wiped_master_gives_way_to_a_mirror_that_lacks_messages() -> None:
    """Under when-synced too: what it is waited for is gone."""
    trio = Trio(ha_promote_on_failure="when-synced", ha_sync_mode="manual")
    trio.confirmed(A, 1)
    for name in (B, C):
        trio.boot(name, trio.kill(name))
    trio.tick(3)
    trio.confirmed(A, 2)
    trio.kill(A)
    trio.tick(70)
    assert trio.master is None
    trio.boot(A)
    trio.tick(3)
    assert trio.master in {B, C}
    assert trio.ring.lossy == 1
    assert trio.bodies(trio.consume(A)) == [b"2"]


def test_a_copy_that_counts_is_recovered_and_not_given_up() -> None:
    asker = mirrored()
    copy = asker.on(NODE)
    for node in ("rabbit@node3", "rabbit@node2", NODE):
        asker.kill(node)
    uid, ring = asker.record().uid, asker.ring()
    step = promotion.recovery(uid, ring, NODE, "boot", copy)
    assert type(step).__name__ == "RingRecover"
    assert promotion.recovery(uid, ring, "rabbit@node2", "boot", copy) is None
