"""Confirmed messages survive when nodes die, are paused, or all stop at once."""

from __future__ import annotations

import signal
import time
import uuid

import pika
import pytest

from tests.cluster.load import Consumer, Publisher, drain
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

KILL_LIMIT_S = 6.0
PAUSE_LIMIT_S = 8.0
ACK_GRACE_S = 2.0

QUORUM = {"x-queue-type": "quorum"}


def declare_quorum(trio: Trio) -> str:
    queue = f"quorum.{uuid.uuid4().hex[:8]}"
    with trio.nodes[0].connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=QUORUM)
    wait_until(lambda: trio.leader(queue) is not None, "the queue has a leader")
    return queue


def judge(publisher: Publisher, consumer: Consumer, left: list[int], faults: list[float]) -> None:
    """Nothing confirmed is lost; nothing acked long before a fault comes back; order holds."""
    received = [number for number, _, _ in consumer.received]
    lost = set(publisher.confirmed) - set(received) - set(left)
    assert not lost, f"{len(lost)} confirmed messages lost: {sorted(lost)[:10]}"
    limit_s = KILL_LIMIT_S * lateness()
    phantoms = set(received) - set(publisher.confirmed) - set(publisher.unknown)
    assert not phantoms
    for number, _, at in consumer.received:
        acked_at = consumer.acked.get(number)
        if acked_at is not None and at > acked_at:
            assert any(fault - ACK_GRACE_S <= acked_at <= fault + limit_s for fault in faults)
    first_seen: dict[int, bool] = {}
    for number, redelivered, _ in consumer.received:
        first_seen.setdefault(number, redelivered)
    # 0 is from another publisher, so it has no place in this one's order
    fresh = [number for number, again in first_seen.items() if number and not again]
    assert fresh == sorted(fresh)


def kill_leaders(trio: Trio, queue: str, times: int) -> None:
    """Kill whoever leads a queue under load, so many times, and judge what came through."""
    publisher, consumer = Publisher(trio.nodes, queue), Consumer(trio.nodes[::-1], queue)
    publisher.start()
    consumer.start()
    faults = []
    for _ in range(times):
        leader = trio.leader(queue)
        assert leader is not None
        before = len(publisher.confirmed)
        wait_until(lambda: len(publisher.confirmed) > before + 200, "load flows")  # noqa: B023
        faults.append(time.monotonic())
        leader.kill()
        killed = len(publisher.confirmed)
        wait_until(lambda: len(publisher.confirmed) > killed + 100, "confirms again")  # noqa: B023
        leader.start()
    publisher.end()
    wait_until(
        lambda: set(publisher.confirmed) <= {n for n, _, _ in consumer.received}, "all arrive"
    )
    consumer.end()
    for fault in faults:
        assert publisher.longest_gap_after(fault) < KILL_LIMIT_S * lateness()
    judge(publisher, consumer, drain(trio.nodes[0], queue), faults)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_leaders_killed_under_load(own_trio: Trio, times: int) -> None:
    """Rows: 1.16 confirms; 1.16 node link loss"""
    kill_leaders(own_trio, declare_quorum(own_trio), times)


@pytest.mark.long
@pytest.mark.slow
def test_paused_leader_is_replaced_and_rejoins(own_trio: Trio) -> None:
    trio = own_trio
    queue = declare_quorum(trio)
    leader = trio.leader(queue)
    assert leader is not None
    others = [node for node in trio.nodes if node is not leader]
    publisher, consumer = Publisher(others, queue), Consumer(others[::-1], queue)
    publisher.start()
    consumer.start()
    wait_until(lambda: len(publisher.confirmed) > 300, "load flows")
    fault = time.monotonic()
    leader.send_signal(signal.SIGSTOP)
    paused = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > paused + 5, "served by another", PAUSE_LIMIT_S)
    wait_until(lambda: len(publisher.confirmed) > paused + 100, "it goes on")
    wait_until(lambda: time.monotonic() - fault > 15, "15 s of pause", 20)
    new_leader = trio.leader(queue, others[0])
    assert new_leader is not None
    assert new_leader is not leader
    leader.send_signal(signal.SIGCONT)
    wait_until(leader.is_ready, "the paused node serves again", 15)
    with leader.connect() as connection:  # it takes part again, as any node
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"0", pika.BasicProperties(delivery_mode=2))
    publisher.unknown.append(0)
    publisher.end()
    wait_until(
        lambda: set(publisher.confirmed) <= {n for n, _, _ in consumer.received}, "all arrive"
    )
    consumer.end()
    judge(publisher, consumer, drain(trio.nodes[0], queue), [fault])


def fill(node: Node, queue: str, numbers: range) -> None:
    """Publish persistent messages; return when all are confirmed."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish(
                "", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True
            )


def settle_first(node: Node, queue: str, count: int) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        for _ in range(count):
            method, _, _ = channel.basic_get(queue)
            channel.basic_ack(method.delivery_tag)
        channel.queue_declare(queue, passive=True)  # answered after the acks were carried out


@pytest.mark.slow
def test_all_killed_at_once_and_restarted(own_trio: Trio) -> None:
    """Durable classic queues on each node and a quorum queue: all confirmed is there, in order."""
    trio = own_trio
    queues = []
    for node in trio.nodes:
        classic = f"classic.{node.name}"
        with node.connect() as connection:
            connection.channel().queue_declare(classic, durable=True)
        queues.append((classic, node))
    queues.append((declare_quorum(trio), trio.nodes[1]))
    for queue, node in queues:
        fill(node, queue, range(200))
        settle_first(node, queue, 50)
    settled = time.monotonic()
    wait_until(lambda: time.monotonic() - settled > ACK_GRACE_S, "acks are older than the grace")
    for node in trio.nodes:
        node.kill()
    trio.start()
    for queue, node in queues:
        wait_until(lambda: trio.leader(queue) is not None, f"{queue} is served")  # noqa: B023
        assert drain(node, queue) == list(range(50, 200)), queue


@pytest.mark.slow
@pytest.mark.parametrize("times", [200, pytest.param(1_000, marks=pytest.mark.soak)])
def test_declared_here_routes_there_at_once(trio: Trio, times: int) -> None:
    """Declare on node 1, publish at once on node 2, again and again: never unroutable (P4)."""
    prefix = f"at-once.{uuid.uuid4().hex[:6]}"
    with trio.nodes[0].connect() as here, trio.nodes[1].connect() as there:
        declares, publishes = here.channel(), there.channel()
        publishes.confirm_delivery()
        for number in range(times):
            queue = f"{prefix}.{number}"
            declares.queue_declare(queue, auto_delete=True, exclusive=False)
            publishes.basic_publish("", queue, b"x", mandatory=True)
            declares.queue_delete(queue)


def test_stop_is_clean_and_quick(own_trio: Trio) -> None:
    """SIGTERM: clients hear 320, the process ends within 10 s with exit code 0."""
    node = own_trio.nodes[2]
    connection = node.connect()
    connection.channel()
    start = time.monotonic()
    code = node.stop(10)
    assert code == 0
    assert time.monotonic() - start < 10 * lateness()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=5)
    assert closed.value.reply_code == 320
