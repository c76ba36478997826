"""Spark reads and writes a stream: `python -m tests.perf.bench_spark [ROWS]`.

One node, Spark and its workers on this machine. A stream of ROWS messages of 100 bytes (5,000,000
without an argument) is read whole, to `noop` and to Parquet; then a fifth of them is written in 16
tasks, exactly once by a streaming query and at least once by a batch. Each is done three times;
rates are rows by the seconds from the start of a query to its end. Where Debian's rabbitmq-server
is installed, its stream is read the same way, with one client of one node. Figures for docs are
those of a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from broker.cli.perf import rabbitmq
from pipeline import session
from tests.nodes import Node, free_ports
from tests.perf.bench_long_logs import STREAM, declare, load, uri

ROWS = 5_000_000
PART = 5
"""One row of so many is written back."""

TASKS = 16
TIMES = 3


def measured(what: str, rows: int, turn: Callable[[int], None]) -> None:
    """Do something for so many rows some times; print the rates."""
    rates = []
    for number in range(TIMES):
        began_s = time.monotonic()
        turn(number)
        rates.append(rows / (time.monotonic() - began_s))
    each = ", ".join(f"{rate:,.0f}" for rate in rates)
    print(f"{what}: {statistics.median(rates):,.0f} rows/s ({each})", flush=True)


def reads(spark: Any, given: dict[str, str], lake: str, rows: int) -> None:
    """Fill the stream `read`, and read it."""
    load(given["url"], f"-p -u read -y 0 -s 100 -f persistent -c 1000 -C {rows}")

    def source(**more: str) -> Any:
        columns = "offset,timestamp,routing_key,body"
        reader = spark.read.format("amqp-stream").options(**given, **more)
        return reader.options(stream="read", minPartitions=2, columns=columns).load()

    source(endingOffsets="1000").count()  # Spark's workers start

    def to_noop(_: int) -> None:
        source().write.format("noop").mode("overwrite").save()

    def to_parquet(_: int) -> None:
        source().write.mode("overwrite").parquet(lake)

    measured("read to noop", rows, to_noop)
    measured("read to Parquet", rows, to_parquet)
    assert spark.read.parquet(lake).count() == rows


def writes(spark: Any, node: Node, given: dict[str, str], folder: Path, rows: int) -> None:
    """Write a part of what was read to other streams."""
    lake = str(folder / "lake")
    count, part = rows // PART, str(folder / "part")
    chosen = spark.read.parquet(lake).select("body").limit(count).repartition(TASKS)
    chosen.write.parquet(part)

    def once(number: int) -> None:
        declare(node, f"once.{number}", STREAM)
        query = (
            spark.readStream.schema("body binary")
            .parquet(part)
            .repartition(TASKS)
            .writeStream.format("amqp-stream")
            .options(**given, stream=f"once.{number}")
            .option("checkpointLocation", str(folder / f"checkpoint.{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def at_least_once(number: int) -> None:
        declare(node, f"least.{number}", STREAM)
        (
            spark.read.parquet(part)
            .repartition(TASKS)
            .write.format("amqp-stream")
            .options(**given, stream=f"least.{number}")
            .mode("append")
            .save()
        )

    measured("written exactly once", count, once)
    measured("written at least once", count, at_least_once)
    written = spark.read.format("amqp-stream").options(**given, columns="offset")
    for name in (f"{kind}.{number}" for kind in ("once", "least") for number in range(TIMES)):
        assert written.option("stream", name).load().count() == count, name


def bench(spark: Any, folder: Path, rows: int) -> None:
    """Start a node, fill a stream, read it, write to others."""
    node = Node("spark", folder / "node")
    node.start()
    given = {
        "url": uri(node),
        "httpUrl": f"http://127.0.0.1:{node.management_port}",
    }
    try:
        declare(node, "read", STREAM)
        reads(spark, given, str(folder / "lake"), rows)
        writes(spark, node, given, folder, rows)
    finally:
        node.end()


def bench_rabbitmq(spark: Any, folder: Path, rows: int) -> None:
    """Read the same from three nodes of RabbitMQ."""
    print("RabbitMQ:")
    place = folder / "rabbitmq"
    place.mkdir()
    with rabbitmq.RabbitTrio(place, free_ports(rabbitmq.PORTS)) as trio:
        with pika.BlockingConnection(pika.URLParameters(f"{trio.uris[0]}/%2F")) as connection:
            connection.channel().queue_declare("read", durable=True, arguments=STREAM)
        reads(spark, {"url": trio.uris[0]}, str(folder / "other-lake"), rows)


def main() -> None:
    """Measure, and print what was found."""
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    with tempfile.TemporaryDirectory() as place:
        spark = session.open(name="bench")
        try:
            bench(spark, Path(place), rows)
            if rabbitmq.is_installed():
                bench_rabbitmq(spark, Path(place), rows)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
