"""Metrics of streams at a real node."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator

import pika
import pytest

from tests.nodes import Node, free_ports, wait_until
from tests.wire.test_metrics import scraped
from tests.wire.test_streams import STREAM

COUNTS = {"small": 3, "large": 40, "middle": 9}
"""Messages by stream."""

SIZE = 1_000

SEGMENTS = "rabbitmq_stream_segments_total"
"""The parser ends the name of each counter so; in the text it is RabbitMQ's."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, int]]:
    """A node with three streams, a quorum queue, and samples of its two largest queues."""
    (port,) = free_ports(1)
    settings = ["prometheus.tcp.ip=127.0.0.1", f"prometheus.tcp.port={port}"]
    node = Node("streams", tmp_path_factory.mktemp("streams"), settings)
    node.settings += ["prometheus.warrenmq_queues_max=2"]
    try:
        node.start()
        with node.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", "quorum", b"1")
            headers = {"x-warren-publisher": "me", "x-warren-publishing-id": 0}
            for stream, count in COUNTS.items():
                channel.queue_declare(stream, durable=True, arguments=STREAM)
                for _ in range(count - 1):
                    channel.basic_publish("", stream, bytes(SIZE))
                channel.basic_publish("", stream, b"", pika.BasicProperties(headers=headers))
                node.api("PUT", f"/streams/%2F/{stream}/offsets/me", {"offset": 1})
        yield node, port
    finally:
        node.end()


def test_a_stream_is_a_queue_like_others(own: tuple[Node, int]) -> None:
    found = scraped(own[1], "/metrics/per-object")
    for stream, count in COUNTS.items():
        assert found["rabbitmq_queue_messages_ready", "/", stream] == count
        assert found["rabbitmq_queue_messages", "/", stream] == count
        assert found["rabbitmq_queue_messages_persistent", "/", stream] == count
        assert found["rabbitmq_queue_messages_unacked", "/", stream] == 0
        assert found["rabbitmq_queue_messages_ready_bytes", "/", stream] > (count - 1) * SIZE
        assert found["rabbitmq_queue_messages_published_total", "/", stream] == count
        assert found[SEGMENTS, "/", stream] == 1
    assert (SEGMENTS, "/", "quorum") not in found
    assert scraped(own[1])[SEGMENTS,] == len(COUNTS)


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/metrics/per-object", "warrenmq_"),
        ("/metrics/detailed?family=warrenmq_stream_metrics", "warrenmq_detailed_"),
    ],
)
def test_each_stream_says_how_far_it_reaches(own: tuple[Node, int], path: str, prefix: str) -> None:
    found = scraped(own[1], path)
    for stream, count in COUNTS.items():
        values = {
            key[0].removeprefix(f"{prefix}stream_"): value
            for key, value in found.items()
            if key[1:] == ("/", stream) and key[0].startswith(f"{prefix}stream_")
        }
        assert 0 <= values.pop("commit_seconds") < 5
        size, disk = values.pop("bytes"), values.pop("disk_bytes")
        assert (count - 1) * SIZE < size <= disk
        expected = {"first_offset": 0, "next_offset": count, "publishers": 1, "offsets": 1}
        assert values == expected
    assert not [key for key in found if key[0].startswith(f"{prefix}stream_") and "quorum" in key]


def test_samples_of_streams_are_bounded(own: tuple[Node, int]) -> None:
    found = scraped(own[1])
    names = {key[1:] for key in found if key[0] == "warrenmq_stream_bytes"}
    assert names == {("/", "large"), ("/", "middle"), ("other",)}
    assert found["warrenmq_stream_publishers", "other"] == 1
    every = scraped(own[1], "/metrics/per-object")
    for name in ("warrenmq_stream_bytes", "warrenmq_stream_disk_bytes"):
        whole = sum(value for key, value in every.items() if key[0] == name)
        assert sum(value for key, value in found.items() if key[0] == name) == whole > 0
    assert {key[1:] for key in found if key[0] == "warrenmq_stream_next_offset"} == {
        ("/", "large"),
        ("/", "middle"),
    }


def test_rabbitmqs_families_of_raft_are_of_quorum_queues_and_ours_of_both(
    own: tuple[Node, int],
) -> None:
    query = urllib.parse.urlencode({"family": "ra_metrics"})
    found = scraped(own[1], f"/metrics/detailed?{query}")
    assert {key[1:] for key in found if key[0].startswith("rabbitmq_detailed_raft")} == {
        ("/", "quorum")
    }
    assert scraped(own[1])["warrenmq_raft_replicas", "leader"] == len(COUNTS) + 1


def test_memory_and_disk_are_told_by_stream(own: tuple[Node, int]) -> None:
    node, port = own
    path, memory = "/queues/%2F/large", "/metrics/memory-breakdown"
    before, parts = node.api("GET", path), scraped(port, memory)
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        arguments = {"x-stream-offset": "first"}
        got = channel.consume("large", arguments=arguments, inactivity_timeout=5)
        for _ in range(COUNTS["large"]):
            assert next(got)[0] is not None
        after, then = node.api("GET", path), scraped(port, memory)
    grown = after["memory"] - before["memory"]
    assert grown > (COUNTS["large"] - 1) * SIZE, "what was read is kept for others"
    reading = ("rabbitmq_memory_stream_replica_reader_erlang_process_bytes",)
    assert then[reading] - parts[reading] == grown
    assert then["rabbitmq_memory_stream_erlang_process_bytes",] > 0
    (member,) = node.api("GET", "/streams/%2F/large/status")
    assert member["disk_bytes"] == after["stream"]["disk_bytes"] >= after["stream"]["bytes"]
    assert member["memory"] == after["memory"]
    log = next(node.directory.glob(f"**/log/{after['stream']['uid']}"))
    assert sum(each.stat().st_size for each in log.glob("*.segment")) == member["disk_bytes"]


def test_what_consumers_got_and_acknowledged_is_counted(own: tuple[Node, int]) -> None:
    node, port = own
    path = "/metrics/detailed?family=queue_delivery_metrics"
    names = ("rabbitmq_detailed_queue_messages_delivered_ack_total",)
    names += ("rabbitmq_detailed_queue_messages_acked_total",)

    def counted() -> list[float]:
        found = scraped(port, path)
        return [found[name, "/", "middle"] for name in names]

    before = counted()
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=9)
        arguments = {"x-stream-offset": "first"}
        got = channel.consume("middle", arguments=arguments, inactivity_timeout=5)
        tags = [next(got)[0].delivery_tag for _ in range(9)]
        channel.basic_ack(tags[3], multiple=True)
        channel.basic_reject(tags[4], requeue=False)
        channel.basic_nack(tags[5], requeue=True)
        wanted = [before[0] + 9, before[1] + 5]
        wait_until(lambda: counted() == wanted, "the leader has heard of it")
    stats = node.api("GET", "/queues/%2F/middle")["message_stats"]
    assert (stats["deliver"], stats["ack"]) == (wanted[0], wanted[1])
