"""raft.log_store: what a restart finds, and what it refuses."""

from __future__ import annotations

import pytest

from raft import LogCorrupt, log_keys
from raft.core.messages import Configuration, Entry, HardState, Snapshot, SnapshotMeta
from raft.core.ready import Ready
from raft.log_store import GroupLog, LogStore
from tests.memory_journal import MemoryJournal

VOTERS = Configuration(("a", "b", "c"))


def entries(first: int, last: int, term: int = 1) -> list[Entry]:
    return [Entry(index, term, 0, b"%d" % index) for index in range(first, last + 1)]


def ready(
    new: list[Entry] | None = None,
    hard_state: HardState | None = None,
    snapshot: Snapshot | None = None,
) -> Ready:
    return Ready(1, hard_state, new or [], snapshot, [], [], [], None, [], None)


def opened(journal: MemoryJournal, group: int = 7) -> GroupLog:
    return LogStore(journal).open(group, VOTERS)


def restarted(journal: MemoryJournal) -> GroupLog:
    journal.sync()
    return LogStore(MemoryJournal(disk=journal.disk)).open(7, Configuration(("someone else",)))


def test_a_new_group_is_empty_and_known_after_a_restart() -> None:
    journal = MemoryJournal()
    log = opened(journal)
    assert (log.first_index(), log.last_index(), log.term(0)) == (1, 0, 0)
    assert log.saved.configuration == VOTERS
    again = restarted(journal)
    assert again.saved.configuration == VOTERS, "the first configuration is on disk"
    assert LogStore(journal).groups() == [7]


def test_a_blank_replica_stays_blank_over_restarts_until_it_is_admitted() -> None:
    """R11: else a restart in between would forget that it has to ask."""
    journal = MemoryJournal()
    log = LogStore(journal).open(7, Configuration(), is_blank=True)
    assert log.saved.is_blank
    log.save(ready(entries(1, 3), HardState(1, None, 3)))
    journal.sync()
    again = LogStore(journal).open(7, Configuration())
    assert again.saved.is_blank
    again.admitted()
    journal.sync()
    assert not LogStore(journal).open(7, Configuration(), is_blank=True).saved.is_blank


def test_an_operator_may_force_a_blank_replica() -> None:
    journal = MemoryJournal()
    LogStore(journal).open(7, Configuration(), is_blank=True).force(VOTERS)
    journal.sync()
    assert not LogStore(journal).open(7, Configuration()).saved.is_blank


def test_entries_and_hard_state_come_back() -> None:
    journal = MemoryJournal()
    log = opened(journal)
    log.save(ready(entries(1, 5), HardState(1, "a", 3)))
    again = restarted(journal)
    assert again.saved.hard_state == HardState(1, "a", 3)
    assert (again.first_index(), again.last_index()) == (1, 5)
    assert again.entries(2, 5, 1000) == entries(2, 4)


def test_reads_see_what_is_not_written_yet() -> None:
    log = opened(MemoryJournal())
    log.save(ready(entries(1, 3)))
    assert log.entries(1, 4, 1000) == entries(1, 3)
    assert log.term(3) == 1


def test_entries_are_cut_at_the_size_limit_but_never_empty() -> None:
    log = opened(MemoryJournal())
    log.save(ready([Entry(index, 1, 0, bytes(100)) for index in range(1, 10)]))
    assert len(log.entries(1, 10, 350)) == 3
    assert len(log.entries(1, 10, 1)) == 1


def test_overwritten_entries_take_their_successors_along() -> None:
    journal = MemoryJournal()
    log = opened(journal)
    log.save(ready(entries(1, 9)))
    log.save(ready(entries(4, 5, term=2)))
    assert log.last_index() == 5
    again = restarted(journal)
    assert again.last_index() == 5
    assert [again.term(index) for index in range(1, 6)] == [1, 1, 1, 2, 2]


def test_a_gap_is_never_written() -> None:
    log = opened(MemoryJournal())
    log.save(ready(entries(1, 3)))
    with pytest.raises(LogCorrupt, match=r"entry 5 does not follow 0\.\.3"):
        log.save(ready(entries(5, 6)))


