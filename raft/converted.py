"""The log of a group whose entries were records, and are files since: an `EntryLog` of both.

The change of form copies nothing. The entries that were there stay records of the journal, and
those behind them go into segments, whose first base is the last of the records:

    raft_log        entries up to X
    log/7/...       entries behind X

Invariants:

1. Both together are contiguous, as each is: the records end where the first segment begins, or
   there are none any more.
2. Records only go: from the beginning where the log is cut, from the end where a truncation comes
   so far. Then a new first segment begins there, in the same batch.

So a crash finds either form whole: the journal's record of the first segment, written in one batch
with the checkpoint that was a snapshot, is the change (`LogStore.open`).
"""

from __future__ import annotations

from raft.core.messages import Entry
from raft.entry_log import EntriesRead, KeyedEntries, LogSegment
from raft.errors import LogCorrupt
from raft.log_keys import Base
from raft.segments.entries import SegmentedEntries


class ConvertedEntries:
    """Entries in records, and behind them in files.

    Args:
        group: The group's id.
        keyed: The records.
        files: The files.
    """

    def __init__(self, group: int, keyed: KeyedEntries, files: SegmentedEntries) -> None:
        self._group = group
        self._keyed = keyed
        self._files = files

    @property
    def _has_records(self) -> bool:
        return self._keyed.last > self._keyed.base.index

    @property
    def log_bytes(self) -> int:
        """Size of the entries since it was last set to 0."""
        return self._keyed.log_bytes + self._files.log_bytes

    @log_bytes.setter
    def log_bytes(self, size_bytes: int) -> None:
        self._keyed.log_bytes, self._files.log_bytes = 0, size_bytes

    @property
    def base(self) -> Base:
        """The last entry before the first one kept."""
        return self._keyed.base if self._has_records else self._files.base

    @property
    def last(self) -> int:
        """Index of the newest entry; the base's if there is none."""
        return self._files.last

    def _log_of(self, index: int) -> KeyedEntries | SegmentedEntries:
        is_record = self._has_records and index <= self._keyed.last
        return self._keyed if is_record else self._files

    def term(self, index: int) -> int:
        """Term of an entry, or of the base."""
        return self._log_of(index).term(index)

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one; of one of the forms."""
        return self._log_of(low).entries(low, self._limit(low, high), size_bytes_max)

    def read_soon(self, low: int, high: int, size_bytes_max: int, done: EntriesRead) -> None:
        """Read `entries` away from the event loop, or at once; `done` is told once."""
        self._log_of(low).read_soon(low, self._limit(low, high), size_bytes_max, done)

    def _limit(self, low: int, high: int) -> int:
        return min(high, self._keyed.last + 1) if self._log_of(low) is self._keyed else high

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The beginning of an entry's data; empty if it is none of a proposal."""
        return self._log_of(index).entry_head(index, size_bytes)

    def segments(self) -> list[LogSegment]:
        """The records as one, and the segments behind them."""
        found = self._files.segments()
        if self._has_records:
            keyed = self._keyed
            found.insert(0, LogSegment(keyed.base.index + 1, keyed.last, keyed.size_bytes))
        return found

    def sealed_end(self, index: int) -> int | None:
        """Last entry of the first part that ends at `index` or behind it, and grows no more."""
        if self._log_of(index) is self._keyed:
            return self._keyed.last
        return self._files.sealed_end(index)

    def create(self) -> None:
        """Begin the files behind the records, with the journal's current turn."""
        last = self._keyed.last
        self._files.create(Base(last, self._keyed.term(last)))

    def recover(self, snapshot_index: int) -> None:
        """Read and check both.

        Raises:
            LogCorrupt: Anything is missing or damaged.
        """
        self._keyed.recover(snapshot_index)
        self._files.recover(snapshot_index)
        if self._has_records and self._keyed.last != self._files.base.index:
            raise LogCorrupt(
                f"group {self._group}: its records end at {self._keyed.last}, "
                f"and its files begin behind {self._files.base.index}"
            )

    def reset(self, base: Base) -> None:
        """Replace all entries by none behind `base`."""
        self._drop_records()
        self._files.reset(base)

    def append(self, entries: list[Entry]) -> None:
        """Write entries, after removing all from the first one's index on.

        Raises:
            LogCorrupt: They do not follow what is there.
        """
        first = entries[0].index
        if self._log_of(first) is self._keyed:
            if first <= self._keyed.base.index:
                raise LogCorrupt(f"group {self._group}: entry {first} was compacted away")
            before = Base(first - 1, self._keyed.term(first - 1))
            self._keyed.truncate(first)
            if not self._has_records:
                self._drop_records()
            self._files.reset(before)
        self._files.append(entries)

    def compact(self, index: int) -> None:
        """Remove entries up to `index`, or some of them."""
        if self._has_records:
            if index < self._keyed.last:
                self._keyed.compact(index)
                return
            self._drop_records()
        self._files.compact(index)

    def _drop_records(self) -> None:
        self._keyed.remove()

    def files(self) -> list[str]:
        """Names of its files, also of those on their way to disk."""
        return self._files.files()
