"""Rows written to a real node: units once, whatever breaks; everything else at least once."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

pytest.importorskip("pyspark")
import pyarrow as pa

from pipeline.connector import connections, options
from pipeline.connector.failures import WriteFailed
from pipeline.connector.options import Sink
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.connector.reading import RangeReader
from pipeline.connector.sink import UNIT_BYTES_MAX, Unit, check_publishers, publish
from tests.nodes import Node
from tests.wire.proxies import ProxyThread

STREAM: dict[str, object] = {"x-queue-type": "stream"}


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    connections.close_all()
    with node.connect() as other:
        other.channel().queue_delete(name)


@pytest.fixture
def proxy(node: Node) -> Iterator[ProxyThread]:
    one = ProxyThread(node.amqp_port)
    yield one
    one.end()


def sink(node: Node, port: int = 0, **given: str) -> Sink:
    url = f"amqp://127.0.0.1:{port or node.amqp_port}"
    http = f"http://127.0.0.1:{node.management_port}"
    return options.sink({"url": url, "httpUrl": http, "timeout": "20", **given}, has_batches=True)


def batch(*bodies: object, **columns: list[str]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"body": [str(b) for b in bodies], **columns})])


def stored(node: Node, stream: str) -> list[int]:
    source = options.source({"url": f"amqp://127.0.0.1:{node.amqp_port}", "stream": stream})
    places = Places(source)
    end = places.extents([stream])[stream].next
    rows = RangeReader(source, Range(stream, "", 0, end), places).rows()
    found = [int(body) for piece in rows for body in piece.bodies]
    places.close()
    return found


def test_units_are_stored_once_while_connections_are_cut(
    node: Node, proxy: ProxyThread, stream: str
):
    to = sink(node, proxy.port, stream=stream)
    for number in range(20):
        rows = range(number * 100, number * 100 + 100)
        proxy.reset()  # whenever it comes: before the rows, among them, or before the answer
        assert Unit(to, "SPARK/q/0", number).write(batch(*rows), 0) == 100
        assert Unit(to, "SPARK/q/0", number).write(batch(*reversed(rows)), 0) == 100
    found = stored(node, stream)
    assert sorted(found) == list(range(2000))
    assert [n // 100 for n in found] == [n // 100 for n in range(2000)]


def test_confirmed_rows_are_stored_while_connections_are_cut(
    node: Node, proxy: ProxyThread, stream: str
):
    to = sink(node, proxy.port, stream=stream, delivery="at-least-once")

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(0, 12_000, 3000):
            proxy.reset()
            yield from batch(*range(number, number + 3000))

    publish(to, batches(), 0)
    assert set(stored(node, stream)) == set(range(12_000))


def test_a_unit_that_is_too_large_says_what_to_do(node: Node, stream: str):
    with pytest.raises(WriteFailed, match=r"at most 32 MiB.*maxRowsPerTrigger.*repartition"):
        Unit(sink(node, stream=stream), "SPARK/q/0", 0).write(batch("1" * UNIT_BYTES_MAX), 0)
    assert stored(node, stream) == []


def test_a_stream_that_is_not_there_is_told(node: Node):
    text = r"returned a message .*routing key 'no\.such'"
    with pytest.raises(WriteFailed, match=text):
        Unit(sink(node, stream="no.such"), "SPARK/q/0", 0).write(batch("1"), 0)
    with pytest.raises(WriteFailed, match=text):
        publish(sink(node, stream="no.such", delivery="at-least-once"), batch("1"), 0)
    connections.close_all()


def test_rows_of_a_super_stream_without_a_partition_are_refused_before_any_is_stored(
    node: Node, name: str
):
    node.api("PUT", f"/stream/super-streams/%2F/{name}", {"partitions": 2})
    to = sink(node, superStream=name)
    with pytest.raises(WriteFailed, match="no partition for routing key '7'; it has 0, 1"):
        Unit(to, "SPARK/q/0", 0).write(batch(1, 2, routing_key=["0", "7"]), 0)
    Unit(to, "SPARK/q/0", 0).write(batch(1, 2, 3, routing_key=["0", "1", "0"]), 0)
    assert [stored(node, f"{name}-{n}") for n in (0, 1)] == [[1, 3], [2]]
    connections.close_all()
    node.api("DELETE", f"/stream/super-streams/%2F/{name}")


def test_an_attempt_with_other_tasks_and_an_old_checkpoint_are_noticed(node: Node, stream: str):
    to = sink(node, stream=stream)
    for task in range(3):
        Unit(to, f"SPARK/q/{task}", 4).write(batch(task), 0)
    Unit(to, "SPARK/other/9", 4).write(batch(9), 0)
    check_publishers(to, "SPARK/q/", 4, {0, 1, 2})
    with pytest.raises(WriteFailed, match="an attempt with more tasks"):
        check_publishers(to, "SPARK/q/", 4, {0, 1})
    with pytest.raises(WriteFailed, match=r"has batch 4 .*, so batch 3 was not stored"):
        check_publishers(to, "SPARK/q/", 3, {0, 1, 2})


def test_rows_for_an_exchange(node: Node, channel: BlockingChannel, name: str):
    channel.exchange_declare(name, "topic")
    channel.queue_declare(name)
    channel.queue_bind(name, name, "a.#")
    to = sink(node, exchange=name, routingKey="a.b")
    assert publish(to, batch("x", "y", message_id=["m", "n"]), 0) == 2
    found = [channel.basic_get(name, auto_ack=True) for _ in range(2)]
    assert [(m.routing_key, p.message_id, b) for m, p, b in found] == [
        ("a.b", "m", b"x"),
        ("a.b", "n", b"y"),
    ]
    assert isinstance(found[0][1], pika.BasicProperties)
    connections.close_all()
