"""A streaming query that is watched until it ends, or is asked to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline.command.configuration import Config
from pipeline.command.progress import Progress

SOURCE: Final = "amqp-stream"
_LOOK_S: Final = 1.0
_RATES_MAX: Final = 4000
_GRACE_S: Final = 60.0


@dataclass
class Watched:
    """What a query did while it was watched.

    Attributes:
        rows: It read.
        batches: It had, without empty ones.
        rates: Seconds since it began, and rows a second, of each batch.
    """

    rows: int = 0
    batches: int = 0
    rates: list[tuple[float, float]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def see(self, progress: list[dict[str, Any]], now_s: float) -> None:
        """Count the batches that are new.

        Args:
            progress: Spark's, of the last batches.
            now_s: Seconds since the query began.
        """
        for batch in progress:
            rows = batch["numInputRows"]
            if batch["batchId"] in self.seen or not rows:
                continue
            self.seen.add(batch["batchId"])
            self.rows += rows
            self.batches += 1
            self.rates.append((now_s, batch["processedRowsPerSecond"]))
        if len(self.rates) > _RATES_MAX:
            self.rates = self.rates[::2]
        if len(self.seen) > 1000:  # noqa: PLR2004  Spark tells of the last hundred
            self.seen = set(sorted(self.seen)[-200:])


def source(spark: Any, config: Config, **more: str) -> Any:
    """The stream, super stream or tap that a job reads, for ever.

    Args:
        spark: The session.
        config: Of the job.
        more: Options of the connector.
    """
    return spark.readStream.format(SOURCE).options(**_options(config), **more).load()


def batch(spark: Any, config: Config, **more: str) -> Any:
    """As `source`, what is there now.

    Args:
        spark: The session.
        config: Of the job.
        more: Options of the connector.
    """
    return spark.read.format(SOURCE).options(**_options(config), **more).load()


def _options(config: Config) -> dict[str, str]:
    names = {
        "tap": "tap", "stream": "stream", "super_stream": "superStream",
        "starting_offsets": "startingOffsets", "max_rows": "maxRowsPerTrigger",
        "consumer_name": "consumerName",
    }  # fmt: skip
    given = {names[n]: str(v) for n, v in config.values.items() if n in names and v not in ("", 0)}
    if config.values.get("data_loss") == "go-on":
        given["failOnDataLoss"] = "false"
    return config.connector() | given


def source_name(config: Config) -> str:
    """What a job reads, in words: "tap queue/orders"."""
    kind = next(n for n in ("tap", "stream", "super_stream") if config.text(n))
    return f"{kind.replace('_', ' ')} {config.text(kind)}"


def query_id(checkpoint: Path) -> str:
    """The id that Spark gave the query when its checkpoint was made."""
    return str(json.loads((checkpoint / "metadata").read_text("utf-8"))["id"])


def run(
    frame: Any,
    checkpoint: Path,
    config: Config,
    progress: Progress,
    each: Callable[[Any, int], None],
) -> Watched:
    """Give each batch to a function, until the query ends or is asked to.

    Args:
        frame: What is read.
        checkpoint: Folder of the query.
        config: Of the job: `once` and `every_s`.
        progress: Shows how far it is.
        each: Takes a batch and its number; the same batch again after a failure.
    """
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    if config.flag("once"):
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{max(config.number('every_s'), 1)} seconds")
    query = writer.start()
    watched = Watched()
    began_s = time.monotonic()
    try:
        while not query.awaitTermination(_LOOK_S):
            now_s = time.monotonic() - began_s
            watched.see(query.recentProgress, now_s)
            rate = watched.rates[-1][1] if watched.rates else 0.0
            progress.show(
                f"{watched.rows:,} rows in {watched.batches:,} batches, {rate:,.0f} rows/s"
            )
            if progress.is_stopped:
                break
        _end(query)
        watched.see(query.recentProgress, time.monotonic() - began_s)
    finally:
        query.stop()
    return watched


def _end(query: Any) -> None:
    """Let a batch that is running end."""
    deadline_s = time.monotonic() + _GRACE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        query.awaitTermination(_LOOK_S)
