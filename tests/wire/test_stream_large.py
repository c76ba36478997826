"""The largest message that a node takes, through a stream (docs/bad-input.md, case 165)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.nodes import Node

MIB = 1 << 20
LARGEST = 128 * MIB
STREAM: dict[str, object] = {"x-queue-type": "stream"}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    node = Node("large", tmp_path / "large")
    try:
        node.start()
        yield node
    finally:
        node.end()


@pytest.mark.long
@pytest.mark.slow
def test_165_a_message_of_the_largest_size(own: Node) -> None:
    """Case 165: confirmed, in its place among others, and byte for byte what was sent."""
    body = bytes(range(256)) * (LARGEST // 256)
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("large", durable=True, arguments=STREAM)
        for each in (b"before", body, b"behind"):
            channel.basic_publish("", "large", each, pika.BasicProperties(message_id="m"))
        channel.basic_qos(prefetch_count=2)
        found = channel.consume("large", arguments={"x-stream-offset": 0}, inactivity_timeout=60)
        for offset, expected in enumerate((b"before", body, b"behind")):
            method, properties, got = next(found)
            assert got == expected
            assert properties.headers == {"x-stream-offset": offset}
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.queue_delete("large")
