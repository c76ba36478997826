"""Consumers on living nodes, when the master of their mirrored queue dies."""

from __future__ import annotations

import uuid

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.cluster.test_mirrored import declare, fill, mirror, synchronised
from tests.nodes import Trio, wait_until
from tests.wire.contents import end_last_consumer, get_behind_a_publish
from tests.wire.raw import Raw


class Consumer:
    """A consumer on a channel of its own."""

    def __init__(
        self, connection: pika.BlockingConnection, queue: str, **arguments: object
    ) -> None:
        self.connection = connection
        self.channel: BlockingChannel = connection.channel()
        self.deliveries: list[tuple[int, bool, int]] = []  # body, redelivered, delivery tag
        self.cancelled = False
        self.channel.basic_qos(prefetch_count=2)
        self.channel.add_on_cancel_callback(self._cancel)
        self.tag = self.channel.basic_consume(
            queue,
            self._deliver,
            arguments={key.replace("_", "-"): value for key, value in arguments.items()},
        )

    def _deliver(
        self, _channel: object, method: pika.spec.Basic.Deliver, _: object, body: bytes
    ) -> None:
        self.deliveries.append((int(body), method.redelivered, method.delivery_tag))

    def _cancel(self, _method: object) -> None:
        self.cancelled = True

    def has(self, count: int) -> bool:
        self.connection.process_data_events(0.05)
        return len(self.deliveries) >= count


@pytest.mark.slow
def test_consumers_of_a_dead_master(own_trio: Trio) -> None:
    """docs/rabbitmq-behaviour.md 1.8, 1.14: one is cancelled as it asked, the other goes on.

    Rows: 1.3 Queue op during failover; 1.8 x-cancel-on-ha-failover; 1.8 delivery flags
    """
    trio = own_trio
    mirror(trio.nodes[0])
    queue, other = declare(trio.nodes[0]), declare(trio.nodes[0])
    wait_until(lambda: synchronised(trio.nodes[2], queue) == 3, "all hold the queue")
    connection = trio.nodes[2].connect()
    staying = Consumer(connection, queue)
    ending = Consumer(connection, other, x_cancel_on_ha_failover=True)
    fill(trio.nodes[1], queue, range(3))
    wait_until(lambda: staying.has(2), "two are delivered")
    old = [tag for _, _, tag in staying.deliveries]
    trio.nodes[0].kill()
    wait_until(lambda: staying.has(4), "they come again", 10)
    wait_until(lambda: staying.has(0) and ending.cancelled, "one consumer is cancelled", 10)
    assert [each[:2] for each in staying.deliveries[2:]] == [(0, True), (1, True)]
    assert not staying.cancelled
    staying.channel.basic_ack(old[1], multiple=True)  # of the dead master's: settles nothing
    fill(trio.nodes[1], queue, range(3, 4))
    assert not staying.has(5)
    staying.channel.basic_ack(staying.deliveries[3][2], multiple=True)
    wait_until(lambda: staying.has(6), "the others follow")
    assert [each[0] for each in staying.deliveries[4:]] == [2, 3]
    staying.channel.basic_ack(0, multiple=True)
    assert staying.channel.queue_purge(queue).method.message_count == 0
    staying.channel.basic_cancel(staying.tag)
    connection.close()
    with trio.nodes[1].connect() as check:
        assert check.channel().queue_declare(queue, passive=True).method.message_count == 0


def test_a_consumer_that_waits_comes_before_basic_get(trio: Trio) -> None:
    """Rows: 1.9 basic.get"""
    mirror(trio.nodes[0])
    queue = declare(trio.nodes[0])
    for node in trio.nodes[:2]:  # the master's, and a mirror's
        with Raw(node.amqp_port) as raw:
            raw.to_channel().open_channel(2)
            for _ in range(5):
                answers = get_behind_a_publish(raw, queue)
                assert answers == ["1 BasicGetEmpty", "2 BasicDeliver"]


@pytest.mark.parametrize("how", ["cancel", "channel", "connection"])
def test_an_auto_delete_queue_is_gone_when_its_last_consumers_end_is_answered(
    trio: Trio, how: str
) -> None:
    """Of its own node's consumer, and of another node's.

    Rows: 1.3 durable / exclusive / auto_delete
    """
    mirror(trio.nodes[0])
    for node in trio.nodes[:2]:
        queue = f"mirrored.{uuid.uuid4().hex[:8]}"
        with trio.nodes[0].connect() as connection:
            connection.channel().queue_declare(queue, auto_delete=True)
        end_last_consumer(node.amqp_port, queue, how)
        with node.connect() as connection, pytest.raises(ChannelClosedByBroker, match="404"):
            connection.channel().queue_declare(queue, passive=True)


@pytest.mark.long
def test_a_transaction_that_acknowledges_what_a_dead_master_gave(own_trio: Trio) -> None:
    """P18: nobody knows, so commit fails with 406, and the message comes again."""
    trio = own_trio
    mirror(trio.nodes[0])
    queue = declare(trio.nodes[0])
    wait_until(lambda: synchronised(trio.nodes[2], queue) == 3, "all hold the queue")
    fill(trio.nodes[1], queue, range(1))
    connection = trio.nodes[2].connect()
    channel = connection.channel()
    channel.tx_select()
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    channel.basic_ack(method.delivery_tag)
    trio.nodes[0].kill()
    wait_until(lambda: trio.leader(queue, trio.nodes[1]) is not trio.nodes[0], "B serves", 10)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - partial tx completion",
    )
    again, _, body = connection.channel().basic_get(queue)
    assert again is not None
    assert (again.redelivered, body) == (True, b"0")
    connection.close()
