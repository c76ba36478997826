"""Channels with a direct handle to a plain queue, when its master moves to another node."""

from __future__ import annotations

from msgspec.structs import replace

from broker.errors import Refusal
from broker.fifo.commands import SetActive, SetPrefetch, Settle
from broker.metadata import commands
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel


def moved_away(
    *, cancel_on_failover: bool = False, is_paused: bool = False
) -> tuple[Trio, Channel, list[object]]:
    """A plain queue of A with a consumer and a message there; then B is its master."""
    trio = Trio(is_declared=False)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.uid = trio.declare("q").uid
    trio.settle()
    node, consumer, told = trio.nodes[A], Channel(), list[object]()
    spec = node.spec(prefetch=1)
    if cancel_on_failover:
        spec = replace(spec, arguments={"x-cancel-on-ha-failover": True})
    node.registry.open(trio.queue).attach(spec, consumer, told.append)
    trio.policy()
    trio.tick(2)
    trio.confirmed(A, 1)
    if is_paused:
        handle = node.registry.open(trio.queue)
        handle.submit(SetActive(node.channel_id(), "t", active=False))
        handle.submit(SetPrefetch(node.channel_id(), "t", 2))
    trio.policy(ha_mode="nodes", ha_params=[B, C])
    trio.tick(3)
    assert trio.master == B
    return trio, consumer, told


def test_what_was_delivered_directly_cannot_be_settled_at_the_next_master() -> None:
    """P18: it came again, under the same number of the queue."""
    trio, consumer, told = moved_away()
    assert (told, consumer.lost, consumer.moved) == ([None], [], ["t"])
    old, new = consumer.delivered
    assert (old.delivery_count, new.delivery_count) == (0, 1)
    assert trio.bodies(consumer) == [b"1", b"1"]
    node, outcomes = trio.nodes[A], list[object]()
    handle = node.registry.open(trio.queue)
    handle.submit(Settle(node.channel_id(), "t", [old.number]), outcomes.append)
    trio.tick()
    assert [type(each) for each in outcomes] == [Refusal]
    assert trio.depth(B) == 1
    handle.submit(Settle(node.channel_id(), "t", [new.number]), outcomes.append)
    trio.tick()
    assert outcomes[1:] == [None]
    assert trio.depth(B) == 0


def test_a_direct_consumer_that_asked_for_it_ends_when_the_master_moves() -> None:
    """docs/rabbitmq-behaviour.md 1.8."""
    trio, consumer, told = moved_away(cancel_on_failover=True)
    assert (told, consumer.lost, consumer.moved) == ([None], ["t"], [])
    assert trio.bodies(consumer) == [b"1"]
    assert trio.depth(B) == 1


def test_a_direct_consumer_keeps_its_pause_and_its_limit() -> None:
    trio, consumer, _ = moved_away(is_paused=True)
    trio.confirmed(C, 2, 3)
    assert trio.bodies(consumer) == [b"1"]
    node = trio.nodes[A]
    node.registry.open(trio.queue).submit(SetActive(node.channel_id(), "t", active=True))
    trio.tick()
    assert trio.bodies(consumer) == [b"1", b"1", b"2"]


def test_a_publisher_that_waits_for_room_goes_on_when_its_queue_has_moved() -> None:
    trio = Trio(is_declared=False)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.uid = trio.declare("q").uid
    handle = trio.nodes[A].registry.open(trio.queue)
    trio.policy()
    trio.tick(2)
    trio.policy(ha_mode="nodes", ha_params=[B, C])
    trio.unsynced = {C}
    trio.publish(A, 1)
    trio.tick()
    assert handle.is_congested, "it stands still until all has come round"
    resumed: list[bool] = []
    handle.when_drained(lambda: resumed.append(True))
    trio.settle()
    assert not resumed
    trio.unsynced = set()
    trio.tick(3)
    assert trio.master == B
    assert resumed == [True]
