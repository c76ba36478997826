"""From publish to ack: how long messages take in each queue, and where one message went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config
from pipeline.command.progress import Progress, Silent
from pipeline.jobs import queries
from pipeline.jobs.ingest import MESSAGES
from pipeline.jobs.lifecycle import path
from pipeline.jobs.lifecycle.steps import lives, path_of, spans, steps
from pipeline.lake.reading import read
from pipeline.report import document

COLUMNS: Final = ("offset", "exchange", "routing_key", "headers")
_SHOWN: Final = 50
_SLOWEST: Final = 10
_POINTS: Final = 120
_US: Final = 1_000_000
_NAMES: Final = {
    "publish_route": "publish to route",
    "publish_deliver": "publish to deliver",
    "deliver_ack": "deliver to ack",
    "publish_ack": "publish to ack",
}


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Read a trace from its beginning, or from where it was asked to, to its end now.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        LakeBroken: There is no table of messages in the lake.
    """
    progress = progress or Silent()
    progress.show("reads the trace")
    found = steps(_copies(spark, config), config.text("id_of"))
    found = found.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = _counted(found)
        progress.show(f"{counted['copies']:,} copies")
        each = lives(found).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if config.text("out"):
                each.write.mode("overwrite").parquet(config.text("out"))
            one = path_of(found, config.text("message")) if config.text("message") else None
            return report(config, counted, each, one)
        finally:
            each.unpersist()
    finally:
        found.unpersist()


def _copies(spark: Any, config: Config) -> Any:
    lake = config.text("lake")
    if lake:
        return read(spark, Path(lake) / MESSAGES).select(*COLUMNS)
    return queries.batch(spark, config, columns=",".join(COLUMNS))


def _counted(found: Any) -> dict[str, int]:
    kind = F.col("kind")
    row = found.agg(
        F.count_distinct("place").alias("copies"),
        F.count_if(kind == "publish").alias("publishes"),
        F.count_if(kind == "deliver").alias("deliveries"),
        F.count_if(kind.isin(*path.SETTLED)).alias("settlements"),
        F.count_if((kind == "publish") & F.col("message").isNull()).alias("without_id"),
        F.count_if(F.col("at_us").isNull()).alias("without_time"),
        F.count_if(kind.isin(*path.SETTLED) & F.col("delivered_us").isNull()).alias("unmatched"),
    ).first()
    return dict(row.asDict())


def report(
    config: Config, counted: dict[str, int], each: Any, one: Sequence[path.Step] | None
) -> document.Report:
    """The report of a trace.

    Args:
        config: Of the job: `slow_ms`, `message`.
        counted: Copies of each kind.
        each: `lives`.
        one: The steps of the message that was asked for; None where none was.
    """
    measured = sorted(spans(each).collect(), key=lambda row: (row["queue"], _order(row["span"])))
    states = each.groupBy("queue", "state").count().orderBy(F.desc("count")).collect()
    by_state: dict[str, int] = {}
    for row in states:
        by_state[row["state"]] = by_state.get(row["state"], 0) + row["count"]
    low = min((row["low"] for row in measured), default=0.0)
    facts: dict[str, document.Cell] = {
        "copies": counted["copies"],
        "published": counted["publishes"],
        "delivered": counted["deliveries"],
        "acks, requeues and rejections": counted["settlements"],
        "messages without an id": counted["without_id"],
        **{f"in queues: {state}": count for state, count in sorted(by_state.items())},
    }
    whole = "publish_ack" if counted["settlements"] else "publish_deliver"
    tables = [_measured(measured), _outcomes(states), _slowest(each, whole)]
    notes = [*_notes(counted, low)]
    if one is not None:
        tables.insert(0, _path(config.text("message"), one))
        notes += [
            f"{config.text('message')} {f'in {queue}' if queue else 'to no queue'}: {state}"
            for queue, state in path.states(one).items()
        ]
    return document.Report(
        config.name,
        "from publish to ack",
        facts,
        findings=_findings(config, measured, one),
        notes=notes,
        charts=[
            document.Bars(
                f"{_NAMES[whole]}, 99th percentile",
                "ms",
                [(row["queue"], row["p99"]) for row in measured if row["span"] == whole],
            ),
            document.Lines("99th percentile over time", "ms", _over_time(each)),
        ],
        tables=tables,
    )


