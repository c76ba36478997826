"""Helpers of the recipe tests: queues of a type, consumers that collect, contents of a queue."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import wait_until

PATIENCE_S: Final = 60.0
KINDS: Final = ("classic", "quorum", "mirrored")
now_s = time.monotonic


def name(of: str) -> str:
    return f"{of}.{uuid.uuid4().hex[:8]}"


def make(channel: BlockingChannel, kind: str, **arguments: Any) -> str:
    """A durable queue of a kind; underscores in its arguments stand for dashes."""
    queue = name(f"recipe.{kind}")
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    if kind == "quorum":
        named["x-queue-type"] = "quorum"
    channel.queue_declare(queue, durable=True, arguments=named)
    return queue


def put(channel: BlockingChannel, queue: str, body: bytes | str, **properties: Any) -> None:
    """Publish, persistent, to the default exchange."""
    properties.setdefault("delivery_mode", 2)
    raw = body if isinstance(body, bytes) else body.encode()
    channel.basic_publish("", queue, raw, pika.BasicProperties(**properties))


def count(channel: BlockingChannel, queue: str) -> int:
    """Ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is ready."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


class Inbox:
    """A consumer that gathers, and acks if told to."""

    def __init__(
        self, channel: BlockingChannel, queue: str, *, acks: bool = True, **options: Any
    ) -> None:
        self.channel = channel
        self.acks = acks
        self.got: list[tuple[float, pika.spec.Basic.Deliver, pika.BasicProperties, bytes]] = []
        self.tag = channel.basic_consume(queue, self._take, **options)

    def _take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((now_s(), method, properties, body))
        if self.acks:
            channel.basic_ack(method.delivery_tag)

    @property
    def bodies(self) -> list[bytes]:
        return [body for *_, body in self.got]

    def turn(self) -> None:
        """Read what has come."""
        self.channel.connection.process_data_events(time_limit=0.02)

    def wait(self, count: int, timeout_s: float = PATIENCE_S) -> list[bytes]:
        """Read until so many have come."""

        def is_full() -> bool:
            self.turn()
            return len(self.got) >= count

        wait_until(is_full, f"{count} messages; came: {self.bodies}", timeout_s)
        return self.bodies


def deaths(properties: pika.BasicProperties) -> list[dict[str, Any]]:
    return list((properties.headers or {})["x-death"])


def bound_dlx(channel: BlockingChannel, kind: str) -> tuple[str, str]:
    """A direct exchange for the dead, and a queue bound to it with dlxKey."""
    exchange = name("exchange.dlx")
    channel.exchange_declare(exchange, "direct", durable=True)
    queue = make(channel, kind)
    channel.queue_bind(queue, exchange, "dlxKey")
    return exchange, queue
