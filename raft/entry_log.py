"""Where a group's entries are kept: what `GroupLog` asks, and their form as records of the journal.

The other form, in files, is `raft.segments`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from raft import log_keys
from raft.core.messages import NORMAL, Entry
from raft.errors import LogCorrupt
from raft.log_keys import Base
from raft.ports import Journal

EntriesRead: TypeAlias = Callable[[list[Entry] | LogCorrupt | None], None]
"""Told of entries that were read: them, what is wrong, or None if they were removed meanwhile."""


class LogSegment(NamedTuple):
    """A part of a log that is removed as a whole.

    Attributes:
        first_index: Its first entry, or the one to come if it is empty.
        last_index: Its last entry; `first_index` - 1 if it is empty.
        size_bytes: Of its file, with what is on its way there.
    """

    first_index: int
    last_index: int
    size_bytes: int


class EntryLog(Protocol):
    """The entries of one group. What is written takes effect with the journal's turn.

    Attributes:
        log_bytes: Size of the entries since it was last set to 0, for the decision to take a
            snapshot.
    """

    log_bytes: int

    @property
    def base(self) -> Base:
        """The last entry before the first one kept; (0, 0) if none was ever removed."""
        ...

    @property
    def last(self) -> int:
        """Index of the newest entry; the base's if there is none."""
        ...

    def term(self, index: int) -> int:
        """Term of an entry, or of the base.

        Raises:
            LogCorrupt: The entry is missing or damaged.
        """
        ...

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one.

        Raises:
            LogCorrupt: One is missing or damaged.
        """
        ...

    def read_soon(self, low: int, high: int, size_bytes_max: int, done: EntriesRead) -> None:
        """Read `entries` away from the event loop; `done` is told once, with what they raise.

        Raises:
            LogCorrupt: There is no entry `low`.
        """
        ...

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The beginning of an entry's data, unchecked; empty if it is none of a proposal.

        Raises:
            LogCorrupt: The entry is missing.
        """
        ...

    def segments(self) -> list[LogSegment]:
        """The parts that are removed as a whole, oldest first; none where entries go one by one."""
        ...

    def sealed_end(self, index: int) -> int | None:
        """Last entry of the first part that ends at `index` or behind it, and grows no more."""
        ...

    def create(self) -> None:
        """Begin a log without entries."""
        ...

    def recover(self, snapshot_index: int) -> None:
        """Read and check what is on disk.

        Args:
            snapshot_index: Entries up to there do not count in `log_bytes`.

        Raises:
            LogCorrupt: Anything is missing or damaged.
        """
        ...

    def reset(self, base: Base) -> None:
        """Replace all entries by none behind `base`."""
        ...

    def append(self, entries: list[Entry]) -> None:
        """Write entries, after removing all from the first one's index on.

        Raises:
            LogCorrupt: They do not follow what is there.
        """
        ...

    def compact(self, index: int) -> None:
        """Remove entries up to `index`, or some of them."""
        ...

    def files(self) -> list[str]:
        """Names of the log files that it has, also of those on their way to disk."""
        ...


