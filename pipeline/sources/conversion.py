"""A history's NDJSON as Parquet, by Arrow in Spark's Python workers: Spark's parser costs thrice.

Only what both parsers read alike is taken: one whole object on each line, each column of its type,
required ones there. A file in which anything else is found is left to Spark's parser, which keeps
what is no event, for `quality.check` to show.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType

from pipeline import schemas

PART_BYTES: Final = 128 << 20
"""What one task converts, and one file has."""
BLOCK_BYTES: Final = 16 << 20
"""What is parsed at once: memory of a worker is a few times this."""
_MANY: Final = ("msg_id", "op_id")
"""Texts that are all different: a dictionary of them would be given up after work for nothing."""
_TYPES: Final = {
    StringType: (pa.string(), ""),
    LongType: (pa.int64(), 0),
    IntegerType: (pa.int32(), 0),
    BooleanType: (pa.bool_(), False),
}
_SCHEMA: Final = pa.schema(
    [(field.name, _TYPES[type(field.dataType)][0]) for field in schemas.HISTORY.fields]
)


class NotAlike(Exception):
    """A part of the file that the two parsers might read in different ways."""


class Part(NamedTuple):
    """A part of a file: the lines that begin in it.

    Attributes:
        source: The file.
        begin: Its first byte.
        end: The byte behind its last.
        target: The Parquet file that is made of it.
    """

    source: str
    begin: int
    end: int
    target: str


def convert(spark: SparkSession, source: Path, target: Path) -> bool:
    """Make a folder of Parquet files of a history.

    Args:
        spark: The session; its workers must see both paths.
        source: The NDJSON.
        target: The folder; what is there goes.

    Returns:
        Whether it was done. If not, there is no folder, and Spark's parser has to look.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    size = source.stat().st_size
    parts = [
        Part(str(source), begin, min(begin + PART_BYTES, size), str(target / f"{n:05}.parquet"))
        for n, begin in enumerate(range(0, size, PART_BYTES))
    ]
    done = spark.sparkContext.parallelize(parts, max(1, len(parts))).map(converted).collect()
    if all(done):
        (target / "_SUCCESS").touch()
        return True
    shutil.rmtree(target)
    return False


def converted(part: Part) -> bool:
    """Convert one part; false if the parsers might differ about it."""
    dictionary = [name for name in _SCHEMA.names if name not in _MANY]
    try:
        with pq.ParquetWriter(part.target, _SCHEMA, use_dictionary=dictionary) as writer:
            for block in _blocks(part):
                writer.write_table(table_of(block))
    except NotAlike:
        return False
    pa.default_memory_pool().release_unused()
    return True


def table_of(block: bytes) -> pa.Table:
    """The rows of whole lines, with defaults for what they leave out.

    Args:
        block: Lines, each with its end.

    Raises:
        NotAlike: Spark's parser might read something else.
    """
    _look(block)
    try:
        read = pyarrow.json.read_json(
            io.BytesIO(block),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise NotAlike(str(error)) from None
    if read.num_rows != block.count(b"\n"):
        raise NotAlike("lines and objects are not as many")
    columns = []
    for field in schemas.HISTORY.fields:
        column = read.column(field.name)
        if field.name in schemas.REQUIRED and column.null_count:
            raise NotAlike(f"{field.name} is missing")
        default = _TYPES[type(field.dataType)][1]
        columns.append(pc.fill_null(column, default) if column.null_count else column)
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _look(block: bytes) -> None:
    """Each line is one object: it begins and ends with a brace.

    With as many objects as lines no object goes over several lines: behind the brace that ends
    its first line a brace follows, and that is no JSON.
    """
    lines = block.count(b"\n")
    begins = block.count(b"\n{") + block.startswith(b"{")
    if begins != lines or block.count(b"}\n") != lines:
        raise NotAlike("a line is no object")
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            raise NotAlike("no UTF-8") from None


def _blocks(part: Part) -> Iterator[bytes]:
    """The lines that begin in a part, some MiB at a time, the last one with an end."""
    with Path(part.source).open("rb") as file:
        at = part.begin
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.end:
            block = file.read(min(BLOCK_BYTES, part.end - at))
            block += b"" if block.endswith(b"\n") else file.readline()
            at += len(block)
            yield block if block.endswith(b"\n") else block + b"\n"
