"""Many queues and many bindings: what must not grow with their number."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.amqp import spec
from tests.nodes import Node
from tests.wire import raw

QUEUES = 10_000
QUEUES_S_MAX = 60.0
BINDINGS = 10_000
MESSAGES = 40_000
RATE_MIN = 20_000
CHUNK = 500


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_queues_on_one_connection(tmp_path: Path) -> None:
    """Declared, published to, consumed from and deleted one by one, each answer awaited."""
    node = Node("queues", tmp_path)
    try:
        node.start()
        start = time.monotonic()
        with node.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            names = [f"many.{number}" for number in range(QUEUES)]
            for name in names:
                channel.queue_declare(name)
            for name in names:
                channel.basic_publish("", name, name.encode())
            bodies = []
            for name in names:
                channel.basic_consume(
                    name, lambda _ch, _method, _properties, body: bodies.append(body), auto_ack=True
                )
            while len(bodies) < QUEUES:
                connection.process_data_events(time_limit=1)
            for name in names:
                channel.queue_delete(name)
        took = time.monotonic() - start
    finally:
        node.end()
    assert bodies == [name.encode() for name in names]
    assert took < QUEUES_S_MAX


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_topic_exchange_with_ten_thousand_bindings(tmp_path: Path) -> None:
    """Each message has another routing key, so no cached route helps; each goes to one queue."""
    node = Node("bindings", tmp_path)
    try:
        node.start()
        with node.connect() as connection:
            channel = connection.channel()
            channel.exchange_declare("wide", "topic")
            for number in range(8):
                channel.queue_declare(f"wide.{number}")
            for number in range(BINDINGS):
                channel.queue_bind(f"wide.{number % 8}", "wide", f"stock.{number}.*.#")
            rate = _published_per_s(node)
            found = sum(
                channel.queue_declare(f"wide.{number}", passive=True).method.message_count
                for number in range(8)
            )
    finally:
        node.end()
    assert found == MESSAGES
    assert rate > RATE_MIN


def _published_per_s(node: Node) -> float:
    """Publish in large writes, as a client with confirms in flight does, until all is confirmed."""
    content = raw.content_header(1, 100) + raw.frame(raw.BODY, 1, b"x" * 100)
    chunks = [
        b"".join(
            raw.publish(1, f"stock.{number % BINDINGS}.{number}.price", "wide") + content
            for number in range(first, first + CHUNK)
        )
        for first in range(0, MESSAGES, CHUNK)
    ]
    with raw.Raw(node.amqp_port) as client:
        client.to_channel().call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        start = time.monotonic()
        for chunk in chunks:
            client.send(chunk)
        confirmed = 0
        while confirmed < MESSAGES:
            method = client.expect(spec.BasicAck)
            confirmed = method.delivery_tag if method.multiple else confirmed + 1
        return MESSAGES / (time.monotonic() - start)
