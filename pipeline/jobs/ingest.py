"""A tap or stream into a lake, for ever: each message once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config, ConfigRefused
from pipeline.command.progress import Progress, Silent
from pipeline.command.tables import TableSpec
from pipeline.jobs import quality_tables, queries
from pipeline.jobs.writing import Writer
from pipeline.lake.reading import read
from pipeline.lake.table import Table
from pipeline.report import document

MESSAGES: Final = "messages"
_PARTITION: Final = ("date", "stream")
_SHOWN: Final = 30


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Read until stopped, or with `once` what there is now.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        ConfigRefused: A table has a type or condition that Spark does not know.
        LakeBroken: The lake and the checkpoint are not of each other.
    """
    lake = Path(config.text("lake"))
    checkpoint = lake / "_checkpoints" / config.name
    writer = Writer(spark, config, lake, checkpoint)
    frame = with_dates(queries.source(spark, config), config.text("date_of"))
    check_tables(spark, config.tables, frame)
    watched = queries.run(
        frame,
        checkpoint,
        config,
        progress or Silent(),
        lambda batch, number: writer.write(batch, number, MESSAGES, _PARTITION),
    )
    return _report(spark, config, lake, writer, watched)


def with_dates(frame: Any, date_of: str) -> Any:
    """With `ingested`, when a row was read, and `date`, the folder it goes to.

    Args:
        frame: Columns of the connector.
        date_of: "arrival", or "message" for its property `timestamp` where it has one.
    """
    moment = F.col("ingested")
    if date_of == "message":
        moment = F.coalesce(F.col("timestamp"), moment)
    return frame.withColumn("ingested", F.current_timestamp()).withColumn("date", F.to_date(moment))


def check_tables(spark: Any, tables: Sequence[TableSpec], frame: Any) -> None:
    """Let Spark look at types and conditions before anything is read.

    Raises:
        ConfigRefused: It does not know one; it tells of all tables.
    """
    problems: list[str] = []
    for table in tables:
        try:
            empty = spark.createDataFrame([], frame.schema)
            for part in quality_tables.split(empty, table):
                assert part.columns
        except Exception as error:  # noqa: BLE001  Spark has many kinds
            problems.append(f"table '{table.name}': {str(error).splitlines()[0]}")
    if problems:
        raise ConfigRefused(problems)


def _report(
    spark: Any, config: Config, lake: Path, writer: Writer, watched: queries.Watched
) -> document.Report:
    manifest = Table(lake / MESSAGES).manifest()
    folders: dict[str, int] = {}
    for file in manifest.files:
        folders[file.folder] = folders.get(file.folder, 0) + file.rows
    facts: dict[str, document.Cell] = {
        "rows read": watched.rows,
        "batches": watched.batches,
        "messages in the lake": manifest.rows,
        "files": len(manifest.files),
        "bytes": sum(file.size for file in manifest.files),
        "files joined": writer.joined,
    }
    charts: list[document.Bars | document.Lines] = [
        document.Bars("Messages in the lake", "rows by date and stream", list(folders.items()))
    ]
    if len(watched.rates) > 1:
        charts.append(document.Lines("Speed", "rows/s", {"rows/s": watched.rates}))
    return document.Report(
        config.name,
        f"{queries.source_name(config)} to {lake / MESSAGES}",
        facts,
        charts=charts,
        tables=[_rejections(spark, lake, table, writer) for table in config.tables],
    )


def _rejections(spark: Any, lake: Path, table: TableSpec, writer: Writer) -> document.Table:
    rows: list[tuple[document.Cell, ...]] = [
        ("accepted", writer.added.get(table.name, 0), Table(lake / table.name).manifest().rows)
    ]
    rejected = Table(lake / table.rejected).manifest().rows
    rows.append(("rejected", writer.added.get(table.rejected, 0), rejected))
    if rejected:
        reasons = (
            read(spark, lake / table.rejected)
            .select(F.explode("reasons").alias("reason"))
            .groupBy("reason")
            .count()
            .orderBy(F.desc("count"), "reason")
            .limit(_SHOWN)
        )
        rows += [(f"rejected: {row['reason']}", None, row["count"]) for row in reasons.collect()]
    return document.Table(f"Table {table.name}", ("rows", "this time", "in all"), rows)