def test_a_compacted_log_begins_behind_its_base() -> None:
    journal = MemoryJournal()
    log = opened(journal)
    log.save(ready(entries(1, 9)))
    written: list[int] = []
    log.snapshots.write(SnapshotMeta(6, 1, VOTERS), [b"state"], lambda: written.append(6))
    for _ in range(3):
        journal.sync()
    assert written == [6]
    log.compact(4)
    assert (log.first_index(), log.term(4)) == (5, 1)
    again = restarted(journal)
    assert (again.first_index(), again.last_index(), again.term(4)) == (5, 9, 1)
    assert again.saved.snapshot_index == 6
    assert again.snapshots.read() == [b"state"]


def test_an_installed_snapshot_replaces_the_log() -> None:
    journal = MemoryJournal()
    log = opened(journal)
    log.save(ready(entries(1, 9)))
    meta = SnapshotMeta(20, 3, Configuration(("a", "d")))
    log.save(ready(snapshot=Snapshot(meta, (b"one", b"two")), hard_state=HardState(3, None, 20)))
    log.save(ready(entries(21, 22, term=3)))
    for each in (log, restarted(journal)):
        assert (each.first_index(), each.last_index(), each.term(20)) == (21, 22, 3)
        assert each.snapshot() == meta
        part = each.snapshot_part(20, 1)
        assert part is not None
        assert (part.data, part.last) == (b"two", True)
        assert each.snapshot_part(19, 0) is None
    assert restarted(journal).saved.configuration == Configuration(("a", "d"))


def test_a_crash_between_any_two_writes_of_a_turn_does_not_matter_because_turns_are_atomic() -> (
    None
):
    journal = MemoryJournal()
    log = opened(journal)
    log.save(ready(entries(1, 3), HardState(1, "a", 0)))
    journal.sync()
    log.save(ready(entries(3, 4, term=2), HardState(2, None, 2)))
    disk = journal.crash()
    again = LogStore(MemoryJournal(disk=disk)).open(7, VOTERS)
    assert again.saved.hard_state == HardState(1, "a", 0)
    assert again.last_index() == 3


@pytest.mark.parametrize("missing", [1, 3])
def test_a_missing_entry_refuses_to_open(missing: int) -> None:
    journal = MemoryJournal()
    opened(journal).save(ready(entries(1, 5)))
    journal.sync()
    del journal.disk.families["raft_log"][log_keys.entry_key(7, missing)]
    with pytest.raises(LogCorrupt, match=f"entry {missing + 1} found, expected {missing}"):
        restarted(journal)


def test_a_log_shorter_than_what_was_committed_refuses_to_open() -> None:
    journal = MemoryJournal()
    opened(journal).save(ready(entries(1, 5), HardState(1, None, 5)))
    journal.sync()
    del journal.disk.families["raft_log"][log_keys.entry_key(7, 5)]
    with pytest.raises(LogCorrupt, match="the log ends at 4, but 5 was committed"):
        restarted(journal)


@pytest.mark.parametrize("family", ["raft_log", "raft_state"])
def test_a_flipped_bit_refuses_to_open(family: str) -> None:
    journal = MemoryJournal()
    opened(journal).save(ready(entries(1, 5), HardState(1, None, 2)))
    journal.sync()
    records = journal.disk.families[family]
    key = sorted(records)[1]
    records[key] = records[key][:-1] + bytes([records[key][-1] ^ 1])
    with pytest.raises(LogCorrupt, match="checksum"):
        restarted(journal)


def test_a_group_without_its_first_record_refuses_to_open() -> None:
    journal = MemoryJournal()
    opened(journal).save(ready(hard_state=HardState(1, None, 0)))
    journal.sync()
    del journal.disk.families["raft_state"][log_keys.state_key(7, Configuration)]
    with pytest.raises(LogCorrupt, match="first record is missing"):
        restarted(journal)


def test_groups_do_not_touch_each_other() -> None:
    journal = MemoryJournal()
    store = LogStore(journal)
    logs = [store.open(group, VOTERS) for group in (6, 7, 8)]
    for log in logs:
        log.save(ready(entries(1, 3)))
    journal.sync()
    store.erase(7)
    journal.sync()
    assert store.groups() == [6, 8]
    assert LogStore(journal).open(8, VOTERS).last_index() == 3
    assert LogStore(journal).open(7, VOTERS).last_index() == 0