class KeyedEntries:
    """Entries as records of the journal.

    Invariant: they are contiguous from base + 1 to last, and every record passes its checksum; both
    are checked by `recover`, the checksum again at each read. Reads see pending writes, so nothing
    depends on how far the disk has come.

    Args:
        journal: Where they are.
        group: The group's id.

    Attributes:
        base: The last entry before the first one kept.
        last: Index of the newest entry.
        log_bytes: Size of the entries since it was last set to 0.
        size_bytes: Of all entries, about.
    """

    def __init__(self, journal: Journal, group: int) -> None:
        self.base = Base()
        self.last = 0
        self.log_bytes = 0
        self.size_bytes = 0
        self._journal = journal
        self._group = group

    def term(self, index: int) -> int:
        """Term of an entry, or of the base."""
        return self.base.term if index == self.base.index else self._read(index).term

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one."""
        found: list[Entry] = []
        size = 0
        for index in range(low, high):
            entry = self._read(index)
            size += len(entry.data)
            if found and size > size_bytes_max:
                break
            found.append(entry)
        return found

    def read_soon(self, low: int, high: int, size_bytes_max: int, done: EntriesRead) -> None:
        """Read `entries` at once: a record is near."""
        done(self.entries(low, high, size_bytes_max))

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The beginning of an entry's data; empty if it is none of a proposal."""
        entry = self._read(index)
        return entry.data[:size_bytes] if entry.kind == NORMAL else b""

    def segments(self) -> list[LogSegment]:
        """None: entries go one by one."""
        return []

    def sealed_end(self, index: int) -> int | None:
        """None: it has no parts."""
        return None

    def create(self) -> None:
        """No-op: what is not there has no entries."""

    def recover(self, snapshot_index: int) -> None:
        """Read and check every record."""
        self.base = self._base() or Base()
        expected = self.base.index + 1
        for key, value in self._journal.scan("raft_log", *log_keys.log_range(self._group)):
            entry = self._parse(key, value)
            if entry.index != expected:
                raise LogCorrupt(
                    f"group {self._group}: entry {entry.index} found, expected {expected}"
                )
            self.size_bytes += len(value)
            if entry.index > snapshot_index:
                self.log_bytes += len(value)
            expected += 1
        self.last = expected - 1

    def reset(self, base: Base) -> None:
        """Replace all entries by none behind `base`."""
        self._journal.delete_range("raft_log", *log_keys.log_range(self._group))
        self._put_base(base)
        self.last = base.index
        self.log_bytes = self.size_bytes = 0

    def append(self, entries: list[Entry]) -> None:
        """Write entries, after removing all from the first one's index on."""
        first = entries[0].index
        if not self.base.index < first <= self.last + 1:
            raise LogCorrupt(
                f"group {self._group}: entry {first} does not follow {self.base.index}..{self.last}"
            )
        if first <= self.last:
            cut = log_keys.log_range(self._group, entries[-1].index + 1)
            self._journal.delete_range("raft_log", *cut)
        put = self._journal.put
        for entry in entries:
            key = log_keys.entry_key(self._group, entry.index)
            record = log_keys.entry_record(key, entry)
            self.log_bytes += len(record)
            self.size_bytes += len(record)
            put("raft_log", key, record)
        self.last = entries[-1].index

    def truncate(self, index: int) -> None:
        """Remove an entry and all behind it."""
        cut = log_keys.log_range(self._group, index)
        self._journal.delete_range("raft_log", *cut)
        self._shrink(self.last + 1 - index)
        self.last = index - 1

    def remove(self) -> None:
        """Remove all entries, and what tells of those before them."""
        self._journal.delete_range("raft_log", *log_keys.log_range(self._group))
        self._journal.delete("raft_state", log_keys.state_key(self._group, Base))
        self.base = Base(self.last)
        self.log_bytes = self.size_bytes = 0

    def _shrink(self, count: int) -> None:
        """Note that some entries go, of the size that all have about."""
        before = self.last - self.base.index
        self.size_bytes -= self.size_bytes * count // before if before else 0

    def compact(self, index: int) -> None:
        """Remove entries up to `index`."""
        if index <= self.base.index:
            return
        self._shrink(index - self.base.index)
        base = Base(index, self.term(index))
        old = log_keys.log_range(self._group, self.base.index, index + 1)
        self._journal.delete_range("raft_log", *old)
        self._put_base(base)

    def files(self) -> list[str]:
        """None: its entries are records."""
        return []

    def _put_base(self, base: Base) -> None:
        self.base = base
        key = log_keys.state_key(self._group, Base)
        self._journal.put("raft_state", key, log_keys.state_record(key, base))

    def _base(self) -> Base | None:
        key = log_keys.state_key(self._group, Base)
        value = self._journal.get("raft_state", key)
        try:
            return None if value is None else log_keys.parse_state(key, value, Base)
        except log_keys.RecordDamaged as error:
            raise LogCorrupt(f"group {self._group}: {error}") from error

    def _read(self, index: int) -> Entry:
        key = log_keys.entry_key(self._group, index)
        value = self._journal.get("raft_log", key)
        if value is None:
            raise LogCorrupt(
                f"group {self._group}: entry {index} is missing "
                f"in {self.base.index + 1}..{self.last}"
            )
        return self._parse(key, value)

    def _parse(self, key: bytes, value: bytes) -> Entry:
        try:
            return log_keys.parse_entry(key, value)
        except log_keys.RecordDamaged as error:
            raise LogCorrupt(f"group {self._group}: {error}") from error
