"""broker.storage.group_commit on a real RocksDB in a temporary directory."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.message import Message
from broker.storage.commit_batch import CommitBatch
from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from broker.storage.message_store import MessageStore
from broker.storage.store import FAMILIES, FORGOTTEN, StoreDamaged, StoreLocked, open_store


async def synced(journal: GroupCommit) -> None:
    """Wait until everything written so far is durable."""
    future = asyncio.get_running_loop().create_future()
    journal.when_synced(lambda: future.set_result(None))
    await future


def run_with_journal(path: Path, body: Callable[[GroupCommit], object]) -> None:
    async def main() -> None:
        journal = GroupCommit(open_store(path), pytest.fail)
        try:
            await body(journal)  # type: ignore[misc]
        finally:
            journal.close()

    asyncio.run(main())


def contents(path: Path, family: str) -> dict[bytes, bytes]:
    store = open_store(path)
    try:
        return dict(store.scan(family, b"", b"\xff" * 20))
    finally:
        store.close()


def test_records_of_every_family_are_there_after_reopening(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        for family in FAMILIES:
            journal.put(family, b"key", family.encode())
        await synced(journal)

    run_with_journal(tmp_path / "store", body)

    for family in FAMILIES:
        expected = None if family in FORGOTTEN else family.encode()
        assert contents(tmp_path / "store", family).get(b"key") == expected


def test_get_sees_gathering_sealed_and_flying_writes(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("raft_log", b"a", b"1")
        journal.put("raft_log", b"b", b"1")
        assert journal.get("raft_log", b"a") == b"1"
        waiting = asyncio.ensure_future(synced(journal))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        journal.put("raft_log", b"a", b"2")
        journal.delete_range("raft_log", b"b", b"c")
        assert journal.get("raft_log", b"a") == b"2"
        assert journal.get("raft_log", b"b") is None
        journal.put("raft_log", b"b", b"3")
        assert journal.get("raft_log", b"b") == b"3"
        await waiting
        await synced(journal)
        assert journal.get("raft_log", b"b") == b"3"

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_log") == {b"a": b"2", b"b": b"3"}


def test_callbacks_run_in_order_and_only_after_the_sync(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        order: list[int] = []
        for number in range(5):
            journal.put("raft_state", b"%d" % number, b"x")
            journal.when_synced(lambda number=number: order.append(number))
        assert order == []
        await synced(journal)
        assert order == [0, 1, 2, 3, 4]

    run_with_journal(tmp_path / "store", body)


class Recorder:
    """A database that notes what is asked of it, in order."""

    def __init__(self, database: object, calls: list[str]) -> None:
        self._database = database
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        if name in ("write", "flush_wal"):
            self._calls.append(name)
        return getattr(self._database, name)


def test_everyone_is_told_after_one_shared_sync(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        calls: list[str] = []
        journal._store.database = Recorder(journal._store.database, calls)
        for number in range(50):
            journal.put("raft_state", b"%d" % number, b"x")
            journal.when_synced(lambda: calls.append("told"))
        await synced(journal)
        assert calls == ["write", "flush_wal"] + ["told"] * 50

    run_with_journal(tmp_path / "store", body)


def test_deleted_while_gathering_is_never_written(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        before = journal._store.database.latest_sequence_number()
        journal.put("queue_index", b"gone", b"x")
        journal.delete("queue_index", b"gone")
        await synced(journal)
        # Only the batch number was written: no put, no tombstone.
        assert journal._store.database.latest_sequence_number() == before + 1

    run_with_journal(tmp_path / "store", body)


def test_overwriting_and_deleting_in_one_turn_removes_the_older_record(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("raft_state", b"key", b"old")
        await synced(journal)
        journal.put("raft_state", b"key", b"new")
        journal.delete("raft_state", b"key")
        assert journal.get("raft_state", b"key") is None
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_state") == {}


def test_delete_put_delete_in_one_turn_keeps_the_first_tombstone(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("queue_index", b"key", b"old")
        await synced(journal)
        journal.delete("queue_index", b"key")
        journal.put("queue_index", b"key", b"new")
        journal.delete("queue_index", b"key")
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "queue_index") == {}


def test_a_delete_of_a_record_in_flight_removes_it(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("queue_index", b"key", b"x")
        flying = asyncio.ensure_future(synced(journal))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        journal.delete("queue_index", b"key")
        await flying
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "queue_index") == {}


def test_a_removed_range_spares_what_is_put_after_it(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        for key in (b"a", b"b", b"c"):
            journal.put("raft_log", key, b"old")
        journal.delete_range("raft_log", b"a", b"c")
        journal.put("raft_log", b"b", b"new")
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_log") == {b"b": b"new", b"c": b"old"}


def test_writes_nobody_waits_for_are_written_at_close(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("meta", b"key", b"x")

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "meta")[b"key"] == b"x"


def test_lazy_writes_reach_the_disk_without_a_waiter(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("meta", b"key", b"x")
        while not dict(journal.scan("meta", b"key", b"kez")):
            await asyncio.sleep(0.002)

    run_with_journal(tmp_path / "store", body)


def test_lazy_writes_are_not_put_off_by_new_ones(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 10
        number = 0
        journal.put("meta", b"key", b"x")
        while not dict(journal.scan("meta", b"key", b"kez")):
            number += 1
            journal.put("meta", b"other", b"%d" % number)
            await asyncio.sleep(0)
            assert loop.time() < deadline

    run_with_journal(tmp_path / "store", body)


def test_a_batch_that_fills_while_another_flies_keeps_the_order(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        for number in range(5000):
            journal.put("raft_log", b"key", b"%d" % number)
            journal.put("raft_log", b"%04d" % number, b"x" * 1000)
            if number % 100 == 0:
                journal.when_synced(lambda: None)
                await asyncio.sleep(0)
        await synced(journal)
        assert journal.get("raft_log", b"key") == b"4999"

    run_with_journal(tmp_path / "store", body)
    assert len(contents(tmp_path / "store", "raft_log")) == 5001


def test_a_failed_sync_poisons_the_journal(tmp_path: Path) -> None:
    async def main() -> None:
        failed = asyncio.get_running_loop().create_future()
        store = open_store(tmp_path / "store")
        journal = GroupCommit(store, failed.set_result)
        store.mark.close()  # the thread meets EBADF behind its sync

        journal.put("meta", b"key", b"x")
        journal.when_synced(lambda: pytest.fail("told of a sync that failed"))

        error = await failed
        assert isinstance(error, CommitFailed)
        assert re.match(r"syncing batch 1 failed in the store /\S+: .*Bad file", str(error))
        assert "then start the node again" in str(error)
        assert journal.is_failed
        journal.put("meta", b"key", b"y")
        journal.when_synced(lambda: pytest.fail("told after a failure"))
        await asyncio.sleep(0.05)
        store.mark = type(store.mark)(store.path)
        journal.close()

    asyncio.run(main())


def test_an_open_store_is_locked(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with pytest.raises(StoreLocked, match="in use"):
        open_store(tmp_path / "store")
    store.close()
    open_store(tmp_path / "store").close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from broker.message import Message
from broker.storage.commit_batch import CommitBatch
from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store

async def main():
    journal = GroupCommit(open_store(Path(sys.argv[1])), lambda error: sys.exit(74))
    number = 0
    while True:
        for _ in range(20):
            number += 1
            journal.put("raft_log", number.to_bytes(8, "big"), b"x" * 1000)
        future = asyncio.get_running_loop().create_future()
        journal.when_synced(lambda: future.set_result(None))
        await future
        print(number, flush=True)

asyncio.run(main())
"""


