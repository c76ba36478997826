"""Dead letters back to where they were published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config, ConfigRefused
from pipeline.command.progress import Progress, Silent
from pipeline.jobs import sending
from pipeline.jobs.dead_letters import TABLE
from pipeline.jobs.deaths import without_deaths
from pipeline.jobs.selecting import selected
from pipeline.lake.reading import read
from pipeline.report import document


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Send a selection of the table of dead letters back, or show what it is.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        ConfigRefused: The condition is none, nothing meets it, or a queue is not there.
        LakeBroken: There is no table of dead letters.
    """
    lake = Path(config.text("lake"))
    dead = selected(read(spark, lake / TABLE), config.text("where"))
    dead = dead.where("death_exchange is not null and death_key is not null")
    if not config.flag("again"):
        for folder in sending.earlier(lake, config.job.name):
            sent = spark.read.parquet(folder).select("stream", "offset")
            dead = dead.join(sent, ["stream", "offset"], "left_anti")
    if not dead.take(1) and sending.unfinished(lake, _what(config)) is None:
        raise ConfigRefused(
            ["nothing is selected: no dead letter meets the condition, or all that do were sent "
             "back before (again = true sends them again)"]
        )  # fmt: skip
    frame = dead.select(
        "stream",
        "offset",
        F.col("death_exchange").alias("to_exchange"),
        F.col("death_key").alias("to_key"),
        *(name for name in sending.MESSAGE if name != "headers"),
        without_deaths(F.col("headers")).alias("headers"),
    )
    return sending.report(spark, config, _what(config), frame, progress or Silent())


def _what(config: Config) -> str:
    again = ", again" if config.flag("again") else ""
    return f"dead letters where {config.text('where')}{again}"
