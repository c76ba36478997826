"""A queue keeps its TTL, limits and policies after its master or leader has died."""

from __future__ import annotations

import time
import uuid

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.test_failover import KILL_LIMIT_S
from tests.cluster.test_mirrored import mirror, synchronised
from tests.nodes import Node, Trio, wait_until

TTL_MS = 6_000
KINDS = ("mirrored", "quorum")


class Place:
    """Queues of one kind at one node."""

    def __init__(self, node: Node, kind: str) -> None:
        self.kind = kind
        self.start = f"{kind}.{uuid.uuid4().hex[:6]}"
        self.names: list[str] = []
        with node.connect() as connection:
            self._declare(connection.channel())

    def _declare(self, channel: BlockingChannel) -> None:
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.name("dead")}
        self._queue(channel, "dead")
        self._queue(channel, "ttl", {"x-message-ttl": TTL_MS, **to_dead})
        self._queue(channel, "limit", {"x-max-length": 2, **to_dead})
        self._queue(channel, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
        self._queue(channel, "active", {"x-single-active-consumer": True})
        self._queue(channel, "twice", {"x-message-deduplication": True})
        if self.kind == "mirrored":
            self._queue(channel, "levels", {"x-max-priority": 5})
        else:
            held = {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": self.name("late"),
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
            self._queue(channel, "held", held)

    def _queue(
        self, channel: BlockingChannel, name: str, arguments: dict[str, object] | None = None
    ) -> None:
        kind = "quorum" if self.kind == "quorum" else "classic"
        channel.queue_declare(
            self.name(name), durable=True, arguments={"x-queue-type": kind, **(arguments or {})}
        )
        self.names.append(self.name(name))

    def name(self, name: str) -> str:
        return f"{self.start}.{name}"


class Listener:
    """A consumer that acknowledges what it gets."""

    def __init__(self, node: Node, queue: str) -> None:
        self.connection = node.connect()
        self.bodies: list[bytes] = []
        channel = self.connection.channel()

        def came(_: object, method: pika.spec.Basic.Deliver, __: object, body: bytes) -> None:
            self.bodies.append(body)
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, came)


def publish(channel: BlockingChannel, queue: str, *bodies: bytes, **properties: object) -> None:
    for body in bodies:
        sent = pika.BasicProperties(delivery_mode=2, **properties)
        channel.basic_publish("", queue, body, sent)


def got(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is ready, acknowledged."""
    found = []
    while (item := channel.basic_get(queue))[0] is not None:
        channel.basic_ack(item[0].delivery_tag)
        found.append(item[2])
    return found


def arrived(channel: BlockingChannel, queue: str, count: int) -> dict[str, list[bytes]]:
    """Wait for so many dead letters; their bodies by the reason of their last death, sorted."""
    found: dict[str, list[bytes]] = {}
    until = time.monotonic() + KILL_LIMIT_S + TTL_MS / 1000
    while count and time.monotonic() < until:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            time.sleep(0.05)
            continue
        channel.basic_ack(method.delivery_tag)
        assert [death["count"] for death in properties.headers["x-death"]] == [1]
        found.setdefault(properties.headers["x-last-death-reason"], []).append(body)
        count -= 1
    return {reason: sorted(bodies) for reason, bodies in found.items()}


def is_refused(channel: BlockingChannel, queue: str) -> bool:
    try:
        publish(channel, queue, b"too much")
    except pika.exceptions.NackError:
        return True
    return False


def before_the_kill(channel: BlockingChannel, place: Place) -> None:
    publish(channel, place.name("ttl"), b"1", b"2")
    publish(channel, place.name("ttl"), b"short", expiration="1")
    publish(channel, place.name("limit"), b"1", b"2")
    publish(channel, place.name("full"), b"1")
    publish(channel, place.name("twice"), b"1", headers={"x-deduplication-header": "k"})
    if place.kind == "mirrored":
        for level in (1, 5, 0, 5, 9):
            publish(channel, place.name("levels"), b"%d" % level, priority=level)
    else:
        publish(channel, place.name("held"), b"held", expiration="1")


def after_the_kill(channel: BlockingChannel, place: Place) -> None:
    publish(channel, place.name("limit"), b"3", b"4")
    assert got(channel, place.name("limit")) == [b"3", b"4"]
    assert arrived(channel, place.name("dead"), 5) == {
        "maxlen": [b"1", b"2"],
        "expired": [b"1", b"2", b"short"],
    }
    assert is_refused(channel, place.name("full"))
    publish(channel, place.name("twice"), b"2", headers={"x-deduplication-header": "k"})
    assert got(channel, place.name("twice")) == [b"1"]
    if place.kind == "mirrored":
        assert got(channel, place.name("levels")) == [b"5", b"5", b"9", b"1", b"0"]
    else:
        late = place.name("late")
        channel.queue_declare(late, durable=True, arguments={"x-queue-type": "quorum"})
        assert arrived(channel, late, 1) == {"expired": [b"held"]}


def served(listeners: list[Listener], count: int) -> list[int]:
    """Wait until consumers have so many messages; how many each has, sorted."""

    def is_there() -> bool:
        for listener in listeners:
            listener.connection.process_data_events(0.02)
        return sum(len(listener.bodies) for listener in listeners) >= count

    wait_until(is_there, "all messages are consumed")
    return sorted(len(listener.bodies) for listener in listeners)


@pytest.mark.long
@pytest.mark.slow
def test_rules_outlive_the_node_that_kept_them(own_trio: Trio) -> None:
    """Rows: 1.7 with mirroring; 1.4 When removed; 1.6 reject-publish; 1.8 SAC; 1.16 SAC"""
    dying, one, other = own_trio.nodes
    mirror(dying)
    places = {kind: Place(dying, kind) for kind in KINDS}
    for name in places["mirrored"].names:
        wait_until(lambda: synchronised(one, name) == 3, "mirrors are there")  # noqa: B023
    listeners = {
        kind: [Listener(node, place.name("active")) for node in (one, other)]
        for kind, place in places.items()
    }
    with one.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for place in places.values():
            before_the_kill(channel, place)
        dying.kill()
        for kind, place in places.items():
            after_the_kill(channel, place)
            publish(channel, place.name("active"), *[b"%d" % n for n in range(20)])
            assert served(listeners[kind], 20) == [0, 20]
    for both in listeners.values():
        for listener in both:
            listener.connection.close()
