"""A query that copies a stream through a shuffle, in a process of its own: tasks fail at random.

Run by `test_spark_kills` as a module with one argument, JSON that has
the connector's options (`given`), the two streams, the folder of the checkpoint and the seed. It
prints the number of each batch that has ended. A task that fails leaves a file in `failures`.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.types import BinaryType

from pipeline import session

FAILING = 300
"""One row of so many makes the first attempt of its task fail."""

ROWS = 200
"""Of a batch."""


def failing(seed: int, failures: str) -> Callable[[bytes], bytes]:
    """Hand bodies on; the first attempt of a task fails at a row that the seed has chosen."""

    def hand_on(body: bytes) -> bytes:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and zlib.crc32(body, seed) % FAILING == 0:
            batch = task.getLocalProperty("streaming.sql.batchId")
            Path(failures, f"{batch}-{task.partitionId()}").touch()
            raise RuntimeError(f"a task fails at row {body!r}")
        return body

    return hand_on


def main(text: str) -> None:
    """Run the query until it has copied what there is."""
    wanted = json.loads(text)
    given = wanted["given"]
    # Four attempts of each task; without this a local master gives one.
    spark = session.open("local[2,4]", name="writing")
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.format("amqp-stream")
        .options(**given, stream=wanted["from"], columns="body", maxRowsPerTrigger=ROWS)
        .load()
        .repartition(3)
    )
    hand_on = F.udf(failing(wanted["seed"], wanted["failures"]), BinaryType())
    query = (
        rows.select(hand_on("body").alias("body"))
        .writeStream.format("amqp-stream")
        .options(**given, stream=wanted["to"])
        .option("checkpointLocation", wanted["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    shown = -1
    while not query.awaitTermination(0.2):
        for progress in query.recentProgress:
            if progress["batchId"] > shown:
                shown = progress["batchId"]
                print(f"batch {shown}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
