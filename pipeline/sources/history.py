"""A run's history as a DataFrame, out of NDJSON or Parquet.

Parquet is made from the NDJSON when it is first asked for, beside it; a third of the bytes to
read for every audit after that.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from pipeline import schemas

NDJSON = "history.ndjson"
PARQUET = "history.parquet"
FORMATS = ("ndjson", "parquet")


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
    target = run / PARQUET
    if not (target / "_SUCCESS").exists():
        read_ndjson(spark, source).write.mode("overwrite").parquet(str(target))
    return spark.read.parquet(str(target))


def read_ndjson(spark: SparkSession, path: Path) -> DataFrame:
    """The lines of one file; what is no event is kept, with its text.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no history in {path.parent}")
    schema = StructType([*schemas.HISTORY.fields, StructField(schemas.CORRUPT, StringType())])
    lines = spark.read.schema(schema).json(str(path), mode="PERMISSIVE")
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
