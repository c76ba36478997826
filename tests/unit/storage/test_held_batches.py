"""broker.storage.group_commit on a full disk: batches without room are held, then written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.storage import commit_writer, group_commit
from broker.storage.disk_room import HOLD_MARGIN_BYTES, MIB, REMOVAL_MARGIN_BYTES, DiskRoom
from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store

AMPLE = 10**12


class Meter:
    """The free space that the journal is told."""

    def __init__(self) -> None:
        self.free_bytes = AMPLE
        self.looks = 0

    def read(self, _folder: Path) -> int:
        self.looks += 1
        return self.free_bytes

    async def looked_at(self, times: int = 2) -> None:
        before = self.looks
        while self.looks < before + times:
            await asyncio.sleep(0.001)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    found = Meter()
    monkeypatch.setattr(commit_writer, "free_bytes", found.read)
    monkeypatch.setattr(commit_writer, "AMPLE_S", 0.0)
    monkeypatch.setattr(group_commit, "AGAIN_S", 0.002)
    return found


def run(path: Path, body: Callable[[GroupCommit], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        journal = GroupCommit(open_store(path), pytest.fail)
        try:
            async with asyncio.timeout(20):
                await body(journal)
        finally:
            journal.close()

    asyncio.run(main())


def contents(path: Path, family: str) -> dict[bytes, bytes]:
    with contextlib.closing(open_store(path)) as store:
        return dict(store.scan(family, b"", b"\xff" * 20))


def waits(journal: GroupCommit) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journal.when_synced(lambda: future.set_result(None))
    return future


async def until(claim: Callable[[], bool]) -> None:
    while not claim():
        await asyncio.sleep(0.001)


def test_what_has_no_room_is_neither_written_nor_told_until_there_is(
    tmp_path: Path, meter: Meter
) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("raft_log", b"before", b"1")
        await waits(journal)
        meter.free_bytes = 0
        journal.put("raft_log", b"held", b"2")
        told = waits(journal)
        await meter.looked_at(5)
        assert journal.held_s > 0
        assert not told.done()
        assert dict(journal.scan("raft_log", b"", b"z")) == {b"before": b"1"}
        assert journal.get("raft_log", b"held") == b"2"
        meter.free_bytes = AMPLE
        await told
        assert journal.held_s == 0
        assert journal.stats.holds == 1
        assert dict(journal.scan("raft_log", b"", b"z")) == {b"before": b"1", b"held": b"2"}

    run(tmp_path / "store", body)


def test_writes_of_many_turns_keep_their_order_while_they_are_held(
    tmp_path: Path, meter: Meter
) -> None:
    async def body(journal: GroupCommit) -> None:
        meter.free_bytes = 0
        told = []
        for number in range(300):
            journal.put("raft_state", b"key", b"%d" % number)
            journal.put("raft_log", b"%03d" % number, b"x" * 5000)
            if number % 7 == 0:
                journal.delete_range("raft_log", b"%03d" % (number - 3), b"%03d" % number)
            if number % 50 == 0:
                journal.when_synced(lambda number=number: told.append(number))
                await asyncio.sleep(0.002)
        meter.free_bytes = AMPLE
        await waits(journal)
        assert told == [0, 50, 100, 150, 200, 250]

    run(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_state") == {b"key": b"299"}
    expected = {b"%03d" % n for n in range(300)}
    for number in range(7, 300, 7):
        expected -= {b"%03d" % n for n in range(number - 3, number)}
    assert contents(tmp_path / "store", "raft_log").keys() == expected


def test_what_is_settled_while_it_is_held_is_never_written(tmp_path: Path, meter: Meter) -> None:
    async def body(journal: GroupCommit) -> None:
        meter.free_bytes = 0
        for number in range(100):
            journal.put("queue_index", b"%03d" % number, b"x" * 1000)
        told = waits(journal)
        await until(lambda: journal.held_s > 0 and journal.pending_bytes == 100_000)
        for number in range(50):
            journal.delete("queue_index", b"%03d" % number)
        await until(lambda: journal.pending_bytes == 50_000)
        journal.delete_range("queue_index", b"050", b"090")
        await until(lambda: journal.pending_bytes == 10_000)
        before = journal._store.database.latest_sequence_number()
        meter.free_bytes = AMPLE
        await told
        # Ten records, the range and the batch's number.
        assert journal._store.database.latest_sequence_number() == before + 12

    run(tmp_path / "store", body)
    expected = {b"%03d" % number for number in range(90, 100)}
    assert contents(tmp_path / "store", "queue_index").keys() == expected


def test_a_record_on_disk_that_is_settled_meanwhile_is_removed(
    tmp_path: Path, meter: Meter
) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("queue_index", b"old", b"x")
        journal.put("queue_index", b"ranged", b"x")
        await waits(journal)
        meter.free_bytes = 0
        journal.put("queue_index", b"new", b"x")
        await meter.looked_at()
        journal.delete("queue_index", b"old")
        journal.delete_range("queue_index", b"ranged", b"rangee")
        await meter.looked_at()
        meter.free_bytes = AMPLE
        await waits(journal)

    run(tmp_path / "store", body)
    assert contents(tmp_path / "store", "queue_index") == {b"new": b"x"}


def test_what_only_removes_goes_on_longer(tmp_path: Path, meter: Meter) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("queue_index", b"old", b"x")
        await waits(journal)
        unwritten = journal._writer._unwritten_bytes()
        meter.free_bytes = unwritten + (HOLD_MARGIN_BYTES + REMOVAL_MARGIN_BYTES) // 2
        journal.delete("queue_index", b"old")
        await waits(journal)
        assert journal.stats.holds == 0
        journal.put("queue_index", b"new", b"x")
        told = waits(journal)
        await meter.looked_at(5)
        assert not told.done()
        meter.free_bytes = AMPLE
        await told

    run(tmp_path / "store", body)


def test_a_short_disk_is_told_before_it_is_full_and_when_it_is_over(
    tmp_path: Path, meter: Meter
) -> None:
    async def body(journal: GroupCommit) -> None:
        heard: list[bool] = []
        journal.on_short = lambda: heard.append(journal.is_short)
        meter.free_bytes = 25 * MIB
        journal.put("raft_log", b"key", b"1")
        await waits(journal)
        assert heard == [True]
        assert journal.stats.holds == 0
        meter.free_bytes = AMPLE  # seen although nothing is written
        await until(lambda: heard == [True, False])

    run(tmp_path / "store", body)


def test_a_disk_that_is_still_short_after_a_hold_is_looked_at_again(
    tmp_path: Path, meter: Meter
) -> None:
    async def body(journal: GroupCommit) -> None:
        heard: list[bool] = []
        journal.on_short = lambda: heard.append(journal.is_short)
        meter.free_bytes = 0
        journal.put("raft_log", b"key", b"1")
        told = waits(journal)
        await until(lambda: journal.held_s > 0)
        meter.free_bytes = 25 * MIB
        await told
        assert heard == [True]
        meter.free_bytes = AMPLE
        await until(lambda: heard == [True, False])

    run(tmp_path / "store", body)


class FullFamily:
    """A family whose tables find no room, some times."""

    def __init__(self, family: Any, failures: list[str]) -> None:
        self._family = family
        self._failures = failures

    def flush(self, wait: bool) -> None:
        if self._failures:
            raise OSError(self._failures.pop())
        self._family.flush(wait)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


def test_tables_without_room_hold_everything_until_they_have_it(
    tmp_path: Path, meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB would refuse every write meanwhile, and a refused write ends the node."""
    monkeypatch.setattr(commit_writer, "RELIEF_INTERVAL_S", 0.0)
    failures = ["No space left on device"] * 3

    async def body(journal: GroupCommit) -> None:
        journal.put("raft_log", b"tables", b"x" * 100_000)
        await waits(journal)
        families = journal._store.families
        families["raft_log"] = FullFamily(families["raft_log"], failures)  # type: ignore[assignment]
        meter.free_bytes = 25 * MIB
        journal.put("raft_log", b"key", b"1")
        told = waits(journal)
        await until(lambda: journal.held_s > 0)
        assert journal.is_short
        meter.free_bytes = AMPLE
        assert not told.done()
        await told
        assert not failures

    run(tmp_path / "store", body)