def write_until(path: Path, number_min: int) -> int:
    """Let a process write, kill it, and return the last number it called durable."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        durable = 0
        while durable < number_min:
            durable = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        for line in writer.stdout.read().splitlines():
            durable = int(line)
    return durable


def log_file(path: Path) -> Path:
    return max(path.glob("*.log"), key=lambda file: file.stat().st_size)


def test_kill_minus_nine_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    durable = write_until(tmp_path / "store", 400)

    numbers = [int.from_bytes(key, "big") for key in contents(tmp_path / "store", "raft_log")]

    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= durable
    assert len(numbers) % 20 == 0, "half a turn was written"


def test_a_torn_record_that_no_sync_covered_is_dropped(tmp_path: Path) -> None:
    durable = write_until(tmp_path / "store", 100)
    with log_file(tmp_path / "store").open("ab") as log:
        log.write(b"\x07\x5b\x11\x02\x00\x01half of a record")

    assert len(contents(tmp_path / "store", "raft_log")) >= durable


def test_a_log_cut_behind_the_mark_refuses_to_open(tmp_path: Path) -> None:
    write_until(tmp_path / "store", 400)
    log = log_file(tmp_path / "store")
    os.truncate(log, log.stat().st_size // 2)

    with pytest.raises(StoreDamaged, match=r"batch \d+ was synced, but the store ends with"):
        open_store(tmp_path / "store")


def test_a_flipped_bit_refuses_to_open(tmp_path: Path) -> None:
    write_until(tmp_path / "store", 400)
    log = log_file(tmp_path / "store")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)

    with pytest.raises(StoreDamaged, match=r"is damaged: .*[Cc]hecksum"):
        open_store(tmp_path / "store")


def test_a_refused_store_can_be_tried_again(tmp_path: Path) -> None:
    """No handle of the failed attempt keeps the lock."""
    write_until(tmp_path / "store", 100)
    log = log_file(tmp_path / "store")
    os.truncate(log, log.stat().st_size // 2)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="was synced"):
            open_store(tmp_path / "store")


def test_a_callback_that_fails_does_not_silence_the_others(tmp_path: Path) -> None:
    """One queue's bug must not leave a Raft group waiting for its sync for ever."""

    async def body(journal: GroupCommit) -> None:
        def fail() -> None:
            raise RuntimeError("a bug")

        journal.put("raft_log", b"key", b"1")
        journal.when_synced(fail)
        async with asyncio.timeout(5):
            await synced(journal)

    run_with_journal(tmp_path / "store", body)


