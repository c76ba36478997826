"""Mirrored queues on real nodes: confirmed messages survive the death of a master.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import signal
import time
import uuid

import pika
import pytest

from tests.cluster.load import Consumer, Publisher, drain
from tests.cluster.test_failover import KILL_LIMIT_S, PAUSE_LIMIT_S, judge, kill_leaders
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

ALL = {"ha-mode": "all", "ha-sync-mode": "automatic"}


def mirror(node: Node, pattern: str = "^mirrored", definition: dict[str, object] = ALL) -> None:
    body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
    node.api("PUT", "/policies/%2F/mirrored", body)


def declare(node: Node) -> str:
    queue = f"mirrored.{uuid.uuid4().hex[:8]}"
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True)
    return queue


def synchronised(node: Node, queue: str) -> int:
    """How many members hold all that the master holds, the master included; 0 without one."""
    found = node.api("GET", f"/queues/%2F/{queue}")
    return 1 + len(found["synchronised_slave_nodes"]) if found["state"] == "running" else 0


def fill(node: Node, queue: str, numbers: range) -> None:
    """Publish persistent messages; return when all are confirmed."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, b"%d" % number, properties, mandatory=True)


@pytest.mark.slow
def test_a_master_killed_is_succeeded_by_a_mirror(own_trio: Trio) -> None:
    trio = own_trio
    master, other = trio.nodes[0], trio.nodes[2]
    mirror(master)
    queue = declare(master)
    fill(other, queue, range(1, 101))
    start = time.monotonic()
    master.kill()
    fill(other, queue, range(101, 102))
    assert time.monotonic() - start < KILL_LIMIT_S * lateness()
    fill(other, queue, range(102, 201))
    assert sorted(drain(other, queue)) == list(range(1, 201))


@pytest.mark.soak  # one death under load is recipe 22's
def test_masters_killed_three_times(own_trio: Trio) -> None:
    trio = own_trio
    mirror(trio.nodes[0])
    queue = declare(trio.nodes[0])
    kill_leaders(trio, queue, 3)


@pytest.mark.soak  # a rolling restart stops each in good order, too, under load
def test_stops_in_good_order_lose_nothing(own_trio: Trio) -> None:
    """Every node is stopped and started in turn, then all at once: the queue keeps everything."""
    trio = own_trio
    mirror(trio.nodes[0])
    queue = declare(trio.nodes[0])
    for turn, node in enumerate(trio.nodes):
        other = trio.nodes[turn - 2]
        fill(other, queue, range(100 * turn, 100 * turn + 50))
        assert node.stop() == 0
        fill(other, queue, range(100 * turn + 50, 100 * turn + 100))
        node.start()
        wait_until(lambda: synchronised(other, queue) == 3, "all are synchronised again")  # noqa: B023
    for node in trio.nodes:
        assert node.stop() == 0
    trio.start()
    wait_until(lambda: synchronised(trio.nodes[2], queue) > 0, "somebody serves")
    assert sorted(drain(trio.nodes[2], queue)) == list(range(300))


@pytest.mark.soak
def test_a_paused_master_is_replaced_and_returns_as_a_mirror(own_trio: Trio) -> None:
    trio = own_trio
    mirror(trio.nodes[0])
    master, others = trio.nodes[0], trio.nodes[1:]
    queue = declare(master)
    publisher, consumer = Publisher(others, queue), Consumer(others[::-1], queue)
    publisher.start()
    consumer.start()
    wait_until(lambda: len(publisher.confirmed) > 300, "load flows")
    fault = time.monotonic()
    master.send_signal(signal.SIGSTOP)
    paused = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > paused + 5, "served by another", PAUSE_LIMIT_S)
    wait_until(lambda: len(publisher.confirmed) > paused + 100, "it goes on")
    wait_until(lambda: time.monotonic() - fault > 15, "15 s of pause", 20)
    assert trio.leader(queue, others[0]) in others
    master.send_signal(signal.SIGCONT)
    wait_until(lambda: synchronised(others[0], queue) == 3, "it is a mirror again", 30)
    publisher.end()
    wait_until(
        lambda: set(publisher.confirmed) <= {n for n, _, _ in consumer.received}, "all arrive"
    )
    consumer.end()
    judge(publisher, consumer, drain(master, queue), [fault])
