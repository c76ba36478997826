"""A selection of messages, kept in the lake, and sent slice by slice.

A selection is written down before anything is sent. Each target has a streaming query over its
slices with a checkpoint beside them, so what was killed goes on where it was: to a stream of ours a
slice is a unit and comes once, elsewhere the slice that was being sent comes again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.configuration import Config, ConfigRefused
from pipeline.command.progress import Progress
from pipeline.jobs import targets
from pipeline.jobs.targets import Target
from pipeline.report import document

SENT: Final = "_sent"
DEDUPLICATION: Final = "x-deduplication-header"
MESSAGE: Final = (
    "body", "message_id", "correlation_id", "content_type", "delivery_mode", "priority",
    "timestamp", "headers",
)  # fmt: skip
"""What is sent of a message, beside its exchange and routing key."""

_NAME: Final = "selection.json"
_FINISHED: Final = "finished"
_SLICE_BYTES: Final = 2 << 20
_SLICE_S: Final = 2
"""With a rate, a slice is what goes in that time, and there is one each."""

_ROW_BYTES: Final = 200
_LOOK_S: Final = 0.5


@dataclass(frozen=True)
class Selection:
    """What is to be sent.

    Attributes:
        folder: Where it is kept.
        rows: By target.
    """

    folder: Path
    rows: Sequence[tuple[Target, int]]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(rows for _, rows in self.rows)


def counted(config: Config, frame: Any) -> list[tuple[Target, int]]:
    """Rows by target, most first.

    Args:
        config: Of the job.
        frame: Columns `to_exchange`, `to_key`.
    """
    rows = frame.groupBy("to_exchange", "to_key").count().orderBy(F.desc("count"), "to_key")
    found = rows.limit(targets.TARGETS_MAX + 1).collect()
    resolved = targets.resolved(config, [(row["to_exchange"], row["to_key"]) for row in found])
    return [(target, row["count"]) for target, row in zip(resolved, found, strict=True)]


def unfinished(lake: Path, what: str) -> Selection | None:
    """The selection of the same that an earlier run has written down and not sent whole.

    Args:
        lake: Folder of the lake.
        what: What is selected, in words.
    """
    for path in sorted((lake.absolute() / SENT).glob(f"*/{_NAME}")):
        found = json.loads(path.read_text("utf-8"))
        if found["what"] == what and not (path.parent / _FINISHED).exists():
            rows = [(Target(**row["target"]), row["rows"]) for row in found["rows"]]
            return Selection(path.parent, rows)
    return None


def earlier(lake: Path, job: str) -> list[str]:
    """Folders with the messages that runs of a job have selected.

    Args:
        lake: Folder of the lake.
        job: Its name.
    """
    found = (lake.absolute() / SENT).glob(f"{job}-*/{_NAME}")
    return [str(path.parent / "slices") for path in sorted(found)]


def keep(lake: Path, what: str, config: Config, frame: Any) -> Selection:
    """Write a selection down, whole or not at all.

    Args:
        lake: Folder of the lake.
        what: What it selects, in words.
        config: Of the job: `rate`.
        frame: Columns `stream`, `offset`, `to_exchange`, `to_key` and `MESSAGE`.

    Raises:
        ConfigRefused: There is nothing, or there are too many targets.
    """
    rows = counted(config, frame)
    if not rows:
        raise ConfigRefused(["nothing is selected"])
    number = F.coalesce(*(_is(target, at) for at, (target, _) in enumerate(rows)))
    order = Window.partitionBy("target").orderBy("stream", "offset")
    size = F.length("body") + _ROW_BYTES
    # Both grow with the row, so their sum changes when one of them does.
    part = F.floor((F.sum(size).over(order) - size) / _SLICE_BYTES)
    if config.number("rate"):
        per_slice = config.number("rate") * _SLICE_S
        part = part + F.floor((F.row_number().over(order) - 1) / per_slice)
    slices = (
        frame.withColumn("target", number)
        .withColumn("slice", part)
        .repartition(1)
        .sortWithinPartitions("target", "slice", "stream", "offset")
    )
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    folder = lake.absolute() / SENT / f"{config.job.name}-{moment}"
    slices.write.partitionBy("target", "slice").parquet(str(folder / "slices"))
    stored = slices.sparkSession.read.parquet(str(folder / "slices"))
    written = {row["target"]: row["count"] for row in stored.groupBy("target").count().collect()}
    selection = Selection(folder, [(target, written[at]) for at, (target, _) in enumerate(rows)])
    text = json.dumps(
        {
            "what": what,
            "rows": [{"target": vars(target), "rows": count} for target, count in selection.rows],
        }
    )
    partial = folder / f"{_NAME}.partial"
    partial.write_text(text, "utf-8")
    partial.replace(folder / _NAME)
    return selection


def _is(target: Target, number: int) -> Any:
    is_key = F.col("to_key").eqNullSafe(F.lit(target.key).cast("string"))
    return F.when((F.col("to_exchange") == target.exchange) & is_key, F.lit(number))


def send(
    spark: Any, config: Config, selection: Selection, progress: Progress
) -> tuple[list[int], list[str]]:
    """Send what has not been sent of a selection, one target after the other.

    Args:
        spark: The session.
        config: Of the job.
        selection: It.
        progress: Shows how far it is.

    Returns:
        Rows that are sent of each target, those of earlier runs included; and what went wrong.
    """
    sent: list[int] = []
    wrong: list[str] = []
    for number, (target, rows) in enumerate(selection.rows):
        checkpoint = selection.folder / f"checkpoint-{number}"
        done = checkpoint / "done"
        if not done.exists() and not progress.is_stopped:
            try:
                if _sent(spark, config, selection, number, progress, sum(sent)):
                    done.touch()
            except Exception as error:  # noqa: BLE001  the other targets may be served
                wrong.append(f"{target.name}: {_reason(error)}")
        is_done = done.exists()
        sent.append(rows if is_done else 0)
        if not is_done and progress.is_stopped:
            wrong.append(f"{target.name}: stopped; the same command goes on")
    if not wrong:
        (selection.folder / _FINISHED).touch()
    return sent, wrong


def _sent(
    spark: Any, config: Config, selection: Selection, number: int, progress: Progress, before: int
) -> bool:
    target = selection.rows[number][0]
    folder = str(selection.folder / "slices" / f"target={number}")
    schema = spark.read.parquet(folder).schema
    frame = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(folder)
        .drop("slice", "to_exchange", "target")
        .coalesce(1)
    )
    frame = _columns(frame, target)
    checkpoint = selection.folder / f"checkpoint-{number}"
    # A slice is a file, and a batch: with a rate, one each interval.
    slices = len(list(Path(folder).rglob("*.parquet")))
    is_paced = config.number("rate") > 0
    trigger = {"processingTime": f"{_SLICE_S} seconds"} if is_paced else {"availableNow": True}
    query = (
        frame.writeStream.format("amqp-stream")
        .options(**config.connector(), **target.options())
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )
    rows = 0
    seen = -1
    try:
        while not query.awaitTermination(_LOOK_S):
            for batch in query.recentProgress:
                if batch["batchId"] > seen:
                    seen = batch["batchId"]
                    rows += batch["numInputRows"]
            progress.show(f"{before + rows:,} of {selection.total:,} rows sent")
            if is_paced and _sent_slices(checkpoint) >= slices:
                break
            if progress.is_stopped:
                return False
    finally:
        query.stop()
    return True


def _sent_slices(checkpoint: Path) -> int:
    """How many slices are in the batches that Spark has done.

    A batch has two slices if a run was stopped between Spark's two notes of it: the slice that it
    chose, and the batch's offset. So batches may be fewer than slices.
    """
    found = (path.name for path in (checkpoint / "commits").glob("*"))
    last = max((int(name) for name in found if name.isdigit()), default=None)
    if last is None:
        return 0
    *_, offset = (checkpoint / "offsets" / str(last)).read_text("utf-8").splitlines()
    return int(json.loads(offset)["logOffset"]) + 1


def _columns(frame: Any, target: Target) -> Any:
    """The columns that the sink takes; elsewhere than in streams a header tells doubles."""
    if target.is_stream:
        return frame.select(*MESSAGE)
    origin = F.concat_ws("/", "stream", F.col("offset").cast("string"))
    own = F.coalesce("headers", F.create_map().cast("map<string,string>"))
    marked = F.when(F.map_contains_key(own, F.lit(DEDUPLICATION)), own).otherwise(
        F.map_concat(own, F.create_map(F.lit(DEDUPLICATION), origin))
    )
    named = [name for name in MESSAGE if name != "headers"]
    if target.exchange and target.key is None:
        named.append("routing_key")
    return frame.select(*named, marked.alias("headers"))


def _reason(error: Exception) -> str:
    text = str(error)
    ours = [line for line in text.splitlines() if line.strip().startswith("pipeline.")]
    return ours[-1].partition(": ")[2] if ours else next(iter(text.splitlines()), repr(error))


def report(
    spark: Any, config: Config, what: str, frame: Any, progress: Progress
) -> document.Report:
    """Show what would be sent; with `yes` send it.

    Args:
        spark: The session.
        config: Of the job.
        what: What is selected, in words.
        frame: Columns `stream`, `offset`, `to_exchange`, `to_key` and `MESSAGE`.
        progress: Shows how far it is.

    Raises:
        ConfigRefused: Nothing is selected, a queue is not there, or there are too many targets.
    """
    lake = Path(config.text("lake"))
    begun = unfinished(lake, what)
    if not config.flag("yes"):
        progress.show("looks, and sends nothing")
        rows = begun.rows if begun else counted(config, frame)
        note = "nothing was sent: --yes sends it"
        sent, wrong = [0] * len(rows), list[str]()
    else:
        progress.show("writes down what is selected")
        selection = begun or keep(lake, what, config, frame)
        rows, note = selection.rows, f"the selection is kept in {selection.folder}"
        sent, wrong = send(spark, config, selection, progress)
    notes = [note] + (["an earlier run was not finished: this goes on with it"] if begun else [])
    cells: list[tuple[document.Cell, ...]] = [
        (target.name, count, done, target.promise)
        for (target, count), done in zip(rows, sent, strict=True)
    ]
    return document.Report(
        config.name,
        what,
        {"selected": sum(count for _, count in rows), "sent": sum(sent), "targets": len(rows)},
        findings=wrong,
        notes=notes,
        charts=[document.Bars("Where to", "rows", [(t.name, count) for t, count in rows])],
        tables=[document.Table("Targets", ("target", "rows", "sent", "promise"), cells)],
    )
