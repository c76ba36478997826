"""A table as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pipeline.lake.manifest import LakeBroken
from pipeline.lake.table import Table

_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"


def read(spark: Any, path: Path) -> Any:
    """All rows of a table, each once, as they are now.

    Columns of folders are text, but for `date`: a stream named 007 stays that.

    Args:
        spark: The session.
        path: The table's folder.

    Raises:
        LakeBroken: There is no table.
    """
    if not Table(path).manifest().files:
        raise LakeBroken(f"there is no table in {path}, or it is empty")
    before = spark.conf.get(_INFERENCE)
    spark.conf.set(_INFERENCE, "false")
    try:
        frame = spark.read.parquet(str(path.absolute()))
    finally:
        spark.conf.set(_INFERENCE, before)
    if "date" not in frame.columns:
        return frame
    return frame.withColumn("date", frame["date"].cast("date"))
