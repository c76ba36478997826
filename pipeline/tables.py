"""A history sorted into the tables that the questions are about: DataFrame -> DataFrame.

Each is a pure function of the events; `gather` makes all of them once and keeps them in memory,
so that twenty questions do not read the history twenty times. `pipeline.sieve` makes the same
tables of a long history without what can raise no finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

SETTLE_GRACE_US = 2_000_000
STARVED_AFTER_US = 3_000_000
_BLOCK = 64
COPY = ["queue", "msg_id"]
Keep = Callable[[DataFrame], DataFrame]
"""How a table is kept in memory: `cached`, or `checkpointed` in Spark's sense."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the transforms read.

    Attributes:
        events: The history, columns of `schemas.HISTORY`; of a sieved one what is not about
            messages, and all about those that may raise a finding. So are the next five.
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
        torn: Each recorder whose events are not 1 to n.
        used: Each node through which anything was published or delivered.
        confirms: `at_us` of the confirms: all that came in a second of a fault, one row each, and
            of every other second at least its first and its last.
        served: recorder, `got`: its deliveries from `STARVED_AFTER_US` after the last heal on.
        totals: One row: what `totals` has, confirmed, and
            `wanted`, what was published and confirmed from then on.
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
    torn: DataFrame
    used: DataFrame
    confirms: DataFrame
    served: DataFrame
    totals: DataFrame

    def release(self) -> None:
        """Give the memory back. Spark frees a checkpointed table when nothing refers to it."""
        for frame in _frames(self):
            frame.unpersist()


def cached(frame: DataFrame) -> DataFrame:
    """Keep a table of a long history: in columns, from its first use on."""
    return frame.cache()


def checkpointed(frame: DataFrame) -> DataFrame:
    """Keep a table of a short run, in rows: now, and without the plan that made it.

    A cached table brings that plan into each question about it, and to plan the questions is most
    of what a short run's verdict costs. A table is lost with the executor that keeps it: Spark then
    fails, and there is no verdict.

    Source: Spark, `DataFrame.localCheckpoint`.
    """
    return frame.localCheckpoint()


def gather(
    events: DataFrame, *, may_promote_unsynchronised: bool = False, is_long: bool = False
) -> Tables:
    """All tables of a history, computed and kept until `release`.

    Args:
        events: The history, columns of `schemas.HISTORY`.
        may_promote_unsynchronised: Whether a mirror that lacks messages may become master.
        is_long: Whether it has so many events that to plan a question costs little beside them.
    """
    keep = cached if is_long else checkpointed
    events = events.cache()
    windows = keep(fault_windows(events, events.agg(totals()[-1])))
    no = keep(refused(events))
    yes = keep(confirmed(events, no))
    after_us = served_after(windows)
    found = kept(
        events,
        windows,
        no,
        yes,
        may_promote_unsynchronised=may_promote_unsynchronised,
        keep=keep,
        torn=keep(torn(events)),
        used=keep(events.where("op in ('publish', 'deliver')").select("node").distinct()),
        confirms=keep(events.where("op = 'confirm'").select(F.col("ts_us").alias("at_us"))),
        served=keep(served(events, after_us)),
        totals=keep(
            events.agg(*totals())
            .crossJoin(yes.agg(F.count("*").alias("confirmed")))
            .crossJoin(wanted(events, yes, after_us))
        ),
    )
    if is_long:
        for frame in _frames(found):
            frame.count()  # now, so that the planner knows how small they are
    return found


def kept(
    events: DataFrame,
    windows: DataFrame,
    no: DataFrame,
    yes: DataFrame,
    *,
    may_promote_unsynchronised: bool,
    keep: Keep = cached,
    **summaries: DataFrame,
) -> Tables:
    """Add the tables about messages.

    Args:
        events: As in `Tables`; cached, and the next three are kept.
        windows: As in `Tables`.
        no: `Tables.refused`.
        yes: `Tables.confirmed`.
        may_promote_unsynchronised: Whether a mirror that lacks messages may become master.
        keep: How the tables about messages are kept.
        **summaries: The tables from `torn` on.
    """
    seen = keep(deliveries(events))
    return Tables(
        events=events,
        published=keep(published(events)),
        refused=no,
        confirmed=yes,
        deliveries=seen,
        copies=keep(seen.select(*COPY).distinct()),
        windows=windows,
        first_sure_acks=keep(first_sure_acks(events, windows)),
        joined=keep(joined(events, may_promote_unsynchronised=may_promote_unsynchronised)),
        **summaries,
    )


