"""A table in a folder that all of Spark's processes reach by the same path."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pipeline.lake.manifest import (
    FOLDER,
    SUFFIX,
    Commit,
    File,
    LakeBroken,
    Manifest,
    decode,
    encode,
)

MANIFESTS_KEPT: Final = 20
_STAGING: Final = "_staging"
_NUMBER: Final = re.compile(r"(\d+)" + re.escape(SUFFIX))
_ATTEMPTS: Final = 200


class Table:
    """A table.

    Args:
        path: Its folder; made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._manifests = self.path / FOLDER

    def manifest(self) -> Manifest:
        """The newest one; an empty one if there is none.

        Raises:
            LakeBroken: It can't be read.
        """
        for _ in range(_ATTEMPTS):
            number = max(self._numbers(), default=-1)
            if number < 0:
                return Manifest()
            try:
                text = (self._manifests / f"{number}{SUFFIX}").read_text("utf-8")
            except FileNotFoundError:
                continue  # it was pruned: there are newer ones
            return decode(number, text)
        raise LakeBroken(f"{self.path}: manifests come and go faster than they are read")

    def write(
        self, frame: Any, partition: tuple[str, ...], query: str, commit: Commit
    ) -> int | None:
        """Add a batch of a query, unless it is there.

        Args:
            frame: The rows, a DataFrame.
            partition: Columns that folders are named after.
            query: The id of the query.
            commit: The batch.

        Returns:
            How many rows were added; None if the batch was there already.

        Raises:
            LakeBroken: The checkpoint is older than the table.
        """
        manifest = self.manifest()
        if manifest.has(query, commit.batch):
            return None
        manifest.check_source(query, commit.source)
        files = self.files_of(frame, partition, f"{query[:8]}-{commit.batch}")
        if files:
            self.change(
                lambda now: (
                    None if now.has(query, commit.batch) else now.added(query, commit, files)
                )
            )
        return sum(file.rows for file in files)

    def files_of(self, frame: Any, partition: tuple[str, ...], prefix: str) -> list[File]:
        """Write rows to files of the table that no manifest names yet.

        Args:
            frame: The rows, a DataFrame.
            partition: Columns that folders are named after.
            prefix: Of the files' names.
        """
        staging = self.path / _STAGING / uuid.uuid4().hex
        try:
            frame.write.partitionBy(*partition).parquet(str(staging))
            return [self._moved(staging, found, prefix) for found in sorted(_data(staging))]
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def change(self, change: Callable[[Manifest], Manifest | None]) -> bool:
        """Replace the manifest, whoever else does so at the same time.

        Args:
            change: From the newest manifest to the next; None to leave it. It may be called again.

        Returns:
            Whether it was replaced.

        Raises:
            LakeBroken: Others were faster 200 times.
        """
        self._manifests.mkdir(parents=True, exist_ok=True)
        partial = self._manifests / f".{uuid.uuid4().hex}.partial"
        try:
            for _ in range(_ATTEMPTS):
                wanted = change(self.manifest())
                if wanted is None:
                    return False
                _write_durably(partial, encode(wanted, self.path.as_uri()))
                try:
                    # Fails if the name is taken, where a rename would replace what another wrote.
                    os.link(partial, self._manifests / f"{wanted.number}{SUFFIX}")
                except FileExistsError:
                    continue
                if max(self._numbers(), default=-1) >= wanted.number + MANIFESTS_KEPT:
                    # The name may have been free because it was pruned: nobody would read it.
                    (self._manifests / f"{wanted.number}{SUFFIX}").unlink(missing_ok=True)
                    continue
                _sync(self._manifests)
                self._prune(wanted.number)
                return True
        finally:
            partial.unlink(missing_ok=True)
        raise LakeBroken(f"{self.path}: too many writers at once")

    def sweep(self, kept_s: float) -> int:
        """Remove files that no manifest has named for some time.

        Args:
            kept_s: How long they stay, for readers that began before; seconds.

        Returns:
            How many were removed.
        """
        named = {file.path for file in self.manifest().files}
        removed = 0
        for found in _data(self.path):
            is_old = _age_s(found) > kept_s
            if found.relative_to(self.path).as_posix() not in named and is_old:
                found.unlink(missing_ok=True)
                removed += 1
        for staging in (self.path / _STAGING).glob("*"):
            if _age_s(staging) > kept_s:
                shutil.rmtree(staging, ignore_errors=True)
        return removed

    def touch(self, paths: list[str]) -> None:
        """Let files that go be as old as now, so that `sweep` counts from here.

        Args:
            paths: Below the table's folder.
        """
        for path in paths:
            (self.path / path).touch()

    def _moved(self, staging: Path, found: Path, prefix: str) -> File:
        import pyarrow.parquet as pq  # noqa: PLC0415  the rest needs none of it

        folder = found.parent.relative_to(staging).as_posix()
        name = f"{prefix}-{uuid.uuid4().hex[:12]}.parquet"
        path = name if folder == "." else f"{folder}/{name}"
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        rows = pq.read_metadata(found).num_rows
        with found.open("rb") as file:
            os.fsync(file.fileno())
        found.rename(target)
        _sync(target.parent)
        status = target.stat()
        return File(path, status.st_size, rows, status.st_mtime_ns // 1_000_000)

    def _numbers(self) -> Iterator[int]:
        if self._manifests.is_dir():
            for name in os.listdir(self._manifests):  # noqa: PTH208  names alone
                match = _NUMBER.fullmatch(name)
                if match:
                    yield int(match[1])

    def _prune(self, newest: int) -> None:
        for number in list(self._numbers()):
            if number <= newest - MANIFESTS_KEPT:
                (self._manifests / f"{number}{SUFFIX}").unlink(missing_ok=True)


def _data(folder: Path) -> Iterator[Path]:
    """Data files below a folder, without those of hidden folders."""
    for found in folder.rglob("*.parquet"):
        parts = found.relative_to(folder).parts
        if not any(part.startswith(("_", ".")) for part in parts):
            yield found


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime  # noqa: TID251  of files, which have the clock's
    except FileNotFoundError:
        return 0.0


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
