"""Why messages die, which, since when: a tap of a dead-letter queue into a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config
from pipeline.command.progress import Progress, Silent
from pipeline.jobs import queries
from pipeline.jobs.deaths import with_deaths
from pipeline.jobs.ingest import with_dates
from pipeline.jobs.writing import Writer
from pipeline.lake.reading import read
from pipeline.lake.table import Table
from pipeline.report import document

TABLE: Final = "dead_letters"
DEFAULT_EXCHANGE: Final = "(AMQP default)"
"""As RabbitMQ's management page calls the exchange without a name."""

_SHOWN: Final = 50
_REASONS: Final = 6
_HOUR_S: Final = 3600


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Read dead letters until stopped, or with `once` what there is now, and count them.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        LakeBroken: The lake and the checkpoint are not of each other.
    """
    lake = Path(config.text("lake"))
    checkpoint = lake / "_checkpoints" / config.name
    writer = Writer(spark, config, lake, checkpoint)
    frame = with_deaths(with_dates(queries.source(spark, config), "arrival"))
    watched = queries.run(
        frame,
        checkpoint,
        config,
        progress or Silent(),
        lambda batch, number: writer.write(batch, number, TABLE, ("date",)),
    )
    return _report(spark, config, lake, watched)


def _report(spark: Any, config: Config, lake: Path, watched: queries.Watched) -> document.Report:
    title = f"{queries.source_name(config)} to {lake / TABLE}"
    facts: dict[str, document.Cell] = {"read now": watched.rows}
    if not Table(lake / TABLE).manifest().files:
        return document.Report(config.name, title, facts | {"dead letters": 0})
    dead = read(spark, lake / TABLE).cache()
    causes = _causes(dead)
    sources = _sources(dead)
    hours = _hours(dead)
    dead.unpersist()
    facts["dead letters"] = sum(row["messages"] for row in causes)
    facts["deaths"] = sum(row["deaths"] for row in causes)
    return document.Report(
        config.name,
        title,
        facts,
        notes=how_to_send_back(lake, [(row["queue"], row["reason"]) for row in causes]),
        charts=[
            document.Bars(
                "Why they died",
                "messages by queue and reason",
                [
                    (f"{row['queue'] or '?'}: {row['reason'] or '?'}", row["messages"])
                    for row in causes
                ],
            ),
            *hours,
        ],
        tables=[
            document.Table(
                "By queue and reason",
                ("queue", "reason", "messages", "deaths", "first", "last"),
                [tuple(_cell(value) for value in row) for row in causes[:_SHOWN]],
                len(causes),
            ),
            document.Table(
                "By what they were published to",
                ("exchange", "routing key", "messages"),
                [
                    (DEFAULT_EXCHANGE if row[0] == "" else row[0], row[1], row[2])
                    for row in sources[:_SHOWN]
                ],
                len(sources),
            ),
        ],
    )


def _causes(dead: Any) -> list[Any]:
    found = (
        dead.groupBy("queue", "reason")
        .agg(
            F.count("*").alias("messages"),
            F.sum("deaths").alias("deaths"),
            F.min("first_seen").alias("first"),
            F.max("last_seen").alias("last"),
        )
        .orderBy(F.desc("messages"), "queue", "reason")
    )
    return list(found.collect())


def _sources(dead: Any) -> list[Any]:
    found = dead.groupBy("death_exchange", "death_key").count().orderBy(F.desc("count"))
    return list(found.limit(1000).collect())


def how_to_send_back(lake: Path, causes: Sequence[tuple[str | None, str | None]]) -> list[str]:
    """The command for what died most, a line; none if nothing has died.

    Args:
        lake: Folder of the lake.
        causes: Queue and reason, what died most first; None of what never died.
    """
    for queue, reason in causes:
        if queue is not None and reason is not None:
            where = f"queue = {_quoted(queue)} and reason = {_quoted(reason)}"
            command = ["warrenmq", "pipeline", "redrive", "--lake", str(lake), "--where", where]
            return [f"to see what can be sent back (--yes sends it): {shlex.join(command)}"]
    return []


def _quoted(text: str) -> str:
    """A string of Spark's SQL."""
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    return f"'{escaped}'"


def _hours(dead: Any) -> list[document.Lines]:
    rows = (
        dead.where("first_seen is not null")
        .groupBy(
            F.coalesce("reason", F.lit("?")).alias("reason"),
            F.date_trunc("hour", "first_seen").alias("hour"),
        )
        .count()
        .select("reason", F.col("hour").cast("long").alias("at_s"), "count")
        .collect()
    )
    counts = [(row["reason"], row["at_s"], row["count"]) for row in rows]
    return [by_hour(counts)] if counts else []


def by_hour(rows: Sequence[tuple[str, int, int]]) -> document.Lines:
    """Messages an hour, for each of the six reasons there are most of; 0 where there were none.

    Args:
        rows: Reason, when its hour begins in seconds since 1970, and messages; one at least.
    """
    found: dict[str, dict[int, int]] = {}
    for reason, at_s, count in rows:
        found.setdefault(reason, {})[at_s] = count
    hours = [at_s for _, at_s, _ in rows]
    begin_s = min(hours)
    most = sorted(found.items(), key=lambda each: -sum(each[1].values()))[:_REASONS]
    return document.Lines(
        "When they died first",
        f"messages an hour, from {datetime.fromtimestamp(begin_s, UTC):%Y-%m-%d %H:%M} UTC on",
        {
            reason: [
                (float(at_s - begin_s), float(counts.get(at_s, 0)))
                for at_s in range(begin_s, max(hours) + 1, _HOUR_S)
            ]
            for reason, counts in most
        },
    )


def _cell(value: Any) -> document.Cell:
    return value if value is None or isinstance(value, str | int) else f"{value:%Y-%m-%d %H:%M:%S}"
