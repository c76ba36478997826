"""Messages of a lake into an exchange, a queue or a stream."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config, ConfigRefused
from pipeline.command.progress import Progress, Silent
from pipeline.jobs import sending
from pipeline.jobs.ingest import MESSAGES
from pipeline.jobs.selecting import selected
from pipeline.lake.reading import read
from pipeline.report import document


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Send the messages of a time and condition, or show what they are.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        ConfigRefused: A time or the condition is none, or nothing meets them.
        LakeBroken: There is no table of messages.
    """
    bounds = [_moment(config, name) for name in ("begin", "end")]
    frame = read(spark, Path(config.text("lake")) / MESSAGES)
    begin, end = bounds
    if begin:
        frame = frame.where(_time(config) >= F.lit(begin))
    if end:
        frame = frame.where(_time(config) < F.lit(end))
    frame = selected(frame, config.text("where"))
    exchange = config.text("to_exchange")
    key = config.text("routing_key") or None if exchange else _queue(config)
    frame = frame.withColumn("to_exchange", F.lit(exchange)).withColumn(
        "to_key", F.lit(key).cast("string")
    )
    frame = frame.select(
        "stream", "offset", "to_exchange", "to_key", "routing_key", *sending.MESSAGE
    )
    return sending.report(spark, config, _what(config), frame, progress or Silent())


def _moment(config: Config, name: str) -> datetime | None:
    """A time of the configuration; without a zone it is UTC."""
    text = config.text(name)
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigRefused(
            [f"{name}: '{text}' is no time; 2026-11-24 or 2026-11-24T18:00:00Z"]
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_by_message(config: Config) -> bool:
    return config.text("time_of") == "message"


def _time(config: Config) -> Any:
    if _is_by_message(config):
        return F.coalesce("timestamp", "ingested")
    return F.col("ingested")


def _queue(config: Config) -> str:
    return config.text("to_queue") or config.text("to_stream")


def _what(config: Config) -> str:
    parts = [
        f"{name} {config.text(name)}" for name in ("begin", "end", "where") if config.text(name)
    ]
    named = ("to_exchange", "routing_key", "to_queue", "to_stream")
    to = [f"{name.replace('_', ' ')} {config.text(name)}" for name in named if config.text(name)]
    by = " by message" if _is_by_message(config) else ""
    return f"messages{by} {', '.join([*parts, *to])}"
