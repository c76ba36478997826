"""Rows of numbers on the disk, all rows of a message in one bucket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from pipeline.sieving import compact

COUNT: Final = 16
"""Of ten million events each bucket has some 30 MB."""


class Buckets:
    """Files of rows, written by several threads, then read."""

    def __init__(self, folder: Path) -> None:
        """Begin empty files.

        Args:
            folder: Where; it is there.
        """
        self._paths = [folder / f"{number:02}.arrow" for number in range(COUNT)]
        self._locks = [threading.Lock() for _ in self._paths]
        self._stack = ExitStack()
        self._writers = [
            self._stack.enter_context(pa.ipc.new_stream(self._opened(path), compact.ROWS))
            for path in self._paths
        ]

    def add(self, rows: pa.Table) -> None:
        """Write rows, `compact.ROWS`."""
        number = pc.bit_wise_and(rows.column("key"), COUNT - 1)
        for each, writer in enumerate(self._writers):
            ours = rows.filter(pc.equal(number, each)).combine_chunks()
            with self._locks[each]:
                writer.write_table(ours)

    def close(self) -> None:
        """End the files; nothing can be added."""
        self._stack.close()

    def __iter__(self) -> Iterator[Path]:
        """The files."""
        return iter(self._paths)

    def _opened(self, path: Path) -> pa.NativeFile:
        return self._stack.enter_context(pa.OSFile(str(path), "wb"))


def rows_of(path: Path) -> pa.Table:
    """The rows of one bucket."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()
