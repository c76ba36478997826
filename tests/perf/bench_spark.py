"""Spark reads and writes a stream: `python -m tests.perf.bench_spark [ROWS]`.

One node, Spark and its workers on this machine. A stream of ROWS messages of 100 bytes (5,000,000
without an argument) is read whole, to `noop` and to Parquet; then a fifth of them is written in 16
tasks, exactly once by a streaming query and at least once by a batch. Each is done three times;
rates are rows by the seconds from the start of a query to its end. Figures for docs are those of a
machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline import session
from tests.nodes import Node
from tests.perf.bench_long_logs import STREAM, declare, load

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


def bench(spark: Any, node: Node, folder: Path, rows: int) -> None:
    """Fill a stream, read it, write to others."""
    given = {
        "url": f"amqp://guest:guest@127.0.0.1:{node.amqp_port}",
        "httpUrl": f"http://127.0.0.1:{node.management_port}",
    }
    declare(node, "read", STREAM)
    load(node, f"-p -u read -y 0 -s 100 -f persistent -c 1000 -C {rows}")

    def source(**more: str) -> Any:
        columns = "offset,timestamp,routing_key,body"
        reader = spark.read.format("amqp-stream").options(**given, **more)
        return reader.options(stream="read", minPartitions=2, columns=columns).load()

    source(endingOffsets="1000").count()  # Spark's workers start
    lake = str(folder / "lake")

    def to_noop(_: int) -> None:
        source().write.format("noop").mode("overwrite").save()

    def to_parquet(_: int) -> None:
        source().write.mode("overwrite").parquet(lake)

    measured("read to noop", rows, to_noop)
    measured("read to Parquet", rows, to_parquet)
    assert spark.read.parquet(lake).count() == rows
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


def main() -> None:
    """Measure, and print what was found."""
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    with tempfile.TemporaryDirectory() as place:
        node = Node("spark", Path(place) / "node")
        node.start()
        spark = session.open(name="bench")
        try:
            bench(spark, node, Path(place), rows)
        finally:
            spark.stop()
            node.end()


if __name__ == "__main__":
    main()
