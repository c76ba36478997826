"""Questions about streams: every offset once, the same at every node, and nothing twice.

Pure functions of the tables, as `pipeline.transforms`. A stream keeps what is read, so
acknowledgements say nothing; at the end the whole of it is read through every node.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.tables import COPY, Tables
from pipeline.transforms import findings, undrained


def questions(tables: Tables) -> list[DataFrame]:
    """All of them."""
    return [lost(tables), hole(tables), stored_twice(tables), differs(tables)]


def lost(tables: Tables) -> DataFrame:
    """Confirmed, and not read through one of the nodes at the end."""
    drained = tables.events.where("op = 'drain' and type = 'ok'").select("node").distinct()
    kept = tables.published.join(tables.confirmed, "op_id").select(*COPY)
    read = tables.deliveries.where("op = 'get'").select(*COPY, "node")
    gone = kept.crossJoin(drained).join(read, [*COPY, "node"], "left_anti")
    is_drained = undrained(tables).agg((F.count("*") == 0).alias("is_drained"))
    return findings(gone.crossJoin(is_drained).where("is_drained"), "lost", F.col("msg_id"))


def hole(tables: Tables) -> DataFrame:
    """A consumer's offset is not the one before plus one; or a whole reading begins behind 0."""
    reader = Window.partitionBy("queue", "consumer_tag").orderBy("recorder", "event_no")
    first = F.when(F.col("op") == "get", F.lit(0)).otherwise(F.col("stream_offset"))
    jumps = tables.deliveries.withColumn(
        "expected", F.coalesce(F.lag("stream_offset").over(reader) + 1, first)
    ).where("stream_offset <> expected")
    return findings(jumps, "hole", F.col("consumer_tag"))


def stored_twice(tables: Tables) -> DataFrame:
    """A message at several offsets."""
    offsets = tables.deliveries.groupBy(*COPY).agg(
        F.countDistinct("stream_offset").alias("offsets")
    )
    return findings(offsets.where("offsets > 1"), "stored-twice", F.col("msg_id"))


def differs(tables: Tables) -> DataFrame:
    """Several messages at an offset."""
    messages = tables.deliveries.groupBy("queue", "stream_offset").agg(
        F.countDistinct("msg_id", "body_crc").alias("messages")
    )
    return findings(
        messages.where("messages > 1"), "differs", F.col("stream_offset").cast("string")
    )
