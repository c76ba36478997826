"""Every group's log, hard state and configuration as records in the journal.

`LogStore` knows which groups are on disk; a `GroupLog` is one of them, open, and answers the core
as its LogReader. Invariants:

1. Entries on disk are contiguous from base + 1 to last, and every record passes its checksum; both
   are checked when a group is opened, the checksum again at each read.
2. The log reaches at least the hard state's commit index. A store that lost its end is damaged
   even if what is left is in order: such a replica must not vote (`LogCorrupt`).
3. What `save` writes in one turn is one atomic batch, so hard state, entries and snapshot of a
   Ready are there together or not at all.

Entries are not cached here: the core keeps the recent ones, and what it asks for is old. Reads
see pending writes, so nothing depends on how far the disk has come.
"""

from __future__ import annotations

from typing import TypeVar

from raft import log_keys
from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta, SnapshotPart
from raft.core.node import SavedState
from raft.core.ready import Ready
from raft.errors import LogCorrupt
from raft.ports import Journal
from raft.snapshots import SnapshotStore

_Record = TypeVar(
    "_Record",
    Configuration,
    HardState,
    log_keys.Base,
    log_keys.SnapshotRecord,
    log_keys.ForcedConfiguration,
    log_keys.Blank,
)

FORCED_TERMS = 1000
"""A forced configuration raises the term by so much: above elections that this replica, cut off
from the members that are lost, may not have heard of."""


