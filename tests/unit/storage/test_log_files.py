"""Log files on a real disk: order, durability, failures, and what a restart finds."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from broker.storage import log_files
from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from broker.storage.log_files import FEW_FILES, OPEN_MAX, TAIL, LogFolder
from broker.storage.store import StoreDamaged, open_store

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


def many(count: int) -> list[str]:
    return [f"log/{group}/0000000000.segment" for group in range(count)]


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in (folder / "log").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


async def test_what_the_tail_holds_is_repeated_by_the_next_start(tmp_path: Path) -> None:
    """The files lose whatever was not synced there; the tail alone was."""
    random = Random(1)
    async with opened(tmp_path / "one") as (journal, _):
        for name in many(3):
            journal.append(name, b"before")
        await synced(journal)
        durable = contents(tmp_path / "one")
        for _ in range(5):
            for name in many(FEW_FILES + 5):
                journal.append(name, random.randbytes(20))
            journal.cut(many(3)[1], 4)
            journal.append(many(3)[1], b"again")
            journal.remove(many(3)[2])
            await synced(journal)
        journal.append(many(1)[0], b"one file, while the tail is not empty")
        await synced(journal)
        promised = contents(tmp_path / "one")
        shutil.copytree(tmp_path / "one/log", tmp_path / "kept")
    assert TAIL in promised
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        shutil.copytree(tmp_path / "kept", folder / "log")
        for name, content in promised.items():
            if name == TAIL:
                continue
            least = len(durable.get(name, b"")) if name != many(3)[1] else 4
            least = 0 if name == many(3)[2] else least
            kept = content[: random.randint(least, len(content))]
            (folder / name).write_bytes(kept)
        async with opened(folder) as (journal, _):
            found = contents(folder)
            del found[TAIL]
            assert found == {name: data for name, data in promised.items() if name != TAIL}


async def test_a_tails_torn_end_is_left_out_and_damage_before_its_end_refuses_the_start(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "one") as (journal, _):
        for turn in range(3):
            for name in many(FEW_FILES + 1):
                journal.append(name, b"%d" % turn)
            await synced(journal)
        shutil.copytree(tmp_path / "one/log", tmp_path / "kept")
    tail = (tmp_path / "kept/tail").read_bytes()
    first = tail.index(b"WMTL")
    size = tail.index(b"WMTL", first + 1) - first
    end = first + 3 * size
    assert not any(tail[end:])
    for cut in (1, size // 2, size - 1):
        folder = tmp_path / f"cut-{cut}"
        (folder / "log").mkdir(parents=True)
        (folder / TAIL).write_bytes(tail[: end - cut] + bytes(cut) + tail[end:])
        async with opened(folder) as (journal, _):
            assert {journal.read(name, 0, 9) for name in many(FEW_FILES + 1)} == {b"01"}
    for at in (3, size // 2, size + 20):
        folder = tmp_path / f"damaged-{at}"
        (folder / "log").mkdir(parents=True)
        flipped = bytes([tail[first + at] ^ 1])
        (folder / TAIL).write_bytes(tail[: first + at] + flipped + tail[first + at + 1 :])
        with pytest.raises(StoreDamaged, match="others follow"):
            LogFolder(folder)


async def test_a_tail_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    """The process died when the file was full of zeros, or half full, and had no head."""
    for size in (0, 1_000, log_files.TAIL_BYTES_MAX + 512):
        folder = tmp_path / str(size)
        (folder / "log").mkdir(parents=True)
        (folder / TAIL).write_bytes(bytes(size))
        async with opened(folder) as (journal, _):
            for name in many(FEW_FILES + 1):
                journal.append(name, b"promised")
            await synced(journal)
            shutil.copytree(folder / "log", folder / "kept/log")
        for name in many(FEW_FILES + 1):
            (folder / "kept" / name).write_bytes(b"")
        async with opened(folder / "kept") as (journal, _):
            assert {journal.read(name, 0, 9) for name in many(FEW_FILES + 1)} == {b"promised"}


async def test_a_damaged_head_refuses_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        for name in many(FEW_FILES + 1):
            journal.append(name, b"x")
        await synced(journal)
    tail = (tmp_path / TAIL).read_bytes()
    (tmp_path / TAIL).write_bytes(tail[:5] + b"!" + tail[6:])
    with pytest.raises(StoreDamaged, match="head is damaged"):
        LogFolder(tmp_path)


async def test_a_file_that_ends_before_what_the_tail_adds_refuses_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "one") as (journal, _):
        journal.append(NAME, b"before")
        await synced(journal)
        for name in many(FEW_FILES + 1):
            journal.append(name, b"x")
        journal.append(NAME, b"after")
        await synced(journal)
        shutil.copytree(tmp_path / "one/log", tmp_path / "kept/log")
    (tmp_path / "kept" / NAME).write_bytes(b"bef")
    with pytest.raises(StoreDamaged, match="ends at 3"):
        LogFolder(tmp_path / "kept")


async def test_a_long_tail_is_emptied_and_few_files_are_synced_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "TAIL_BYTES_MAX", 10_000)
    monkeypatch.setattr(log_files, "TAIL_MARGIN_BYTES", 2_000)
    async with opened(tmp_path) as (journal, _):
        tail = journal._files._tail
        used = []
        for _ in range(30):
            for name in many(FEW_FILES + 1):
                journal.append(name, bytes(100))
            await synced(journal)
            used.append(tail.used_bytes)
        assert max(used) < 10_000
        assert min(used[10:]) < 2_000
        journal.append(NAME, b"x")
        await synced(journal)
        assert not tail.is_empty  # nine files still depend on it
        for name in many(FEW_FILES + 1)[1:]:
            journal.remove(name)
        await synced(journal)
        journal.append(NAME, b"y")
        await synced(journal)
        assert tail.is_empty
        assert (journal.size(TAIL) or 0) < 11_000


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
        failed = asyncio.Event()
        journal._on_failure = lambda error: (failures.append(error), failed.set())[0]
        async with asyncio.timeout(20):
            await failed.wait()
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
