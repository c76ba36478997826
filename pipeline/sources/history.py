"""A run's history as a DataFrame, out of NDJSON or Parquet.

Parquet is made from the NDJSON when it is first asked for, beside it; a third of the bytes to
read for every audit after that. A long history is always read as Parquet, which is kept only if it
was asked for.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from pipeline import schemas
from pipeline.sources import conversion

NDJSON = "history.ndjson"
PARQUET = "history.parquet"
FORMATS = ("ndjson", "parquet")
LONG_BYTES = 128 << 20
"""Some 400,000 events: from here on the sieve saves more than it costs."""
_WITH_CORRUPT = StructType([*schemas.HISTORY.fields, StructField(schemas.CORRUPT, StringType())])


def read(spark: SparkSession, run: Path, file_format: str = "ndjson") -> DataFrame:
    """A run's events, with `_corrupt_record` null where a line could be read.

    Args:
        spark: The session.
        run: The run's directory.
        file_format: One of `FORMATS`.

    Returns:
        Columns of `schemas.HISTORY` and `_corrupt_record`, in no order.

    Raises:
        FileNotFoundError: The run has no history.
    """
    source = run / NDJSON
    if file_format == "ndjson":
        return read_ndjson(spark, source)
    return read_parquet(spark, source, run / PARQUET)


def is_long(run: Path) -> bool:
    """Whether a run's history is so long that what is done with each event counts."""
    source = run / NDJSON
    return source.is_file() and source.stat().st_size >= LONG_BYTES


def read_parquet(spark: SparkSession, source: Path, target: Path) -> DataFrame:
    """The lines of one file by way of Parquet.

    Args:
        spark: The session.
        source: The NDJSON.
        target: The folder of Parquet; made if it is not there or not complete.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if not (target / "_SUCCESS").exists():
        if not source.is_file():
            raise FileNotFoundError(f"no history in {source.parent}")
        if not conversion.convert(spark, source, target):
            read_ndjson(spark, source).write.mode("overwrite").parquet(str(target))
    return spark.read.schema(_WITH_CORRUPT).parquet(str(target))


def read_ndjson(spark: SparkSession, path: Path) -> DataFrame:
    """The lines of one file; what is no event is kept, with its text.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no history in {path.parent}")
    lines = spark.read.schema(_WITH_CORRUPT).json(str(path), mode="PERMISSIVE")
    filled = [
        _filled(field) if field.name not in schemas.REQUIRED else F.col(field.name)
        for field in schemas.HISTORY.fields
    ]
    # Cached: Spark refuses to look at the corrupt column of a file it has not parsed whole.
    return lines.cache().select(*filled, schemas.CORRUPT)


def _filled(field: StructField) -> Column:
    default: str | int | bool = 0
    if isinstance(field.dataType, StringType):
        default = ""
    elif isinstance(field.dataType, BooleanType):
        default = False
    return F.coalesce(F.col(field.name), F.lit(default)).alias(field.name)
