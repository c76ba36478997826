"""The six scenarios of RabbitMQ's Python tutorials, in our words, with pika, against each node.

Publishers and consumers sit on different nodes of the cluster wherever there are two roles.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Trio

PATIENCE_S = 60.0


@pytest.fixture(params=[0, 1, 2], ids=["node1", "node2", "node3"])
def ends(trio: Trio, request: pytest.FixtureRequest) -> Iterator[tuple[BlockingChannel, ...]]:
    """Three channels on three nodes; the first is on the parameter's node."""
    order = [trio.nodes[(request.param + i) % 3] for i in range(3)]
    connections = [node.connect() for node in order]
    yield tuple(connection.channel() for connection in connections)
    for connection in connections:
        if connection.is_open:
            connection.close()


def read(channel: BlockingChannel, queue: str, count: int, *, ack: bool = True) -> list[Any]:
    """Consume `count` messages as (method, properties, body)."""
    found = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        if method is None:
            break
        found.append((method, properties, body))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def name(of: str) -> str:
    return f"{of}.{uuid.uuid4().hex[:8]}"


def test_hello_one_message_from_one_node_to_another(ends: tuple[BlockingChannel, ...]) -> None:
    here, there, _ = ends
    queue = name("hello")
    here.queue_declare(queue)
    here.basic_publish("", queue, b"Hello World!")
    assert [body for _, _, body in read(there, queue, 1)] == [b"Hello World!"]
    here.queue_delete(queue)


def test_work_queue_shares_fairly_and_redelivers(ends: tuple[BlockingChannel, ...]) -> None:
    here, one, two = ends
    queue = name("tasks")
    here.queue_declare(queue, durable=True)
    here.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(10):
        here.basic_publish("", queue, b"task %d" % number, persistent)
    one.basic_qos(prefetch_count=1)
    two.basic_qos(prefetch_count=1)
    held = next(iter(one.consume(queue, inactivity_timeout=PATIENCE_S)))
    assert held[2] == b"task 0"
    others = [body for _, _, body in read(two, queue, 9)]
    assert others == [b"task %d" % number for number in range(1, 10)]
    one.connection.close()  # dies with its task unacknowledged
    method, _, body = read(two, queue, 1)[0]
    assert (body, method.redelivered) == (b"task 0", True)
    here.queue_delete(queue)


def test_publish_subscribe_gives_everyone_a_copy(ends: tuple[BlockingChannel, ...]) -> None:
    here, one, two = ends
    exchange = name("logs")
    here.exchange_declare(exchange, "fanout")
    queues = []
    for subscriber in (one, two):
        queue = subscriber.queue_declare("", exclusive=True).method.queue
        assert queue.startswith("amq.gen-")
        subscriber.queue_bind(queue, exchange)
        queues.append(queue)
    here.basic_publish(exchange, "", b"info: hello")
    for subscriber, queue in zip((one, two), queues, strict=True):
        assert [body for _, _, body in read(subscriber, queue, 1)] == [b"info: hello"]
    here.exchange_delete(exchange)


def test_routing_selects_by_severity(ends: tuple[BlockingChannel, ...]) -> None:
    here, one, two = ends
    exchange = name("direct_logs")
    here.exchange_declare(exchange, "direct")
    errors = one.queue_declare("", exclusive=True).method.queue
    one.queue_bind(errors, exchange, "error")
    everything = two.queue_declare("", exclusive=True).method.queue
    for severity in ("info", "warning", "error"):
        two.queue_bind(everything, exchange, severity)
    for severity in ("info", "error", "warning", "debug"):
        here.basic_publish(exchange, severity, severity.encode())
    assert [body for _, _, body in read(one, errors, 1)] == [b"error"]
    assert [body for _, _, body in read(two, everything, 3)] == [b"info", b"error", b"warning"]
    here.exchange_delete(exchange)


def test_topics_select_by_pattern(ends: tuple[BlockingChannel, ...]) -> None:
    here, one, two = ends
    exchange = name("topic_logs")
    here.exchange_declare(exchange, "topic")
    kernel = one.queue_declare("", exclusive=True).method.queue
    one.queue_bind(kernel, exchange, "kern.*")
    critical = two.queue_declare("", exclusive=True).method.queue
    two.queue_bind(critical, exchange, "#.critical")
    for key in ("kern.info", "kern.critical", "app.db.critical", "app.info"):
        here.basic_publish(exchange, key, key.encode())
    assert [body for _, _, body in read(one, kernel, 2)] == [b"kern.info", b"kern.critical"]
    assert [body for _, _, body in read(two, critical, 2)] == [b"kern.critical", b"app.db.critical"]
    here.exchange_delete(exchange)


@pytest.mark.parametrize("reply_to", ["own queue", "direct"])
def test_rpc_answers_reach_the_caller(ends: tuple[BlockingChannel, ...], reply_to: str) -> None:
    """Rows: 1.11 direct reply-to; 1.11 RPC with reply queue"""
    client, server, _ = ends
    requests = name("rpc")
    server.queue_declare(requests)

    if reply_to == "direct":
        replies, no_ack = "amq.rabbitmq.reply-to", True
    else:
        replies, no_ack = client.queue_declare("", exclusive=True).method.queue, False
    answers: list[tuple[str, bytes]] = []

    def answered(
        _channel: Any, _method: Any, properties: pika.BasicProperties, body: bytes
    ) -> None:
        answers.append((str(properties.correlation_id), body))

    client.basic_consume(replies, answered, auto_ack=no_ack)
    correlation = uuid.uuid4().hex
    client.basic_publish(
        "",
        requests,
        b"30",
        pika.BasicProperties(reply_to=replies, correlation_id=correlation),
    )
    _, properties, body = read(server, requests, 1)[0]
    assert body == b"30"
    server.basic_publish(
        "",
        properties.reply_to,
        b"832040",
        pika.BasicProperties(correlation_id=properties.correlation_id),
    )
    client.connection.process_data_events(time_limit=0)
    for _ in range(100):
        if answers:
            break
        client.connection.process_data_events(time_limit=0.1)
    assert answers == [(correlation, b"832040")]
    server.queue_delete(requests)