def test_what_is_held_at_the_end_is_not_written_out_of_order(tmp_path: Path, meter: Meter) -> None:
    async def body(journal: GroupCommit) -> None:
        meter.free_bytes = 0
        journal.put("raft_log", b"1", b"x")
        journal.when_synced(lambda: pytest.fail("told of what is not on disk"))
        await meter.looked_at()

    run(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_log") == {}


def test_a_batch_behind_one_that_was_held_is_not_written_without_it(
    tmp_path: Path, meter: Meter
) -> None:
    """Closed before the loop could put the held batch back: room comes back just then."""

    async def main() -> None:
        journal = GroupCommit(open_store(tmp_path / "store"), pytest.fail)
        meter.free_bytes = 0
        journal.put("raft_log", b"1", b"x")
        journal.when_synced(lambda: None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # handed over
        journal.put("raft_log", b"2", b"x")
        while not meter.looks:  # the loop does not hear meanwhile that the first was held
            pass
        meter.free_bytes = AMPLE
        journal.close()

    asyncio.run(main())
    assert contents(tmp_path / "store", "raft_log") in ({}, {b"1": b"x", b"2": b"x"})


@pytest.mark.parametrize("free_mib", [0, 10, 33, 50, 400])
def test_publishers_wait_before_anything_is_held(free_mib: int) -> None:
    room = DiskRoom(free_mib * MIB, 0)
    if not room.fits(MIB, is_removal=False):
        assert room.is_short(MIB, was_short=False)
    if room.is_short(MIB, was_short=False):
        assert room.is_short(MIB, was_short=True)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]
