"""A group whose entries were records begins to keep its log: at any crash it has one form, whole.

The change is one turn of the journal: files first, then one batch of records. Each test stops it
between any two of these steps, and what was promised before is there after, in either form.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from raft import LogCorrupt
from raft.checkpoints import CheckpointStore
from raft.converted import ConvertedEntries
from raft.core.messages import NORMAL, Configuration, Entry, HardState, Snapshot, SnapshotMeta
from raft.core.ready import Ready
from raft.log_store import GroupLog, LogStore
from raft.segments import records
from raft.snapshots import SnapshotStore
from tests.torn_journal import RECORDS, Op, TornDisk, TornJournal

GROUP = 7
ONE = Configuration(("n1", "n2", "n3"))
SEGMENT_BYTES = 500
PARTS = [b"state " * 3, b"and the rest"]
SNAPSHOT_AT, BASE, LAST = 8, 5, 20


def opened(journal: TornJournal, *, keeps_log: bool) -> GroupLog:
    size = SEGMENT_BYTES if keeps_log else 0
    return LogStore(journal, journal).open(GROUP, ONE, segment_bytes=size, keeps_log=keeps_log)


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, NORMAL, b"%d/%d " % (index, term) + bytes(60))


def save(
    log: GroupLog, entries: list[Entry], term: int = 1, snapshot: Snapshot | None = None
) -> None:
    hard_state = HardState(term, "n2", 0)
    log.save(Ready(1, hard_state, entries, snapshot, [], [], [], None, [], None))


def old_form(*, last: int = LAST, with_snapshot: bool = True) -> TornDisk:
    """A replica with records up to an entry, and perhaps a snapshot within them."""
    journal = TornJournal()
    log = opened(journal, keeps_log=False)
    for index in range(1, last + 1):
        save(log, [entry(index)])
    if with_snapshot:
        assert isinstance(log.snapshots, SnapshotStore)
        log.snapshots.write(SnapshotMeta(SNAPSHOT_AT, 1, ONE), PARTS, lambda: log.compact(BASE))
    journal.sync()
    return journal.disk


def copied(disk: TornDisk) -> TornDisk:
    found = TornDisk()
    found.records, found.files = disk.records.copy(), disk.files.copy()
    return found


def all_of(log: GroupLog) -> list[Entry]:
    found: list[Entry] = []
    while log.first_index() + len(found) <= log.last_index():
        low = log.first_index() + len(found)
        found += log.entries(low, log.last_index() + 1, 150)
    return found


def check(log: GroupLog, first: int, entries: list[Entry]) -> None:
    assert (log.first_index(), all_of(log)) == (first, entries)
    for each in entries:
        assert log.term(each.index) == each.term


def steps(journal: TornJournal) -> list[list[Op]]:
    """What a process had done when it died, step by step; the records of a turn are one step."""
    ops = [op for turn in journal._turns for op in turn]
    files = [op for op in ops if op.kind not in RECORDS]
    batch = [op for op in ops if op.kind in RECORDS]
    torn = [
        [*files[:at], op._replace(value=op.value[: len(op.value) // 2])]
        for at, op in enumerate(files)
        if op.kind == "append"
    ]
    return [*(files[:at] for at in range(len(files) + 1)), *torn, [*files, *batch]]


def crashes(before: TornDisk, journal: TornJournal) -> Iterator[TornDisk]:
    for done in steps(journal):
        disk = copied(before)
        for op in done:
            disk.apply(op)
        yield disk


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_crash_at_any_step_leaves_one_form_whole(with_snapshot: bool) -> None:
    before = old_form(with_snapshot=with_snapshot)
    first = BASE + 1 if with_snapshot else 1
    entries = [entry(index) for index in range(first, LAST + 1)]
    journal = TornJournal(copied(before))
    opened(journal, keeps_log=True)
    forms = []
    for disk in crashes(before, journal):
        found = LogStore(TornJournal(disk), TornJournal(disk))
        assert found.clean_up() == []
        forms.append(found.keeps_log(GROUP))
        for keeps_log in (False, True):  # the older form goes on where the change is not there
            again = TornJournal(copied(disk))
            log = opened(again, keeps_log=keeps_log)
            check(log, first, entries)
            assert log.saved.hard_state == HardState(1, "n2", 0)
            assert log.saved.snapshot_index == (SNAPSHOT_AT if with_snapshot else 0)
            assert log.snapshots.read() == (PARTS if with_snapshot else [])
            save(log, [entry(LAST + 1)])
            again.sync()
            last = TornJournal(again.disk)
            check(opened(last, keeps_log=True), first, [*entries, entry(LAST + 1)])
    assert forms == [*[False] * (len(forms) - 1), True]


def test_what_a_crash_left_of_a_change_goes_with_the_next() -> None:
    before = old_form()
    journal = TornJournal(copied(before))
    opened(journal, keeps_log=True)
    left = next(disk for disk in crashes(before, journal) if disk.files)
    again = TornJournal(left)
    opened(again, keeps_log=True)
    again.sync()
    assert len([name for name in left.files if records.is_log_file(name)]) == 1


def test_a_group_that_is_erased_after_a_half_change_leaves_nothing() -> None:
    before = old_form()
    journal = TornJournal(copied(before))
    opened(journal, keeps_log=True)
    for disk in crashes(before, journal):
        again = TornJournal(disk)
        LogStore(again, again).erase(GROUP)
        again.sync()
        assert (disk.files, disk.records) == ({}, {})


@pytest.mark.parametrize("first", [LAST + 1, LAST, 12, BASE + 1])
def test_a_truncation_that_comes_to_the_records_is_there_whole_or_not_at_all(first: int) -> None:
    """A new leader's entries take the place of what nobody had committed."""
    journal = TornJournal(old_form())
    log = opened(journal, keeps_log=True)
    save(log, [entry(LAST + 1), entry(LAST + 2)])
    journal.sync()
    old = [entry(index) for index in range(BASE + 1, LAST + 3)]
    new = [*old[: first - BASE - 1], *(entry(index, 2) for index in range(first, first + 4))]
    before = copied(journal.disk)
    save(log, new[first - BASE - 1 :], term=2)
    check_written(log, new)
    found = []
    for disk in crashes(before, journal):
        again = opened(TornJournal(disk), keeps_log=True)
        found.append(all_of(again))
        assert again.saved.hard_state.term == found[-1][-1].term
    assert found[-1] == new
    # Files are durable before records, so some of what is new, or none, may be there without them.
    kept = first - BASE - 1
    for each in found[:-1]:
        assert each == old or (first > LAST and each[:kept] == old[:kept])
    journal.sync()
    check(opened(TornJournal(journal.disk), keeps_log=True), BASE + 1, new)


