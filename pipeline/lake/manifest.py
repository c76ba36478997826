r"""The manifest of a table: which files belong to it, and which batches are in it.

The format is that of Spark's file sink, version 1, so that Spark reads it: a line `v1`, then a JSON
object for each file. Each manifest is a whole (in Spark's words a compacted one), named N.compact.
What Spark does not know, it skips:

    v1
    {"path": "file:///lake/messages/date=2026-11-26/a.parquet", "size": 4711, "isDir": false,
     "modificationTime": 1780000000000, "blockReplication": 1, "blockSize": 33554432,
     "action": "add", "file": "date=2026-11-26/a.parquet", "rows": 100,
     "commits": {"QUERY": {"batch": 7, "source": "tap queue/orders"}}}

`commits` is in the first line alone.
Source: Spark 4, org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

VERSION: Final = "v1"
FOLDER: Final = "_spark_metadata"
SUFFIX: Final = ".compact"
_BLOCK: Final = 32 << 20


class LakeBroken(Exception):
    """A table that can't be read or written as asked; the text says what to do."""


class File(NamedTuple):
    """A data file.

    Attributes:
        path: Below the table's folder.
        size: Bytes.
        rows: How many it has.
        modified_ms: When it was written.
    """

    path: str
    size: int
    rows: int
    modified_ms: int

    @property
    def folder(self) -> str:
        """Of its partition, "" without partitions."""
        return self.path.rpartition("/")[0]


class Commit(NamedTuple):
    """How far a query has written.

    Attributes:
        batch: Number of the last batch.
        source: What it reads.
    """

    batch: int
    source: str


@dataclass(frozen=True)
class Manifest:
    """All that belongs to a table.

    Attributes:
        number: Of this manifest; -1 before the first.
        files: In order.
        commits: By the id of the query.
    """

    number: int = -1
    files: Sequence[File] = ()
    commits: Mapping[str, Commit] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)

    def has(self, query: str, batch: int) -> bool:
        """Whether a batch is in the table.

        Args:
            query: The id of the query.
            batch: Its number.

        Raises:
            LakeBroken: A later one is: the query began again from an older checkpoint.
        """
        last = self.commits.get(query)
        if last is None:
            return False
        if last.batch > batch:
            raise LakeBroken(
                f"the table has batch {last.batch} of this query, and the checkpoint is at batch "
                f"{batch}: it is older than the table. Restore both, or begin with a new lake"
            )
        return last.batch == batch

    def check_source(self, query: str, source: str) -> None:
        """See that no other query has written the same messages.

        Args:
            query: The id of the one that is to write.
            source: What it reads.

        Raises:
            LakeBroken: Another one has.
        """
        for other, commit in self.commits.items():
            if other != query and commit.source == source:
                raise LakeBroken(
                    f"the table has messages of {source} from another checkpoint: they would be in "
                    "it twice. Go on with that checkpoint, or begin with a new lake"
                )

    def added(self, query: str, commit: Commit, files: Iterable[File]) -> Manifest:
        """With one batch more.

        Args:
            query: The id of the query.
            commit: The batch.
            files: Its files, new ones.
        """
        return replace(
            self,
            number=self.number + 1,
            files=[*self.files, *files],
            commits={**self.commits, query: commit},
        )

    def replaced(self, old: Iterable[str], new: Iterable[File]) -> Manifest | None:
        """With files that have the rows of others.

        Args:
            old: Paths of the files that go.
            new: The files that come.

        Returns:
            None if one of the old files is not there any more: somebody was faster.
        """
        gone = set(old)
        if not gone <= {file.path for file in self.files}:
            return None
        kept = [file for file in self.files if file.path not in gone]
        return replace(self, number=self.number + 1, files=[*kept, *new])


def encode(manifest: Manifest, root: str) -> str:
    """The text of a manifest.

    Args:
        manifest: It; one without files has no place for commits, and they are not kept.
        root: URI of the table's folder.
    """
    lines = [VERSION]
    for at, file in enumerate(manifest.files):
        entry: dict[str, Any] = {
            "path": f"{root.rstrip('/')}/{_quoted(file.path)}",
            "size": file.size,
            "isDir": False,
            "modificationTime": file.modified_ms,
            "blockReplication": 1,
            "blockSize": _BLOCK,
            "action": "add",
            "rows": file.rows,
            "file": file.path,
        }
        if not at:
            entry["commits"] = {
                query: commit._asdict() for query, commit in manifest.commits.items()
            }
        lines.append(json.dumps(entry))
    return "\n".join(lines) + "\n"


def decode(number: int, text: str) -> Manifest:
    """Read a manifest.

    Args:
        number: Of it.
        text: Of its file.

    Raises:
        LakeBroken: It is none of ours.
    """
    first, _, rest = text.partition("\n")
    if first != VERSION:
        raise LakeBroken(f"manifest {number} begins with '{first[:20]}', not with {VERSION}")
    files: list[File] = []
    commits: dict[str, Commit] = {}
    for line in filter(None, rest.split("\n")):
        try:
            entry = json.loads(line)
            files.append(
                File(entry["file"], entry["size"], entry["rows"], entry["modificationTime"])
            )
            for query, commit in entry.get("commits", {}).items():
                commits[query] = Commit(int(commit["batch"]), str(commit["source"]))
        except (ValueError, KeyError, TypeError):
            raise LakeBroken(
                f"manifest {number} was not written by this pipeline, or is damaged: {line[:80]}"
            ) from None
    return Manifest(number, files, commits)


def small_files(manifest: Manifest, target_bytes: int, files_min: int) -> list[list[File]]:
    """Groups of files that should be one, each of one folder.

    Args:
        manifest: Of the table.
        target_bytes: What a file should have at least; those that have it stay.
        files_min: How many small files a folder may not reach.
    """
    folders: dict[str, list[File]] = {}
    for file in manifest.files:
        if file.size < target_bytes:
            folders.setdefault(file.folder, []).append(file)
    groups: list[list[File]] = []
    for files in folders.values():
        if len(files) < max(files_min, 2):
            continue
        group: list[File] = []
        size = 0
        for file in files:
            group.append(file)
            size += file.size
            if size >= target_bytes:
                groups.append(group)
                group, size = [], 0
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _quoted(path: str) -> str:
    """A path as part of a URI: Spark's folders have %2F for a slash of a value."""
    return quote(path, safe="/=")
