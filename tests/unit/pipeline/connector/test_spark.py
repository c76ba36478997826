"""Spark reads streams of a real node: batches, micro-batches, restarts and refusals."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from pipeline.connector import connections, options
from pipeline.connector.connections import borrowed
from pipeline.wire.contents import properties
from pipeline.wire.publisher import Publisher
from tests.nodes import Node

pytestmark = [pytest.mark.spark, pytest.mark.long]

STREAM: dict[str, object] = {"x-queue-type": "stream"}
COUNT = 3000


@pytest.fixture
def given(node: Node) -> dict[str, str]:
    return {
        "url": f"amqp://guest:guest@127.0.0.1:{node.amqp_port}",
        "httpUrl": f"http://127.0.0.1:{node.management_port}",
    }


@pytest.fixture
def stream(node: Node, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    with node.connect() as connection:
        connection.channel().queue_declare(name, durable=True, arguments=STREAM)
        yield name
        connection.channel().queue_delete(name)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


def fill(given: dict[str, str], stream: str, first: int, count: int) -> None:
    source = options.source({**given, "stream": stream})
    with borrowed(source.broker, 0) as connection:
        publisher = Publisher(connection)
        one, content = publisher.publishes.message, properties({"message_id": "m"})
        publisher.send([one("", stream, content, b"%d" % n) for n in range(first, first + count)])
        publisher.confirmed(0, 30)
        publisher.close()


def run(spark: Any, given: dict[str, str], folder: Path, **more: Any) -> Any:
    """A query that reads what there is into Parquet; returns it when it has ended."""
    query = (
        spark.readStream.format("amqp-stream")
        .options(**given, **more)
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "lake"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def numbers(spark: Any, folder: Path) -> list[int]:
    frame = spark.read.parquet(str(folder / "lake")).selectExpr("int(string(body)) n", "offset")
    found = sorted(tuple(row) for row in frame.collect())
    assert all(n == offset for n, offset in found)
    return [n for n, _ in found]


def test_a_batch(spark: Any, given: dict[str, str], stream: str):
    fill(given, stream, 0, COUNT)
    reader = spark.read.format("amqp-stream").options(**given, stream=stream)
    frame = reader.option("minPartitions", "2").option("startingOffsets", "10").load()
    row = frame.selectExpr(
        "count(*)", "count(distinct offset)", "min(offset)", "max(message_id)"
    ).first()
    assert tuple(row) == (COUNT - 10, COUNT - 10, 10, "m")
    refused = pytest.raises(Exception, match="no column 'bdoy'; did you mean body")
    with refused:
        reader.option("columns", "bdoy").load()


def test_a_batch_of_nothing_is_empty(spark: Any, given: dict[str, str], stream: str):
    reader = spark.read.format("amqp-stream").options(**given, stream=stream)
    assert reader.load().count() == 0
    fill(given, stream, 0, 5)
    assert reader.option("startingOffsets", "5").load().collect() == []


def test_micro_batches_are_limited_and_go_on_where_they_ended(
    spark: Any, node: Node, given: dict[str, str], stream: str, tmp_path: Path
):
    fill(given, stream, 0, COUNT)
    more = {"stream": stream, "consumerName": "lake", "maxRowsPerTrigger": "2000"}
    query = run(spark, given, tmp_path, **more)
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in rows if count] == [2000, 1000]
    assert numbers(spark, tmp_path) == list(range(COUNT))
    stored = node.api("GET", f"/streams/%2F/{stream}/offsets/lake")
    assert stored["offset"] == COUNT - 1
    fill(given, stream, COUNT, 5)
    run(spark, given, tmp_path, **more)
    assert numbers(spark, tmp_path) == list(range(COUNT + 5))
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_delete(stream)
        channel.queue_declare(stream, durable=True, arguments=STREAM)
    with pytest.raises(Exception, match=r"deleted and declared again: .* failOnDataLoss=false"):
        run(spark, given, tmp_path, **more)


def test_a_batch_that_was_planned_and_not_committed_is_read_again_exactly(
    spark: Any, given: dict[str, str], stream: str, tmp_path: Path
):
    fill(given, stream, 0, 100)
    run(spark, given, tmp_path, stream=stream)
    # As after a kill between the write of the offsets and that of the commit, of rows not written.
    for written in list((tmp_path / "checkpoint" / "commits").glob("*0*")):
        written.unlink()
    shutil.rmtree(tmp_path / "lake")
    fill(given, stream, 100, 100)
    query = run(spark, given, tmp_path, stream=stream)
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [100, 100]
    assert numbers(spark, tmp_path) == list(range(200))


def test_a_super_stream(spark: Any, node: Node, given: dict[str, str], tmp_path: Path):
    node.api("PUT", "/stream/super-streams/%2F/spark-orders", {"partitions": 3})
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(30):
            properties = pika.BasicProperties(message_id=str(number))
            channel.basic_publish("spark-orders", str(number % 3), b"x", properties)
    run(spark, given, tmp_path, superStream="spark-orders", maxRowsPerTrigger=9)
    frame = spark.read.parquet(str(tmp_path / "lake")).select("stream", "offset", "message_id")
    found = sorted((row.stream, row.offset, int(row.message_id)) for row in frame.collect())
    assert found == [(f"spark-orders-{n}", i, 3 * i + n) for n in range(3) for i in range(10)]
    node.api("DELETE", "/stream/super-streams/%2F/spark-orders")


def test_what_is_written_in_units_is_there_once_though_a_batch_comes_again(
    spark: Any, node: Node, given: dict[str, str], stream: str, tmp_path: Path
):
    fill(given, stream, 0, COUNT)
    with node.connect() as connection:
        connection.channel().queue_declare("written", durable=True, arguments=STREAM)

    def copy() -> None:
        query = (
            spark.readStream.format("amqp-stream")
            .options(**given, stream=stream, columns="body", maxRowsPerTrigger=2000)
            .load()
            .repartition(3)
            .writeStream.format("amqp-stream")
            .options(**given, stream="written")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy()
    for written in list((tmp_path / "commits").glob("*1*")):  # as if killed before the commit
        written.unlink()
    copy()
    reader = spark.read.format("amqp-stream").options(**given, stream="written")
    counted = reader.load().selectExpr("count(*)", "count(distinct body)").first()
    assert tuple(counted) == (COUNT, COUNT)
    with node.connect() as connection:
        connection.channel().queue_delete("written")


def test_errors_do_not_show_passwords(spark: Any, given: dict[str, str], stream: str):
    wrong = {**given, "user": "guest", "password": "hunter2", "stream": stream}
    with pytest.raises(Exception, match=r"401|403") as refused:
        spark.read.format("amqp-stream").options(**wrong).load().count()
    assert "hunter2" not in str(refused.value)