class GroupLog:
    """One group's durable state. Made by `LogStore.open`.

    Attributes:
        group: The group's id.
        saved: What the core starts from.
        snapshots: The group's snapshot.
        log_bytes: Size of the entries after the snapshot, for the decision to take another.
    """

    def __init__(self, journal: Journal, group: int, saved: SavedState) -> None:
        self.group = group
        self.saved = saved
        self.snapshots = SnapshotStore(journal, group, None)
        self.log_bytes = 0
        self._journal = journal
        self._base = log_keys.Base()
        self._last = 0
        self._forced: log_keys.ForcedConfiguration | None = None
        self._is_blank = saved.is_blank

    # -- LogReader ----------------------------------------------------------------------------

    def first_index(self) -> int:
        """Index of the oldest entry kept."""
        return self._base.index + 1

    def last_index(self) -> int:
        """Index of the newest entry; first_index - 1 if there is none."""
        return self._last

    def term(self, index: int) -> int:
        """Term of an entry, or of the last compacted one.

        Raises:
            LogCorrupt: If the entry is missing or damaged.
        """
        return self._base.term if index == self._base.index else self._read(index).term

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one.

        Raises:
            LogCorrupt: If one is missing or damaged.
        """
        found: list[Entry] = []
        size = 0
        for index in range(low, high):
            entry = self._read(index)
            size += len(entry.data)
            if found and size > size_bytes_max:
                break
            found.append(entry)
        return found

    def snapshot(self) -> SnapshotMeta | None:
        """The snapshot in force."""
        current = self.snapshots.current
        return None if current is None else current.meta

    def snapshot_part(self, index: int, part: int) -> SnapshotPart | None:
        """One part of the snapshot at `index`; None if it was replaced."""
        return self.snapshots.part(index, part)

    # -- writing ------------------------------------------------------------------------------

    def save(self, ready: Ready) -> None:
        """Write what a Ready asks for, within the journal's current turn."""
        if ready.snapshot is not None:
            meta = ready.snapshot.meta
            self.snapshots.install(ready.snapshot)
            self._journal.delete_range("raft_log", *log_keys.log_range(self.group))
            self._put_base(log_keys.Base(meta.index, meta.term))
            self._last = meta.index
            self.log_bytes = 0
            self._end_force()
        if ready.hard_state is not None:
            self._put_state(HardState, ready.hard_state)
        if ready.entries:
            self._append(ready.entries)

    def compact(self, index: int) -> None:
        """Remove entries up to `index`, which a durable snapshot covers."""
        if index <= self._base.index:
            return
        base = log_keys.Base(index, self.term(index))
        old = log_keys.log_range(self.group, self._base.index, index + 1)
        self._journal.delete_range("raft_log", *old)
        self._put_base(base)

    def _append(self, entries: list[Entry]) -> None:
        first = entries[0].index
        if not self._base.index < first <= self._last + 1:
            raise LogCorrupt(
                f"group {self.group}: entry {first} does not follow "
                f"{self._base.index}..{self._last}"
            )
        if first <= self._last:
            cut = log_keys.log_range(self.group, entries[-1].index + 1)
            self._journal.delete_range("raft_log", *cut)
            self._cover(first - 1)
        put = self._journal.put
        for entry in entries:
            key = log_keys.entry_key(self.group, entry.index)
            record = log_keys.entry_record(key, entry)
            self.log_bytes += len(record)
            put("raft_log", key, record)
        self._last = entries[-1].index

    def _put_base(self, base: log_keys.Base) -> None:
        self._base = base
        self._put_state(log_keys.Base, base)

    def _cover(self, index: int) -> None:
        """Limit a forced configuration to entries up to `index`: later ones are overwritten."""
        forced = self._forced
        if forced is not None and index < forced.index:
            self._forced = log_keys.ForcedConfiguration(index, forced.configuration)
            self._put_state(log_keys.ForcedConfiguration, self._forced)

    def _end_force(self) -> None:
        """A leader's snapshot replaces all, a forced configuration too."""
        if self._forced is not None:
            self._forced = None
            self._delete_state(log_keys.ForcedConfiguration)

    def admitted(self) -> None:
        """The replica is no longer blank. Follows, in the journal, what it has received so far."""
        if self._is_blank:
            self._is_blank = False
            self._delete_state(log_keys.Blank)

    def force(self, configuration: Configuration) -> None:
        """Put a configuration in force that no majority agreed on; the group must not be open.

        It covers the log as it is: every entry here stays, and the members that are left elect
        one of them as always. Safe only when no member that is left out ever speaks for the group
        again; the caller sees to that (docs/protocol-rules.md P8: a new cluster id).
        """
        self.admitted()
        hard_state = self._state(HardState) or HardState()
        raised = HardState(hard_state.term + FORCED_TERMS, None, hard_state.commit)
        self._put_state(HardState, raised)
        self._forced = log_keys.ForcedConfiguration(self._last, configuration)
        self._put_state(log_keys.ForcedConfiguration, self._forced)
        self.refresh()

    def _put_state(self, kind: type, record: log_keys.AnyState) -> None:
        key = log_keys.state_key(self.group, kind)
        self._journal.put("raft_state", key, log_keys.state_record(key, record))

    def _delete_state(self, kind: type) -> None:
        self._journal.delete("raft_state", log_keys.state_key(self.group, kind))

    # -- reading ------------------------------------------------------------------------------

    def _read(self, index: int) -> Entry:
        key = log_keys.entry_key(self.group, index)
        value = self._journal.get("raft_log", key)
        if value is None:
            raise LogCorrupt(
                f"group {self.group}: entry {index} is missing "
                f"in {self._base.index + 1}..{self._last}"
            )
        return self._parse(key, value)

    def _parse(self, key: bytes, value: bytes) -> Entry:
        try:
            return log_keys.parse_entry(key, value)
        except log_keys.RecordDamaged as error:
            raise LogCorrupt(f"group {self.group}: {error}") from error

    def _state(self, record: type[_Record]) -> _Record | None:
        key = log_keys.state_key(self.group, record)
        value = self._journal.get("raft_state", key)
        if value is None:
            return None
        try:
            return log_keys.parse_state(key, value, record)
        except log_keys.RecordDamaged as error:
            raise LogCorrupt(f"group {self.group}: {error}") from error

    def create(self) -> None:
        """Note that the group exists, with its first configuration."""
        self._put_state(Configuration, self.saved.configuration)
        if self._is_blank:
            self._put_state(log_keys.Blank, log_keys.Blank())

    def refresh(self) -> None:
        """Bring `saved` up to date for a core that starts again without a restart."""
        self.saved = self._saved(self._state(Configuration) or self.saved.configuration)

    def recover(self) -> None:
        """Read and check what is on disk.

        Raises:
            LogCorrupt: If anything is missing or damaged.
        """
        configuration = self._state(Configuration)
        hard_state = self._state(HardState) or HardState()
        self._base = self._state(log_keys.Base) or log_keys.Base()
        current = self._state(log_keys.SnapshotRecord)
        if configuration is None:
            raise LogCorrupt(f"group {self.group}: its first record is missing")
        self.snapshots = SnapshotStore(self._journal, self.group, current)
        self.snapshots.remove_leftovers()
        self._forced = self._state(log_keys.ForcedConfiguration)
        self._is_blank = self._state(log_keys.Blank) is not None
        snapshot_index = 0 if current is None else current.meta.index
        self._check_entries(snapshot_index)
        if self._base.index > snapshot_index:
            raise LogCorrupt(
                f"group {self.group}: compacted to {self._base.index}, "
                f"but the snapshot stands at {snapshot_index}"
            )
        if self._last < max(hard_state.commit, snapshot_index):
            raise LogCorrupt(
                f"group {self.group}: the log ends at {self._last}, but "
                f"{max(hard_state.commit, snapshot_index)} was committed"
            )
        self.saved = self._saved(configuration)

    def _saved(self, first: Configuration) -> SavedState:
        """Return the state that a core starts from; `first` is the group's first configuration."""
        hard_state = self._state(HardState) or HardState()
        current, forced = self.snapshots.current, self._forced
        index = 0 if current is None else current.meta.index
        if forced is not None and forced.index >= index:
            return SavedState(
                hard_state, forced.configuration, index, forced.index, is_blank=self._is_blank
            )
        configuration = first if current is None else current.meta.configuration
        return SavedState(hard_state, configuration, index, is_blank=self._is_blank)

    def _check_entries(self, snapshot_index: int) -> None:
        expected = self._base.index + 1
        for key, value in self._journal.scan("raft_log", *log_keys.log_range(self.group)):
            entry = self._parse(key, value)
            if entry.index != expected:
                raise LogCorrupt(
                    f"group {self.group}: entry {entry.index} found, expected {expected}"
                )
            if entry.index > snapshot_index:
                self.log_bytes += len(value)
            expected += 1
        self._last = expected - 1


