"""`GroupCommit` and `Store` where many records are written, removed or read in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.storage.group_commit import GroupCommit
from tests.unit.storage.test_group_commit import contents, run_with_journal, synced


def test_many_that_were_gathering_leave_nothing_on_disk(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        before = journal._store.database.latest_sequence_number()
        journal.put_many("queue_index", [(b"a", b"11"), (b"b", b"22"), (b"c", b"3")])
        assert journal.pending_bytes == 5
        journal.delete_many("queue_index", [b"a", b"c"])
        assert journal.pending_bytes == 2
        await synced(journal)
        # The batch's number and what was left: no tombstone.
        assert journal._store.database.latest_sequence_number() == before + 2

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "queue_index") == {b"b": b"22"}


def test_many_go_whether_on_disk_under_way_or_gathering(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        for family in ("queue_index", "raft_state"):
            journal.put_many(family, [(b"a", b"1"), (b"b", b"1"), (b"kept", b"1")])
        await synced(journal)
        journal.put("queue_index", b"c", b"2")
        journal.put("raft_state", b"a", b"2")  # a family whose records are written again
        journal.delete_many("queue_index", [b"a", b"c", b"unknown"])
        journal.delete_many("raft_state", [b"a"])
        assert journal.get("queue_index", b"a") is journal.get("raft_state", b"a") is None
        journal.delete_many("queue_index", [b"b"])  # nothing is gathering now
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "queue_index") == {b"kept": b"1"}
    assert contents(tmp_path / "store", "raft_state") == {b"b": b"1", b"kept": b"1"}


def test_values_are_those_of_a_scan(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put_many("queue_index", [(b"%03d" % n, b"v%d" % n) for n in range(100)])
        await synced(journal)
        journal.delete_many("queue_index", [b"010", b"012"])
        await synced(journal)
        for start, end in ((b"005", b"020"), (b"090", b"zzz"), (b"zz", b"zzz"), (b"", b"000")):
            scanned = [value for _, value in journal.scan("queue_index", start, end)]
            assert list(journal.values("queue_index", start, end)) == scanned

    run_with_journal(tmp_path / "store", body)


def test_a_family_nobody_knows_is_written_to_by_nobody(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        with pytest.raises(KeyError):
            journal.put("queue_indexes", b"a", b"1")
        with pytest.raises(KeyError):
            journal.delete_many("queue_indexes", [b"a"])

    run_with_journal(tmp_path / "store", body)
