"""P4: a connection without the lease says nothing that only the lease makes true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.amqp import spec
from broker.errors import ReplyCode
from broker.message import Delivery
from tests.unit.server.rig import Client, Node, Sink, turn, virtually
from tests.unit.session.rig import publish


class Slow(Sink):
    """A queue whose answers a test gives."""

    publisher: Any = None
    consumer: Any = None

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        self.publisher = publisher
        return True

    def attach(self, checkout: Any, port: Any, done: Callable[[object], None]) -> None:
        self.consumer = port
        done(None)

    def deliver(self, numbers: Sequence[int]) -> None:
        some = [Delivery(number, 0, publish().message) for number in numbers]
        self.consumer.deliver("tag", some)


async def talking(node: Node) -> tuple[Client, Slow]:
    """A client that consumes, and waits for a confirm."""
    slow = node.sink = Slow()
    client = await node.client().with_channel()
    client.send(spec.QueueDeclare("q"), spec.ConfirmSelect(), channel=1)
    client.send(spec.BasicConsume("q", "tag"), channel=1)
    assert isinstance((await client.heard())[-1], spec.BasicConsumeOk)
    message = publish().message
    client.send(spec.BasicPublish(routing_key="q"), channel=1)
    client.send(message.content)
    assert slow.publisher is not None
    return client, slow


async def waiting(node: Node) -> Client:
    """A client whose confirm came when the lease was away."""
    client, slow = await talking(node)
    node.is_valid_lease = False
    slow.publisher.confirmed([1])
    await turn()
    return client


@virtually
async def test_the_last_word_of_a_connection_confirms_and_delivers_nothing() -> None:
    """A node that was declared dead tells its clients 320, and nothing of what it believed.

    Rows: 1.10 pause guard
    """
    node = Node()
    client, slow = await talking(node)
    node.is_valid_lease = False
    slow.publisher.confirmed([1])
    slow.deliver([1])
    assert await client.heard() == []
    client.shell.close(ReplyCode.CONNECTION_FORCED, "declared dead")
    assert [type(method) for method in await client.heard()] == [spec.ConnectionClose]


@virtually
async def test_what_came_meanwhile_is_said_when_the_lease_is_back() -> None:
    node = Node()
    client = await waiting(node)
    node.is_valid_lease = True
    node.context.lease_back()
    assert [type(method) for method in await client.heard()] == [spec.BasicAck]


@virtually
async def test_who_is_woken_too_early_waits_on() -> None:
    """The lease may be away again before all who waited have had their turn."""
    node = Node()
    client = await waiting(node)
    node.context.lease_back()
    assert await client.heard() == []
    node.is_valid_lease = True
    node.context.lease_back()
    assert [type(method) for method in await client.heard()] == [spec.BasicAck]


class Broken:
    """A connection with a bug."""

    def resume(self) -> None:
        raise RuntimeError("a bug")


@virtually
async def test_a_bug_in_one_connection_costs_the_others_one_round() -> None:
    node = Node()
    node.context.lease_waiters[Broken()] = None
    client = await waiting(node)
    node.is_valid_lease = True
    with pytest.raises(RuntimeError):
        node.context.lease_back()
    assert await client.heard() == []
    node.context.lease_back()
    assert [type(method) for method in await client.heard()] == [spec.BasicAck]


@virtually
async def test_consumers_are_paused_while_nothing_may_be_delivered() -> None:
    """A backlog would pile up in the connection, and count as settled under no_ack."""
    node = Node()
    client, slow = await talking(node)
    node.is_valid_lease = False
    slow.deliver([1])
    await turn()
    slow.deliver([2])
    await turn()
    assert slow.active == [False]
    client.shell.pause_writing()
    client.shell.resume_writing()  # the socket is not what they wait for
    assert slow.active == [False, False]
    node.is_valid_lease = True
    node.context.lease_back()
    await turn()
    assert slow.active == [False, False, True]


@virtually
async def test_what_an_ended_master_delivered_is_dropped_when_it_could_not_be_written() -> None:
    """A cut-off master hands a message out just before its lease ends; its successor has it, too.

    When the lease is back, the successor may have delivered the message and got its ack: it must
    not come after that. `chaos.run --queue mirrored --fault cut-leader-from-all --seed 1` saw one
    372 ms after its ack on a busy machine, and this is the way that was found for it.
    """
    node = Node()
    client, slow = await talking(node)
    node.is_valid_lease = False
    slow.deliver([1, 2])
    await turn()
    slow.consumer.consumer_moved("tag")
    node.is_valid_lease = True
    node.context.lease_back()
    assert await client.heard() == []
    slow.deliver([3])
    delivered = await client.heard()
    assert [each.delivery_tag for each in delivered if type(each) is spec.BasicDeliver] == [3]
