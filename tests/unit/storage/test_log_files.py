"""Log files on a real disk: order, durability, failures, and what a restart finds."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from broker.storage import log_files
from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from broker.storage.log_files import (
    BALANCE_MAX,
    FEW_FILES,
    LITTLE_BYTES,
    OPEN_MAX,
    Append,
    LogFolder,
)
from broker.storage.store import StoreDamaged, open_store

pytestmark = pytest.mark.asyncio

NAME = "log/7/0000000000.segment"
TAIL, TAIL2 = "log/tail", "log/tail2"


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is filled with zeros when it is made: little is enough here."""
    monkeypatch.setattr(log_files, "TAIL_BYTES_MAX", 200_000)
    monkeypatch.setattr(log_files, "TAIL_MARGIN_BYTES", 20_000)


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
        assert journal.folders("log") == ["log/7"]
        (tmp_path / "log/7/below").mkdir()
        assert journal.names("log/7") == [NAME]
        (tmp_path / "log/7/below").rmdir()
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
        sizes = {name: journal.size(name) for name in many(FEW_FILES + 5)}
        promised = {name: journal.read(name, 0, size) for name, size in sizes.items() if size}
        shutil.copytree(tmp_path / "one/log", tmp_path / "kept")
    assert len(promised) == FEW_FILES + 4
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        shutil.copytree(tmp_path / "kept", folder / "log")
        for name, content in promised.items():
            least = len(durable.get(name, b"")) if name != many(3)[1] else 4
            kept = content[: random.randint(least, len(content))]
            (folder / name).write_bytes(kept)
        async with opened(folder):
            found = contents(folder)
            assert found.keys() - promised.keys() == {TAIL, TAIL2}
            assert promised.items() <= found.items()


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
        await asyncio.to_thread(journal._files._wait_for_emptying)  # of a file that was full
        for _ in range(2 * BALANCE_MAX):
            journal.append(NAME, b"y")
            await synced(journal)
        assert tail.is_empty
        assert (journal.size(TAIL) or 0) < 11_000


async def test_few_files_with_little_for_each_use_the_tail_once_such_batches_prevail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced_files: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced_files.append(fd), real(fd))[1])
    folder = LogFolder(tmp_path)
    little = [Append(name, b"x") for name in many(3)]
    for _ in range(BALANCE_MAX - 1):
        folder.commit(little)
    assert len(synced_files) == 3 * (BALANCE_MAX - 1)
    assert folder._tail.is_empty
    for turn in range(BALANCE_MAX):  # now and then a file alone changes nothing
        folder.commit(little[:1] if turn % 4 == 3 else little)
    assert not folder._tail.is_empty
    folder._wait_for_emptying()  # the tail's other file is made
    synced_files.clear()
    for _ in range(BALANCE_MAX):
        folder.commit(little)
    assert not synced_files
    much = [Append(name, bytes(LITTLE_BYTES)) for name in many(2)]
    for _ in range(2 * BALANCE_MAX):
        folder.commit(much)
        folder._wait_for_emptying()  # of a file that was full
    assert folder._tail.is_empty
    sizes = [folder.size(name) or 0 for name in many(3)]
    assert sizes[0] - sizes[2] == BALANCE_MAX // 4 + 2 * BALANCE_MAX * LITTLE_BYTES
    folder.close()


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


async def test_a_file_is_read_and_parsed_away_from_the_loop(tmp_path: Path) -> None:
    threads: list[str] = []

    def parse(data: bytes) -> tuple[int, bytes]:
        threads.append(threading.current_thread().name)
        return len(data), data

    async with opened(tmp_path) as (journal, _):
        journal.append(NAME, b"0123456789")
        await synced(journal)
        read: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        journal.read_soon(NAME, 3, 4, parse, read.put_nowait)
        assert read.empty()
        assert await read.get() == (4, b"3456")
        journal.read_soon(NAME, 8, 100, parse, read.put_nowait)
        assert await read.get() == (2, b"89")
        journal.read_soon("log/7/none", 0, 100, parse, read.put_nowait)
        assert await read.get() == (0, b"")
    assert all(name.startswith("log-read") for name in threads)


async def test_a_read_that_the_disk_refuses_is_a_failure_and_nobody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    told: list[bytes] = []
    async with opened(tmp_path) as (journal, failures):
        journal.append(NAME, b"0123456789")
        await synced(journal)
        monkeypatch.setattr(os, "pread", refuse)
        journal.read_soon(NAME, 0, 10, bytes, told.append)
        async with asyncio.timeout(20):
            while not failures:
                await asyncio.sleep(0)
        assert isinstance(failures[0], OSError)
        assert journal.is_failed
    assert told == []


async def test_reads_go_on_while_files_come_and_go(tmp_path: Path) -> None:
    """A descriptor that is closed for another one, or with its file, is no wrong file's."""
    names = [f"log/{number}/x" for number in range(OPEN_MAX + 50)]
    wrong: list[bytes] = []
    async with opened(tmp_path) as (journal, failures):
        for number, name in enumerate(names):
            journal.append(name, b"%06d" % number * 1000)
        await synced(journal)
        left, over = len(names) * 3, asyncio.Event()

        def expect(number: int) -> Callable[[bytes], None]:
            def done(found: bytes) -> None:
                nonlocal left
                if found not in (b"", b"%06d" % number * 1000):
                    wrong.append(found)
                left -= 1
                if not left:
                    over.set()

            return done

        for _ in range(3):
            for number, name in enumerate(names):
                journal.read_soon(name, 0, 6000, bytes, expect(number))
                if number % 3 == 0:
                    journal.remove(name)
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await over.wait()
        assert not failures
    assert wrong == []
