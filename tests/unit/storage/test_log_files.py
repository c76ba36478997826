"""Log files on a real disk: order, durability, failures, and what a restart finds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from broker.storage.log_files import OPEN_MAX
from broker.storage.store import open_store

pytestmark = pytest.mark.asyncio

NAME = "log/7/0000000000.segment"


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[GroupCommit, list[BaseException]]]:
    failures: list[BaseException] = []
    journal = GroupCommit(open_store(folder / "store"), failures.append)
    try:
        yield journal, failures
    finally:
        await asyncio.to_thread(journal.close)


async def synced(journal: GroupCommit) -> None:
    done = asyncio.Event()
    journal.when_synced(done.set)
    async with asyncio.timeout(20):
        await done.wait()


async def test_writes_take_effect_in_order_and_are_read_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        assert journal.size(NAME) is None
        assert journal.read(NAME, 0, 10) == b""
        journal.append(NAME, b"0123456789")
        journal.cut(NAME, 4)
        journal.append(NAME, b"abc")
        await synced(journal)
        assert journal.read(NAME, 2, 100) == b"23abc"
        assert journal.size(NAME) == 7
        assert journal.names("log/7") == [NAME]
        journal.append(NAME, b"!")
        await synced(journal)
        assert journal.read(NAME, 6, 100) == b"c!"
    async with opened(tmp_path) as (journal, _):
        assert journal.read(NAME, 0, 100) == b"0123abc!"
        journal.append(NAME, b"?")
        journal.append("log/8/x", b"x")
        journal.remove(NAME)
        await synced(journal)
        assert journal.names("log/7") == []
        assert not (tmp_path / "log/7").exists()
        assert journal.read(NAME, 0, 100) == b""
        assert (tmp_path / "log/8").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "log/8/x").stat().st_mode & 0o777 == 0o600


async def test_files_are_durable_before_the_records_of_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = os.fdatasync
    async with opened(tmp_path) as (journal, _):

        def sync(descriptor: int) -> None:
            seen.append("file")
            assert journal._store.get("meta", b"k") is None
            real(descriptor)

        monkeypatch.setattr(os, "fdatasync", sync)
        journal.put("meta", b"k", b"v")
        journal.append(NAME, b"data")
        await synced(journal)
        assert seen == ["file"]
        assert journal._store.get("meta", b"k") == b"v"


async def test_many_files_share_descriptors_and_one_wait(tmp_path: Path) -> None:
    names = [f"log/{group}/0000000000.segment" for group in range(OPEN_MAX + 50)]
    async with opened(tmp_path) as (journal, _):
        for turn in range(2):
            for name in names:
                journal.append(name, b"%d" % turn)
            await synced(journal)
        assert all(journal.read(name, 0, 9) == b"01" for name in names)
        open_now = len(list(Path("/proc/self/fd").iterdir()))
        assert open_now < 3 * OPEN_MAX


@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_a_write_or_sync_that_fails_ends_the_node_and_tells_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async with opened(tmp_path) as (journal, failures):
        journal.append(NAME, b"before")
        await synced(journal)
        told: list[str] = []

        def fail(*_: object) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, call, fail)
        journal.append(NAME, b"after")
        journal.when_synced(lambda: told.append("synced"))
        async with asyncio.timeout(20):
            while not failures:
                await asyncio.sleep(0.01)
        monkeypatch.undo()
        assert isinstance(failures[0], CommitFailed)
        assert "code 74" in str(failures[0])
        assert told == []


async def test_who_waits_for_files_alone_waits_for_no_sync_of_the_store(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.put("meta", b"k", b"v")
        await synced(journal)
        before = journal._store.last_batch, journal._writer._number
        journal.append(NAME, b"data")
        await synced(journal)
        assert (journal._store.last_batch, journal._writer._number) == before
        journal.put("meta", b"lazy", b"v")  # written without anybody who waits
        journal.append(NAME, b"data")
        await synced(journal)
        assert not journal._writer._has_unsynced
