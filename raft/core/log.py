"""The log: what is on disk and what is not yet, seen as one.

Invariants: base <= applied <= applying <= commit <= last. A committed entry is never truncated.
`applying` is what was handed out to be applied, `applied` what the host has reported applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raft.core.messages import Entry, Snapshot, SnapshotMeta, SnapshotPart
from raft.core.unstable import Unstable, size_bytes


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


class RaftLog:
    """One replica's log. Truncation and commit rules live here, who may call them does not."""

    __slots__ = (
        "applied",
        "applying",
        "base_index",
        "base_term",
        "commit",
        "last_index",
        "reader",
        "snapshot",
        "unstable",
    )

    def __init__(self, reader: LogReader, unstable: Unstable, *, applied: int, commit: int) -> None:
        self.reader = reader
        self.unstable = unstable
        self.last_index = unstable.last_index
        self.base_index = reader.first_index() - 1
        self.base_term = reader.term(self.base_index)
        self.applied = self.applying = max(applied, self.base_index)
        self.commit = max(self.applied, min(commit, self.last_index))
        self.snapshot: Snapshot | None = None  # received, not handed out yet

    @property
    def last_term(self) -> int:
        """Term of the newest entry."""
        term = self.term(self.last_index)
        assert term is not None, "the last entry's term is always known"
        return term

    def term(self, index: int) -> int | None:
        """Term of an entry; None if it was compacted or does not exist."""
        unstable = self.unstable
        if index >= unstable.offset:
            position = index - unstable.offset
            return unstable.entries[position].term if index <= self.last_index else None
        if index == self.base_index:
            return self.base_term
        if index < self.base_index:
            return None
        return self.reader.term(index)

    def matches(self, index: int, term: int) -> bool:
        """True if the log holds an entry of that term there."""
        return self.term(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """True if a candidate's log is at least as good as this one (Raft 5.4.1)."""
        own = self.last_term
        return last_term > own or (last_term == own and last_index >= self.last_index)

    def slice(self, low: int, high: int, count_max: int, size_bytes_max: int) -> list[Entry]:
        """Some entries from `low` on, before `high`: at least one if there is any.

        May end early, also where memory and disk meet; the caller asks again.
        """
        unstable = self.unstable
        high = min(high, low + count_max)
        if low < unstable.offset:
            return self.reader.entries(low, min(high, unstable.offset), size_bytes_max)
        entries = unstable.entries[low - unstable.offset : high - unstable.offset]
        total = 0
        for count, entry in enumerate(entries):
            total += size_bytes(entry)
            if total > size_bytes_max and count:
                return entries[:count]
        return entries

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries after the last one."""
        self.unstable.append(entries)
        self.last_index += len(entries)

    def first_conflict(self, entries: Sequence[Entry]) -> int:
        """Position of the first entry that is not in the log; len(entries) if all are."""
        for position, entry in enumerate(entries):
            if entry.index > self.last_index or self.term(entry.index) != entry.term:
                return position
        return len(entries)

    def truncate(self, index: int) -> None:
        """Remove `index` and everything after it."""
        assert index > self.commit, f"truncation at {index} would remove commit {self.commit}"
        self.unstable.truncate(index)
        self.last_index = self.unstable.last_index

    def conflict_by_term(self, index: int, term: int) -> tuple[int, int]:
        """The last place at or before `index` whose term is not above `term`, and its term.

        Lets leader and follower skip a whole term per refused append (Raft 5.3, end).
        """
        index = min(index, self.last_index)
        while index > self.base_index:
            here = self.term(index)
            if here is None or here <= term:
                return index, here or 0
            index -= 1
        return index, self.term(index) or 0

    def commit_to(self, index: int) -> bool:
        """Raise the commit index; true if it moved. It never falls."""
        if index <= self.commit:
            return False
        assert index <= self.last_index, f"commit {index} beyond the last entry {self.last_index}"
        self.commit = index
        return True

    def take_committed(self, size_bytes_max: int) -> list[Entry]:
        """Hand out entries to apply."""
        if self.applying >= self.commit:
            return []
        entries = self.slice(self.applying + 1, self.commit + 1, 1 << 30, size_bytes_max)
        self.applying = entries[-1].index
        return entries

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a snapshot."""
        meta = snapshot.meta
        assert meta.index > self.commit, "a snapshot never takes back what is committed"
        self.snapshot = snapshot
        self.unstable.restart(meta.index)
        self.last_index = self.base_index = self.commit = self.applying = meta.index
        self.base_term = meta.term

    def compact(self, index: int) -> None:
        """Forget the log up to `index`, which is applied and in a durable snapshot."""
        assert index <= self.applied, f"compaction to {index} beyond applied {self.applied}"
        if index <= self.base_index:
            return
        term = self.term(index)
        assert term is not None, "the term at the compaction point is known"
        self.base_index, self.base_term = index, term
        self.unstable.compacted(index)
