"""What a client sent before its connection.close is done before it is answered (row 1.1 Close).

A client that publishes or acknowledges and closes, without a wait in between, loses nothing: also
where a channel waits for the cluster, or the node for its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker.amqp import spec
from broker.amqp.connection import LINGER_MS
from broker.amqp.frames import method_frame
from broker.errors import ReplyCode
from broker.fifo.commands import Cancel, ChannelCommand, Checkout, Settle
from broker.message import Delivery
from broker.ports import ConsumerPort, Done
from broker.server.connection import CLOSE_WAITS_MS
from broker.session.session import CLOSE_MS_MAX
from tests.unit.server.rig import Client, Node, Sink, turn, virtually
from tests.unit.session.rig import publish

BYE = method_frame(0, spec.ConnectionClose(200, "bye", 0, 0))


def published(key: str) -> bytes:
    return method_frame(1, spec.BasicPublish("", key)) + publish(key).message.content


async def client_with_queue(node: Node) -> Client:
    client = await node.client().with_channel()
    client.send(spec.QueueDeclare("q"), channel=1)
    await client.heard()
    return client


class Slow(Sink):
    """A queue whose cancels are answered when a test lets them be."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[int] = []
        self.cancelled: list[Callable[[object], None]] = []
        self.port: ConsumerPort | None = None

    def attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        self.port = port
        done(None)

    def submit(self, command: ChannelCommand, done: Done | None = None) -> None:
        if isinstance(command, Settle):
            self.settled += command.numbers
        elif isinstance(command, Cancel) and done is not None:
            self.cancelled.append(done)
        else:
            super().submit(command, done)


@virtually
async def test_a_publish_behind_a_declare_is_done_before_the_close() -> None:
    node = Node()
    other = await client_with_queue(node)
    client = await node.client().with_channel()
    declare = method_frame(1, spec.ExchangeDeclare(exchange="x", type="fanout", no_wait=True))
    client.send(declare, published("q"), BYE)
    assert await client.heard() == [spec.ConnectionCloseOk()]
    assert node.sink.count == 1
    del other


async def closing_behind_a_cancel(node: Node, queue: Slow) -> Client:
    """It has sent an ack behind a cancel that nobody answers, and its close behind that."""
    node.sink = queue
    client = await client_with_queue(node)
    client.send(spec.BasicConsume("q", "tag"), channel=1)
    await client.heard()
    assert queue.port is not None
    queue.port.deliver("tag", [Delivery(1, 0, publish("q").message)])
    await client.heard()
    cancel = method_frame(1, spec.BasicCancel("tag", no_wait=True))
    client.send(cancel, method_frame(1, spec.BasicAck(1)), BYE)
    assert await client.heard() == []
    return client


@virtually
async def test_an_ack_behind_a_cancel_is_done_before_the_close() -> None:
    node, queue = Node(), Slow()
    client = await closing_behind_a_cancel(node, queue)
    queue.cancelled[0](None)
    assert await client.heard() == [spec.ConnectionCloseOk()]
    assert queue.settled == [1]


@virtually
async def test_a_close_does_not_wait_for_ever() -> None:
    node, queue = Node(), Slow()
    client = await closing_behind_a_cancel(node, queue)
    await asyncio.sleep(CLOSE_WAITS_MS / 1000)
    client.shell.tick(node.context.clock.monotonic_ms())
    assert await client.heard() == [spec.ConnectionCloseOk()]


@virtually
async def test_a_close_waits_for_the_lease_like_what_came_before_it() -> None:
    node = Node()
    client = await client_with_queue(node)
    node.is_valid_lease = False
    client.send(published("q"), BYE)
    assert await client.heard() == []
    node.is_valid_lease = True
    node.context.lease_back()
    await turn()
    assert await client.heard() == [spec.ConnectionCloseOk()]
    assert node.sink.count == 1


@virtually
async def test_a_client_that_waits_for_the_lease_is_dropped_when_its_node_gives_up() -> None:
    """P4: after 10 s without the lease clients are closed, whatever they had asked meanwhile."""
    node = Node()
    client = await client_with_queue(node)
    node.is_valid_lease = False
    client.send(published("q"))
    assert await client.heard() == []
    client.shell.close(ReplyCode.CONNECTION_FORCED, "no lease")
    await client.heard()
    await asyncio.sleep(LINGER_MS / 1000)
    client.shell.tick(node.context.clock.monotonic_ms())
    await turn()
    assert not client.wire.is_open


@virtually
async def test_a_close_that_waits_for_the_lease_is_dropped_when_its_node_gives_up() -> None:
    node = Node()
    client = await client_with_queue(node)
    node.is_valid_lease = False
    client.send(published("q"), BYE)
    assert await client.heard() == []
    client.shell.close(ReplyCode.CONNECTION_FORCED, "no lease")
    await client.heard()
    await asyncio.sleep(LINGER_MS / 1000)
    client.shell.tick(node.context.clock.monotonic_ms())
    await turn()
    assert not client.wire.is_open


@pytest.mark.parametrize("is_answered", [True, False])
@virtually
async def test_close_ok_waits_a_while_for_auto_delete_queues(*, is_answered: bool) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete; 1.9 channel/conn close"""
    node, queue = Node(), Slow()
    node.sink = queue
    client = await node.client().with_channel()
    client.send(spec.QueueDeclare("q", auto_delete=True), spec.BasicConsume("q", "t"), channel=1)
    await client.heard()
    client.send(BYE)
    assert await client.heard() == []
    assert len(queue.cancelled) == len(queue.released) == 1
    if is_answered:
        queue.cancelled[0](None)
    else:
        await asyncio.sleep(CLOSE_MS_MAX / 1000)
    assert await client.heard() == [spec.ConnectionCloseOk()]
    queue.cancelled[0](None)
    assert await client.heard() == []


@virtually
async def test_a_close_is_answered_and_the_socket_left_to_the_client() -> None:
    """Rows: 1.1 Close"""
    node = Node()
    client = await client_with_queue(node)
    client.send(BYE)
    assert await client.heard() == [spec.ConnectionCloseOk()]
    client.send(published("q"), BYE, BYE)
    assert await client.heard() == [spec.ConnectionCloseOk(), spec.ConnectionCloseOk()]
    assert (client.wire.is_open, node.sink.count) == (True, 0)
    await asyncio.sleep(LINGER_MS / 1000)
    client.shell.tick(node.context.clock.monotonic_ms())
    await turn()
    assert not client.wire.is_open


@virtually
async def test_a_node_that_stops_does_not_wait_for_sockets_of_clients_that_have_left() -> None:
    node = Node()
    client = await client_with_queue(node)
    client.send(BYE)
    await client.heard()
    client.shell.close(ReplyCode.CONNECTION_FORCED, "broker forced connection closure")
    await turn()
    assert await client.heard() == []
    assert not client.wire.is_open
