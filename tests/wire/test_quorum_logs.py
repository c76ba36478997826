"""Quorum queues whose bodies are in their logs, on a real node: more than stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until

QUORUM: dict[str, object] = {"x-queue-type": "quorum"}
COUNT = 120
SIZE = 100_000  # 12 MB together, of which 4 stay in memory


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    place: Path = tmp_path_factory.mktemp("logged")
    node = Node("logged", place)
    node.start()
    yield node
    node.end()


def body(number: int) -> bytes:
    return b"%06d" % number + bytes(SIZE)


def publish(channel: BlockingChannel, queue: str, count: int = COUNT) -> None:
    channel.confirm_delivery()
    for number in range(count):
        properties = pika.BasicProperties(headers={"n": number}, timestamp=7_000 + number)
        channel.basic_publish("", queue, body(number), properties)


def taken(channel: BlockingChannel, queue: str, count: int = COUNT) -> list[int]:
    """Consume so many messages with acks; their bodies and headers are whole."""
    channel.basic_qos(prefetch_count=10)
    found = []
    for method, properties, got in channel.consume(queue, inactivity_timeout=20):
        assert method is not None, f"after {len(found)}"
        number = int(got[:6])
        assert got == body(number)
        assert properties.headers["n"] == number
        found.append(number)
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_bodies_outlive_a_kill_and_come_in_order(logged: Node) -> None:
    """Rows: 1.16 lazy, memory"""
    with logged.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("long", durable=True, arguments=QUORUM)
        publish(channel, "long")

        def is_mostly_on_disk() -> bool:
            shown = logged.api("GET", "/queues/%2F/long")
            in_ram = shown.get("message_bytes_ram", 0)
            return shown.get("messages_ready") == COUNT and 0 < in_ram < 5_000_000

        wait_until(is_mostly_on_disk, "listings tell what is in memory")
        method, _, got = channel.basic_get("long")
        assert (method.message_count, got) == (COUNT - 1, body(0))
    logged.kill()
    logged.start()
    with logged.connect() as connection:
        channel = connection.channel()

        def is_whole() -> bool:
            return channel.queue_declare("long", passive=True).method.message_count == COUNT

        wait_until(is_whole, "what the dead channel held came back")
        assert taken(channel, "long") == [*range(COUNT)]
        assert channel.basic_get("long")[0] is None


def test_what_is_on_disk_is_looked_at_got_and_dead_lettered(logged: Node) -> None:
    dead = {**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    held = {**dead, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    with logged.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True, arguments=QUORUM)
        for queue, arguments in (("once", dead), ("held", held)):
            channel.queue_declare(queue, durable=True, arguments=arguments)
            publish(channel, queue)
            channel.basic_qos(prefetch_count=0)
            for number in range(COUNT):
                method, properties, got = channel.basic_get(queue)
                assert got == body(number)
                assert properties.timestamp == 7_000 + number
            channel.basic_reject(method.delivery_tag, requeue=True)
            last = channel.basic_get(queue)
            assert last[0].redelivered
            assert last[2] == body(COUNT - 1)
            channel.basic_nack(0, multiple=True, requeue=False)
            assert sorted(taken(channel, "dead")) == [*range(COUNT)]


def test_a_long_queue_is_purged_and_shortened(logged: Node) -> None:
    with logged.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("short", durable=True, arguments={**QUORUM, "x-max-length": 90})
        publish(channel, "short")
        assert taken(channel, "short", 5) == [*range(COUNT - 90, COUNT - 85)]
        assert channel.queue_purge("short").method.message_count == 85
        publish(channel, "short", 3)
        assert taken(channel, "short", 3) == [0, 1, 2]
