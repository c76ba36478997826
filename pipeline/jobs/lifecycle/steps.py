"""Copies of a trace as steps, and the life of each message in each queue. Spark's expressions."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.jobs.lifecycle import path
from pipeline.jobs.lifecycle.path import Step

EXCHANGE: Final = "amq.rabbitmq.trace"
_KINDS: Final = ("publish", "deliver", *path.SETTLED)
_PROPERTIES: Final = "message_id string, correlation_id string, headers map<string, string>"
_OF_DELIVERY: Final = ("queue", "number", "node", "connection", "channel")
SPANS: Final = ("publish_route", "publish_deliver", "deliver_ack", "publish_ack")


def steps(copies: DataFrame, id_of: str = "message_id") -> DataFrame:
    """One row for each thing that happened to a message: columns of `path.Step`, and these.

    message, the id, null where it has none; next and next_us, of a delivery how and when it was
    settled; delivered_us, of a settlement when what it settles was delivered.

    A copy of acknowledgements names messages by their numbers. Its deliveries are those of the same
    queue, number and channel before it: one channel's copies are in the trace in their order.

    Args:
        copies: Of one trace: columns offset, exchange, routing_key and headers.
        id_of: What tells messages apart: message_id, correlation_id, or the name of a header.
    """
    parsed = _parsed(copies.where(F.col("exchange") == EXCHANGE), id_of)
    has_number = (F.col("kind") != "publish") & F.col("number").isNotNull()
    before = Window.partitionBy(*_OF_DELIVERY).orderBy("place")
    so_far = before.rowsBetween(Window.unboundedPreceding, 0)
    is_delivery = F.col("kind") == "deliver"
    after, after_us = F.lead("kind").over(before), F.lead("at_us").over(before)
    is_settled = is_delivery & (after != "deliver")
    matched = parsed.where(has_number).select(
        *[name for name in parsed.columns if name != "message"],
        F.when(is_delivery, F.col("message"))
        .otherwise(F.last(F.when(is_delivery, F.col("message")), ignorenulls=True).over(so_far))
        .alias("message"),
        F.when(is_settled, after).alias("next"),
        F.when(is_settled, after_us).alias("next_us"),
        F.when(
            ~is_delivery,
            F.last(F.when(is_delivery, F.col("at_us")), ignorenulls=True).over(so_far),
        ).alias("delivered_us"),
    )
    return parsed.where(~has_number).unionByName(matched, allowMissingColumns=True)


def _parsed(copies: DataFrame, id_of: str) -> DataFrame:
    header = F.col("headers")
    properties = F.from_json(header["properties"], _PROPERTIES)
    if id_of in ("message_id", "correlation_id"):
        message = properties[id_of]
    else:
        message = properties["headers"][id_of]
    target = F.expr("substring(routing_key, instr(routing_key, '.') + 1)")
    kind = F.substring_index("routing_key", ".", 1)
    number = header["message_number"].try_cast("bigint")
    numbers = F.coalesce(F.from_json(header["message_numbers"], "array<bigint>"), F.array(number))
    return copies.where(kind.isin(*_KINDS)).select(
        F.col("offset").alias("place"),
        kind.alias("kind"),
        F.nullif(message, F.lit("")).alias("message"),
        header["timestamp_in_us"].try_cast("bigint").alias("at_us"),
        header["received_in_us"].try_cast("bigint").alias("received_us"),
        header["exchange_name"].alias("exchange"),
        F.get(F.from_json(header["routing_keys"], "array<string>"), 0).alias("routing_key"),
        F.when(kind != "publish", F.coalesce(header["queue"], target)).alias("queue"),
        F.from_json(header["routed_queues"], "array<string>").alias("queues"),
        (header["redelivered"] == "1").alias("is_redelivered"),
        (header["no_ack"] == "true").alias("no_ack"),
        header["dead_letter_exchange"].alias("dead_letter_exchange"),
        header["node"].alias("node"),
        header["connection"].alias("connection"),
        header["channel"].try_cast("int").alias("channel"),
        header["user"].alias("user"),
        F.explode(numbers).alias("number"),
    )


def lives(found: DataFrame) -> DataFrame:
    """One row for each message and queue; queue is null where a message was routed to none.

    Columns: message, queue, exchange, routing_key, published_us (read by its node), routed_us,
    publishes, delivered_us (first), deliveries, acked_us (last), state (`path`), and the spans in
    milliseconds: publish_route, publish_deliver, deliver_ack, publish_ack, each null where one of
    its ends is not in the trace.

    Args:
        found: `steps`. Those without an id are left out.
    """
    named = found.where("message is not null")
    publishes = named.where("kind = 'publish'")
    first = publishes.groupBy("message").agg(
        F.min_by("exchange", "place").alias("exchange"),
        F.min_by("routing_key", "place").alias("routing_key"),
        F.min_by(F.coalesce("received_us", "at_us"), "place").alias("published_us"),
        F.min_by("at_us", "place").alias("routed_us"),
        F.count("*").alias("publishes"),
    )
    is_delivery, is_acked = F.col("kind") == "deliver", F.col("next") == "ack"
    routed = publishes.withColumn("queue", F.explode_outer("queues"))
    both = (
        routed.unionByName(named.where(is_delivery))
        .groupBy("message", "queue")
        .agg(
            F.min(F.when(is_delivery, F.col("at_us"))).alias("delivered_us"),
            F.count_if(is_delivery).alias("deliveries"),
            F.max(F.when(is_acked, F.col("next_us"))).alias("acked_us"),
            F.max_by(F.when(is_acked, F.col("at_us")), F.when(is_acked, F.col("next_us"))).alias(
                "last_us"
            ),
            F.max_by(F.when(is_delivery, _state()), F.when(is_delivery, F.col("place"))).alias(
                "state"
            ),
        )
    )
    nothing = F.when(F.col("queue").isNull(), path.UNROUTABLE).otherwise(path.WAITING)
    return both.join(first, "message", "left").select(
        "message", "queue", "exchange", "routing_key", "published_us", "routed_us", "publishes",
        "delivered_us", "deliveries", "acked_us",
        F.coalesce("state", nothing).alias("state"),
        _ms("routed_us", "published_us").alias("publish_route"),
        _ms("delivered_us", "published_us").alias("publish_deliver"),
        _ms("acked_us", "last_us").alias("deliver_ack"),
        _ms("acked_us", "published_us").alias("publish_ack"),
    )  # fmt: skip


def spans(found: DataFrame) -> DataFrame:
    """Percentiles of the spans by queue: columns queue, span, messages, p50, p90, p99, max, low.

    All in milliseconds; low is the least, below 0 where clocks of nodes disagree.

    Args:
        found: `lives`.
    """
    named = ", ".join(f"'{name}', {name}" for name in SPANS)
    long = found.where("queue is not null").select(
        "queue", F.expr(f"stack({len(SPANS)}, {named}) as (span, ms)")
    )
    return (
        long.where("ms is not null")
        .groupBy("queue", "span")
        .agg(
            F.count("*").alias("messages"),
            F.percentile_approx("ms", [0.5, 0.9, 0.99], 10_000).alias("percentiles"),
            F.max("ms").alias("max"),
            F.min("ms").alias("low"),
        )
        .select(
            "queue", "span", "messages",
            F.col("percentiles")[0].alias("p50"),
            F.col("percentiles")[1].alias("p90"),
            F.col("percentiles")[2].alias("p99"),
            "max", "low",
        )
    )  # fmt: skip


def path_of(found: DataFrame, message: str) -> list[Step]:
    """All that the trace says of one message.

    Args:
        found: `steps`.
        message: Its id.
    """
    rows = found.where(F.col("message") == message).select(*Step._fields).collect()
    return [Step(*row) for row in rows]


def _state() -> Any:
    state = F.when(F.col("no_ack"), path.TAKEN)
    for kind, said in path.SETTLED.items():
        state = state.when(F.col("next") == kind, said)
    return state.otherwise(path.HELD)


def _ms(end: str, begin: str) -> Any:
    return (F.col(end) - F.col(begin)) / 1000
