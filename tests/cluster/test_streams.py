"""Streams on three nodes: read at every node, and nothing confirmed is lost when leaders die."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Publisher
from tests.cluster.test_failover import KILL_LIMIT_S
from tests.cluster.typed import ctl
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

Seen = list[tuple[int, int]]


def declare(trio: Trio, **more: object) -> str:
    stream = f"stream.{uuid.uuid4().hex[:8]}"
    arguments = {"x-queue-type": "stream", **more}
    with trio.nodes[0].connect() as connection:
        connection.channel().queue_declare(stream, durable=True, arguments=arguments)
    wait_until(lambda: trio.leader(stream) is not None, "the stream has a leader")
    return stream


def publish(node: Node, stream: str, first: int, count: int) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(first, first + count):
            channel.basic_publish("", stream, b"%d" % number)


class Reader(threading.Thread):
    """Reads a stream at one node, from where it was when its connection broke.

    Attributes:
        seen: (offset, number) in the order of delivery.
        longest_s: The longest time without a delivery while messages were to come.
    """

    def __init__(self, node: Node, stream: str) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._stream = stream
        self._ended = threading.Event()
        self.seen: Seen = []
        self.times: list[float] = []
        self.connects = 0

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._node.connect(socket_timeout=3) as connection:
                    self.connects += 1
                    self._read(connection.channel())
            except (pika.exceptions.AMQPError, OSError):
                self._ended.wait(0.2)

    def _read(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=100)
        start = self.seen[-1][0] + 1 if self.seen else 0
        arguments = {"x-stream-offset": start}
        found = channel.consume(self._stream, arguments=arguments, inactivity_timeout=0.2)
        for method, properties, body in found:
            if self._ended.is_set():
                return
            if method is not None:
                self.seen.append((properties.headers["x-stream-offset"], int(body)))
                self.times.append(time.monotonic())
                channel.basic_ack(method.delivery_tag)

    def end(self) -> None:
        self._ended.set()
        self.join(30)
        assert not self.is_alive()


def read_all(node: Node, stream: str, count: int) -> Seen:
    reader = Reader(node, stream)
    reader.start()
    try:
        wait_until(lambda: len(reader.seen) >= count, f"{count} messages at {node.user_name}", 20)
    finally:
        reader.end()
    return reader.seen


def judge(publisher: Publisher, copies: Sequence[Seen]) -> None:
    """All nodes say the same; offsets have no hole; what was confirmed is there, once."""
    longest = max(copies, key=len)
    for seen in copies:
        assert seen == longest[: len(seen)]
    assert [offset for offset, _ in longest] == list(range(len(longest)))
    numbers = [number for _, number in longest]
    assert len(set(numbers)) == len(numbers)
    assert set(publisher.confirmed) <= set(numbers)
    assert set(numbers) <= set(publisher.confirmed) | set(publisher.unknown)


def test_every_node_reads_the_same(trio: Trio) -> None:
    """Rows: 1.19 consume"""
    stream = declare(trio)
    for turn, node in enumerate(trio.nodes):
        publish(node, stream, 40 * turn, 40)
    copies = [read_all(node, stream, 120) for node in trio.nodes]
    assert copies == [[(number, number) for number in range(120)]] * 3


def test_a_node_without_a_replica_reads_through_a_neighbour(trio: Trio) -> None:
    stream = declare(trio, **{"x-initial-cluster-size": 1})
    leader = trio.leader(stream)
    far = next(node for node in trio.nodes if node is not leader)
    publish(far, stream, 0, 500)
    reader = Reader(far, stream)
    reader.start()
    wait_until(lambda: len(reader.seen) == 500, "what was there is read")
    publish(far, stream, 500, 50)
    wait_until(lambda: len(reader.seen) == 550, "what came is read")
    reader.end()
    assert reader.seen == [(number, number) for number in range(550)]
    assert reader.connects == 1


@pytest.mark.slow
def test_a_leader_dies_under_load(own_trio: Trio) -> None:
    """A consumer at another node does not notice, but for what is published meanwhile.

    Rows: 1.19 confirm
    """
    trio = own_trio
    stream = declare(trio)
    leader = trio.leader(stream)
    assert leader is not None
    others = [node for node in trio.nodes if node is not leader]
    publisher = Publisher([*others, leader], stream)
    readers = [Reader(node, stream) for node in others]
    for each in (publisher, *readers):
        each.start()
    wait_until(lambda: len(publisher.confirmed) > 200, "load flows")
    fault = time.monotonic()
    leader.kill()
    killed = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > killed + 100, "confirms again")
    leader.start()
    back = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > back + 100, "and on")
    publisher.end()
    total = len(publisher.confirmed)
    for reader in readers:
        wait_until(lambda: len(reader.seen) >= total, "all arrive")  # noqa: B023
        reader.end()
        assert reader.connects == 1
    assert publisher.longest_gap_after(fault) < KILL_LIMIT_S * lateness()
    copies = [reader.seen for reader in readers]
    judge(publisher, [*copies, read_all(leader, stream, max(map(len, copies)))])


@pytest.mark.long
@pytest.mark.slow
def test_replicas_come_and_go_under_load(own_trio: Trio) -> None:
    """Consumers of the node go on, from the neighbour's log to their own and back.

    Rows: 1.19 confirm
    """
    trio = own_trio
    stream = declare(trio, **{"x-initial-cluster-size": 1})
    leader = trio.leader(stream)
    assert leader is not None
    far = next(node for node in trio.nodes if node is not leader)
    publisher, reader = Publisher([leader], stream), Reader(far, stream)
    publisher.start()
    reader.start()
    wait_until(lambda: len(reader.seen) > 100, "load flows")
    assert ctl(leader, "add_replica", stream, far.user_name) == 0
    wait_until(lambda: far.user_name in online(leader, stream), "the replica is there")
    seen = len(reader.seen)
    wait_until(lambda: len(reader.seen) > seen + 200, "its log is read")
    assert ctl(leader, "delete_replica", stream, far.user_name) == 0
    seen = len(reader.seen)
    wait_until(lambda: len(reader.seen) > seen + 200, "the neighbour's is read again")
    publisher.end()
    wait_until(lambda: len(reader.seen) >= len(publisher.confirmed), "all arrive")
    reader.end()
    assert reader.connects == 1
    judge(publisher, [reader.seen, read_all(leader, stream, len(reader.seen))])


def online(node: Node, stream: str) -> list[str]:
    found = node.api("GET", f"/queues/%2F/{stream}").get("online", [])
    assert isinstance(found, list)
    return found


@pytest.mark.long
def test_all_nodes_stop_and_start_again(own_trio: Trio) -> None:
    """Rows: 1.19 confirm"""
    trio = own_trio
    stream = declare(trio)
    publish(trio.nodes[0], stream, 0, 300)
    path = f"/streams/%2F/{stream}/offsets/me"
    trio.nodes[2].api("PUT", path, {"offset": 299})
    for node in trio.nodes:
        node.kill()
    trio.start()
    publish(trio.nodes[1], stream, 300, 10)
    expected = [(number, number) for number in range(310)]
    assert [read_all(node, stream, 310) for node in trio.nodes] == [expected] * 3
    assert [node.api("GET", path)["offset"] for node in trio.nodes] == [299] * 3


def test_every_node_stores_offsets_at_the_leader(trio: Trio) -> None:
    stream = declare(trio)
    path = f"/streams/%2F/{stream}/offsets"
    for number, node in enumerate(trio.nodes):
        node.api("PUT", f"{path}/node{number}", {"offset": number})
        node.api("PUT", f"{path}/all", {"offset": number})
    expected = {"all": 2, "node0": 0, "node1": 1, "node2": 2}
    for node in trio.nodes:
        assert {each["name"]: each["offset"] for each in node.api("GET", path)} == expected
        assert node.api("GET", f"{path}/all")["offset"] == 2


def test_a_stream_is_restarted_at_another_node(trio: Trio) -> None:
    stream = declare(trio)
    path = f"/streams/%2F/{stream}"
    names = {node.user_name for node in trio.nodes}
    trio.nodes[0].api("PUT", f"{path}/offsets/me", {"offset": 1})
    for wanted in (*names, *names):
        publish(trio.nodes[0], stream, 0, 3)
        answer = trio.nodes[0].api("POST", f"{path}/restart", {"preferred_leader_node": wanted})
        assert answer == {"leader": wanted}
        assert trio.nodes[1].api("GET", f"{path}/offsets/me")["offset"] == 1
    before = answer["leader"]
    after = trio.nodes[1].api("POST", f"{path}/restart", {})["leader"]
    assert after in names - {before}
    publish(trio.nodes[0], stream, 0, 3)

    def roles() -> dict[str, tuple[str, int]]:
        rows = trio.nodes[2].api("GET", f"{path}/status")
        return {row["node"]: (row["role"], row["committed_offset"]) for row in rows}

    expected = {name: ("writer" if name == after else "replica", 20) for name in names}
    wait_until(lambda: roles() == expected, "all replicas have all of it")


def test_the_leader_counts_what_consumers_of_all_nodes_got(trio: Trio) -> None:
    stream = declare(trio)
    publish(trio.nodes[0], stream, 0, 10)
    for node in trio.nodes:
        assert len(read_all(node, stream, 10)) == 10

    def stats() -> dict[str, int]:
        found: dict[str, int] = trio.nodes[0].api("GET", f"/queues/%2F/{stream}")["message_stats"]
        return found

    wait_until(lambda: stats().get("ack") == 30, "the leader has heard of all of them")
    assert (stats()["publish"], stats()["deliver"]) == (10, 30)
