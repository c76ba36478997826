"""A consumer of this node that answers while it gets messages: others get theirs all the same."""

from __future__ import annotations

from collections.abc import Sequence

from broker.fifo.commands import Discard, Settle
from broker.message import Delivery
from broker.queues.handle import QueueHandle
from tests.unit.queues.rig import A, B, Channel, World, message


class EagerChannel(Channel):
    """A consumer that settles messages within `deliver`."""

    def __init__(self, handle: QueueHandle, channel_id: str) -> None:
        super().__init__()
        self._handle = handle
        self._channel_id = channel_id

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        super().deliver(consumer_tag, deliveries)
        numbers = [each.number for each in deliveries]
        self._handle.submit(Settle(self._channel_id, consumer_tag, numbers))


def test_a_settle_within_deliver_leaves_the_messages_of_other_nodes() -> None:
    world = World(A, B)
    queue = world.declare()
    here, there, far = world.nodes[A], world.nodes[B], Channel()
    handle = here.registry.open(queue)
    near = EagerChannel(handle, here.channel_id())
    handle.attach(here.spec(), near, lambda _result: None)
    there.registry.open(queue).attach(there.spec(), far, lambda _result: None)
    world.settle()
    from_there = there.registry.open(queue)
    for _ in range(2):
        from_there.publish([message(persistent=False) for _ in range(4)], [1, 2, 3, 4], far)
        world.settle()
    found = [each.number for each in (*near.delivered, *far.delivered)]
    assert sorted(found) == list(range(1, 9))
    assert [each.number for each in far.delivered] == sorted(each.number for each in far.delivered)


def test_messages_dead_lettered_to_their_own_queue_come_behind_those_that_wait() -> None:
    """A consumer that rejects all it holds gets what waited, and then the same ones again."""
    world = World(A)
    queue = world.declare(
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    )
    node, channel = world.nodes[A], Channel()
    handle = node.registry.open(queue)
    checkout = node.spec(prefetch=2)
    handle.attach(checkout, channel, lambda _result: None)
    bodies = [b"1", b"2", b"3"]
    handle.publish([message(body) for body in bodies], [1, 2, 3], channel)
    handle.submit(Discard(checkout.channel_id, checkout.tag, [1, 2]))
    world.settle()
    assert [each.number for each in channel.delivered] == [1, 2, 3, 4]
