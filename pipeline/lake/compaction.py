"""Small files become few, while the table is read and written."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline.lake.manifest import File, LakeBroken, small_files
from pipeline.lake.table import Table


class Compacted(NamedTuple):
    """What a compaction did.

    Attributes:
        joined: How many files went.
        made: How many came.
        removed: Files that nobody reads any more.
    """

    joined: int = 0
    made: int = 0
    removed: int = 0


def compact(
    spark: Any, table: Table, target_bytes: int, files_min: int, kept_s: float
) -> Compacted:
    """Join small files; if there were any, remove those that were joined long ago.

    Args:
        spark: The session.
        table: Of the lake.
        target_bytes: What a file should have.
        files_min: From how many small files of a folder on they are joined.
        kept_s: How long files stay that were joined; seconds.

    Raises:
        LakeBroken: Files have lost rows.
    """
    joined = made = 0
    for group in small_files(table.manifest(), target_bytes, files_min):
        done = _join(spark, table, group)
        if done:
            joined += len(group)
            made += done
    return Compacted(joined, made, table.sweep(kept_s) if joined else 0)


def _join(spark: Any, table: Table, group: list[File]) -> int:
    """Make one file of several; returns 0 if somebody else did."""
    paths = [file.path for file in group]
    # Files themselves, without the table's root: columns of folders are not in them.
    frame = spark.read.parquet(*(str(table.path / path) for path in paths)).drop(
        *_folders(group[0])
    )
    try:
        new = table.files_of(frame.coalesce(1), (), _prefix(group[0]))
    except Exception:
        if set(paths) <= {file.path for file in table.manifest().files}:
            raise
        return 0  # they were joined meanwhile, and are removed
    rows = sum(file.rows for file in group)
    found = sum(file.rows for file in new)
    if found != rows:
        raise LakeBroken(f"{table.path}: {len(group)} files have {found} rows, not {rows}")
    # Before the manifest: from now on `sweep` leaves them for readers that have the old one.
    table.touch(paths)
    return len(new) if table.change(lambda now: now.replaced(paths, new)) else 0


def _prefix(file: File) -> str:
    return f"{file.folder}/joined" if file.folder else "joined"


def _folders(file: File) -> list[str]:
    return [part.partition("=")[0] for part in file.folder.split("/") if "=" in part]
