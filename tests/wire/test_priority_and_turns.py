"""Priorities of messages and of consumers, and single active consumers, as pika sees them."""

from __future__ import annotations

import time

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node

WAIT_S = 10.0


def publish(channel: BlockingChannel, queue: str, *bodies: bytes, **properties: int) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def got(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (item := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(item[2])
    return found


def refusal(channel: BlockingChannel, queue: str, arguments: dict[str, object]) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, durable=True, arguments=arguments)
    return closed.value.reply_code, closed.value.reply_text


class Listener:
    """A consumer on a connection of its own; it acknowledges nothing by itself."""

    def __init__(self, node: Node, queue: str, **options: object) -> None:
        self.connection = node.connect()
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=10)
        self.bodies: list[bytes] = []
        self.tag = self.channel.basic_consume(queue, self._came, **options)

    def _came(self, _channel: object, method: object, _properties: object, body: bytes) -> None:
        self.bodies.append(body)

    def wait(self, *bodies: bytes) -> None:
        """Wait until exactly these have come."""
        until = time.monotonic() + WAIT_S
        while len(self.bodies) < len(bodies) and time.monotonic() < until:
            self.connection.process_data_events(0.05)
        self.connection.process_data_events(0)
        assert self.bodies == list(bodies)


def test_priorities_a_queue_can_have(channel: BlockingChannel, node: Node, name: str) -> None:
    """Rows: 1.7 x-max-priority; 1.7 starvation"""
    for value in (0, 1, 255):
        channel.queue_declare(f"{name}-{value}", arguments={"x-max-priority": value})
    assert refusal(channel, name, {"x-max-priority": 256}) == (
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue '{name}' in vhost '/': "
        "{max_value_exceeded,256}",
    )
    with node.connect() as connection:
        arguments = {"x-max-priority": 5, "x-queue-type": "quorum"}
        assert refusal(connection.channel(), name, arguments) == (
            406,
            f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue '{name}' in vhost '/' "
            "of queue type rabbit_quorum_queue",
        )


def test_the_highest_is_first_and_equals_keep_their_order(
    channel: BlockingChannel, name: str
) -> None:
    """Rows: 1.7 message priority; 1.7 x-max-priority"""
    channel.queue_declare(name, durable=True, arguments={"x-max-priority": 10})
    publish(channel, name, b"none")
    publish(channel, name, b"low 1", b"low 2", priority=1)
    publish(channel, name, b"beyond", priority=200)
    publish(channel, name, b"highest", priority=10)
    publish(channel, name, b"zero", priority=0)
    assert got(channel, name) == [b"beyond", b"highest", b"low 1", b"low 2", b"none", b"zero"]


def test_the_next_active_consumer_takes_over(
    channel: BlockingChannel, node: Node, name: str
) -> None:
    """Rows: 1.8 SAC"""
    channel.queue_declare(name, durable=True, arguments={"x-single-active-consumer": True})
    first, low = Listener(node, name), Listener(node, name)
    high = Listener(node, name, arguments={"x-priority": 5})
    publish(channel, name, b"1", b"2")
    first.wait(b"1", b"2")
    first.connection.close()
    high.wait(b"1", b"2")
    high.channel.basic_cancel(high.tag)
    publish(channel, name, b"3")
    low.wait(b"3")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.basic_consume(name, print, exclusive=True)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        403,
        f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use",
    )
    for listener in (low, high):
        listener.connection.close()


def test_of_a_quorum_queue_the_oldest_takes_over(
    channel: BlockingChannel, node: Node, name: str
) -> None:
    """Rows: 1.16 SAC"""
    arguments = {"x-single-active-consumer": True, "x-queue-type": "quorum"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    first, old = Listener(node, name), Listener(node, name)
    high = Listener(node, name, arguments={"x-priority": 5})
    publish(channel, name, b"1")
    first.wait(b"1")
    first.channel.basic_cancel(first.tag)
    publish(channel, name, b"2")
    old.wait(b"2")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.basic_get(name)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        405,
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{name}' in vhost '/'. basic.get "
        "operations are not supported by quorum queues with single active consumer",
    )
    for listener in (first, old, high):
        listener.connection.close()


def test_the_higher_consumer_gets_all_it_can_take(
    channel: BlockingChannel, node: Node, name: str
) -> None:
    """Rows: 1.8 consumer priority"""
    channel.queue_declare(name, durable=True)
    low, high = Listener(node, name), Listener(node, name, arguments={"x-priority": 1})
    bodies = [b"%d" % number for number in range(13)]
    publish(channel, name, *bodies)
    high.wait(*bodies[:10])
    low.wait(*bodies[10:])
    for listener in (low, high):
        listener.connection.close()
