"""Every group's log, hard state and configuration on disk.

`LogStore` knows which groups are on disk; a `GroupLog` is one of them, open, and answers the core
as its LogReader. Its entries are in the journal (`raft.entry_log`) or in files (`raft.segments`);
all else is records of the journal. Invariants:

1. Entries on disk are contiguous from base + 1 to last, and what is read of them passes its
   checksum (`EntryLog`).
2. The log reaches at least the hard state's commit index. A store that lost its end is damaged
   even if what is left is in order: such a replica must not vote (`LogCorrupt`).
3. What `save` writes in one turn is one atomic batch, so hard state, entries and snapshot of a
   Ready are there together or not at all.

Entries are not cached here: the core keeps the recent ones, and what it asks for is old.
"""

from __future__ import annotations

from typing import TypeVar

from raft import log_keys
from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta, SnapshotPart
from raft.core.node import SavedState
from raft.core.ready import Ready
from raft.entry_log import EntryLog, KeyedEntries
from raft.errors import LogCorrupt
from raft.ports import Journal, LogFiles
from raft.segments import records as segments
from raft.segments.entries import SegmentedEntries
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
        entry_log: The group's entries.
    """

    def __init__(
        self, journal: Journal, group: int, saved: SavedState, entry_log: EntryLog
    ) -> None:
        self.group = group
        self.saved = saved
        self.snapshots = SnapshotStore(journal, group, None)
        self.entry_log = entry_log
        self._journal = journal
        self._forced: log_keys.ForcedConfiguration | None = None
        self._is_blank = saved.is_blank

    # -- LogReader ----------------------------------------------------------------------------

    def first_index(self) -> int:
        """Index of the oldest entry kept."""
        return self.entry_log.base.index + 1

    def last_index(self) -> int:
        """Index of the newest entry; first_index - 1 if there is none."""
        return self.entry_log.last

    def term(self, index: int) -> int:
        """Term of an entry, or of the last compacted one.

        Raises:
            LogCorrupt: If the entry is missing or damaged.
        """
        return self.entry_log.term(index)

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one.

        Raises:
            LogCorrupt: If one is missing or damaged.
        """
        return self.entry_log.entries(low, high, size_bytes_max)

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
            self.entry_log.reset(log_keys.Base(meta.index, meta.term))
            self._end_force()
        if ready.hard_state is not None:
            self._put_state(HardState, ready.hard_state)
        if ready.entries:
            if ready.entries[0].index <= self.entry_log.last:
                self._cover(ready.entries[0].index - 1)
            self.entry_log.append(ready.entries)

    def compact(self, index: int) -> None:
        """Remove entries up to `index`, which a durable snapshot covers."""
        self.entry_log.compact(index)

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
        self._forced = log_keys.ForcedConfiguration(self.entry_log.last, configuration)
        self._put_state(log_keys.ForcedConfiguration, self._forced)
        self.refresh()

    def _put_state(self, kind: type, record: log_keys.AnyState) -> None:
        key = log_keys.state_key(self.group, kind)
        self._journal.put("raft_state", key, log_keys.state_record(key, record))

    def _delete_state(self, kind: type) -> None:
        self._journal.delete("raft_state", log_keys.state_key(self.group, kind))

    # -- reading ------------------------------------------------------------------------------

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
        self.entry_log.create()

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
        current = self._state(log_keys.SnapshotRecord)
        if configuration is None:
            raise LogCorrupt(f"group {self.group}: its first record is missing")
        self.snapshots = SnapshotStore(self._journal, self.group, current)
        self.snapshots.remove_leftovers()
        self._forced = self._state(log_keys.ForcedConfiguration)
        self._is_blank = self._state(log_keys.Blank) is not None
        snapshot_index = 0 if current is None else current.meta.index
        self.entry_log.recover(snapshot_index)
        base, last = self.entry_log.base.index, self.entry_log.last
        if base > snapshot_index:
            raise LogCorrupt(
                f"group {self.group}: compacted to {base}, "
                f"but the snapshot stands at {snapshot_index}"
            )
        if last < max(hard_state.commit, snapshot_index):
            raise LogCorrupt(
                f"group {self.group}: the log ends at {last}, but "
                f"{max(hard_state.commit, snapshot_index)} was committed"
            )
        self.saved = self._saved(configuration)

    def _saved(self, first: Configuration) -> SavedState:
        """Return the state that a core starts from; `first` is the group's first configuration."""
        hard_state = self._state(HardState) or HardState()
        last_term = self.entry_log.term(self.entry_log.last)
        if last_term > hard_state.term:
            # Entries in files can be durable without the hard state of their turn. Their leader was
            # elected without this replica, which has sent no vote of that term.
            hard_state = HardState(last_term, None, hard_state.commit)
        current, forced = self.snapshots.current, self._forced
        index = 0 if current is None else current.meta.index
        if forced is not None and forced.index >= index:
            return SavedState(
                hard_state, forced.configuration, index, forced.index, is_blank=self._is_blank
            )
        configuration = first if current is None else current.meta.configuration
        return SavedState(hard_state, configuration, index, is_blank=self._is_blank)


class LogStore:
    """All groups of this node on disk.

    Args:
        journal: Where they live.
        files: Where the entries of groups with segments live; None if there are no such groups.
    """

    def __init__(self, journal: Journal, files: LogFiles | None = None) -> None:
        self._journal = journal
        self._files = files
        # Groups opened since the start: their logs know what is pending, a scan would not.
        self._logs: dict[int, GroupLog] = {}
        self._erased: set[int] = set()

    def groups(self) -> list[int]:
        """Groups on disk as of the last finished batch, ascending."""
        keys = (key for key, _ in self._journal.scan("raft_state", *log_keys.all_states()))
        return sorted({log_keys.parse_state_key(key) for key in keys} - self._erased)

    def open(
        self,
        group: int,
        configuration: Configuration,
        *,
        is_blank: bool = False,
        segment_bytes: int = 0,
    ) -> GroupLog:
        """Open a group, creating it where there is none.

        Args:
            group: The group's id.
            configuration: The first configuration if the group is new; empty waits for a leader.
            is_blank: If the group is new here: it may have been here before (`log_keys.Blank`).
            segment_bytes: Its entries are in files of about so many bytes; 0: in the journal.

        Raises:
            LogCorrupt: If what is on disk is damaged.
        """
        log = self._logs.get(group)
        if log is not None:
            log.refresh()
            return log
        saved = SavedState(configuration=configuration, is_blank=is_blank)
        log = GroupLog(self._journal, group, saved, self._entry_log(group, segment_bytes))
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
        names = [] if log is None else log.entry_log.files()
        if self._files is not None:
            names = [*dict.fromkeys([*names, *self._files.names(segments.folder_of(group))])]
        journal.when_synced(lambda: self._has_erased(group, names))

    def _has_erased(self, group: int, names: list[str]) -> None:
        """Remove its files only now: what the journal knows of a group must be there."""
        self._erased.discard(group)
        if self._files is not None:
            for name in names:
                self._files.remove(name)

    def _entry_log(self, group: int, segment_bytes: int) -> EntryLog:
        if not segment_bytes:
            return KeyedEntries(self._journal, group)
        assert self._files is not None, "segments need files"
        return SegmentedEntries(self._journal, self._files, group, segment_bytes)

    def _is_known(self, group: int) -> bool:
        records = self._journal.scan("raft_state", *log_keys.state_range(group))
        return next(iter(records), None) is not None
