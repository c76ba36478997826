"""Succession of a dead master, and recovery from its disk (P2, P22, P23)."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.metadata.machine import MetadataMachine
from broker.metadata.mirroring.steps import designable
from broker.metadata.rings import RingMember, decode_member, encode_member
from tests.unit.metadata.ring_cluster import A, B, C, RingAsker, mirrored, three_nodes


def unsynced(**definition: object) -> RingAsker:
    """Queue "q" on A with mirrors on B and C that are joined, and not synchronised."""
    asker = three_nodes()
    asker.policy(ha_mode="nodes", ha_params=[A], **definition)
    asker.queue("q", home=A)
    for node in (B, C):
        assert asker.lead(steps.RingJoined, asker.join(node))
    asker.machine.take_changes()
    return asker


# Death


def test_the_death_of_a_node_ends_all_its_memberships_in_one_command():
    """P1, P2."""
    asker = mirrored("q0")
    for number in range(1, 10):
        asker.queue(f"q{number}", home=(A, B, C)[number % 3])
    asker.machine.take_changes()
    asker.kill(A)
    changed = {queue.name: queue for queue in asker.machine.take_changes().queues_changed}
    assert set(changed) == {f"q{number}" for number in range(10)}
    for number in range(10):
        ring = asker.ring(f"q{number}")
        assert ring.member_on(A) is None
        assert changed[f"q{number}"].ring == ring
        was_master = number % 3 == 0
        assert (ring.master is None) is was_master
        assert (ring.successor is not None) is was_master


def test_a_new_boot_ends_the_memberships_of_the_one_before():
    """P1: a mirror that restarts in a second is a stranger."""
    asker = mirrored()
    before = asker.on(B)
    asker.start(B)
    assert asker.ring().member_on(B) is None
    assert before not in asker.ring().synced
    member = asker.join(B)
    assert member.boot == asker.boot_of(B) != before.boot


def test_death_designates_and_a_second_commit_promotes():
    """P22: until then nobody serves, and the home stays the dead master's."""
    asker = mirrored()
    uid, b, c = asker.record().uid, asker.on(B), asker.on(C)
    asker.kill(A)
    ring = asker.ring()
    assert (ring.master, ring.successor, ring.is_down, ring.is_serving) == (None, b, False, False)
    assert asker.record().home == A
    assert not asker.do(steps.RingPromoted(uid, c))
    assert asker.do(steps.RingPromoted(uid, b))
    assert not asker.do(steps.RingPromoted(uid, b))
    ring = asker.ring()
    assert (ring.master, ring.successor, ring.epoch, ring.last) == (b, None, 2, b)
    assert (ring.copies, ring.synced, ring.lossy) == ((b,), (b, c), 0)
    assert asker.record().home == B


def test_the_successor_of_a_dead_successor_is_the_next_synchronised_one():
    asker = mirrored()
    asker.kill(A)
    asker.kill(B)
    assert asker.ring().successor == asker.on(C)
    asker.promote()
    assert asker.ring().alive() == (asker.on(C),)


def test_a_synchronised_mirror_goes_before_an_older_one():
    """P23; `warren-promote: oldest` is RabbitMQ's choice."""
    for promote, heir in (("synchronised", C), ("oldest", B)):
        asker = unsynced(warren_promote=promote)
        assert asker.lead(steps.RingSynced, asker.on(C))
        asker.kill(A)
        assert asker.ring().successor == asker.on(heir), promote
        asker.promote()
        ring = asker.ring()
        assert ring.lossy == (promote == "oldest")
        assert ring.synced == (asker.on(heir),), "what others hold beyond a lossy one is void"


def test_without_a_synchronised_mirror_nobody_succeeds_at_once():
    asker = unsynced()
    asker.kill(A)
    ring = asker.ring()
    assert ring.is_down
    assert asker.machine.catalogue.is_reachable(asker.record()), "publishers wait, no 404"
    assert designable(asker.machine.catalogue, asker.record()) == asker.on(B)
    uid = asker.record().uid
    assert not asker.do(steps.RingDesignate(uid, asker.on(C))), "the oldest comes first"
    assert asker.do(steps.RingDesignate(uid, asker.on(B)))
    assert not asker.do(steps.RingDesignate(uid, asker.on(B)))
    asker.promote()
    assert (asker.ring().lossy, asker.ring().synced) == (1, (asker.on(B),))


