"""Where a history's events are read from, twice: all of them, and later a few by their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.sources import conversion

PART_BYTES: Final = 16 << 20
"""What is parsed at once: memory of each thread is a few times this."""
BATCH_ROWS: Final = 65_536
"""Events of Parquet that are looked at once."""


class Part(NamedTuple):
    """A part of a history.

    Attributes:
        number: From 0; in the order of the events where the source has one.
        path: The file.
        begin: Its first byte, or its row group.
        end: The byte behind its last.
    """

    number: int
    path: Path
    begin: int
    end: int


class Source(Protocol):
    """A history's events."""

    def parts(self) -> list[Part]:
        """All parts, which threads may read beside each other."""
        ...

    def read(self, part: Part) -> Iterator[pa.Table]:
        """The events of a part, `conversion.SCHEMA`.

        Raises:
            NotAlike: Spark's parser has to look.
        """
        ...

    def pick(self, part: Part, rows: Sequence[int]) -> pa.Table:
        """Some events of a part.

        Args:
            part: The part.
            rows: Their places in it, rising.
        """
        ...


class Ndjson:
    """A file with a line for each event."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def parts(self) -> list[Part]:
        """Each has the lines that begin in it."""
        size = self._path.stat().st_size
        begins = range(0, size, PART_BYTES)
        return [
            Part(number, self._path, begin, min(begin + PART_BYTES, size))
            for number, begin in enumerate(begins)
        ]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """As `Source.read`."""
        for block in conversion.blocks(part.path, part.begin, part.end):
            yield conversion.table_of(block)

    def pick(self, part: Part, rows: Sequence[int]) -> pa.Table:
        """As `Source.pick`: the lines alone are parsed."""
        wanted: list[bytes] = []
        seen = 0
        for block in conversion.blocks(part.path, part.begin, part.end):
            count = conversion.lines_of(block)
            here = [row - seen for row in rows if seen <= row < seen + count]
            seen += count
            wanted.extend(_lines(block, here))
        return conversion.table_of(b"".join(wanted))


class Parquet:
    """A folder of Parquet files, columns of `schemas.HISTORY`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def parts(self) -> list[Part]:
        """Each is a row group."""
        groups = [
            (path, group)
            for path in sorted(self._folder.glob("*.parquet"))
            for group in range(pq.read_metadata(path).num_row_groups)
        ]
        return [Part(number, path, group, group) for number, (path, group) in enumerate(groups)]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """As `Source.read`; defaults for what is null, or not there."""
        with pq.ParquetFile(part.path) as file:
            for batch in file.iter_batches(BATCH_ROWS, [part.begin], use_threads=False):
                yield conversion.filled(pa.Table.from_batches([batch]))

    def pick(self, part: Part, rows: Sequence[int]) -> pa.Table:
        """As `Source.pick`."""
        found = []
        seen = 0
        for table in self.read(part):
            here = [row - seen for row in rows if seen <= row < seen + len(table)]
            seen += len(table)
            found.append(table.take(pa.array(here, pa.int64())))
        return pa.concat_tables(found)


def _lines(block: bytes, rows: Sequence[int]) -> Iterator[bytes]:
    """Some lines of a block, each with its end: few of many, so no other is copied."""
    begin = row = 0
    find = block.find
    for wanted in rows:
        for _ in range(wanted - row):
            begin = find(b"\n", begin) + 1
        end = find(b"\n", begin) + 1
        yield block[begin:end]
        begin, row = end, wanted + 1
