"""Rings of mirrored queues in group 0: founding, members, hand-over, dissolution (P1, P19-P25)."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.metadata.machine import MetadataMachine
from broker.metadata.results import decode_result, encode_result
from broker.metadata.rings import RingMember
from tests.unit.metadata.cluster import Asker
from tests.unit.metadata.ring_cluster import A, B, C, RingAsker, mirrored, three_nodes


def plain(*, durable: bool = True) -> RingAsker:
    """Queue "q" on A that no policy selects."""
    asker = three_nodes()
    asker.queue("q", home=A, durable=durable)
    asker.machine.take_changes()
    return asker


def alone() -> RingAsker:
    """Queue "q" on A, which a policy has just made a ring of one."""
    asker = plain()
    asker.policy(ha_mode="nodes", ha_params=[A])
    assert asker.do(steps.RingFound(asker.record().uid, A, asker.boot_of(A)))
    return asker


# Declaring


def test_a_declare_founds_the_ring_with_all_members_at_once():
    """RabbitMQ adds mirrors before declare-ok (docs/rabbitmq-behaviour.md 1.13); all are empty."""
    asker = mirrored()
    ring = asker.ring()
    assert [member.node for member in ring.alive()] == [A, B, C]
    assert ring.master == RingMember(A, asker.boot_of(A), 1)
    assert ring.last == ring.master
    assert ring.copies == (ring.master,)
    assert ring.synced == ring.joined == ring.alive()
    assert (ring.version, ring.epoch, ring.successor, ring.lossy) == (1, 1, None, 0)
    assert ring.recoverable == (B, C)
    assert (asker.record().home, asker.record().members) == (A, (A,))


def test_a_declare_founds_with_living_nodes_only():
    asker = three_nodes(living="12")
    asker.policy(ha_mode="nodes", ha_params=[A, B, C])
    asker.queue("q", home=B)
    assert [member.node for member in asker.ring().alive()] == [B, A]


@pytest.mark.parametrize(
    "properties",
    [
        {"exclusive_owner": f"{A}/boot/1"},
        {"arguments": {"x-queue-type": "quorum"}, "members": (A, B, C)},
    ],
)
def test_exclusive_and_quorum_queues_get_no_ring(properties: dict[str, object]):
    asker = three_nodes()
    asker.policy(ha_mode="all")
    if "exclusive_owner" in properties:
        properties["exclusive_owner"] = f"{A}/{asker.boot_of(A)}/1"
    asker.queue("q", home=A, **properties)
    queue = asker.record()
    assert queue.ring is None
    found = steps.RingFound(queue.uid, A, asker.boot_of(A))
    assert not asker.do(found)


def test_a_queue_that_no_policy_selects_stays_plain():
    asker = three_nodes()
    asker.policy("^other", ha_mode="all")
    asker.queue("q", home=A)
    assert asker.record().ring is None
    assert not asker.do(steps.RingFound(asker.record().uid, A, asker.boot_of(A)))


# A policy arrives and goes


def test_a_plain_queue_gets_a_ring_of_its_home():
    asker = plain()
    asker.policy(ha_mode="all")
    uid = asker.record().uid
    assert not asker.do(steps.RingFound(uid, B, asker.boot_of(B))), "not its home"
    assert not asker.do(steps.RingFound(uid, A, "another boot"))
    assert asker.do(steps.RingFound(uid, A, asker.boot_of(A)))
    assert not asker.do(steps.RingFound(uid, A, asker.boot_of(A))), "it has one"
    ring = asker.ring()
    assert ring.alive() == ring.synced == ring.joined == (ring.master,)
    assert asker.machine.catalogue.rings() == [asker.record()]


def test_a_ring_is_dissolved_only_once_no_policy_asks_for_it():
    asker = mirrored()
    asker.kill(A)
    asker.promote()
    assert not asker.lead(steps.RingDissolve)
    asker.ask(commands.ClearPolicy("/", "p"))
    assert asker.lead(steps.RingDissolve)
    queue = asker.record()
    assert (queue.ring, queue.home, queue.members) == (None, B, (B,))
    assert asker.machine.catalogue.rings() == []


def test_epochs_and_identities_are_not_used_twice_by_the_next_ring():
    """P1: the disk of a node that was away may still bear an identity of the earlier ring."""
    asker = mirrored()
    asker.kill(B)
    before = asker.ring()
    asker.ask(commands.ClearPolicy("/", "p"))
    assert asker.lead(steps.RingDissolve)
    asker.policy(ha_mode="all")
    assert asker.do(steps.RingFound(asker.record().uid, A, asker.boot_of(A)))
    ring = asker.ring()
    assert ring.epoch == before.epoch + 1
    assert ring.master == RingMember(A, asker.boot_of(A), before.version + 1)


# Members


def test_only_the_master_of_this_epoch_takes_members_in():
    """P20."""
    asker = alone()
    ring, uid, boot = asker.ring(), asker.record().uid, asker.boot_of(B)
    assert ring.master is not None
    stranger = RingMember(B, boot, 1)
    assert not asker.do(steps.RingJoin(uid, stranger, ring.epoch, B, boot))
    assert not asker.do(steps.RingJoin(uid, ring.master, ring.epoch + 1, B, boot))
    assert not asker.do(steps.RingJoin(uid, ring.master, ring.epoch, B, "ended boot"))
    assert not asker.do(steps.RingJoin(uid, ring.master, ring.epoch, A, asker.boot_of(A)))
    member = asker.join(B)
    assert member == RingMember(B, boot, ring.version + 1)
    assert member not in asker.ring().synced
    assert member not in asker.ring().joined
    assert not asker.lead(steps.RingJoin, B, boot), "one member per node"


def test_a_member_is_synchronised_only_after_it_was_noted_joined():
    """P20: by separate steps, which may come in one batch."""
    asker = alone()
    member = asker.join(B)
    assert not asker.lead(steps.RingSynced, member)
    ring, uid = asker.ring(), asker.record().uid
    assert ring.master is not None
    by = (uid, ring.master, ring.epoch, member)
    assert asker.change(
        steps.RingSynced(*by), steps.RingJoined(*by), steps.RingSynced(*by), steps.RingJoined(*by)
    ) == (False, True, True, False)
    assert asker.ring().synced == asker.ring().alive()


def test_a_note_of_an_earlier_epoch_counts_for_nothing():
    asker = mirrored()
    before = asker.ring()
    assert before.master is not None
    asker.kill(A)
    asker.promote()
    again = RingMember(C, asker.boot_of(C), 1)
    late = (asker.record().uid, before.master, before.epoch, again)
    assert asker.change(steps.RingDrop(*late), steps.RingSynced(*late)) == (False, False)


def test_a_mirror_leaves_a_ring_whose_peer_it_can_not_reach():
    """P25: never the master, never without one, never when the peer is gone already."""
    asker = mirrored()
    uid, a, b, c = asker.record().uid, asker.on(A), asker.on(B), asker.on(C)
    assert not asker.do(steps.RingLeave(uid, a, b))
    assert asker.do(steps.RingLeave(uid, b, a))
    assert asker.ring().slots == ((a, True), (b, False), (c, True))
    assert not asker.do(steps.RingLeave(uid, b, a))
    assert not asker.do(steps.RingLeave(uid, c, b)), "the peer has left"
    asker.kill(A)
    assert not asker.do(steps.RingLeave(uid, c, a))
    assert asker.ring().successor == c


def test_nobody_leaves_while_the_master_is_dead():
    asker = mirrored()
    uid, b, c = asker.record().uid, asker.on(B), asker.on(C)
    asker.kill(A)
    assert not asker.do(steps.RingLeave(uid, c, b))
    asker.promote()
    assert asker.do(steps.RingLeave(uid, c, b))


def test_the_master_drops_mirrors_and_never_itself():
    asker = mirrored()
    assert not asker.lead(steps.RingDrop, asker.on(A))
    dropped = asker.on(B)
    assert asker.lead(steps.RingDrop, dropped)
    assert not asker.lead(steps.RingDrop, dropped)
    assert asker.ring().synced == (asker.on(A), asker.on(C))
    assert asker.ring().recoverable == (C,), "a running node without mirror is none"


def test_a_member_that_comes_back_is_a_new_and_empty_one():
    """P1: even within the same boot."""
    asker = mirrored()
    first = asker.on(B)
    assert asker.lead(steps.RingDrop, first)
    second = asker.join(B)
    assert second.version > first.version
    assert second not in asker.ring().synced
    assert (first, False) in asker.ring().slots


def test_only_dead_slots_are_erased():
    asker = mirrored()
    uid, b = asker.record().uid, asker.on(B)
    assert not asker.do(steps.RingErase(uid, b))
    asker.kill(B)
    version = asker.ring().version
    assert asker.do(steps.RingErase(uid, b))
    assert not asker.do(steps.RingErase(uid, b))
    assert (b, False) not in asker.ring().slots
    assert asker.ring().version == version + 1


# Good order


def test_a_master_hands_over_to_a_synchronised_mirror():
    asker = mirrored()
    a, c = asker.on(A), asker.on(C)
    assert not asker.lead(steps.RingHandOver, a)
    assert asker.lead(steps.RingHandOver, c)
    ring = asker.ring()
    assert (ring.master, ring.successor, ring.last) == (None, c, a)
    assert (a, False) in ring.slots
    assert asker.record().home == A, "until somebody serves"
    asker.promote()
    assert (asker.record().home, asker.record().members) == (C, (C,))
    assert asker.ring().epoch == ring.epoch + 1


@pytest.mark.parametrize(
    ("definition", "is_accepted"),
    [
        ({}, False),
        ({"ha_promote_on_shutdown": "always"}, True),
        ({"ha_promote_on_shutdown": "always", "ha_promote_on_failure": "when-synced"}, False),
    ],
)
def test_the_policy_says_whether_an_unsynchronised_mirror_may_take_over(
    definition: dict[str, str], is_accepted: bool
):
    """docs/rabbitmq-behaviour.md 1.13: when-synced on failure overrides always on shutdown."""
    asker = alone()
    asker.policy(ha_mode="all", **definition)
    member = asker.join(B)
    assert not asker.lead(steps.RingHandOver, member), "not even joined"
    assert asker.lead(steps.RingJoined, member)
    assert asker.lead(steps.RingHandOver, member) is is_accepted
    if is_accepted:
        asker.promote()
        assert asker.ring().lossy == 1


def test_a_master_that_stops_with_nobody_to_hand_over_to_is_waited_for():
    """P23, last-stopped rule: its mirrors end, and nobody takes its place."""
    asker = alone()
    asker.policy(ha_mode="all")
    assert asker.lead(steps.RingJoined, asker.join(B))
    uid, copy = asker.record().uid, asker.on(A)
    assert asker.lead(steps.RingStopped)
    ring = asker.ring()
    assert (ring.slots, ring.master, ring.successor, ring.stopped) == ((), None, None, True)
    boot = asker.start(A)
    assert asker.do(steps.RingRecover(uid, A, boot, copy))
    assert asker.ring().alive() == (asker.on(A),)
    assert not asker.ring().stopped


def test_replicas_of_a_mirrored_queue_are_moved_by_its_ring_alone():
    asker = mirrored()
    assert asker.ask(commands.MoveMembers(asker.record().uid, (B, C), B)) is False
    assert (asker.record().home, asker.record().members) == (A, (A,))


# Batches


def test_each_step_finds_what_the_ones_before_it_left():
    asker = mirrored()
    asker.queue("r", home=A)
    asker.machine.take_changes()
    ring, uid, other = asker.ring(), asker.record().uid, asker.record("r").uid
    master, b = ring.master, asker.on(B)
    assert master is not None
    outcomes = asker.change(
        steps.RingDrop(uid, master, 1, b),
        steps.RingErase(uid, b),
        steps.RingErase(uid, b),
        steps.RingJoin(uid, master, 1, B, asker.boot_of(B)),
        steps.RingDrop(999, master, 1, b),
        steps.RingDrop(other, asker.on(A, "r"), 1, asker.on(C, "r")),
    )
    assert outcomes == (True, True, False, True, False, True)
    changes = asker.machine.take_changes()
    assert changes.queues_changed == [asker.record(), asker.record("r")], "each once, as it is now"


def test_a_repeated_request_gets_its_answers_again():
    """P3, also after a snapshot."""
    asker = mirrored()
    uid, b = asker.record().uid, asker.on(B)
    asker.kill(B)
    asker.do(steps.RingErase(uid, b))
    request = asker.log[-1]
    assert asker.machine.apply(asker.index + 1, request) == (True,)
    restored = MetadataMachine()
    restored.restore(asker.index, asker.machine.snapshot())
    assert restored.apply(asker.index + 1, request) == (True,)
    assert restored.answer("asking", asker.number) == ((True,),)


@pytest.mark.parametrize("result", [(), (True,), (False, True, False)])
def test_outcomes_travel(result: tuple[bool, ...]):
    assert decode_result(encode_result(result)) == result


def test_rings_go_through_a_snapshot():
    asker = mirrored()
    asker.kill(B)
    asker.kill(A)
    restored = MetadataMachine()
    restored.restore(asker.index, asker.machine.snapshot())
    assert restored.catalogue.rings() == [asker.record()]
    assert restored.snapshot() == asker.machine.snapshot()
    one, two = restored.catalogue, asker.machine.catalogue
    assert [one.queues_on(node) for node in (A, B, C)] == [
        two.queues_on(node) for node in (A, B, C)
    ]


def test_records_of_before_there_were_rings_stay_readable():
    """A queue record of the earlier format, as it lies in snapshots of running clusters."""
    old = Asker(MetadataMachine())
    old.ask(commands.Bootstrap("c", "warren", (("rabbit@node1", "h:1"),)))
    parts = old.machine.snapshot()
    # kind 3, a queue: vhost, name, uid, type, durable, auto_delete, owner, arguments, home,
    # members, state, moved_at
    item = (
        b"\x92\x03\x9c\xa1/\xa1q\x07\xa7classic\xc3\xc2\xc0\x80\xacrabbit@node1"
        b"\x91\xacrabbit@node1\xa7running\x00"
    )
    machine = MetadataMachine()
    machine.restore(9, [*parts, len(item).to_bytes(4, "big") + item])
    queue = machine.catalogue.queue("/", "q")
    assert queue is not None
    assert (queue.uid, queue.ring, queue.past_epoch) == (7, None, 0)
