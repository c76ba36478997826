"""Which queues are hot, which ones grow, and when they reach their limits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config
from pipeline.command.progress import Progress, Silent
from pipeline.jobs import http_api
from pipeline.jobs.flow_samples import SCHEMA, Sample, sample
from pipeline.report.document import Bars, Report, Table

TABLE: Final = "queue_samples"
_SHOWN: Final = 20
_LOOK_S: Final = 0.5
_US: Final = 1_000_000
_QUEUE: Final = ("vhost", "queue")


def run(spark: Any, config: Config, progress: Progress | None = None) -> Report:
    """Sample the queues of the broker's vhost, and tell how they flow.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        WireError: The HTTP API does not answer.
    """
    rows = _sampled(config, progress or Silent())
    frame = spark.createDataFrame(rows, SCHEMA)
    lake = config.text("lake")
    if lake:
        table = str(Path(lake) / TABLE)
        frame.write.mode("append").parquet(table)
        since = datetime.now(UTC) - timedelta(hours=config.number("hours_back"))
        kept = spark.read.schema(SCHEMA).parquet(table)
        frame = kept.where(F.col("sampled_us") >= int(since.timestamp()) * _US)
    return report(config.name, flows(frame), config.number("full_in_h"))


def flows(samples: DataFrame) -> DataFrame:
    """One row for each queue.

    Columns: vhost, queue, samples, seconds from the first to the last, messages and consumers
    in the last; in_rate and out_rate, messages a second, null where the broker counts none;
    growth, messages a second by least squares; hours to the nearer limit, null if the queue has
    none or does not grow towards it, 0 if it is there.

    A counter that is lower than before began anew, with its node.

    Args:
        samples: Columns of `SCHEMA`, in any order.
    """
    by_time = Window.partitionBy(*_QUEUE).orderBy("sampled_us")
    seconds = F.col("sampled_us") / _US
    steps = samples
    for name in ("published", "delivered"):
        before = F.lag(name).over(by_time)
        step = F.when(F.col(name) >= before, F.col(name) - before).otherwise(F.col(name))
        steps = steps.withColumn(f"{name}_step", F.when(before.isNotNull(), step))
    last = [
        F.max_by(name, "sampled_us").alias(name)
        for name in ("messages", "bytes", "consumers", "messages_max", "bytes_max")
    ]
    found = steps.groupBy(*_QUEUE).agg(
        *last,
        F.count("*").alias("samples"),
        (F.max(seconds) - F.min(seconds)).alias("seconds"),
        F.sum("published_step").alias("came"),
        F.sum("delivered_step").alias("went"),
        F.regr_slope("messages", seconds).alias("growth"),
        F.regr_slope("bytes", seconds).alias("bytes_growth"),
    )
    hours = F.least(
        _hours("messages", "growth", "messages_max"), _hours("bytes", "bytes_growth", "bytes_max")
    )
    return found.select(
        *_QUEUE, "samples", "seconds", "messages", "consumers",
        F.try_divide("came", "seconds").alias("in_rate"),
        F.try_divide("went", "seconds").alias("out_rate"),
        "growth", hours.alias("hours"),
    )  # fmt: skip


def report(name: str, found: DataFrame, full_in_h: int) -> Report:
    """The report of `flows`.

    Args:
        name: Of the run.
        found: One row for each queue.
        full_in_h: A queue that reaches its limit within so many hours is a finding.
    """
    found = found.cache()
    try:
        count = found.count()
        heat = F.coalesce("in_rate", F.lit(0.0)) + F.coalesce("out_rate", F.lit(0.0))
        hot = found.withColumn("heat", heat).orderBy(F.desc("heat"), *_QUEUE).take(_SHOWN)
        grown = found.where("growth > 0").orderBy(F.desc("growth"), *_QUEUE).take(_SHOWN)
        limited = found.where("hours is not null").orderBy("hours", *_QUEUE).take(_SHOWN)
        full = found.where(F.col("hours") <= full_in_h).orderBy("hours", *_QUEUE).collect()
        idle = found.where("messages > 0 and consumers = 0").count()
    finally:
        found.unpersist()
    return Report(
        name=name,
        title="which queues are hot, grow, and fill up",
        facts={"queues": count, "with messages and no consumer": idle},
        findings=[
            f"queue '{row['queue']}' reaches its limit in {row['hours']:.1f} h" for row in full
        ],
        charts=[
            Bars("the hottest queues, in and out", "messages/s", _bars(hot, "heat")),
            Bars("the queues that grow", "messages/s", _bars(grown, "growth")),
        ],
        tables=[
            Table(
                "the hottest queues",
                ("queue", "in/s", "out/s", "messages", "consumers"),
                [
                    (r["queue"], r["in_rate"], r["out_rate"], r["messages"], r["consumers"])
                    for r in hot
                ],
                count,
            ),
            Table(
                "hours to the limit",
                ("queue", "messages", "growth/s", "hours"),
                [(r["queue"], r["messages"], r["growth"], r["hours"]) for r in limited],
            ),
        ],
    )


def _hours(has: str, growth: str, limit: str) -> Any:
    left = F.col(limit) - F.col(has)
    grows = F.when(F.col(growth) > 0, left / F.col(growth) / 3600)
    return F.when(left <= 0, F.lit(0.0)).otherwise(grows)


def _bars(rows: Sequence[Any], column: str) -> list[tuple[str, float]]:
    return [(row["queue"], row[column]) for row in rows if row[column] > 0]


def _sampled(config: Config, progress: Progress) -> list[Sample]:
    http, vhost = http_api.opened(config)
    wanted, every_s = config.number("samples"), config.number("every_s")
    rows: list[Sample] = []
    due_s = time.monotonic()
    try:
        for number in range(1, wanted + 1):
            queues = http.ask("GET", f"/queues/{quote(vhost, safe='')}")
            now_us = time.time_ns() // 1000
            rows += [sample(queue, now_us) for queue in queues]
            progress.show(f"{number} of {wanted} samples, {len(queues)} queues")
            due_s += every_s
            while number < wanted and time.monotonic() < due_s and not progress.is_stopped:
                time.sleep(min(_LOOK_S, max(0.0, due_s - time.monotonic())))
            if progress.is_stopped:
                break
    finally:
        http.close()
    return rows