def _frames(found: Tables) -> list[DataFrame]:
    return [getattr(found, field.name) for field in fields(found)]


def _count_of(claim: str) -> Column:
    return F.count(F.when(F.expr(claim), 1))


def totals() -> list[Column]:
    """What happened, for people: aggregates of the events, the last one `last_us`."""
    return [
        F.count("*").alias("events"),
        _count_of("op = 'publish' and type = 'invoke'").alias("published"),
        _count_of("op = 'nack'").alias("nacked"),
        _count_of("op = 'unknown'").alias("unknown"),
        _count_of("op in ('deliver', 'get')").alias("delivered"),
        _count_of("op = 'ack'").alias("acked"),
        _count_of("op = 'requeue'").alias("requeued"),
        _count_of("op in ('deliver', 'get') and type = 'ok' and redelivered").alias("redelivered"),
        _count_of("op = 'fault_start'").alias("faults"),
        F.coalesce(F.max("epoch"), F.lit(0)).alias("leader_changes"),
        F.coalesce(F.max("ts_us"), F.lit(0)).alias("last_us"),
    ]


def torn(events: DataFrame) -> DataFrame:
    """Recorders whose events are not 1 to n, as column `recorder`.

    They are if and only if the lowest is 1 at least, and as many are different as there are, and
    as the highest says. Which ones are there is a set of bits for each 64 numbers.
    """
    bit = F.expr(f"shiftleft(1L, cast(pmod(event_no, {_BLOCK}) as int))")
    blocks = events.groupBy("recorder", F.expr(f"event_no div {_BLOCK}").alias("block")).agg(
        F.bit_or(bit).alias("bits"),
        F.count("*").alias("rows"),
        F.min("event_no").alias("low"),
        F.max("event_no").alias("high"),
    )
    return (
        blocks.groupBy("recorder")
        .agg(
            F.sum(F.bit_count("bits")).alias("different"),
            F.sum("rows").alias("rows"),
            F.min("low").alias("low"),
            F.max("high").alias("high"),
        )
        .where("low < 1 or different <> rows or high <> rows")
        .select("recorder")
    )


def served_after(windows: DataFrame) -> int | None:
    """From when on everybody must be served again, microseconds; None without faults."""
    healed_us: int | None = windows.agg(F.max("end_us")).collect()[0][0]
    return None if healed_us is None else healed_us + STARVED_AFTER_US


def served(events: DataFrame, after_us: int | None) -> DataFrame:
    """How many deliveries each recorder got when everybody had to be served: recorder, `got`.

    Args:
        events: The history.
        after_us: Of `served_after`.
    """
    return (
        events.where("op = 'deliver' and type = 'ok'")
        .where(F.col("ts_us") > F.lit(after_us))
        .groupBy("recorder")
        .agg(F.count("*").alias("got"))
    )


def wanted(events: DataFrame, yes: DataFrame, after_us: int | None) -> DataFrame:
    """One row, `wanted`: how much was published and confirmed when everybody must be served.

    Args:
        events: The history.
        yes: `Tables.confirmed`.
        after_us: Of `served_after`.
    """
    late = published(events).where(F.col("ts_us") >= F.lit(after_us))
    return late.join(yes, "op_id").agg(F.count("*").alias("wanted"))


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
            "op",
            "node",
            "stream_offset",
        )
        .withColumn("place", F.row_number().over(order))
    )


def fault_windows(events: DataFrame, last: DataFrame) -> DataFrame:
    """Each fault from just before it happened to the end of its heal.

    Args:
        events: The history; of it those of faults and epochs.
        last: One row, `last_us`: the time of the last event.
    """
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
