"""Orders in, revenue by minute and country out, each order once: stream, Spark, stream.

A shop publishes orders with pika. Spark adds them up in windows of a minute and publishes each
window's revenue. Kill nodes meanwhile: at the end this compares every window with what was sold.

    make run                                       # three nodes, in another terminal
    .venv/bin/python examples/pipeline/revenue.py
    .venv/bin/warrenmq cluster kill node1          # while it runs; start-node brings it back

Each part begins with `# %%`: editors that know notebooks run them one by one. Exit code 0 says
that all windows are exact.
"""

# %% What is used: the AMQP client of your shop, and Spark
from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pika.exceptions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline import session

URLS = [f"amqp://127.0.0.1:{port}" for port in (5672, 5673, 5674)]
HTTP_URLS = [f"http://127.0.0.1:{port}" for port in (15672, 15673, 15674)]
ORDERS = 3_000
MINUTES = 10
LATE_S = 5
"""An order may come so much later than the next one."""


# %% Orders: one every 0.2 seconds, but not quite in their order
def sold(seed: int = 1) -> list[dict[str, Any]]:
    """Make up what a shop sold this morning."""
    chance = random.Random(seed)
    begin = datetime(2026, 11, 26, 9, tzinfo=UTC)
    found: list[dict[str, Any]] = []
    for number in range(ORDERS):
        at = begin + timedelta(minutes=MINUTES) * number / ORDERS
        country = chance.choice(["de", "fr", "it"])
        cents = chance.randrange(100, 20_000)
        found.append({"id": number, "country": country, "cents": cents, "at": at.isoformat()})
    for first in range(0, ORDERS, 25):  # these are sold within 5 s
        some = found[first : first + 25]
        chance.shuffle(some)
        found[first : first + 25] = some
    # Nothing is sold for ten minutes: what came before is complete.
    end = begin + timedelta(minutes=2 * MINUTES)
    return [*found, {"id": ORDERS, "country": "none", "cents": 0, "at": end.isoformat()}]


# %% Streams: on all three nodes, and a publisher that is stored once
def connected() -> pika.BlockingConnection:
    """A connection to the first node that answers."""
    return pika.BlockingConnection([pika.URLParameters(url) for url in URLS])


def declare(*streams: str) -> None:
    """Begin with empty streams."""
    with connected() as connection:
        channel = connection.channel()
        for stream in streams:
            channel.queue_delete(stream)
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})


def publish(orders: list[dict[str, Any]]) -> None:
    """Publish orders, each once.

    What was not confirmed when a node died is sent again under the same number: the stream drops
    what it has already (docs/streams.md, named publishers).
    """
    done = 0
    while done < len(orders):
        try:
            with connected() as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while done < len(orders):
                    named = {"x-warren-publisher": "shop", "x-warren-publishing-id": done}
                    properties = pika.BasicProperties(delivery_mode=2, headers=named)
                    channel.basic_publish("", "orders", json.dumps(orders[done]), properties)
                    done += 1
                    if not done % 500:
                        print(f"{done} orders are confirmed", flush=True)
        except (pika.exceptions.AMQPError, OSError) as error:
            print(f"{type(error).__name__}: goes on at order {done}", flush=True)
            time.sleep(0.2)


# %% Revenue: windows of a minute, complete when 10 seconds have passed since
def revenue(spark: SparkSession, broker: dict[str, str]) -> DataFrame:
    """One row for each minute and country."""
    messages = spark.readStream.format("amqp-stream").options(**broker, stream="orders").load()
    fields = "id BIGINT, country STRING, cents BIGINT, at TIMESTAMP"
    orders = messages.select(
        F.from_json(F.col("body").cast("string"), fields).alias("order")
    ).select("order.*")
    return (
        orders.withWatermark("at", f"{2 * LATE_S} seconds")
        .groupBy(F.window("at", "1 minute"), "country")
        .agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    )


def published(rows: DataFrame, broker: dict[str, str], checkpoint: str) -> Any:
    """Publish each window once: what a task sends is a unit, stored whole or not at all."""
    minute = F.date_format("window.start", "HH:mm").alias("minute")
    return (
        rows.select(F.to_json(F.struct(minute, "country", "orders", "cents")).alias("body"))
        .writeStream.format("amqp-stream")
        .options(**broker, stream="revenue", checkpointLocation=checkpoint)
        .start()
    )


# %% The proof: what was published, and what should have been
def windows(spark: SparkSession, broker: dict[str, str]) -> Counter[tuple[str, str, int, int]]:
    """How often each window is in the stream of results."""
    found = spark.read.format("amqp-stream").options(**broker, stream="revenue").load()
    bodies = [json.loads(row["body"]) for row in found.select("body").collect()]
    return Counter(
        (each["minute"], each["country"], each["orders"], each["cents"]) for each in bodies
    )


def expected(orders: list[dict[str, Any]]) -> Counter[tuple[str, str, int, int]]:
    """Each window once, by plain Python."""
    sums: dict[tuple[str, str], list[int]] = {}
    for order in orders[:ORDERS]:
        cents = sums.setdefault((order["at"][11:16], order["country"]), [])
        cents.append(order["cents"])
    return Counter((*window, len(cents), sum(cents)) for window, cents in sums.items())


# %% All of it
def main() -> int:
    """Publish, add up, compare; 0 if every window is exact."""
    broker = {"url": ",".join(URLS), "httpUrl": ",".join(HTTP_URLS)}
    orders = sold()
    wanted = expected(orders)
    declare("orders", "revenue")
    spark = session.open(name="revenue")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = published(revenue(spark, broker), broker, checkpoint)
        publish(orders)
        while (found := windows(spark, broker)).total() < wanted.total() and query.isActive:
            print(f"{found.total()} of {wanted.total()} windows", flush=True)
            time.sleep(1)
        query.stop()
    spark.stop()
    for minute, country, count, cents in sorted(found):
        print(f"{minute} {country}  {count:4} orders  {cents / 100:12,.2f}")
    print("exact" if found == wanted else f"wrong: {(found - wanted) + (wanted - found)}")
    return int(found != wanted)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        URLS, HTTP_URLS = (urls.split(",") for urls in sys.argv[1:3])
    sys.exit(main())
