"""A history sorted into the tables that the questions are about: DataFrame -> DataFrame.

Each is a pure function of the events; `gather` makes all of them once and keeps them in memory,
so that twenty questions do not read the history twenty times.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

SETTLE_GRACE_US = 2_000_000
COPY = ["queue", "msg_id"]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the transforms read.

    Attributes:
        events: The history, columns of `schemas.HISTORY`.
        published: op_id, queue, msg_id, publisher, seq, body_crc, ts_us of each publish.
        refused: op_id of what was returned, or failed before it was sent.
        confirmed: op_id of what was confirmed and not refused.
        deliveries: Deliveries and gets, `place` 1 for the earliest of each copy.
        copies: Each queue and msg_id that was delivered, once.
        windows: fault, fault_kind, target, start_us, end_us of each fault, and changed_us, when
            another leader than the target was first seen in it, null if none was.
        first_sure_acks: When each copy was first acked beyond doubt, `acked_us`.
        joined: One row, `joined_us`: what was published earlier may be lost, because a mirror
            that joined then became master without it, as it was allowed to; else 0.
    """

    events: DataFrame
    published: DataFrame
    refused: DataFrame
    confirmed: DataFrame
    deliveries: DataFrame
    copies: DataFrame
    windows: DataFrame
    first_sure_acks: DataFrame
    joined: DataFrame

    def release(self) -> None:
        """Give the memory back."""
        for frame in _frames(self):
            frame.unpersist()


def gather(events: DataFrame, *, may_promote_unsynchronised: bool = False) -> Tables:
    """All tables of a history, computed and kept until `release`.

    Args:
        events: The history, columns of `schemas.HISTORY`.
        may_promote_unsynchronised: Whether a mirror that lacks messages may become master.
    """
    events = events.cache()
    sent, seen, windows = published(events), deliveries(events), fault_windows(events)
    no = refused(events)
    found = Tables(
        events=events,
        published=sent.cache(),
        refused=no.cache(),
        confirmed=confirmed(events, no).cache(),
        deliveries=seen.cache(),
        copies=seen.select(*COPY).distinct().cache(),
        windows=windows.cache(),
        first_sure_acks=first_sure_acks(events, windows).cache(),
        joined=joined(events, may_promote_unsynchronised=may_promote_unsynchronised).cache(),
    )
    for frame in _frames(found):
        frame.count()  # now, so that the planner knows how small they are
    return found


def _frames(found: Tables) -> list[DataFrame]:
    return [
        found.events, found.published, found.refused, found.confirmed, found.deliveries,
        found.copies, found.windows, found.first_sure_acks, found.joined,
    ]  # fmt: skip


def published(events: DataFrame) -> DataFrame:
    """Return the publishes that were handed to connections, one row each."""
    return events.where("op = 'publish' and type = 'invoke'").select(
        "op_id", "queue", "msg_id", "publisher", "seq", "body_crc", "ts_us"
    )


def refused(events: DataFrame) -> DataFrame:
    """Operations that were returned, or failed before they were sent."""
    is_refused = "op = 'return' or (op = 'publish' and type = 'fail')"
    return events.where(is_refused).select("op_id").distinct()


def confirmed(events: DataFrame, refusals: DataFrame) -> DataFrame:
    """Operations that got a confirm and were not refused."""
    confirms = events.where("op = 'confirm'").select("op_id").distinct()
    return confirms.join(refusals, "op_id", "left_anti")


def deliveries(events: DataFrame) -> DataFrame:
    """Deliveries and gets; `place` is 1 for the earliest of each copy."""
    order = Window.partitionBy(*COPY).orderBy("ts_us", "recorder", "event_no")
    return (
        events.where("op in ('deliver', 'get') and type = 'ok'")
        .select(
            *COPY,
            "recorder",
            "event_no",
            "ts_us",
            "connection",
            "consumer_tag",
            "redelivered",
            "body_crc",
        )
        .withColumn("place", F.row_number().over(order))
    )


def fault_windows(events: DataFrame) -> DataFrame:
    """Each fault from just before it happened to the end of its heal."""
    last = events.agg(F.coalesce(F.max("ts_us"), F.lit(0)).alias("last_us"))
    ends = (
        events.where("op = 'fault_end'").groupBy("op_id").agg(F.max("ts_us").alias("fault_end_us"))
    )
    windows = (
        events.where("op = 'fault_start'")
        .select(
            F.col("op_id").alias("fault"),
            F.col("code").alias("fault_kind"),
            F.col("node").alias("target"),
            F.col("ts_us").alias("start_us"),
        )
        .join(ends.withColumnRenamed("op_id", "fault"), "fault", "left")
        .crossJoin(last)
        .withColumn("end_us", F.coalesce("fault_end_us", "last_us"))
        .drop("fault_end_us", "last_us")
    )
    seen = events.where("op = 'epoch'").select(
        F.col("node").alias("leader"), F.col("ts_us").alias("seen_us")
    )
    is_change = (
        (F.col("start_us") < F.col("seen_us"))
        & (F.col("seen_us") <= F.col("end_us"))
        & (F.col("leader") != F.col("target"))
    )
    changes = (
        windows.join(seen, is_change).groupBy("fault").agg(F.min("seen_us").alias("changed_us"))
    )
    return windows.join(changes, "fault", "left")


def first_sure_acks(events: DataFrame, windows: DataFrame) -> DataFrame:
    """The first ack of each copy that no fault and no loss of connection can have swallowed.

    Once another leader was seen, a fault no longer touches acks through the other nodes.
    """
    acks = events.where("op = 'ack'").select(
        *COPY, "connection", "node", F.col("ts_us").alias("acked_us")
    )
    ends = (
        events.where("op = 'close' and type = 'info'")
        .groupBy("connection")
        .agg(F.max("ts_us").alias("ended_us"))
    )
    after = F.col("acked_us") + SETTLE_GRACE_US
    is_elsewhere = ~F.array_contains(F.split("target", ","), F.col("node"))
    until = F.when(
        F.col("changed_us").isNotNull() & is_elsewhere,
        F.least(F.col("end_us"), F.col("changed_us") + SETTLE_GRACE_US),
    ).otherwise(F.col("end_us"))
    in_window = (F.col("start_us") <= after) & (F.col("acked_us") <= until)
    return (
        acks.join(ends, "connection", "left")
        .where(F.col("ended_us").isNull() | (F.col("ended_us") > after))
        .join(F.broadcast(windows), in_window, "left_anti")
        .groupBy(*COPY)
        .agg(F.min("acked_us").alias("acked_us"))
    )


def joined(events: DataFrame, *, may_promote_unsynchronised: bool) -> DataFrame:
    """When the last of those joined who were seen to lead before they were synchronised."""
    by_time = Window.partitionBy("node").orderBy("ts_us", "recorder", "event_no")
    is_role = F.col("op") == "member"
    return (
        events.where("op in ('epoch', 'member')")
        .withColumn("role", F.last(F.when(is_role, F.col("code")), ignorenulls=True).over(by_time))
        .withColumn(
            "since_us", F.last(F.when(is_role, F.col("ts_us")), ignorenulls=True).over(by_time)
        )
        .where("op = 'epoch' and role = 'joined'")
        .where(F.lit(may_promote_unsynchronised))
        .agg(F.coalesce(F.max("since_us"), F.lit(0)).alias("joined_us"))
    )