def check_written(log: GroupLog, entries: list[Entry]) -> None:
    """What is not durable is not read, but known."""
    assert log.last_index() == entries[-1].index
    assert log.first_index() == BASE + 1


@pytest.mark.parametrize("cut", [BASE, SNAPSHOT_AT, LAST - 1, LAST, LAST + 3])
def test_records_go_where_the_log_is_cut(cut: int) -> None:
    journal = TornJournal(old_form())
    log = opened(journal, keeps_log=True)
    assert isinstance(log.snapshots, CheckpointStore)
    for index in range(LAST + 1, LAST + 30):
        save(log, [entry(index)])
    if cut > SNAPSHOT_AT:
        log.snapshots.write(SnapshotMeta(cut, 1, ONE), [b"later"], lambda: None)
    journal.sync()
    before = copied(journal.disk)
    log.snapshots.remove_before(cut)
    log.compact(cut)
    first = log.first_index()
    assert first == (cut + 1 if cut < LAST else LAST + 1)
    for disk in crashes(before, journal):
        again = opened(TornJournal(disk), keeps_log=True)
        assert again.first_index() in (BASE + 1, first)
        assert all_of(again)[-1] == entry(LAST + 29)
    journal.sync()
    again = opened(TornJournal(journal.disk), keeps_log=True)
    assert again.first_index() == first
    assert any(family == "raft_log" for family, _ in journal.disk.records) == (cut < LAST)
    sizes = [each.size_bytes for each in again.entry_log.segments()]
    assert all(size > 0 for size in sizes)
    is_there = isinstance(again.entry_log, ConvertedEntries)
    assert is_there == (cut < LAST)


def test_a_state_of_another_replica_takes_the_place_of_records_and_files() -> None:
    journal = TornJournal(old_form())
    log = opened(journal, keeps_log=True)
    save(log, [entry(LAST + 1)])
    journal.sync()
    before = copied(journal.disk)
    meta = SnapshotMeta(50, 3, ONE)
    save(log, [entry(51, 3)], term=3, snapshot=Snapshot(meta, (b"theirs",)))
    firsts = set()
    for disk in crashes(before, journal):
        again = opened(TornJournal(disk), keeps_log=True)
        firsts.add((again.first_index(), tuple(again.snapshots.read())))
    assert firsts == {(BASE + 1, tuple(PARTS)), (51, (b"theirs",))}
    journal.sync()
    assert not any(family == "raft_log" for family, _ in journal.disk.records)


def test_a_lost_end_of_the_records_is_damage() -> None:
    journal = TornJournal(old_form())
    opened(journal, keeps_log=True)
    journal.sync()
    keys = sorted(key for key in journal.disk.records if key[0] == "raft_log")
    del journal.disk.records[keys[-1]]
    with pytest.raises(LogCorrupt):
        opened(TornJournal(journal.disk), keeps_log=True)


def test_lives_of_changes_and_truncations_keep_what_was_synced() -> None:
    """Random turns on disks that tear: what a sync covered, and nothing replaced, is there."""
    changed = truncated = 0
    for seed in range(80):
        draw = Random(seed)
        disk = old_form(last=draw.randint(9, LAST))
        synced: list[Entry] = []
        low = LAST
        for life in range(1, 7):
            journal = TornJournal(disk)
            log = opened(journal, keeps_log=life > 1 or draw.random() < 0.5)
            found = all_of(log)
            assert [each for each in found if each.index < low] == [
                each for each in synced if each.index < low
            ] or not synced
            synced, low = found, log.last_index() + 1
            for _ in range(draw.randint(0, 6)):
                last = log.last_index()
                first = draw.randint(max(SNAPSHOT_AT + 1, last - 4), last + 1)
                new = [entry(index, life + 1) for index in range(first, first + draw.randint(1, 5))]
                changed += 1
                truncated += first <= last
                model = [each for each in synced if each.index < min(first, low)]
                save(log, new, term=life + 1)
                low = min(low, first)
                journal.turn()
                if draw.random() < 0.5:
                    journal.sync()
                    synced, low = all_of(log), log.last_index() + 1
                    assert synced[: len(model)] == model
                    assert synced[-len(new) :] == new
            disk = journal.crash(draw)
    assert changed > 200
    assert truncated > 100
