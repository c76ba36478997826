"""Small files of a lake become few, while others read and write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pipeline.command.configuration import Config
from pipeline.command.progress import Progress, Silent
from pipeline.lake.compaction import compact
from pipeline.lake.manifest import FOLDER, LakeBroken
from pipeline.lake.table import Table
from pipeline.report import document

_MIB: Final = 1 << 20


def run(spark: Any, config: Config, progress: Progress | None = None) -> document.Report:
    """Join small files of all tables, once.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.

    Raises:
        LakeBroken: There is no table, or one can't be read.
    """
    lake = Path(config.text("lake"))
    tables = sorted(found.parent for found in lake.glob(f"*/{FOLDER}"))
    if not tables:
        raise LakeBroken(f"there is no table in {lake}")
    rows: list[tuple[document.Cell, ...]] = []
    for path in tables:
        (progress or Silent()).show(f"table {path.name}")
        table = Table(path)
        before = len(table.manifest().files)
        done = compact(
            spark,
            table,
            config.number("file_mib") * _MIB,
            config.number("compact_files"),
            config.number("keep_s"),
        )
        removed = done.removed + table.sweep(config.number("keep_s"))
        after = table.manifest()
        rows.append((path.name, before, len(after.files), after.rows, removed))
    return document.Report(
        config.name,
        f"small files of {lake}",
        {"tables": len(rows)},
        tables=[
            document.Table("Tables", ("table", "files before", "files", "rows", "removed"), rows)
        ],
    )
