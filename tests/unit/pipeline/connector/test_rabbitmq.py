"""Streams and exchanges of RabbitMQ itself, read and written by Spark.

Needs Debian's package rabbitmq-server: three nodes of it run for these tests alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from broker.cli.perf import rabbitmq
from pipeline.connector import connections, options
from pipeline.wire.contents import properties
from pipeline.wire.publisher import Publisher
from tests.nodes import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.long]

STREAM: dict[str, object] = {"x-queue-type": "stream"}
COUNT = 60_000
PIECE = 1000


@pytest.fixture(scope="module")
def rabbits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """AMQP URLs of three nodes."""
    if not rabbitmq.is_installed():
        pytest.skip("RabbitMQ is not installed: apt-get install rabbitmq-server")
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq.RabbitTrio(folder, free_ports(rabbitmq.PORTS)) as trio:
        yield trio.uris


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


def declare(rabbits: list[str], stream: str, exchange: str = "") -> dict[str, str]:
    """Declare a stream, and an exchange it is bound to; returns how to reach the broker."""
    with pika.BlockingConnection(pika.URLParameters(f"{rabbits[0]}/%2F")) as connection:
        channel = connection.channel()
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        if exchange:
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_bind(stream, exchange, "orders.#")
    return {"url": ",".join(rabbits)}


def fill(given: dict[str, str], stream: str) -> None:
    source = options.source({**given, "stream": stream})
    with connections.borrowed(source.broker, 0) as connection:
        publisher = Publisher(connection)
        one = publisher.publishes.message
        for first in range(0, COUNT, PIECE):
            messages = [
                one("", stream, properties({"message_id": f"order-{n}"}), b"%d" % n)
                for n in range(first, first + PIECE)
            ]
            publisher.send(messages)
            publisher.confirmed(PIECE, 60)
        publisher.confirmed(0, 60)
        publisher.close()


def counts(frame: Any, *columns: str) -> tuple[int, ...]:
    """Rows, and distinct values of each column."""
    distinct = (F.count_distinct(name) for name in columns)
    return tuple(frame.select(F.count("*"), *distinct).first())


def test_a_stream_of_rabbitmq_into_parquet_each_message_once(
    spark: Any, rabbits: list[str], tmp_path: Path
):
    given = declare(rabbits, "read")
    fill(given, "read")
    reader = spark.read.format("amqp-stream").options(**given, stream="read")
    reader.load().write.parquet(str(tmp_path / "batch"))
    whole = (COUNT, COUNT, COUNT)
    assert counts(spark.read.parquet(str(tmp_path / "batch")), "offset", "message_id") == whole

    source = spark.readStream.format("amqp-stream").options(**given, stream="read")
    rows = source.option("maxRowsPerTrigger", "25000").option("minPartitions", "2").load()
    lake = rows.writeStream.format("parquet").option("path", str(tmp_path / "lake"))
    lake = lake.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = lake.trigger(availableNow=True).start()
    query.awaitTermination()
    read = [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]
    assert read == [25_000, 25_000, 10_000]
    assert counts(spark.read.parquet(str(tmp_path / "lake")), "offset", "message_id") == whole


def test_rows_for_an_exchange_of_rabbitmq_come_at_least_once(spark: Any, rabbits: list[str]):
    given = declare(rabbits, "written", "shop")
    rows = spark.range(COUNT).selectExpr(
        "string(id) body", "'order-' || id message_id", "'orders.' || id % 3 routing_key"
    )
    rows.repartition(3).write.format("amqp-stream").mode("append").options(
        **given, exchange="shop"
    ).save()
    found = spark.read.format("amqp-stream").options(**given, stream="written").load()
    stored, offsets, ids, bodies = counts(found, "offset", "message_id", "body")
    assert (offsets, ids, bodies) == (stored, COUNT, COUNT)
    assert stored >= COUNT
