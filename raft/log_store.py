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
from raft.checkpoints import CheckpointStore
from raft.converted import ConvertedEntries
from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta, SnapshotPart
from raft.core.node import SavedState
from raft.core.ready import Ready
from raft.entry_log import EntryLog, KeyedEntries
from raft.errors import LogCorrupt
from raft.ports import Journal, LogFiles
from raft.segments import records
from raft.segments.entries import SEGMENT_BYTES, SegmentedEntries
from raft.snapshots import SnapshotStore

_Record = TypeVar(
    "_Record",
    Configuration,
    HardState,
    log_keys.Base,
    log_keys.ForcedConfiguration,
    log_keys.Blank,
    log_keys.Erased,
)

FORCED_TERMS = 1000
"""A forced configuration raises the term by so much: above elections that this replica, cut off
from the members that are lost, may not have heard of."""


class GroupLog:
    """One group's durable state. Made by `LogStore.open`.

    Attributes:
        group: The group's id.
        saved: What the core starts from.
        snapshots: The group's snapshot, or its checkpoints.
        entry_log: The group's entries.
        damage: Why the log is read around damage; "" if it is whole as far as is known.
    """

    def __init__(
        self,
        journal: Journal,
        group: int,
        saved: SavedState,
        entry_log: EntryLog,
        snapshots: SnapshotStore | CheckpointStore,
        *,
        is_alone: bool = False,
    ) -> None:
        self.group = group
        self.damage = ""
        self.saved = saved
        self.snapshots = snapshots
        self.entry_log = entry_log
        self._journal = journal
        self._forced: log_keys.ForcedConfiguration | None = None
        self._is_blank = saved.is_blank
        self._is_alone = is_alone
        if is_alone and isinstance(entry_log, SegmentedEntries):
            entry_log.is_read_around_damage = True

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
        """The snapshot for a replica that lacks what was compacted."""
        oldest = self.snapshots.oldest
        return None if oldest is None else oldest.meta

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

    def keep(self, files: SegmentedEntries) -> None:
        """From now on keep the log, with the journal's current turn; the group must not be open.

        The snapshot becomes the first checkpoint. The entries that are there stay where they are,
        and those behind them go into files. So nothing is copied: a crash finds either form.

        Args:
            files: Of this group, without any.
        """
        snapshots, keyed = self.snapshots, self.entry_log
        assert isinstance(snapshots, SnapshotStore), "its log is kept already"
        assert isinstance(keyed, KeyedEntries), "entries in files had no snapshot in any version"
        snapshots.stop()
        self.snapshots = CheckpointStore(self._journal, self.group)
        if snapshots.current is not None:
            self.snapshots.take_over(snapshots.current)
        self.entry_log = ConvertedEntries(self.group, keyed, files)
        self.entry_log.create()

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
        if self._state(log_keys.Erased) is not None:
            self._delete_state(log_keys.Erased)
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
        if configuration is None:
            raise LogCorrupt(f"group {self.group}: its first record is missing")
        self.snapshots.recover()
        self._forced = self._state(log_keys.ForcedConfiguration)
        self._is_blank = self._state(log_keys.Blank) is not None
        try:
            self._recover_entries(hard_state)
        except LogCorrupt as why:
            if not self._is_alone or not isinstance(self.entry_log, SegmentedEntries):
                raise
            self.damage = str(why)
            self._recover_around(self.entry_log, hard_state)
        self.saved = self._saved(configuration)

    def _recover_entries(self, hard_state: HardState) -> None:
        snapshot_index, oldest_index = _index(self.snapshots.newest), _index(self.snapshots.oldest)
        self.entry_log.recover(snapshot_index)
        base, last = self.entry_log.base.index, self.entry_log.last
        if base > oldest_index:
            raise LogCorrupt(
                f"group {self.group}: compacted to {base}, "
                f"but the snapshot stands at {oldest_index}"
            )
        if last < max(hard_state.commit, snapshot_index):
            raise LogCorrupt(
                f"group {self.group}: the log ends at {last}, but "
                f"{max(hard_state.commit, snapshot_index)} was committed"
            )

    def _recover_around(self, entry_log: SegmentedEntries, hard_state: HardState) -> None:
        """Read around what is damaged: no other replica could help."""
        newest, oldest = self.snapshots.newest, self.snapshots.oldest
        begin = log_keys.Base()
        if oldest is not None:
            begin = log_keys.Base(oldest.meta.index, oldest.meta.term)
        end = max(hard_state.commit, _index(newest))
        entry_log.recover_around(_index(newest), begin, log_keys.Base(end, hard_state.term))

    @property
    def lost_entries(self) -> list[tuple[int, int]]:
        """First and last of entries that are lost, where the log is read around them."""
        return self.entry_log.lost() if isinstance(self.entry_log, SegmentedEntries) else []

    def has_others(self) -> None:
        """Another replica has a vote now: what is damaged from now on is there."""
        if isinstance(self.entry_log, SegmentedEntries):
            self.entry_log.is_read_around_damage = False

    def _saved(self, first: Configuration) -> SavedState:
        """Return the state that a core starts from; `first` is the group's first configuration."""
        hard_state = self._state(HardState) or HardState()
        last_term = self.entry_log.term(self.entry_log.last)
        if last_term > hard_state.term:
            # Entries in files can be durable without the hard state of their turn. Their leader was
            # elected without this replica, which has sent no vote of that term.
            hard_state = HardState(last_term, None, hard_state.commit)
        current, forced = self.snapshots.newest, self._forced
        index = _index(current)
        if forced is not None and forced.index >= index:
            return SavedState(
                hard_state, forced.configuration, index, forced.index, is_blank=self._is_blank
            )
        configuration = first if current is None else current.meta.configuration
        return SavedState(hard_state, configuration, index, is_blank=self._is_blank)


