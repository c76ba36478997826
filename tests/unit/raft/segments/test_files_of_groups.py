"""Which log files belong to a group, what becomes of those of erased ones, and of foreign files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest

from broker.storage.log_files import LogFolder
from raft import RaftHost, log_keys
from raft.core.messages import NORMAL, Configuration, Entry, HardState
from raft.core.ready import Ready
from raft.log_store import GroupLog, LogStore
from raft.segments import records
from tests.raft_cluster import Cluster, ListMachine, _Port
from tests.torn_journal import TimedTornJournal, TornDisk, TornJournal
from tests.virtual_loop import VirtualClock, run

GROUP = 7
ONE = Configuration(("n1",))
SEGMENT_BYTES = 300


def opened(journal: TornJournal, group: int = GROUP) -> GroupLog:
    store = LogStore(journal, journal)
    return store.open(group, ONE, segment_bytes=SEGMENT_BYTES, keeps_log=True)


def save(log: GroupLog, count: int, term: int = 1) -> None:
    first = log.last_index() + 1
    entries = [Entry(index, term, NORMAL, bytes(100)) for index in range(first, first + count)]
    for entry in entries:
        hard_state = HardState(term, None, 0)
        log.save(Ready(1, hard_state, [entry], None, [], [], [], None, [], None))


def filled(disk: TornDisk | None = None, group: int = GROUP) -> TornJournal:
    journal = TornJournal(disk)
    save(opened(journal, group), 10)
    journal.sync()
    return journal


def test_erasing_a_group_removes_its_files_whenever_the_node_dies() -> None:
    """Whole, or gone with the next start; never files that nobody knows."""
    ways = set()
    for seed in range(200):
        journal = filled()
        draw = Random(seed)
        LogStore(journal, journal).erase(GROUP)
        if draw.random() < 0.5:
            journal.turn()
            turns = [op for turn in journal._turns for op in turn]
            waiting, journal._waiting = journal._waiting, []
            journal._turns = [[]]
            for op in turns:
                journal.disk.apply(op)
            for done in waiting:
                done()
        disk = journal.crash(draw)
        before = len(disk.files)
        again = TornJournal(disk)
        store = LogStore(again, again)
        assert store.clean_up() == []
        again.sync()
        if store.groups():
            assert opened(again).last_index() == 10
        else:
            assert disk.files == {}
            assert disk.records == {}
        ways.add((bool(store.groups()), bool(before)))
    assert ways == {(True, True), (False, True), (False, False)}


def test_a_group_that_is_begun_again_while_it_is_erased_stays() -> None:
    """A damaged replica is erased and opened again in one turn, under the same id."""
    for seed in range(50):
        journal = filled()
        store = LogStore(journal, journal)
        store.erase(GROUP)
        log = store.open(GROUP, Configuration(), segment_bytes=SEGMENT_BYTES, keeps_log=True)
        if seed % 2:
            journal.sync()
            save(log, 2, term=2)
            journal.sync()
            assert len([name for name in journal.disk.files if name.endswith("segment")]) == 1
        else:
            save(log, 2, term=2)
        disk = journal.crash(Random(seed))
        again = TornJournal(disk)
        store = LogStore(again, again)
        assert store.clean_up() == []
        again.sync()
        assert store.groups() == [GROUP]
        found = opened(again)
        terms = {found.term(index) for index in range(1, found.last_index() + 1)}
        assert terms in ({1}, {2}, set())
        if seed % 2:
            assert terms == {2}


def test_what_a_lost_store_left_of_a_group_goes_when_it_begins_anew() -> None:
    journal = filled()
    journal.disk.records.clear()
    again = TornJournal(journal.disk)
    store = LogStore(again, again)
    assert store.clean_up() == [records.folder_of(GROUP)], "told, and left alone until then"
    again.sync()
    assert len(again.names(records.folder_of(GROUP))) > 3
    log = opened(again)
    again.sync()
    assert log.last_index() == 0
    assert len(again.names(records.folder_of(GROUP))) == 1
    assert opened(TornJournal(again.disk)).last_index() == 0


def test_foreign_files_are_told_in_one_line_and_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = filled().disk
        foreign = ["log/notes", "log/7/notes", "log/8/0000000000.segment", "log/x/y", "log/007/z"]
        for name in foreign:
            disk.files[name] = b"?"
        journal = TimedTornJournal(asyncio.get_running_loop(), disk, 0.001)
        with caplog.at_level(logging.WARNING):
            host = RaftHost(
                "n1",
                journal,
                _Port(Cluster(()), "n1"),
                VirtualClock(),
                Random(1),
                files=journal,
            )
        (told,) = caplog.messages
        assert "log/notes, log/007, log/7/notes, log/8, log/x:" in told
        group = host.open_group(GROUP, None, ListMachine(), segment_bytes=SEGMENT_BYTES)
        assert group.node.last_index == 10
        host.close_group(GROUP, erase=True)
        await asyncio.sleep(0.1)
        assert sorted(disk.files) == sorted(foreign)
        host.close()

    run(main())


def test_many_foreign_files_are_no_long_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        disk = TornDisk()
        disk.files = {f"log/{number}.log": b"?" for number in range(100, 200)}
        journal = TimedTornJournal(asyncio.get_running_loop(), disk, 0.001)
        RaftHost("n1", journal, _Port(Cluster(()), "n1"), VirtualClock(), Random(1), files=journal)
        (told,) = caplog.messages
        assert "log/100.log" in told
        assert "log/109.log ...:" in told
        assert "log/110.log" not in told

    run(main())


def test_a_folder_on_a_real_disk_stays_with_what_is_foreign_in_it(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    for name in ("log/7/notes", "log/7/0000000000.segment"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "log/7/0000000001.segment").mkdir()
    names = [name for name in folder.names("log/7") if records.is_log_file(name)]
    assert names == ["log/7/0000000000.segment"]
    folder.close()


@pytest.mark.parametrize("content", [None, b"", b"WMSX", b"x" * 500])
def test_a_search_needs_no_index_in_memory_and_survives_a_wrong_one(
    content: bytes | None,
) -> None:
    journal = filled()
    log = opened(journal)
    segments = log.entry_log.segments()
    assert len(segments) > 2
    for name in [name for name in journal.disk.files if name.endswith(".index")]:
        if content is not None:
            journal.disk.files[name] = content
    assert [log.entry_log.entry_head(index, 3) for index in range(1, 11)] == [bytes(3)] * 10
    key = log_keys.state_key(GROUP, log_keys.FirstSegment)
    assert ("raft_state", key) in journal.disk.records


def test_indexes_are_not_read_whole_for_a_search() -> None:
    journal = filled()
    log = opened(journal)
    read: list[tuple[str, int]] = []
    real = journal.read

    def noted(name: str, position: int, size: int) -> bytes:
        read.append((name, size))
        return real(name, position, size)

    journal.read = noted  # type: ignore[method-assign]
    first = log.entry_log.segments()[0]
    assert first.last_index > 2
    log.entry_log.entry_head(2, 8)
    index, segment = records.index_name(GROUP, 0), records.segment_name(GROUP, 0)
    assert read == [(index, 4), (segment, records.RECORD_HEAD_BYTES + 8)]
    log.entry_log.entry_head(first.first_index, 8)
    assert read[2:] == [(segment, records.RECORD_HEAD_BYTES + 8)], "where it begins is known"
