"""A long history without the messages that can raise no finding.

One pass sums up each message in a row of numbers, its card; `SUSPICIONS` says which cards can raise
which finding. What no claim suspects is counted, and the transforms judge the rest, with all events
that are not about messages. A claim that suspects no message need not be asked at all.

Why this is the same verdict: a transform about messages joins events by queue and `msg_id`, or by
`op_id`. All events of a `msg_id` are kept or none. An event's `op_id` is its `msg_id` with "/"
for "|"; that is one to one, so all events of an `op_id` are kept or none, too. Where it is not
so, a stray, the event is kept, with all of the message that its `msg_id` names and of the one that
its `op_id` names. So what is kept and what is not have neither in common, and a finding about
what is kept is the same with and without the rest. That the rest raises none is said at each
suspicion. `order` looks at neighbours as well: `bad_lines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline import session, tables
from pipeline.tables import COPY, Tables

ABOUT_MESSAGES: Final = (
    "publish", "confirm", "nack", "unknown", "return", "deliver", "get", "ack", "requeue",
)  # fmt: skip
"""Operations of which a history has as many as messages; all others are kept."""
_IS_ABOUT_MESSAGES: Final = f"op in {ABOUT_MESSAGES}"
_SECOND_US: Final = 1_000_000

_IS_SENT: Final = "op = 'publish' and type = 'invoke'"
_IS_DELIVERY: Final = "op in ('deliver', 'get') and type = 'ok'"
_HAS_OP_ID: Final = "op in ('publish', 'confirm', 'nack', 'unknown', 'return')"
_IS_STRAY: Final = (
    f"{_HAS_OP_ID} and "
    "(translate(op_id, '/', '|') <> msg_id or translate(msg_id, '|', '/') <> op_id)"
)

SUSPICIONS: Final = {
    # Only what was confirmed and has no ack at all can be lost.
    "lost": "confirms > 0 and acks = 0",
    # A message that was published is no phantom.
    "phantom": "deliveries > 0 and sent = 0",
    # All publishes and deliveries have the same body.
    "corrupt": "crc_low <> crc_high",
    # Nothing of it was returned, or failed to be sent.
    "refused": "refusals > 0",
    # No delivery is later than the first ack, sure or not.
    "duplicated": "delivered_us > acked_us",
    # At most one delivery lacks the flag.
    "flag": "fresh > 1",
    # There is no second delivery.
    "held-twice": "deliveries > 1",
    # One answer at most, and it is the publish's: no stray, and something was sent.
    "confirm-once": "answers > 1 or answers > 0 and sent = 0",
    # It was answered, or its connection broke: nobody gave it up.
    "unanswered": "given_up > 0",
}
"""Claim -> when the card of a message can raise a finding of it. Null is false."""
_ALL: Final = "strays > 0 or sent > 1 or misnamed > 0"
"""Cards that every claim suspects: op_id, copy, or publisher and seq do not fit to msg_id."""
ORDER: Final = "order"
_STRAYS: Final = "strays"

SCANNING: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.shuffle.partitions": "16",
}
"""How the passes over a whole history run: millions of rows, of which 16 parts fit into memory."""
JUDGING: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""How the rest is judged: few rows and many questions, whose compilation would cost more."""


@dataclass(frozen=True, slots=True)
class Sieved:
    """What is left to judge.

    Attributes:
        tables: Of what is kept, with the whole history's summaries.
        claims: Those of `SUSPICIONS`, and order, that suspect anything.
        kept: How many events are left.
    """

    tables: Tables
    claims: frozenset[str]
    kept: int


