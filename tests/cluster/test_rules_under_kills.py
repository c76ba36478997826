"""Queues that dead-letter, delay or refuse messages, while nodes are killed under load."""

from __future__ import annotations

import itertools
import threading
import time
import urllib.error
import uuid

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Consumer, Publisher, drain
from tests.cluster.test_mirrored import mirror, synchronised
from tests.nodes import Node, Trio, wait_until

QUORUM = {"x-queue-type": "quorum"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)
PAGED, PAGED_BYTES = 6_000, 8_192  # together six times what a queue keeps in memory
HELD = 1_500
"""Rejected at once, right before the leader dies: 12 MB do not arrive within one question."""


def declare(node: Node, arguments: dict[str, object], start: str = "kills") -> str:
    queue = f"{start}.{uuid.uuid4().hex[:8]}"
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    return queue


def depth(trio: Trio, queue: str) -> int:
    """All messages of a queue, as its leader counts them; -1 while nobody tells."""
    node = trio.leader(queue)
    if node is None:
        return -1
    try:
        with node.connect() as connection:
            return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    except (pika.exceptions.AMQPError, OSError, urllib.error.URLError):
        return -1


def kill_leader(trio: Trio, queue: str, publisher: Publisher) -> None:
    """Kill who leads, under load, and start it again once the load flows without it."""
    leader = trio.leader(queue)
    assert leader is not None
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 200, "load flows")
    leader.kill()
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 200, "load flows again", 30)
    leader.start()


@pytest.mark.slow
@pytest.mark.long
def test_at_least_once_through_two_kills_of_the_leader(own_trio: Trio) -> None:
    """What was confirmed reaches the dead-letter target, and the queue ends empty.

    Rows: 1.18 worker
    """
    trio = own_trio
    target = declare(trio.nodes[0], QUORUM)
    source = declare(
        trio.nodes[0],
        {
            **QUORUM,
            "x-message-ttl": 300,
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": target,
            "x-dead-letter-strategy": "at-least-once",
        },
    )
    publisher = Publisher(trio.nodes, source)
    publisher.start()
    for _ in range(2):
        kill_leader(trio, source, publisher)
    wait_until(lambda: all(node.is_ready() for node in trio.nodes), "all are back", 30)
    publisher.end()
    wait_until(lambda: depth(trio, source) == 0, "all dead letters have arrived", 30)
    arrived = drain(trio.nodes[0], target)
    assert publisher.confirmed.keys() <= set(arrived)
    assert set(arrived) <= publisher.confirmed.keys() | set(publisher.unknown)
    assert depth(trio, source) == 0


@pytest.mark.slow
@pytest.mark.long
def test_the_leader_dies_while_paged_messages_are_dead_lettered(own_trio: Trio) -> None:
    """All that were rejected arrive; their bodies are read from the log, by two leaders."""
    trio = own_trio
    target = declare(trio.nodes[0], QUORUM)
    dead = {
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": target,
        "x-dead-letter-strategy": "at-least-once",
    }
    source = declare(trio.nodes[0], {**QUORUM, **dead})
    leader = trio.leader(source)
    assert leader is not None
    other = next(node for node in trio.nodes if node is not leader)
    with other.connect(heartbeat=0) as connection:
        channel = connection.channel()
        for number in range(PAGED):
            body = (b"%05d" % number).ljust(PAGED_BYTES)
            channel.basic_publish("", source, body, PERSISTENT)
        wait_until(lambda: depth(trio, source) == PAGED, "all are there", 120)
        for method, _, _ in channel.consume(source):  # a consumer holds 2,000 at most
            if method.delivery_tag % 500 == 0 and method.delivery_tag <= PAGED - HELD:
                channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
            if method.delivery_tag == PAGED:
                break
        wait_until(lambda: depth(trio, target) > 0, "the first have arrived")
        channel.basic_nack(PAGED, multiple=True, requeue=False)
        connection.process_data_events(0)
        left = depth(trio, source)
        leader.kill()
        assert left > 0, "all had arrived before it died"
        wait_until(lambda: depth(trio, source) == 0, "all have arrived", 120)
    assert set(drain(other, target)) == set(range(PAGED))