def listen(journal: GroupCommit, heard: Callable[[list[CommitBatch]], None]) -> None:
    """Be told of every list of batches that is written."""
    write = journal._writer.write

    def noted(batches: list[CommitBatch], *, is_last: bool) -> None:
        heard(batches)
        write(batches, is_last=is_last)

    journal._writer.write = noted  # type: ignore[method-assign]


def test_who_wrote_nothing_waits_for_no_sync_of_its_own(tmp_path: Path) -> None:
    written: list[int] = []

    async def main() -> None:
        journal = GroupCommit(open_store(tmp_path / "store"), pytest.fail)
        listen(journal, lambda batches: written.append(len(batches)))
        try:
            order: list[str] = []
            journal.put("raft_log", b"a", b"1")
            journal.when_synced(lambda: order.append("first"))
            await asyncio.sleep(0)  # the turn ends: the batch is under way
            done = asyncio.get_running_loop().create_future()
            journal.when_synced(lambda: order.append("rider"))
            journal.when_synced(lambda: done.set_result(None))
            await done
            assert order == ["first", "rider"]
            assert written == [1]
            await synced(journal)  # everything is durable already
            assert written == [1]
            journal.put("raft_log", b"b", b"2")
            await synced(journal)
            assert written == [1, 1]
        finally:
            journal.close()

    asyncio.run(main())


def test_pages_go_past_the_log(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("pages", b"page", b"x" * 1_000_000)
        journal.put("raft_log", b"key", b"1")
        await synced(journal)
        assert journal.get("pages", b"page") == b"x" * 1_000_000
        assert log_file(tmp_path / "store").stat().st_size < 100_000
        journal.delete("pages", b"page")
        await synced(journal)
        while dict(journal.scan("pages", b"", b"z")):
            await asyncio.sleep(0.002)

    run_with_journal(tmp_path / "store", body)
    assert contents(tmp_path / "store", "raft_log")[b"key"] == b"1"


def test_nobody_waits_for_a_page(tmp_path: Path) -> None:
    async def body(journal: GroupCommit) -> None:
        journal.put("raft_log", b"key", b"1")
        await synced(journal)
        syncs = journal.stats.syncs
        for number in range(20):
            journal.put("pages", b"%d" % number, b"x")
            await synced(journal)
            await asyncio.sleep(0.001)
        while len(dict(journal.scan("pages", b"", b"z"))) < 20:
            await asyncio.sleep(0.002)
        await synced(journal)
        assert journal.stats.syncs == syncs

    run_with_journal(tmp_path / "store", body)


def test_a_batch_of_pages_and_records_is_one_that_is_waited_for(tmp_path: Path) -> None:
    """Pages go first: what they replace is gone with the rest of the batch."""
    calls: list[str] = []

    async def body(journal: GroupCommit) -> None:
        journal._store.database = Recorder(journal._store.database, calls)
        journal.put("queue_index", b"key", b"1")
        journal.put("pages", b"page", b"2")
        await synced(journal)

    run_with_journal(tmp_path / "store", body)
    assert calls[:3] == ["write", "write", "flush_wal"]


def test_a_lazy_write_is_synced_for_who_asks_later(tmp_path: Path) -> None:
    """Nobody waited for the first batch, so it was written without a sync; now somebody asks."""
    synced_files: list[bool] = []

    async def main() -> None:
        journal = GroupCommit(open_store(tmp_path / "store"), pytest.fail)
        listen(journal, lambda batches: synced_files.append(any(b.waiting for b in batches)))
        try:
            journal.put("raft_log", b"a", b"1")
            while not synced_files or journal._in_flight:
                await asyncio.sleep(0.005)
            await synced(journal)
            assert synced_files == [False, True]
        finally:
            journal.close()

    asyncio.run(main())


def test_pages_put_under_old_numbers_while_a_sync_runs_are_read_as_they_are_now(
    tmp_path: Path,
) -> None:
    """The sync under way when a queue was emptied says nothing of its pages."""

    async def body(journal: GroupCommit) -> None:
        store = MessageStore(journal)
        numbers = list(range(1, 9))

        def page(word: bytes) -> list[tuple[int, Message]]:
            return [(n, Message("", "q", word, 1, 14, len(word), False)) for n in numbers]

        store.page_out(7, page(b"old"))
        await synced(journal)
        store.put(8, 1, Message("", "q", b"x", 1, 14, 1, True))
        told: list[bool] = []
        journal.when_synced(lambda: told.append(True))
        while not journal._in_flight:
            await asyncio.sleep(0)
        store.empty_queue(7)
        store.page_out(7, page(b"new"))
        while not told:
            await asyncio.sleep(0)
        assert store.read_many(7, numbers, keep=True) == page(b"new")
        await synced(journal)
        await synced(journal)
        assert not store._renumbered
        assert store.read_many(7, numbers) == page(b"new")

    run_with_journal(tmp_path / "store", body)