def sieve(events: DataFrame, *, may_promote_unsynchronised: bool = False) -> Sieved:
    """Keep what can raise a finding, and sum up the rest.

    Args:
        events: The history of a queue that is no stream, columns of `schemas.HISTORY`. It is read
            seven times, so it should be Parquet.
        may_promote_unsynchronised: As of `tables.gather`.
    """
    with session.changed(events.sparkSession, SCANNING):
        summary = events.groupBy("op", "node", "queue").agg(*tables.totals()).collect()
        last_us = max((row["last_us"] for row in summary), default=0)
        rare = events.where(f"not ({_IS_ABOUT_MESSAGES})").repartition(1).cache()
        last = rare.sparkSession.range(1).select(F.lit(last_us).alias("last_us"))
        windows = tables.fault_windows(rare, last).coalesce(1).cache()
        after_us = tables.served_after(windows)
        suspects = _suspects(events, after_us).cache()
        claims, wanted_of_rest = _claims(suspects)
        ids = suspects.where("mask > 0").select("msg_id")
        if _STRAYS in claims:
            ids = ids.unionByName(_strays(events))
        ids = ids.distinct().coalesce(1).cache()
        ids.count()
        lines = bad_lines(events, ids).cache()
        if lines.count():
            claims |= {ORDER}
            ids = ids.unionByName(_of_lines(events, lines)).distinct().coalesce(1).cache()
        kept = _kept(events, ids).cache()
        count = kept.count()
        torn = tables.torn(events).coalesce(1).cache()
        confirms = _confirms(events, windows).cache()
        served = tables.served(events, after_us).coalesce(1).cache()
        for frame in (torn, confirms, served):
            frame.count()
    queues = {row["queue"] for row in summary if row["op"] in ABOUT_MESSAGES}
    if len(queues) > 1 or claims & {_STRAYS, ORDER}:
        # Kept are also some that no claim suspects: of an equal msg_id, a stray, or a line.
        wanted_of_rest -= _claims(_suspects(kept, after_us))[1]
    no = tables.refused(kept).cache()
    yes = tables.confirmed(kept, no).cache()
    found = tables.kept(
        kept,
        windows,
        no,
        yes,
        may_promote_unsynchronised=may_promote_unsynchronised,
        torn=torn,
        used=_used(kept, summary),
        confirms=confirms,
        served=served,
        totals=_totals(kept, yes, summary, tables.wanted(kept, yes, after_us), wanted_of_rest),
    )
    for frame in (rare, suspects, ids, lines):
        frame.unpersist()
    return Sieved(found, claims & {*SUSPICIONS, ORDER}, count)


def cards(events: DataFrame, after_us: int | None) -> DataFrame:
    """One row for each message of a queue: numbers that tell what can be wrong with it.

    Args:
        events: The history.
        after_us: Of `tables.served_after`.
    """
    names = f"({_IS_SENT} or {_IS_DELIVERY}) and concat(publisher, '|', seq) <> msg_id"
    crc = F.when(F.expr(f"{_IS_SENT} or {_IS_DELIVERY}"), F.col("body_crc"))
    return (
        events.where(_IS_ABOUT_MESSAGES)
        .groupBy(*COPY)
        .agg(
            _count(_IS_SENT).alias("sent"),
            _count("op = 'confirm'").alias("confirms"),
            _count("op in ('confirm', 'nack')").alias("answers"),
            _count("op = 'return' or op = 'publish' and type = 'fail'").alias("refusals"),
            _count("op = 'unknown' and code in ('unanswered', 'timeout')").alias("given_up"),
            _count(_IS_DELIVERY).alias("deliveries"),
            _count(f"{_IS_DELIVERY} and not redelivered").alias("fresh"),
            _count("op = 'ack'").alias("acks"),
            F.max(F.when(F.expr(_IS_DELIVERY), F.col("ts_us"))).alias("delivered_us"),
            F.min(F.when(F.expr("op = 'ack'"), F.col("ts_us"))).alias("acked_us"),
            F.min(crc).alias("crc_low"),
            F.max(crc).alias("crc_high"),
            _count(names).alias("misnamed"),
            _count(_IS_STRAY).alias("strays"),
            F.count(F.when(F.expr(_IS_SENT) & (F.col("ts_us") >= F.lit(after_us)), 1)).alias(
                "late"
            ),
        )
    )


def bad_lines(events: DataFrame, ids: DataFrame) -> DataFrame:
    """Lines of deliveries, as `line`, in which a finding of `order` may be.

    A line is what one consumer got of one publisher first. The numbers of the publisher have to
    rise in it. Of messages that are not suspected each has one delivery at most, with the right
    publisher and number; of the others the line is made as `transforms.order` makes it.

    A line is named by a hash. Two that have the same one are looked at as one: if its numbers
    rise, theirs do.

    Args:
        events: The history.
        ids: `msg_id` of the suspects.
    """
    columns = ["queue", "consumer_tag", "publisher", "seq", "recorder", "event_no"]
    alone = events.where(f"{_IS_DELIVERY} and not redelivered").join(ids, "msg_id", "left_anti")
    theirs = events.join(ids, "msg_id", "left_semi")
    first = tables.deliveries(theirs).where("place = 1 and not redelivered")
    sent = tables.published(theirs).select(*COPY, "publisher", "seq")
    by_line = Window.partitionBy("line").orderBy("recorder", "event_no")
    return (
        alone.select(*columns)
        .unionByName(first.join(sent, COPY).select(*columns))
        .select(_line().alias("line"), "seq", "recorder", "event_no")
        .withColumn("before", F.lag(F.struct("seq", "recorder", "event_no")).over(by_line))
        .where("seq < before.seq or event_no = before.event_no and recorder = before.recorder")
        .select("line")
        .distinct()
    )


def _line() -> Column:
    return F.xxhash64("queue", "consumer_tag", "publisher")


def _of_lines(events: DataFrame, lines: DataFrame) -> DataFrame:
    """All messages that came in these lines."""
    came = events.where(_IS_DELIVERY).select("msg_id", _line().alias("line"))
    return came.join(F.broadcast(lines), "line", "left_semi").select("msg_id")


