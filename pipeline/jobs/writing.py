"""Batches of a query into tables of a lake, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pipeline.command.configuration import Config
from pipeline.jobs import quality_tables, queries
from pipeline.lake.compaction import compact
from pipeline.lake.manifest import Commit
from pipeline.lake.table import Table

_MIB: Final = 1 << 20


class Writer:
    """Writes each batch to all tables.

    Args:
        spark: The session.
        config: Of the job.
        lake: Folder of the tables.
        checkpoint: Folder of the query.

    Attributes:
        added: Rows by table.
        joined: Files that were joined.
    """

    def __init__(self, spark: Any, config: Config, lake: Path, checkpoint: Path) -> None:
        self._spark = spark
        self._config = config
        self._lake = lake
        self._checkpoint = checkpoint
        self.added: dict[str, int] = {}
        self.joined = 0

    def write(self, frame: Any, number: int, name: str, partition: tuple[str, ...]) -> None:
        """Write a batch, and the tables that are made of it; again, if Spark gives it again.

        Args:
            frame: The rows.
            number: Of the batch.
            name: Of the table that has all rows.
            partition: Columns that its folders are named after.

        Raises:
            LakeBroken: The checkpoint is older than the lake, or is another one.
        """
        commit = Commit(number, queries.source_name(self._config))
        query = queries.query_id(self._checkpoint)
        tables = self._config.tables
        if tables:
            frame = frame.persist()
        try:
            self._add(name, frame, partition, query, commit)
            for table in tables:
                good, rejected = quality_tables.split(frame, table)
                self._add(table.name, good, tuple(table.partition), query, commit)
                self._add(table.rejected, rejected, ("date",), query, commit)
        finally:
            if tables:
                frame.unpersist()
        self._compact()

    def _add(
        self, name: str, frame: Any, partition: tuple[str, ...], query: str, commit: Commit
    ) -> None:
        rows = Table(self._lake / name).write(frame, partition, query, commit)
        self.added[name] = self.added.get(name, 0) + (rows or 0)

    def _compact(self) -> None:
        if not self._config.number("compact_files"):
            return
        for name in self.added:
            done = compact(
                self._spark,
                Table(self._lake / name),
                self._config.number("file_mib") * _MIB,
                self._config.number("compact_files"),
                self._config.number("keep_s"),
            )
            self.joined += done.joined