class LatePublisher(threading.Thread):
    """Publishes numbers with a delay and confirms, by nodes that live.

    Attributes:
        confirmed: Number -> monotonic time when it was sent.
    """

    def __init__(self, nodes: list[Node], exchange: str, delay_ms: int) -> None:
        super().__init__(daemon=True)
        self._nodes, self._exchange, self._delay_ms = nodes, exchange, delay_ms
        self._ended = threading.Event()
        self.confirmed: dict[int, float] = {}

    def run(self) -> None:
        numbers = itertools.count(1)
        for node in itertools.cycle(self._nodes):
            try:
                with node.connect(blocked_connection_timeout=10, socket_timeout=3) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self._ended.wait(0.01):
                        number = next(numbers)
                        sent = pika.BasicProperties(
                            delivery_mode=2, headers={"x-delay": self._delay_ms}
                        )
                        start = time.monotonic()
                        channel.basic_publish(self._exchange, "k", b"%d" % number, sent)
                        self.confirmed[number] = start
                    return
            except (pika.exceptions.AMQPError, OSError):
                self._ended.wait(0.2)
            if self._ended.is_set():
                return

    def end(self) -> None:
        self._ended.set()
        self.join(30)
        assert not self.is_alive()


@pytest.mark.long  # make test has that of tests/cluster/test_delays.py
def test_delays_through_a_kill_of_the_stores_leader(own_trio: Trio) -> None:
    """Rows: 1.11 sender selected delay"""
    trio, delay_ms = own_trio, 3_000
    dying, one, other = trio.nodes
    queue = declare(one, QUORUM)
    exchange = f"late.{uuid.uuid4().hex[:8]}"
    with dying.connect() as connection:
        channel = connection.channel()
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange, "k")
    publisher = LatePublisher([one, other], exchange, delay_ms)
    consumer = Consumer([other], queue)
    publisher.start()
    consumer.start()
    wait_until(lambda: len(consumer.acked) > 100, "some come in time")
    dying.kill()
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 100, "the store confirms again")
    publisher.end()
    wait_until(lambda: publisher.confirmed.keys() <= consumer.acked.keys(), "all come", 30)
    consumer.end()
    first = {number: at for number, _, at in reversed(consumer.received)}
    early_s = min(first[n] - (at + delay_ms / 1000) for n, at in publisher.confirmed.items())
    assert early_s > -0.1


@pytest.mark.slow
@pytest.mark.long
def test_reject_publish_through_a_kill_of_the_master(own_trio: Trio) -> None:
    """What was confirmed is there, what was refused is not.

    Rows: 1.6 reject-publish
    """
    trio = own_trio
    master, one, other = trio.nodes
    mirror(master, "^kills")
    queue = declare(master, {"x-max-length": 300, "x-overflow": "reject-publish"})
    wait_until(lambda: synchronised(one, queue) == 3, "mirrors are there")
    publisher = Publisher([one, other], queue)
    publisher.start()
    wait_until(lambda: len(publisher.unknown) > 100, "the queue is full")
    refused = set(publisher.unknown)
    master.kill()
    before = len(publisher.unknown)
    wait_until(lambda: len(publisher.unknown) > before + 100, "it is full again", 30)
    consumer = Consumer([other], queue)
    consumer.start()
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 300, "there is room", 30)
    publisher.end()
    wait_until(lambda: publisher.confirmed.keys() <= consumer.acked.keys(), "all come", 30)
    consumer.end()
    got = [number for number, _, _ in consumer.received]
    assert not refused & set(got)
    assert set(got) <= publisher.confirmed.keys() | set(publisher.unknown)