class LogStore:
    """All groups of this node on disk.

    Args:
        journal: Where they live.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Groups opened since the start: their logs know what is pending, a scan would not.
        self._logs: dict[int, GroupLog] = {}
        self._erased: set[int] = set()

    def groups(self) -> list[int]:
        """Groups on disk as of the last finished batch, ascending."""
        keys = (key for key, _ in self._journal.scan("raft_state", *log_keys.all_states()))
        return sorted({log_keys.parse_state_key(key) for key in keys} - self._erased)

    def open(self, group: int, configuration: Configuration, *, is_blank: bool = False) -> GroupLog:
        """Open a group, creating it where there is none.

        Args:
            group: The group's id.
            configuration: The first configuration if the group is new; empty waits for a leader.
            is_blank: If the group is new here: it may have been here before (`log_keys.Blank`).

        Raises:
            LogCorrupt: If what is on disk is damaged.
        """
        log = self._logs.get(group)
        if log is not None:
            log.refresh()
            return log
        saved = SavedState(configuration=configuration, is_blank=is_blank)
        log = GroupLog(self._journal, group, saved)
        if group not in self._erased and self._is_known(group):
            log.recover()
        else:
            log.create()
        self._logs[group] = log
        return log

    def erase(self, group: int) -> None:
        """Remove everything of a group, open or not."""
        log = self._logs.pop(group, None)
        if log is not None:
            log.snapshots.stop()
        journal = self._journal
        journal.delete_range("raft_state", *log_keys.state_range(group))
        journal.delete_range("raft_log", *log_keys.log_range(group))
        journal.delete_range("snapshots", *log_keys.parts_range(group))
        # Until this is on disk a scan still finds the old records.
        self._erased.add(group)
        journal.when_synced(lambda: self._erased.discard(group))

    def _is_known(self, group: int) -> bool:
        records = self._journal.scan("raft_state", *log_keys.state_range(group))
        return next(iter(records), None) is not None