def test_oldest_succeeds_at_once_under_rabbitmq_s_choice():
    asker = unsynced(warren_promote="oldest")
    asker.kill(A)
    assert asker.ring().successor == asker.on(B)


def test_when_synced_refuses_until_the_master_s_node_is_back():
    for promote in ("synchronised", "oldest"):
        asker = unsynced(ha_promote_on_failure="when-synced", warren_promote=promote)
        uid, copy = asker.record().uid, asker.on(A)
        asker.kill(A)
        assert asker.ring().is_down
        assert designable(asker.machine.catalogue, asker.record()) is None
        assert not asker.do(steps.RingDesignate(uid, asker.on(B)))
        boot = asker.start(A)
        assert asker.do(steps.RingRecover(uid, A, boot, copy))


def test_only_joined_members_are_promoted():
    """P23: a mirror without the handshake does not know the sessions."""
    asker = three_nodes()
    asker.policy(ha_mode="nodes", ha_params=[A])
    asker.queue("q", home=A)
    asker.join(B)
    assert asker.lead(steps.RingJoined, asker.join(C))
    asker.kill(A)
    uid = asker.record().uid
    assert not asker.do(steps.RingDesignate(uid, asker.on(B)))
    assert asker.do(steps.RingDesignate(uid, asker.on(C)))


def test_nobody_is_designated_after_a_stop_in_good_order():
    """Also not a member that had ended with the stop."""
    asker = unsynced()
    b = asker.on(B)
    assert asker.lead(steps.RingStopped)
    assert asker.ring().is_down
    assert not asker.do(steps.RingDesignate(asker.record().uid, b))


def test_a_successor_that_dies_after_a_hand_over_leaves_the_copy_that_was_handed_over():
    asker = mirrored()
    uid, copy = asker.record().uid, asker.on(A)
    assert asker.lead(steps.RingDrop, asker.on(C))
    assert asker.lead(steps.RingHandOver, asker.on(B))
    assert not asker.do(steps.RingRecover(uid, A, asker.boot_of(A), copy)), "B is about to serve"
    asker.kill(B)
    assert asker.do(steps.RingRecover(uid, A, asker.boot_of(A), copy))
    assert asker.ring().epoch == 2


# Recovery


def test_recovery_removes_every_other_member():
    asker = unsynced()
    uid, copy = asker.record().uid, asker.on(A)
    asker.kill(A)
    boot = asker.start(A)
    asker.machine.take_changes()
    assert asker.do(steps.RingRecover(uid, A, boot, copy))
    ring = asker.ring()
    member = asker.on(A)
    assert ring.slots == ((member, True),)
    assert (ring.master, ring.last, ring.epoch) == (member, member, 2)
    assert (ring.synced, ring.joined, ring.copies) == ((member,), (member,), (copy, member))
    assert asker.machine.take_changes().queues_changed == [asker.record()]


def test_only_copies_that_count_are_recovered():
    """P23: an old copy of an earlier master lacks what has been confirmed since."""
    asker = mirrored()
    uid, old = asker.record().uid, asker.on(A)
    asker.kill(A)
    asker.kill(C)
    last = asker.promote()
    asker.kill(B)
    assert asker.ring().slots == ()
    boot = asker.start(A)
    assert not asker.do(steps.RingRecover(uid, A, boot, old))
    assert not asker.do(steps.RingRecover(uid, A, boot, last)), "that copy lies on B"
    boot = asker.start(B)
    assert not asker.do(steps.RingRecover(uid, B, boot, RingMember(B, "x", 7)))
    assert not asker.do(steps.RingRecover(uid, B, "x", last))
    assert asker.do(steps.RingRecover(uid, B, boot, last))
    assert asker.record().home == B


def test_a_recovery_that_died_before_it_rewrote_the_note_on_disk_can_be_repeated():
    asker = unsynced()
    uid, copy = asker.record().uid, asker.on(A)
    for _ in range(3):
        boot = asker.start(A)
        assert asker.do(steps.RingRecover(uid, A, boot, copy))
    assert asker.ring().copies == (copy, asker.on(A)), "no more than can lie on that disk"
    newest = asker.on(A)
    boot = asker.start(A)
    assert asker.do(steps.RingRecover(uid, A, boot, newest))