def _order(span: str) -> int:
    return list(_NAMES).index(span)


def _findings(
    config: Config, measured: Sequence[Any], one: Sequence[path.Step] | None
) -> list[str]:
    found = []
    if one is not None and not one:
        found.append(f"message '{config.text('message')}' is not in the trace")
    limit = config.number("slow_ms")
    found += [
        f"queue '{row['queue']}': {_NAMES[row['span']]} takes {row['p99']:.1f} ms (p99)"
        for row in measured
        if limit and row["span"] in ("publish_deliver", "publish_ack") and row["p99"] > limit
    ]
    return found


def _notes(counted: dict[str, int], low: float) -> list[str]:
    found = []
    if counted["copies"] and not counted["settlements"]:
        found.append("acknowledgements are not in the trace: warrenmq ctl trace_on --acks")
    if counted["without_time"]:
        found.append(f"{counted['without_time']:,} copies have no time: they are RabbitMQ's")
    if counted["without_id"]:
        found.append(
            "messages without an id can't be followed: id_of chooses what tells them apart"
        )
    if counted["unmatched"]:
        found.append(
            f"{counted['unmatched']:,} acknowledgements are of deliveries before the trace begins"
        )
    if low < 0:
        found.append(f"clocks of nodes disagree by {-low:.1f} ms at least")
    return found


def _measured(measured: Sequence[Any]) -> document.Table:
    columns = ("queue", "ms from", "messages", "p50", "p90", "p99", "max")
    return document.Table(
        "How long it takes",
        columns,
        [
            (
                row["queue"], _NAMES[row["span"]], row["messages"],
                row["p50"], row["p90"], row["p99"], row["max"],
            )
            for row in measured[:_SHOWN]
        ],
        len(measured),
    )  # fmt: skip


def _outcomes(states: Sequence[Any]) -> document.Table:
    rows = [(row["queue"] or "(no queue)", row["state"], row["count"]) for row in states]
    return document.Table(
        "What became of them", ("queue", "state", "messages"), rows[:_SHOWN], len(rows)
    )


def _slowest(each: Any, span: str) -> document.Table:
    rows = each.where(F.col(span).isNotNull()).orderBy(F.desc(span), "message").take(_SLOWEST)
    return document.Table(
        f"The slowest, {_NAMES[span]}",
        ("message", "queue", "ms", "published", "deliveries"),
        [
            (
                row["message"], row["queue"], row[span],
                path.time_of(row["published_us"]), row["deliveries"],
            )
            for row in rows
        ],
    )  # fmt: skip


def _path(message: str, one: Sequence[path.Step]) -> document.Table:
    rows: list[tuple[document.Cell, ...]] = list(path.lines(one))
    return document.Table(
        f"The path of {message}",
        ("time (UTC)", "ms", "what", "node", "by"),
        rows[:_SHOWN],
        len(rows),
    )


def _over_time(each: Any) -> dict[str, list[tuple[float, float]]]:
    """The 99th percentiles over all queues, of messages by when they were published."""
    ends = each.agg(F.min("published_us"), F.max("published_us")).first()
    if ends[0] is None:
        return {}
    step_us = max((ends[1] - ends[0]) // _POINTS, _US)
    at = F.floor((F.col("published_us") - ends[0]) / step_us)
    names = ("publish_deliver", "publish_ack")
    rows = (
        each.where("published_us is not null")
        .groupBy(at.alias("at"))
        .agg(*[F.percentile_approx(name, 0.99, 10_000).alias(name) for name in names])
        .orderBy("at")
        .collect()
    )
    return {
        _NAMES[name]: [
            (row["at"] * step_us / _US, row[name]) for row in rows if row[name] is not None
        ]
        for name in names
    }
