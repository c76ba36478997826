"""raft.snapshots: at every moment exactly one snapshot is whole (docs/protocol-rules.md P28)."""

from __future__ import annotations

import pytest

from raft import LogCorrupt, log_keys, snapshots
from raft.core.messages import Configuration, Snapshot, SnapshotMeta
from raft.snapshots import SnapshotStore
from tests.memory_journal import MemoryDisk, MemoryJournal

META = [SnapshotMeta(index, 1, Configuration(("a",))) for index in range(100)]


def reopened(disk: MemoryDisk) -> SnapshotStore:
    journal = MemoryJournal(disk=disk)
    store = SnapshotStore(journal, 7)
    store.recover()
    journal.sync()
    return store


def written(journal: MemoryJournal, store: SnapshotStore, index: int, parts: list[bytes]) -> None:
    done: list[int] = []
    store.write(META[index], parts, lambda: done.append(index))
    while not done:
        journal.sync()


def stored(journal: MemoryJournal) -> int:
    return len(journal.disk.families.get("snapshots", {}))


def test_a_snapshot_replaces_the_one_before() -> None:
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    written(journal, store, 10, [b"a", b"b"])
    assert store.read() == [b"a", b"b"]
    written(journal, store, 20, [b"c"])
    assert store.read() == [b"c"]
    assert stored(journal) == 1
    assert reopened(journal.disk).read() == [b"c"]


def test_an_empty_snapshot_is_one_too() -> None:
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    written(journal, store, 10, [])
    again = reopened(journal.disk)
    assert again.read() == []
    assert again.current is not None


@pytest.mark.parametrize("syncs", range(6))
def test_a_crash_at_any_sync_leaves_one_whole_snapshot(
    syncs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "TURN_BYTES_MAX", 250)
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    old, new = [b"o" * 100] * 3, [b"n" * 100] * 7
    written(journal, store, 10, old)
    done: list[int] = []
    store.write(META[20], new, lambda: done.append(20))
    for _ in range(syncs):
        journal.sync()

    again = reopened(journal.crash())

    assert again.read() in (old, new)
    assert again.read() == new or not done
    assert again.current is not None
    assert stored(journal) == again.current.parts, "no leftovers"


def test_a_large_snapshot_is_written_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TURN_BYTES_MAX", 250)
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    store.write(META[10], [b"x" * 100] * 7, lambda: None)
    journal.sync()
    assert stored(journal) == 2
    assert store.is_writing
    assert store.current is None


def test_an_installed_snapshot_stops_the_one_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TURN_BYTES_MAX", 250)
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    store.write(META[10], [b"x" * 100] * 7, lambda: pytest.fail("was overtaken"))
    journal.sync()
    store.install(Snapshot(META[30], (b"y", b"z")))
    for _ in range(5):
        journal.sync()
    assert store.read() == [b"y", b"z"]
    assert stored(journal) == 2
    assert not store.is_writing


def test_only_parts_of_the_snapshot_in_force_are_given_out() -> None:
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    written(journal, store, 10, [b"a", b"b"])
    first, second = store.part(10, 0), store.part(10, 1)
    assert first is not None
    assert second is not None
    assert (first.data, first.last) == (b"a", False)
    assert (second.data, second.last) == (b"b", True)
    assert store.part(10, 2) is None
    assert store.part(9, 0) is None


def test_damaged_and_missing_parts_are_noticed() -> None:
    journal = MemoryJournal()
    store = SnapshotStore(journal, 7)
    written(journal, store, 10, [b"a", b"b"])
    parts = journal.disk.families["snapshots"]
    parts[log_keys.part_key(7, 10, 0)] += b"!"
    with pytest.raises(LogCorrupt, match="checksum"):
        store.part(10, 0)
    del parts[log_keys.part_key(7, 10, 1)]
    with pytest.raises(LogCorrupt, match="part 1 of snapshot 10 is missing"):
        store.part(10, 1)