def _suspects(events: DataFrame, after_us: int | None) -> DataFrame:
    """msg_id and mask of what is suspected; one row more, with mask 0, for all others.

    Bit n of the mask is the n-th claim of `SUSPICIONS`; the highest one says that there are
    strays. `rest` of the row of the others is how many of them everybody wanted.
    """
    bits = [
        F.when(F.expr(f"({_ALL}) or ({claim})"), F.lit(1 << n)).otherwise(F.lit(0))
        for n, claim in enumerate(SUSPICIONS.values())
    ]
    bits.append(F.when(F.expr("strays > 0"), F.lit(1 << len(SUSPICIONS))).otherwise(F.lit(0)))
    mask = bits[0]
    for bit in bits[1:]:
        mask = mask.bitwiseOR(bit)
    return (
        cards(events, after_us)
        .withColumn("mask", mask)
        .withColumn("msg_id", F.when(F.col("mask") > 0, F.col("msg_id")))
        .groupBy("msg_id", "mask")
        .agg(F.sum(F.expr("if(mask = 0 and confirms > 0, late, 0)")).alias("rest"))
    )


def _claims(suspects: DataFrame) -> tuple[frozenset[str], int]:
    """Which claims suspect something, with "strays"; and how many of the rest were wanted."""
    row = suspects.agg(F.bit_or("mask"), F.sum("rest")).collect()[0]
    mask, rest = row[0] or 0, row[1] or 0
    names = (*SUSPICIONS, _STRAYS)
    return frozenset(name for n, name in enumerate(names) if mask >> n & 1), rest


def _strays(events: DataFrame) -> DataFrame:
    """The messages that strays name: by `msg_id`, and by `op_id`."""
    both = F.explode(F.array("msg_id", F.translate("op_id", "/", "|"))).alias("msg_id")
    return events.where(_IS_STRAY).select(both)


def _kept(events: DataFrame, ids: DataFrame) -> DataFrame:
    marked = events.join(ids.withColumn("is_suspect", F.lit(True)), "msg_id", "left")
    is_kept = f"not ({_IS_ABOUT_MESSAGES}) or is_suspect or ({_IS_STRAY})"
    return marked.where(is_kept).drop("is_suspect").repartition(2)


def _used(kept: DataFrame, summary: Sequence[Row]) -> DataFrame:
    nodes = sorted({row["node"] for row in summary if row["op"] in ("publish", "deliver")})
    names = F.array(*(F.lit(node) for node in nodes)).cast("array<string>")
    return kept.sparkSession.range(1).select(F.explode(names).alias("node"))


def _totals(
    kept: DataFrame, yes: DataFrame, summary: Sequence[Row], wanted: DataFrame, wanted_of_rest: int
) -> DataFrame:
    """The totals of the whole history.

    Of what is not kept each confirm is the only one of its operation, and that was not refused.
    """
    names = ("published", "nacked", "unknown", "delivered", "acked", "requeued", "redelivered")
    happened = {name: sum(row[name] for row in summary) for name in ("events", *names, "faults")}
    for name in ("leader_changes", "last_us"):
        happened[name] = max((row[name] for row in summary), default=0)
    confirms = sum(row["events"] for row in summary if row["op"] == "confirm")
    ours = kept.agg(_count("op = 'confirm'").alias("ours"))
    return (
        ours.crossJoin(yes.agg(F.count("*").alias("yes")))
        .crossJoin(wanted)
        .select(
            *(F.lit(count).alias(name) for name, count in happened.items()),
            (F.lit(confirms) - F.col("ours") + F.col("yes")).alias("confirmed"),
            (F.col("wanted") + wanted_of_rest).alias("wanted"),
        )
    )


def _confirms(events: DataFrame, windows: DataFrame) -> DataFrame:
    """Confirms in the seconds of faults, and the first and last of each other second."""
    second = F.expr(f"ts_us div {_SECOND_US}").alias("second")
    seconds = windows.select(
        F.explode(F.expr(f"sequence(start_us div {_SECOND_US}, end_us div {_SECOND_US})")).alias(
            "second"
        )
    ).distinct()
    is_fault = seconds.withColumn("is_fault", F.lit(True))
    at = (
        events.where("op = 'confirm'")
        .select("ts_us", second)
        .join(F.broadcast(is_fault), "second", "left")
    )
    near = at.where("is_fault").select(F.col("ts_us").alias("at_us"))
    far = (
        at.where("is_fault is null")
        .groupBy("second")
        .agg(F.min("ts_us").alias("low"), F.max("ts_us").alias("high"))
        .select(F.explode(F.array_distinct(F.array("low", "high"))).alias("at_us"))
    )
    return near.unionByName(far).coalesce(2)


def _count(claim: str) -> Column:
    return F.count(F.when(F.expr(claim), 1))
