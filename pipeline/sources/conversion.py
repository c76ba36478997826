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
_BETWEEN: Final = b"}\n{"
_LINE_FEED: Final = pa.scalar(ord("\n"), pa.uint8())
_MANY: Final = ("msg_id", "op_id")
"""Texts that are all different: a dictionary of them would be given up after work for nothing."""
_TYPES: Final = {
    StringType: (pa.string(), ""),
    LongType: (pa.int64(), 0),
    IntegerType: (pa.int32(), 0),
    BooleanType: (pa.bool_(), False),
}
SCHEMA: Final = pa.schema(
    [(field.name, _TYPES[type(field.dataType)][0]) for field in schemas.HISTORY.fields]
)
"""`schemas.HISTORY`, for Arrow."""


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
    dictionary = [name for name in SCHEMA.names if name not in _MANY]
    try:
        with pq.ParquetWriter(part.target, SCHEMA, use_dictionary=dictionary) as writer:
            for block in blocks(Path(part.source), part.begin, part.end):
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
    count = _look(block)
    try:
        read = pyarrow.json.read_json(
            io.BytesIO(block),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise NotAlike(str(error)) from None
    if read.num_rows != count:
        raise NotAlike("lines and objects are not as many")
    for name in schemas.REQUIRED:
        if read.column(name).null_count:
            raise NotAlike(f"{name} is missing")
    return filled(read)


def filled(events: pa.Table) -> pa.Table:
    """The columns of `SCHEMA`, with defaults for what is null or not there.

    Args:
        events: Columns of a history, not all of them, and others.
    """
    columns = []
    for field in schemas.HISTORY.fields:
        type_, default = _TYPES[type(field.dataType)]
        if field.name not in events.column_names:
            column = pa.chunked_array([pa.nulls(len(events), type_)])
        else:
            column = events.column(field.name)
        columns.append(pc.fill_null(column, default) if column.null_count else column)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def lines_of(block: bytes) -> int:
    """How many lines there are.

    Args:
        block: Lines that `table_of` takes. So three bytes are counted, thrice as fast as one.
    """
    return block.count(_BETWEEN) + 1


def _look(block: bytes) -> int:
    """Each line is one object: it begins and ends with a brace. Returns how many there are.

    With as many objects as lines no object goes over several lines: behind the brace that ends
    its first line a brace follows, and that is no JSON.
    """
    count = lines_of(block)
    is_whole = block.startswith(b"{") and block.endswith(b"}\n")
    if not is_whole or _line_feeds(block) != count:
        raise NotAlike("a line is no object")
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            raise NotAlike("no UTF-8") from None
    return count


def _line_feeds(block: bytes) -> int:
    """How many there are: `bytes.count` of one byte takes twice as long, with Python's lock."""
    found = pa.Array.from_buffers(pa.uint8(), len(block), [None, pa.py_buffer(block)])
    count: int = pc.sum(pc.equal(found, _LINE_FEED)).as_py()
    return count


def blocks(source: Path, begin: int, end: int) -> Iterator[bytes]:
    """The lines that begin in a part of a file, some MiB at a time, the last one with an end.

    Args:
        source: The file.
        begin: The part's first byte.
        end: The byte behind its last.
    """
    with source.open("rb") as file:
        at = begin
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < end:
            block = file.read(min(BLOCK_BYTES, end - at))
            block += b"" if block.endswith(b"\n") else file.readline()
            at += len(block)
            yield block if block.endswith(b"\n") else block + b"\n"
