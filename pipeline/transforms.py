"""From a history's tables to findings: pure functions of DataFrames, one question each.

Time between recorders is compared by clock, order within a recorder by `event_no` alone. Every
finding is (kind, subject, queue), the identity that the chaos checkers use.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.schemas import SECOND_US
from pipeline.tables import COPY, SETTLE_GRACE_US, Tables

LEADER_GRACE_US = 10_000_000
HEALED_LIMIT_US = 10_000_000
SERVING_LIMITS_US = {
    "kill-leader": 6_000_000,
    "kill-mirror": 6_000_000,
    "stop-leader": 6_000_000,
    "restart": 6_000_000,
    "pause-leader": 8_000_000,
    "cut-leader-from-one": 8_000_000,
    "cut-leader-from-all": 8_000_000,
    "cut-leader-one-way": 8_000_000,
    "delay-links": 8_000_000,
    "kill-leader-unsynchronised": 9_000_000,
    "stop-leader-unsynchronised": 9_000_000,
}
CHANGES_MAX = 3
TIMEOUT_US = 10_000_000
LATE_US = 1_000_000
_LEADER_STAYS = ("kill-mirror", "cut-leader-from-one", "delay-links")


def undrained(tables: Tables) -> DataFrame:
    """A drain that failed, or none through a node, or no depth: nothing can be said about loss."""
    ends = tables.events.where("op in ('drain', 'depth')").select("node", "op", "type")
    used = tables.used.select("node", F.lit("").alias("op"), F.lit("").alias("type"))
    nodes = (
        ends.unionByName(used)
        .groupBy("node")
        .agg(
            F.count(F.when(F.expr("op = 'drain'"), 1)).alias("drains"),
            F.count(F.when(F.expr("op = 'drain' and type <> 'ok'"), 1)).alias("failed"),
            F.count(F.when(F.expr("op = 'depth'"), 1)).alias("depths"),
        )
    )
    is_done = F.expr("drains > 0 and failed = 0 and depths > 0")
    found = nodes.agg(
        F.coalesce(F.sum("drains"), F.lit(0)).alias("all"),
        F.count(F.when(~is_done, 1)).alias("lacking"),
    )
    return findings(found.where("all = 0 or lacking > 0"), "undrained", F.lit("drain"))


def missing(tables: Tables) -> DataFrame:
    """Confirmed, and never acked; `is_allowed` where the master that had it alone is gone.

    An ack that may have been swallowed counts: it may have reached the broker.
    """
    acked = tables.events.where("op = 'ack'").select(*COPY).distinct()
    return (
        tables.published.join(tables.confirmed, "op_id")
        .join(acked, COPY, "left_anti")
        .crossJoin(F.broadcast(tables.joined))
        .withColumn("is_allowed", F.col("ts_us") < F.col("joined_us"))
    )


def lost(tables: Tables) -> DataFrame:
    """Confirmed, and never acked by the end of a complete drain, though it had to be kept."""
    is_drained = undrained(tables).agg((F.count("*") == 0).alias("is_drained"))
    gone = missing(tables).crossJoin(is_drained).where("is_drained and not is_allowed")
    return findings(gone, "lost", F.col("msg_id"))


def phantom(tables: Tables) -> DataFrame:
    """Delivered, and never published."""
    strangers = tables.deliveries.join(tables.published, COPY, "left_anti")
    return findings(strangers, "phantom", F.col("msg_id"))


def corrupt(tables: Tables) -> DataFrame:
    """Delivered with another body than was published."""
    sent = tables.published.select(*COPY, F.col("body_crc").alias("sent_crc"))
    damaged = tables.deliveries.join(sent, COPY).where("body_crc <> sent_crc")
    return findings(damaged, "corrupt", F.col("msg_id"))


def aborted(tables: Tables) -> DataFrame:
    """Refused, and delivered all the same."""
    seen = tables.copies
    return findings(
        tables.published.join(tables.refused, "op_id").join(seen, COPY, "left_semi"),
        "aborted", F.col("msg_id"),
    )  # fmt: skip


def unroutable(tables: Tables) -> DataFrame:
    """Refused, though the queue exists all along."""
    seen = tables.copies
    sent = tables.refused.join(tables.published, "op_id", "left").join(seen, COPY, "left_anti")
    named = sent.withColumn("queue", F.coalesce("queue", F.lit("")))
    return findings(named, "unroutable", F.coalesce("msg_id", "op_id"))


def duplicated(tables: Tables) -> DataFrame:
    """Delivered after an ack that nothing can have swallowed."""
    late = tables.deliveries.join(tables.first_sure_acks, COPY).where("ts_us > acked_us")
    return findings(late, "duplicated", F.col("msg_id"))


def flag(tables: Tables) -> DataFrame:
    """Delivered more than once without the redelivered flag."""
    fresh = tables.deliveries.where("not redelivered").groupBy(*COPY).count()
    return findings(fresh.where("count > 1"), "flag", F.col("msg_id"))


def held_twice(tables: Tables) -> DataFrame:
    """Delivered while another consumer holds it, with no fault near."""
    by_copy = Window.partitionBy(*COPY).orderBy("ts_us", "recorder", "event_no")
    pairs = (
        tables.deliveries.withColumn("again_us", F.lead("ts_us").over(by_copy))
        .where("again_us is not null")
        .select(*COPY, "consumer_tag", "connection", "place", "again_us", "ts_us")
    )
    settled = (
        tables.events.where("op in ('ack', 'requeue')")
        .select(*COPY, "consumer_tag", F.col("ts_us").alias("settled_us"))
        .join(pairs.select(*COPY, "consumer_tag", "place", "ts_us"), [*COPY, "consumer_tag"])
        .where("settled_us >= ts_us")
        .groupBy(*COPY, "place")
        .agg(F.min("settled_us").alias("settled_us"))
    )
    ends = (
        tables.events.where("op = 'close'")
        .groupBy("connection")
        .agg(F.max("ts_us").alias("ended_us"))
    )
    until = F.coalesce("settled_us", "ended_us")
    near = (F.col("start_us") - SETTLE_GRACE_US <= F.col("again_us")) & (
        F.col("again_us") <= F.col("end_us") + SETTLE_GRACE_US
    )
    twice = (
        pairs.join(settled, [*COPY, "place"], "left")
        .join(ends, "connection", "left")
        .where(until.isNull() | (until > F.col("again_us") + LATE_US))
        .join(F.broadcast(tables.windows), near, "left_anti")
    )
    return findings(twice, "held-twice", F.col("msg_id"))


def order(tables: Tables) -> DataFrame:
    """First deliveries to one consumer whose number is below the one before."""
    line = Window.partitionBy("queue", "consumer_tag", "publisher").orderBy("recorder", "event_no")
    sent = tables.published.select(*COPY, "publisher", "seq")
    descents = (
        tables.deliveries.where("place = 1 and not redelivered")
        .join(sent, COPY)
        .withColumn("before", F.lag("seq").over(line))
        .where("seq < before")
    )
    return findings(descents, "order", F.col("msg_id"))


def confirm_once(tables: Tables) -> DataFrame:
    """More than one answer for a publish, or one for what was never sent."""
    answers = (
        tables.events.where("op in ('confirm', 'nack')")
        .groupBy("op_id")
        .agg(F.count("*").alias("answers"), F.min("queue").alias("answer_queue"))
    )
    joined = answers.join(tables.published.select("op_id", *COPY), "op_id", "left")
    twice = joined.where("msg_id is not null and answers > 1")
    unasked = joined.where("msg_id is null").withColumn("queue", F.col("answer_queue"))
    return findings(twice, "confirm-twice", F.col("msg_id")).unionByName(
        findings(unasked, "confirm-unasked", F.col("op_id"))
    )


def unanswered(tables: Tables) -> DataFrame:
    """Publishes without an answer on a healthy cluster."""
    waiting = tables.events.where("op = 'unknown' and code = 'unanswered'").select(*COPY)
    return findings(waiting.unionByName(forgotten(tables)), "unanswered", F.col("msg_id"))


def forgotten(tables: Tables) -> DataFrame:
    """Copies that waited for the whole timeout far from any fault, while others were confirmed.

    In the second half of the wait; else the machine may have stood still.
    """
    ends = tables.events.where("op = 'unknown' and code = 'timeout'").select(
        "op_id", F.col("ts_us").alias("gave_up_us")
    )
    waits = (
        tables.published.join(F.broadcast(ends), "op_id")
        .withColumn("until_us", F.col("ts_us") + TIMEOUT_US)
        .where("gave_up_us >= until_us")
    )
    near = (F.col("start_us") - SETTLE_GRACE_US <= F.col("until_us")) & (
        F.col("ts_us") <= F.col("end_us") + HEALED_LIMIT_US
    )
    meanwhile = (F.col("until_us") - TIMEOUT_US // 2 < F.col("at_us")) & (
        F.col("at_us") <= F.col("until_us")
    )
    return (
        waits.join(F.broadcast(tables.windows), near, "left_anti")
        .join(tables.confirms, meanwhile, "left_semi")
        .select(*COPY)
    )


def depth(tables: Tables) -> DataFrame:
    """Messages left after the drain."""
    return findings(tables.events.where("op = 'depth' and size > 0"), "depth", F.col("node"))


def unhealthy(tables: Tables) -> DataFrame:
    """A cluster that did not heal."""
    named = F.when(F.col("node") == "", F.lit("cluster")).otherwise(F.col("node"))
    return findings(tables.events.where("op = 'health' and type = 'fail'"), "unhealthy", named)


def incomplete(tables: Tables) -> DataFrame:
    """Recorders whose events are not 1 to n."""
    return findings(tables.torn, "history", F.col("recorder"))


def silences(tables: Tables, *, is_available: bool) -> DataFrame:
    """The longest time without a confirm around each fault, as column `silence_us`.

    Args:
        tables: The history's.
        is_available: Whether the queue is promised to serve during the fault: then time counts
            from the fault, else from the end of its heal.
    """
    windows = tables.windows.withColumn(
        "begin_us", F.col("start_us") if is_available else F.col("end_us")
    )
    points = _with_next(tables.confirms, windows)
    begins = points.where("fault is not null").select("fault", "at_us", "next_us")
    within = (
        points.where("fault is null")
        .select("at_us", "next_us", _second("at_us").alias("second"))
        .join(_touched(windows, "begin_us"), "second")
        .where("begin_us < at_us and at_us <= end_us")
        .select("fault", "at_us", "next_us")
    )
    longest = (
        begins.unionByName(within)
        .groupBy("fault")
        .agg(
            F.coalesce(F.max(F.expr("next_us - at_us")), F.lit(0)).alias("between_us"),
            F.max(F.expr("if(next_us is null, at_us, null)")).alias("last_us"),
        )
        .crossJoin(_load_end(tables))
        .selectExpr("fault", "greatest(between_us, load_end_us - last_us) as silence_us")
    )
    return windows.join(longest, "fault", "left").fillna(0, ["silence_us"])


def _with_next(confirms: DataFrame, windows: DataFrame) -> DataFrame:
    """Confirms, and where each window begins, with the time of the confirm that came next.

    One order of all of them: an order for each window took 7 of the judge's 20 s for 10,000,000
    events.

    Returns:
        `fault`, null for a confirm; `at_us`; `next_us`, null where no confirm came any more.
    """
    points = confirms.select(
        F.lit(None).cast("string").alias("fault"), "at_us", F.col("at_us").alias("confirm_us")
    ).unionByName(
        windows.select(
            "fault",
            F.col("begin_us").alias("at_us"),
            F.lit(None).cast("long").alias("confirm_us"),
        )
    )
    # A window begins after the confirms of the same microsecond.
    later = Window.orderBy(F.desc("at_us"), F.col("confirm_us").isNotNull())
    before_this = later.rowsBetween(Window.unboundedPreceding, -1)
    next_us = F.last("confirm_us", ignorenulls=True).over(before_this)
    return points.select("fault", "at_us", next_us.alias("next_us"))


def _touched(windows: DataFrame, begin: str) -> DataFrame:
    """Each window with each `second` that it touches: few rows, by which confirms are found."""
    seconds = F.sequence(_second(begin), _second("end_us"))
    return F.broadcast(windows.withColumn("second", F.explode(seconds)))


def _second(column: str) -> Column:
    return F.expr(f"{column} div {SECOND_US}")


def recovery(silences: DataFrame, *, is_available: bool) -> DataFrame:
    """Faults after which confirms took too long.

    Args:
        silences: What the function `silences` returned.
        is_available: With which it was called.
    """
    limit = F.lit(HEALED_LIMIT_US)
    if is_available:
        limit = reduce(
            lambda found, item: found.when(F.col("fault_kind") == item[0], F.lit(item[1])),
            SERVING_LIMITS_US.items(),
            F.when(F.lit(False), F.lit(0)),
        )
    slow = silences.where(F.col("silence_us") > limit)
    return findings(slow.withColumn("queue", F.lit("")), "recovery", F.col("fault"))


def storm(tables: Tables) -> DataFrame:
    """Faults during which the leader changed again and again."""
    changes = tables.events.where("op = 'epoch'").select(F.col("ts_us").alias("seen_us"))
    within = (F.col("start_us") < F.col("seen_us")) & (F.col("seen_us") <= F.col("end_us"))
    counted = F.broadcast(tables.windows).join(changes, within).groupBy("fault").count()
    return findings(counted.where(F.col("count") > CHANGES_MAX), "storm", F.col("fault"))


def starved(tables: Tables, *, delivered_after_min: int) -> DataFrame:
    """Consumers that got nothing after the last heal, while others got plenty; or everybody.

    Everybody did if plenty was published and confirmed, and of plenty not half was delivered.

    Args:
        tables: The history's.
        delivered_after_min: How many deliveries are plenty.
    """
    got = tables.served.agg(F.coalesce(F.sum("got"), F.lit(0)).alias("got"))
    plenty = got.select((F.col("got") >= delivered_after_min).alias("is_plenty"))
    consumers = tables.events.where("op = 'consume'").select("recorder").distinct()
    without = consumers.join(tables.served.where("got > 0"), "recorder", "left_anti")
    hungry = without.crossJoin(plenty).where("is_plenty").select("recorder")
    all_hungry = (
        tables.totals.select("wanted")
        .crossJoin(got)
        .where((F.col("wanted") >= delivered_after_min) & (F.col("got") * 2 < delivered_after_min))
        .select(F.lit("everybody").alias("recorder"))
    )
    return findings(hungry.unionByName(all_hungry), "starved", F.col("recorder"))


def vacuous(
    tables: Tables,
    *,
    fault: str,
    is_available: bool,
    confirmed_min: int,
    confirmed_in_faults_min: int,
) -> DataFrame:
    """Return findings about what a run lacks to prove anything.

    Args:
        tables: The history's.
        fault: The kind of fault that was asked for.
        is_available: Whether the queue is promised to serve during it.
        confirmed_min: Fewer confirmed messages prove nothing.
        confirmed_in_faults_min: Fewer in fault windows prove nothing, if it is available.
    """
    counts = tables.totals.select((F.col("confirmed") < confirmed_min).alias("holds"))
    found = [_claim(counts, F.lit("few-confirms"))]
    if fault == "none":
        return found[0]
    windows = tables.windows
    asked = windows.where(F.col("fault_kind") == fault)
    happened = asked.agg((F.count("*") > 0).alias("happened"))
    found.append(_claim(happened.withColumn("holds", ~F.col("happened")), F.lit("no-fault")))
    idle = without_effect(tables).crossJoin(happened).withColumn("holds", F.col("happened"))
    found.append(_claim(idle, F.concat(F.lit("no-effect/"), F.col("fault"))))
    if is_available:
        within = confirms_in_faults(tables).agg(F.count("*").alias("within"))
        few = within.crossJoin(happened).withColumn(
            "holds", F.col("happened") & (F.col("within") < confirmed_in_faults_min)
        )
        found.append(_claim(few, F.lit("few-confirms-in-faults")))
        stayed = leader_stayed(tables).crossJoin(happened).withColumn("holds", F.col("happened"))
        found.append(_claim(stayed, F.concat(F.lit("leader-stayed/"), F.col("fault"))))
    return reduce(DataFrame.unionByName, found)


def confirms_in_faults(tables: Tables) -> DataFrame:
    """Confirms that came while a fault lasted."""
    confirms = tables.confirms.withColumn("second", _second("at_us"))
    touched = _touched(tables.windows, "start_us").withColumnRenamed("second", "touched")
    is_within = F.expr("second = touched and start_us <= at_us and at_us <= end_us")
    return confirms.join(touched, is_within, "left_semi")


def without_effect(tables: Tables) -> DataFrame:
    """Faults that show nothing: a process that did not go, a link on which nothing was held."""
    shown = (
        tables.events.where("op = 'effect'")
        .groupBy(F.col("op_id").alias("fault"))
        .agg(F.min("size").alias("least"))
        .where("least > 0")
    )
    return tables.windows.join(shown, "fault", "left_anti")


def leader_stayed(tables: Tables) -> DataFrame:
    """Faults of a leader after which no other was seen."""
    seen = tables.events.where("op = 'epoch'").select(
        F.col("node").alias("leader"), F.col("ts_us").alias("seen_us")
    )
    is_new = (
        (F.col("leader") != F.col("target"))
        & (F.col("seen_us") > F.col("start_us"))
        & (F.col("seen_us") <= F.col("end_us") + LEADER_GRACE_US)
    )
    windows = tables.windows.where(~F.col("fault_kind").isin(*_LEADER_STAYS))
    return windows.join(seen, is_new, "left_anti")


def counts(tables: Tables) -> DataFrame:
    """One row: what happened, for people."""
    within = confirms_in_faults(tables).agg(F.count("*").alias("confirmed_in_faults"))
    allowed = missing(tables).where("is_allowed").agg(F.count("*").alias("lost_allowed"))
    return tables.totals.drop("wanted", "last_us").crossJoin(within).crossJoin(allowed)


def _load_end(tables: Tables) -> DataFrame:
    stopped = F.min(F.when(F.expr("op = 'load' and type = 'ok'"), F.col("ts_us")))
    stop = tables.events.agg(stopped.alias("stopped_us"))
    until = F.coalesce("stopped_us", "last_us").alias("load_end_us")
    return stop.crossJoin(tables.totals.select("last_us")).select(until)


def _claim(found: DataFrame, subject: Column) -> DataFrame:
    return findings(found.where("holds").withColumn("queue", F.lit("")), "vacuous", subject)


def findings(found: DataFrame, kind: str, subject: Column) -> DataFrame:
    """Return findings, one for each subject; without a queue column the queue is ""."""
    queue = F.col("queue") if "queue" in found.columns else F.lit("")
    return found.select(
        F.lit(kind).alias("kind"), subject.alias("subject"), queue.alias("queue")
    ).distinct()