def test_a_last_master_without_its_copy_gives_way_to_who_has_one():
    """Its disk was wiped, or it died before the note beside its copy was on disk."""
    asker = unsynced(ha_promote_on_failure="when-synced")
    uid = asker.record().uid
    asker.kill(A)
    assert not asker.do(steps.RingLost(uid, A, "ended")), "only by a living boot"
    assert not asker.do(steps.RingLost(uid, B, asker.boot_of(B))), "only by the last master's node"
    boot = asker.start(A)
    assert asker.do(steps.RingLost(uid, A, boot))
    assert not asker.do(steps.RingLost(uid, A, boot))
    assert asker.ring().successor == asker.on(B)
    asker = mirrored()
    uid, b = asker.record().uid, asker.on(B)
    for node in (B, C, A):
        assert not asker.do(steps.RingLost(uid, A, asker.boot_of(A))), "it serves"
        asker.kill(node)
    assert asker.do(steps.RingLost(uid, A, asker.start(A)))
    assert asker.record().home == B
    assert asker.do(steps.RingRecover(uid, B, asker.start(B), b))


def test_a_last_master_without_its_copy_serves_what_it_has_where_nobody_has_more():
    """As a plain queue: a policy had arrived and it died before its ring was noted on disk."""
    asker = three_nodes()
    asker.queue("q", home=A)
    asker.policy(ha_mode="all")
    uid = asker.record().uid
    assert asker.do(steps.RingFound(uid, A, asker.boot_of(A)))
    before = asker.ring()
    asker.kill(A)
    boot = asker.start(A)
    assert asker.do(steps.RingLost(uid, A, boot))
    queue = asker.record()
    assert (queue.ring, queue.home, queue.members) == (None, A, (A,))
    assert asker.do(steps.RingFound(uid, A, boot))
    assert asker.ring().epoch == before.epoch + 1
    assert asker.ring().version > before.version


def test_a_full_stop_waits_for_the_last_master():
    asker = mirrored()
    uid = asker.record().uid
    asker.kill(A)
    b = asker.promote()
    for node in (C, B):
        asker.kill(node)
    asker.start(A)
    asker.start(C)
    assert asker.ring().is_down
    assert not asker.ring().alive()
    boot = asker.start(B)
    assert asker.do(steps.RingRecover(uid, B, boot, b))
    assert asker.join_fully(A) in asker.ring().synced


# Transient queues


def test_a_transient_queue_lives_as_long_as_a_mirror_may_take_over():
    asker = mirrored(durable=False)
    asker.kill(A)
    asker.promote()
    asker.kill(B)
    asker.promote()
    assert asker.record().home == C
    asker.machine.take_changes()
    asker.kill(C)
    assert asker.machine.catalogue.queue("/", "q") is None
    changes = asker.machine.take_changes()
    assert [queue.name for queue in changes.queues_removed] == ["q"]
    assert changes.queues_changed == []


@pytest.mark.parametrize(("when", "stays"), [("always", True), ("when-synced", False)])
def test_a_transient_queue_without_synchronised_mirror(when: str, stays: bool):
    asker = three_nodes()
    asker.policy(ha_mode="nodes", ha_params=[A], ha_promote_on_failure=when)
    asker.queue("q", home=A, durable=False)
    assert asker.lead(steps.RingJoined, asker.join(B))
    uid, copy = asker.record().uid, asker.on(A)
    asker.kill(A)
    queue = asker.machine.catalogue.queue_by_uid(uid)
    assert (queue is not None) is stays
    if queue is not None:
        boot = asker.start(A)
        assert not asker.do(steps.RingRecover(uid, A, boot, copy)), "it was in memory alone"
        asker.policy(ha_mode="nodes", ha_params=[A], ha_promote_on_failure="when-synced")
        assert asker.do(steps.RingDesignate(uid, asker.on(B))), "decided when its master died"


def test_a_transient_queue_goes_with_an_orderly_stop():
    asker = mirrored(durable=False)
    assert asker.lead(steps.RingStopped)
    assert asker.machine.catalogue.queue("/", "q") is None


# Nodes that are forgotten


def test_forgetting_the_last_master_turns_to_the_oldest_stopped_mirror():
    """docs/rabbitmq-behaviour.md 1.14; its copy may lack something, so it counts as lossy."""
    asker = mirrored()
    uid, b = asker.record().uid, asker.on(B)
    asker.kill(B)
    asker.kill(C)
    asker.kill(A)
    assert asker.ring().recoverable == (B, C)
    asker.machine.take_changes()
    assert asker.ask(commands.ForgetNode(A)) is True
    assert asker.machine.take_changes().queues_changed == [asker.record()]
    assert asker.record().home == B
    assert asker.ring().lossy == 1
    boot = asker.start(B)
    assert asker.do(steps.RingRecover(uid, B, boot, b))