def _index(snapshot: log_keys.SnapshotRecord | None) -> int:
    return 0 if snapshot is None else snapshot.meta.index


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
        # Their files are removed when that is durable: the number that the next segment may have.
        self._erased: dict[int, int] = {}

    def groups(self) -> list[int]:
        """Groups on disk as of the last finished batch, ascending."""
        found, erased = self._scan_groups()
        return sorted(found - erased - self._erased.keys())

    def _scan_groups(self) -> tuple[set[int], set[int]]:
        """Groups with any record, and those of which one says that they were erased."""
        found, erased = set(), set()
        for key, _ in self._journal.scan("raft_state", *log_keys.all_states()):
            group = log_keys.parse_state_key(key)
            found.add(group)
            if key == log_keys.state_key(group, log_keys.Erased):
                erased.add(group)
        return found, erased

    def clean_up(self) -> list[str]:
        """Erase what a crash left of groups that were being erased. Call once, at the start.

        Returns:
            Files and folders among those of the groups' logs that belong to no group here. They
            stay: a store that was lost may have known them.
        """
        if self._files is None:
            return []
        found, erased = self._scan_groups()
        for group in erased:
            self._has_erased(group, self._names_of(group))
        unknown = self._files.names(records.FOLDER)
        for folder in self._files.folders(records.FOLDER):
            if records.group_of(folder) not in found:
                unknown.append(folder)
            else:
                names = [*self._files.names(folder), *self._files.folders(folder)]
                unknown += [name for name in names if not records.is_log_file(name)]
        return unknown

    def open(
        self,
        group: int,
        configuration: Configuration,
        *,
        is_blank: bool = False,
        segment_bytes: int = 0,
        keeps_log: bool = False,
        is_alone: bool = False,
    ) -> GroupLog:
        """Open a group, creating it where there is none.

        Args:
            group: The group's id.
            configuration: The first configuration if the group is new; empty waits for a leader.
            is_blank: If the group is new here: it may have been here before (`log_keys.Blank`).
            segment_bytes: If the group is new here or changes its form: its entries are in files
                of about so many bytes; 0: in the journal.
            keeps_log: It has checkpoints instead of a snapshot. A group on disk whose log is not
                kept changes its form (`GroupLog.keep`); one whose log is kept has that for ever.
            is_alone: There is no other replica, and the log is read: around damage, if it is in
                files.

        Raises:
            LogCorrupt: If what is on disk is damaged.
        """
        log = self._logs.get(group)
        if log is not None:
            log.refresh()
        else:
            saved = SavedState(configuration=configuration, is_blank=is_blank)
            log = self._open(group, saved, segment_bytes, keeps_log=keeps_log, is_alone=is_alone)
            self._logs[group] = log
        if keeps_log and isinstance(log.snapshots, SnapshotStore):
            log.keep(self._files_of(group, segment_bytes, keeps_log=True))
        return log

    def _open(
        self,
        group: int,
        saved: SavedState,
        segment_bytes: int,
        *,
        keeps_log: bool,
        is_alone: bool,
    ) -> GroupLog:
        """Open a group in the form that it has on disk, or create it."""
        is_known = group not in self._erased and self._is_known(group)
        if is_known:
            first = self._first_segment(group)
            segment_bytes = 0 if first is None else segment_bytes or SEGMENT_BYTES
            keeps_log = first is not None and first.keeps_log
        snapshots = (CheckpointStore if keeps_log else SnapshotStore)(self._journal, group)
        entry_log: EntryLog = KeyedEntries(self._journal, group)
        if segment_bytes:
            files = self._files_of(group, segment_bytes, keeps_log=keeps_log)
            if is_known and self._has_records(group):
                entry_log = ConvertedEntries(group, KeyedEntries(self._journal, group), files)
            else:
                entry_log = files
        log = GroupLog(
            self._journal, group, saved, entry_log, snapshots, is_alone=is_alone and keeps_log
        )
        if is_known:
            log.recover()
        else:
            log.create()
        return log

    def keeps_log(self, group: int) -> bool:
        """True if a group is here whose log is kept (`GroupLog.keep`).

        Raises:
            LogCorrupt: The record that says so is damaged.
        """
        log = self._logs.get(group)
        if log is not None:
            return isinstance(log.snapshots, CheckpointStore)
        first = None if group in self._erased else self._first_segment(group)
        return first is not None and first.keeps_log

    def erase(self, group: int) -> None:
        """Remove everything of a group, open or not."""
        log = self._logs.pop(group, None)
        if log is not None:
            log.snapshots.stop()
        journal = self._journal
        journal.delete_range("raft_state", *log_keys.state_range(group))
        journal.delete_range("raft_log", *log_keys.log_range(group))
        journal.delete_range("snapshots", *log_keys.parts_range(group))
        names = [] if log is None else log.entry_log.files()
        names = [*dict.fromkeys([*names, *self._names_of(group)])]
        # Until this is on disk a scan still finds the old records.
        self._erased[group] = max(self._erased.get(group, 0), records.next_sequence(names))
        if names:
            key = log_keys.state_key(group, log_keys.Erased)
            journal.put("raft_state", key, log_keys.state_record(key, log_keys.Erased()))
        journal.when_synced(lambda: self._has_erased(group, names))

    def _has_erased(self, group: int, names: list[str]) -> None:
        """Remove its files only now: what the journal knows of a group must be there."""
        self._erased.pop(group, None)
        if self._files is not None:
            for name in names:
                self._files.remove(name)
        if group not in self._logs:  # or it was begun again, and has removed the record
            self._journal.delete("raft_state", log_keys.state_key(group, log_keys.Erased))

    def _names_of(self, group: int) -> list[str]:
        """A group's files on disk; what lies beside them is none of ours."""
        names = [] if self._files is None else self._files.names(records.folder_of(group))
        return [name for name in names if records.is_log_file(name)]

    def _has_records(self, group: int) -> bool:
        """True if entries of a group are records, though those behind them are in files."""
        found = self._journal.scan("raft_log", *log_keys.log_range(group))
        return next(iter(found), None) is not None

    def _files_of(self, group: int, segment_bytes: int, *, keeps_log: bool) -> SegmentedEntries:
        assert self._files is not None, "segments need files"
        return SegmentedEntries(
            self._journal,
            self._files,
            group,
            segment_bytes,
            keeps_log=keeps_log,
            first_sequence=self._erased.get(group, 0),
        )

    def _first_segment(self, group: int) -> log_keys.FirstSegment | None:
        """Where the log of a group on disk begins in its files; None if it has none."""
        key = log_keys.state_key(group, log_keys.FirstSegment)
        value = self._journal.get("raft_state", key)
        try:
            if value is None:
                return None
            return log_keys.parse_state(key, value, log_keys.FirstSegment)
        except log_keys.RecordDamaged as error:
            raise LogCorrupt(f"group {group}: {error}") from error

    def _is_known(self, group: int) -> bool:
        keys = {key for key, _ in self._journal.scan("raft_state", *log_keys.state_range(group))}
        return bool(keys - {log_keys.state_key(group, log_keys.Erased)})
