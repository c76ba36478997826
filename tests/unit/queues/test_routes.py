"""Routes to the node that serves a queue; answers of others are ignored."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from broker.message import Delivery
from broker.metadata.catalogue import Catalogue
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.records import Node, Queue
from broker.metadata.rings import RingMember, end_boot, found, join, promote
from broker.queues.client.routes import HomeRoute, LeaderRoute, Server
from broker.queues.envelopes import QueueReply
from tests.unit.queues.rig import A, B, C, Channel, World, message

POLICY = HaPolicy(mode="all")


def catalogue(**boots: str | None) -> Catalogue:
    known = Catalogue()
    for letter, boot in boots.items():
        name = f"rabbit@{letter}"
        known.put_node(Node(name, boot, boot is not None, name))
    return known


def plain(**changes: object) -> Queue:
    record = Queue("/", "q", 7, "classic", True, False, None, {}, A, (A,))
    return replace(record, **changes)


def ringed(**changes: object) -> Queue:
    return plain(ring=found([(A, "1"), (B, "1")]), **changes)


def after_death(queue: Queue) -> Queue:
    assert queue.ring is not None
    ring = end_boot(queue.ring, A, "1", POLICY)
    assert ring is not None
    return replace(queue, ring=ring)


def after_promotion(queue: Queue) -> Queue:
    ring = after_death(queue).ring
    assert ring is not None
    assert ring.successor is not None
    promoted = promote(ring, ring.successor)
    return replace(queue, ring=promoted, home=B)


def test_a_plain_queue_is_served_by_its_homes_boot() -> None:
    route = HomeRoute(plain(), catalogue(a="1"))
    assert (route.target, route.server) == (A, Server(A, "1", 0, True))
    assert HomeRoute(plain(), catalogue(a=None)).target is None


def test_the_end_of_a_boot_is_reported_once() -> None:
    nodes = catalogue(a="1", b="1")
    route = HomeRoute(ringed(), nodes)
    assert not route.look()
    nodes.put_node(Node(A, None, False, A))
    assert route.look()  # before the ring's record says so
    assert route.target is None
    route.record = after_death(route.record)
    assert not route.look()
    route.record = after_promotion(ringed())
    assert not route.look()
    assert route.target == B


def test_a_master_that_hands_over_has_ended_though_its_boot_lives() -> None:
    route = HomeRoute(ringed(), catalogue(a="1", b="1"))
    route.record = after_promotion(route.record)
    assert route.look()
    assert route.target == B


@pytest.mark.parametrize("skipped", [True, False])
def test_a_home_that_becomes_a_master_and_a_home_again_goes_on(skipped: bool) -> None:
    route = HomeRoute(plain(), catalogue(a="1"))
    if not skipped:
        route.record = plain(ring=found([(A, "1")]))
        assert not route.look()
    route.record = plain(past_version=1, past_epoch=1)
    assert not route.look()
    assert route.admits(A, 1)
    assert route.admits(A, 0)


def test_a_node_that_serves_again_after_another_is_another_machine() -> None:
    """Seen only afterwards, as by a node that was away and got a snapshot."""
    route = HomeRoute(plain(), catalogue(a="1"))
    route.record = plain(past_version=9, past_epoch=3)
    assert route.look()
    route = HomeRoute(ringed(), catalogue(a="1", b="1"))
    later = after_promotion(ringed()).ring
    assert later is not None
    member = RingMember(A, "1", 9)
    route.record = plain(ring=replace(later, master=member, epoch=3))
    assert route.look()


def test_answers_of_another_node_or_epoch_do_not_count() -> None:
    nodes = catalogue(a="1", b="1")
    route = HomeRoute(after_promotion(ringed()), nodes)
    assert [route.admits(B, epoch) for epoch in (0, 1, 2, 3)] == [False, False, True, False]
    assert not route.admits(A, 2)
    nodes.put_node(Node(B, None, False, B))
    route.look()
    assert not route.admits(B, 2)


def test_a_home_may_found_a_ring_before_this_node_hears_of_it() -> None:
    route = HomeRoute(plain(past_epoch=4), catalogue(a="1"))
    assert [route.admits(A, epoch) for epoch in (0, 5, 6)] == [True, True, False]
    founder = HomeRoute(
        plain(past_epoch=4, ring=found([(A, "1")], version=8, epoch=4)), catalogue(a="1")
    )
    assert founder.admits(A, 0)


def test_a_queue_is_down_when_nobody_serves_or_is_about_to() -> None:
    nodes = catalogue(a="1", b="1", c="1")
    assert not HomeRoute(ringed(), nodes).is_down()
    assert not HomeRoute(after_death(ringed()), nodes).is_down()
    alone = plain(ring=found([(A, "1")]))
    assert HomeRoute(after_death(alone), nodes).is_down()
    nodes.put_node(Node(A, None, False, A))
    assert HomeRoute(plain(), nodes).is_down()
    assert not HomeRoute(alone, nodes).is_down()  # its record does not tell yet


def test_a_late_leader_is_not_heard() -> None:
    """P17: only the newest leader hands out."""
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    node, channel = world.nodes[C], Channel()
    handle = node.registry.open(queue)
    handle.attach(node.spec(), channel, lambda _result: None)
    world.settle()
    late = [(node.channel_id(), "t", [Delivery(1, 0, message())])]
    world.lead(queue, B)
    world.settle()
    node.registry.receive_queue_reply(A, QueueReply(queue.uid, 1, deliveries=late))
    assert channel.delivered == []
    node.registry.receive_queue_reply(B, QueueReply(queue.uid, 2, deliveries=late))
    assert len(channel.delivered) == 1


def test_a_redirect_to_nobody_forgets_the_leader() -> None:
    queue = plain(type="quorum", members=(A, B, C))
    route = LeaderRoute(queue, catalogue(a="1", b="1", c="1"))
    assert route.hear(B, QueueReply(7, 3))
    assert route.target == B
    assert not route.hear(B, QueueReply(7, 3, leader=""))
    assert route.target == A
    assert route.hear(A, QueueReply(7, 3, leader=C))
    assert route.target == C
    assert not route.hear(A, QueueReply(7, 2, leader=B))
    assert route.target == C


def test_a_member_that_joins_changes_nothing_for_publishers() -> None:
    """Rings change often; what has no answer is not sent again for that."""
    route = HomeRoute(ringed(), catalogue(a="1", b="1", c="1"))
    before = route.server
    assert route.record.ring is not None
    route.record = replace(route.record, ring=join(route.record.ring, C, "1"))
    assert not route.look()
    assert route.server == before
