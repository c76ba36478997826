"""The log: what is on disk and what is not yet, seen as one."""

from __future__ import annotations

from typing import Protocol

from raft.core.messages import Entry, SnapshotMeta, SnapshotPart


class LogReader(Protocol):
    """Read access to the log and snapshot that the host wrote, synced or not.

    Promises: answers follow every Ready up to the last `advance`. Entries are contiguous from
    first_index to last_index. After a snapshot at i was installed, first_index is i + 1.
    """

    def first_index(self) -> int:
        """Index of the oldest entry kept; 1 if nothing was ever compacted, even when empty."""
        ...

    def last_index(self) -> int:
        """Index of the newest entry; first_index - 1 if there is none."""
        ...

    def term(self, index: int) -> int:
        """Term of an entry in [first_index - 1, last_index]; of 0 it is 0.

        The term of first_index - 1 (the last compacted entry) is kept.
        """
        ...

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit in the limit, but at least one."""
        ...

    def snapshot(self) -> SnapshotMeta | None:
        """The newest durable snapshot."""
        ...

    def snapshot_part(self, index: int, part: int) -> SnapshotPart | None:
        """Part `part` (0-based) of the snapshot at `index`; None if it was replaced."""
        ...