def test_forgetting_goes_to_a_living_mirror_where_none_has_stopped():
    """RabbitMQ's mirror has thrown its copy away by then and the queue is deleted; ours has not."""
    asker = unsynced(ha_promote_on_failure="when-synced")
    asker.kill(A)
    asker.ask(commands.ForgetNode(A))
    assert asker.ring().successor == asker.on(B)
    asker.promote()
    assert asker.record().home == B


def test_forgetting_the_only_node_with_a_copy_deletes_the_queue():
    asker = mirrored()
    for node in (B, C):
        assert asker.lead(steps.RingDrop, asker.on(node))
    asker.kill(A)
    asker.ask(commands.ForgetNode(A))
    assert asker.machine.catalogue.queue("/", "q") is None


def test_forgetting_a_mirror_s_node_only_strikes_it_off():
    asker = mirrored()
    asker.kill(B)
    assert asker.ring().recoverable == (B, C)
    asker.ask(commands.ForgetNode(B))
    ring = asker.ring()
    assert (ring.recoverable, ring.left, ring.master) == ((C,), (), asker.on(A))


def test_forgetting_a_dead_master_leaves_its_successor():
    asker = mirrored()
    asker.kill(A)
    asker.ask(commands.ForgetNode(A))
    assert asker.ring().successor == asker.on(B)
    asker.promote()
    assert asker.record().home == B


def test_recoverable_nodes_come_and_go_as_in_rabbitmq():
    """docs/rabbitmq-behaviour.md 1.13, recoverable_slaves."""
    asker = mirrored()
    asker.kill(B)
    assert asker.ring().recoverable == (B, C)
    asker.start(B)
    asker.kill(A)
    assert asker.ring().recoverable == (B, C)
    asker.promote()
    assert asker.ring().recoverable == (), "B runs, without a mirror; C is the master"
    asker.join(B)
    assert asker.ring().recoverable == (B,)


def test_a_mirror_s_copy_counts_when_all_but_its_node_are_given_up():
    """As after force_boot: B starts anew before group 0 hears of any death."""
    for order in ((A, C), (C, A)):
        asker = mirrored()
        uid, copy = asker.record().uid, asker.on(B)
        boot = asker.start(B)
        for node in order:
            asker.kill(node)
        for node in order:
            assert asker.ask(commands.ForgetNode(node)) is True
        assert asker.record().home == B
        assert asker.ring().lossy > 0
        assert asker.do(steps.RingRecover(uid, B, boot, copy))


def test_what_succeeds_a_forgotten_master_may_die_as_well():
    """A node is forgotten right after its death; its heir is lost too and counts as alive yet."""
    for heir_is_forgotten in (True, False):
        asker = mirrored()
        uid, b, c = asker.record().uid, asker.on(B), asker.on(C)
        boot = asker.start(B)
        asker.kill(A)
        asker.ask(commands.ForgetNode(A))
        assert asker.ring().successor == c
        asker.ask(commands.JoinNode(A, "h:9"))  # wiped: nothing of the queue is there
        asker.machine.take_changes()
        asker.kill(C)
        assert asker.machine.take_changes().queues_changed == [asker.record()]
        if heir_is_forgotten:
            asker.ask(commands.ForgetNode(C))
            assert asker.do(steps.RingRecover(uid, B, boot, b))
        else:
            boot = asker.start(C)
            assert asker.do(steps.RingRecover(uid, C, boot, c)), "stopped nodes come first"


def test_an_identity_travels():
    member = RingMember(A, "boot", 7)
    assert decode_member(encode_member(member)) == member


def test_a_transient_queue_of_a_dead_home_is_deleted_only_without_a_ring():
    asker = three_nodes()
    asker.policy("^q$", ha_mode="all")
    asker.queue("q", home=A, durable=False)
    asker.queue("r", home=A, durable=False)
    asker.kill(A)
    assert [queue.name for queue in asker.machine.catalogue.queues()] == ["q"]


def test_a_machine_that_saw_only_the_log_agrees():
    asker = mirrored()
    asker.kill(A)
    asker.promote()
    asker.start(A)
    asker.join_fully(A)
    other = MetadataMachine()
    for index, entry in enumerate(asker.log, start=1):
        other.apply(index, entry)
    assert other.snapshot() == asker.machine.snapshot()
