"""A single node and pika: publish, consume, acknowledge."""

from __future__ import annotations

import pika

from tests.nodes import Node


def test_publish_get_ack(node: Node) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("hello.wire")
        channel.confirm_delivery()
        channel.basic_publish("", "hello.wire", b"one", pika.BasicProperties(message_id="m1"))
        method, properties, body = channel.basic_get("hello.wire")
        assert body == b"one"
        assert properties.message_id == "m1"
        assert method.redelivered is False
        channel.basic_nack(method.delivery_tag, requeue=True)
        method, _, _ = channel.basic_get("hello.wire")
        assert method.redelivered is True
        channel.basic_ack(method.delivery_tag)
        assert channel.queue_delete("hello.wire").method.message_count == 0
