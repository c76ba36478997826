"""Shorthands for tests of exchanges over the wire."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node


def queues(channel: BlockingChannel, count: int) -> list[str]:
    return [channel.queue_declare("", exclusive=True).method.queue for _ in range(count)]


def drained(channel: BlockingChannel, queue: str) -> list[str]:
    """Bodies of all messages that are there, confirmed before."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body.decode())


def publish(
    channel: BlockingChannel, exchange: str, key: str = "", body: str = "m", **properties: Any
) -> bool:
    """Publish mandatory; False if the message came back."""
    try:
        channel.basic_publish(
            exchange, key, body.encode(), pika.BasicProperties(**properties), mandatory=True
        )
    except pika.exceptions.UnroutableError:
        return False
    return True


def refused(node: Node, call: Any) -> tuple[int, str]:
    """What a channel is closed with for a call."""
    with node.connect() as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            call(channel)
        return caught.value.reply_code, caught.value.reply_text.partition(" - ")[2]


def bound(
    channel: BlockingChannel,
    exchange: str,
    kind: str,
    found: list[str],
    keys: list[str],
    arguments: dict[str, Any] | None = None,
) -> None:
    channel.exchange_declare(exchange, kind, arguments=arguments)
    for queue, key in zip(found, keys, strict=True):
        channel.queue_bind(queue, exchange, key)
