"""Crashes of log files behind a tail: whatever a disk keeps of it, nothing is lost.

Real files, on a disk that keeps any part of what was not synced. The other thread's work is done
step by step, in between or when it is waited for; images of the disk are taken before and after
each of its calls, and opened as a start would.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import TypeVarTuple

import pytest

from broker.storage import log_files
from broker.storage.log_files import Append, Barrier, Cut, FileWrite, LogFolder, Remove
from broker.storage.store import StoreDamaged
from broker.storage.tail import pending_writes
from broker.storage.tail.log_tail import NAMES, Kind, LogTail, TailWrite, _TailFile
from broker.storage.tail.outcome import Outcomes

_Args = TypeVarTuple("_Args")

FILES = [f"log/{group}/0000000000.segment" for group in range(14)]
TAILS = [f"log/{name}" for name in NAMES]


class Waiting(Future[None]):
    """Work of the other thread, done when somebody waits for it, or the test says so."""

    def __init__(self, folder: SteppedFolder, do: Callable[[], None]) -> None:
        super().__init__()
        self._folder, self.do = folder, do

    def result(self, timeout: float | None = None) -> None:
        while not self.done():
            self._folder.step()


class SteppedFolder(LogFolder):
    """Log files without threads."""

    def __init__(self, path: Path) -> None:
        self.due: list[Waiting] = []
        super().__init__(path)

    def _do_behind(self, do: Callable[[*_Args], None], *args: *_Args) -> Future[None]:
        waiting = Waiting(self, lambda: do(*args))
        self.due.append(waiting)
        return waiting

    def _sync_all(self, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.fdatasync(descriptor)

    def step(self) -> None:
        if self.due:
            waiting = self.due.pop(0)
            waiting.do()
            waiting.set_result(None)

    def abandon(self) -> None:
        """Close everything as a process that dies does."""
        self._is_tail_used = False
        self.close()


class Disk:
    """What is durable of the files below a folder, and what else a crash may leave."""

    def __init__(self, path: Path, random: Random) -> None:
        self.path = path
        self.on_call: Callable[[], None] = lambda: None
        self._random = random
        self._durable: dict[str, bytes] = {}
        self._floor: dict[str, int] = {}

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write, pwrite, truncate = os.write, os.pwrite, os.truncate
        ftruncate, fdatasync, fsync = os.ftruncate, os.fdatasync, os.fsync

        def shortened(target: int | str | Path, size: int) -> None:
            name = self._name(target)
            self._floor[name] = min(self._floor.get(name, 0), size)

        def patched_write(descriptor: int, data: bytes) -> int:
            self.on_call()
            return write(descriptor, data)

        def patched_pwrite(descriptor: int, data: bytes, at: int) -> int:
            self.on_call()
            # The disk writes part of it, and dies; a head lies within one sector.
            cut = self._random.randint(0, len(data)) if at else 0
            pwrite(descriptor, data[:cut], at)
            self.on_call()
            pwrite(descriptor, data, at)
            self.on_call()
            return len(data)

        def patched_truncate(path: Path, size: int) -> None:
            shortened(path, size)
            truncate(path, size)
            self.on_call()

        def patched_ftruncate(descriptor: int, size: int) -> None:
            shortened(descriptor, size)
            ftruncate(descriptor, size)
            self.on_call()

        def patched_fdatasync(descriptor: int) -> None:
            self.on_call()
            fdatasync(descriptor)
            self._synced(self._name(descriptor))
            self.on_call()

        def patched_fsync(descriptor: int) -> None:
            fsync(descriptor)
            for name in [name for name in self._durable if not (self.path / name).exists()]:
                del self._durable[name]
            self.on_call()

        monkeypatch.setattr(os, "write", patched_write)
        monkeypatch.setattr(os, "pwrite", patched_pwrite)
        monkeypatch.setattr(os, "truncate", patched_truncate)
        monkeypatch.setattr(os, "ftruncate", patched_ftruncate)
        monkeypatch.setattr(os, "fdatasync", patched_fdatasync)
        monkeypatch.setattr(os, "fsync", patched_fsync)

    def _name(self, target: int | str | Path) -> str:
        path = (
            Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        )
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else ""

    def _synced(self, name: str) -> None:
        if name.endswith(".segment") and (self.path / name).exists():
            self._durable[name] = (self.path / name).read_bytes()
            self._floor[name] = len(self._durable[name])

    def image(self, target: Path) -> None:
        """Write what a crash may leave now."""
        (target / "log").mkdir(parents=True)
        random = self._random
        for tail in TAILS:  # each write to it is durable when it is over
            if (self.path / tail).exists():
                shutil.copy(self.path / tail, target / tail)
        on_disk = {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in self.path.rglob("*.segment")
        }
        for name in sorted({*self._durable, *on_disk}):
            durable, now = self._durable.get(name), on_disk.get(name)
            choices = []
            if durable is not None:
                choices.append(durable[: random.randint(self._floor[name], len(durable))])
                choices.append(durable)
            if now is not None:
                floor = min(self._floor.get(name, 0), len(now))
                choices += [now, now[: random.randint(floor, len(now))]]
            if durable is None and random.random() < 0.3:
                continue  # a file that nobody synced need not be there
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(random.choice(choices))


Contents = dict[str, bytes]


def carried_out(before: Contents, writes: list[FileWrite]) -> Contents:
    after = dict(before)
    for each in writes:
        if isinstance(each, Append):
            after[each.name] = after.get(each.name, b"") + each.data
        elif isinstance(each, Cut):
            after[each.name] = after[each.name][: each.size_bytes]
        elif isinstance(each, Remove):
            after.pop(each.name, None)
    return after


def some_writes(random: Random, contents: Contents, count: int) -> list[FileWrite]:
    """A batch: appends, now and then a cut, or a file that goes and comes back."""
    found: list[FileWrite] = []
    for name in random.sample(FILES, count):
        chance = random.random()
        if chance < 0.08 and len(contents.get(name, b"")) > 8:
            found.append(Cut(name, len(contents[name]) - random.randint(1, 8)))
        elif chance < 0.12 and name in contents:
            found += [Remove(name), Barrier(name)]
            if random.random() < 0.3:
                continue
        found.append(Append(name, random.randbytes(random.randint(1, 60))))
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "TAIL_BYTES_MAX", 4_000)
    monkeypatch.setattr(log_files, "TAIL_MARGIN_BYTES", 1_500)
    monkeypatch.setattr(log_files, "BALANCE_MAX", 1)
    monkeypatch.setattr(pending_writes, "WRITE_BYTES", 150)


def read_all(folder: LogFolder) -> Contents:
    found = {}
    for name in FILES:
        size = folder.size(name)
        if size is not None:
            found[name] = folder.read(name, 0, size + 10)
            assert len(found[name]) == size
    return found


class Crashes:
    """Takes images, and opens each as a start would."""

    def __init__(self, disk: Disk, scratch: Path, random: Random) -> None:
        self._disk, self._scratch, self._random = disk, scratch, random
        self.before: Contents = {}
        self.after: Contents = {}
        self.is_through_tail: Callable[[], bool] = lambda: True
        self.count = 0
        self._is_busy = False
        self.chance = 0.02

    def maybe(self) -> None:
        if not self._is_busy and self._random.random() < self.chance:
            self._is_busy = True
            self.crash()
            self._is_busy = False

    def crash(self) -> None:
        target = self._scratch / str(self.count)
        self.count += 1
        self._disk.image(target)
        opened = SteppedFolder(target)
        found = read_all(opened)
        opened.abandon()
        if self.is_through_tail():  # a batch is there as a whole, or not at all
            found = {name: data for name, data in found.items() if data}
            assert found in (self._not_empty(self.before), self._not_empty(self.after))
        else:
            for name in FILES:
                if name in self.before and self.before.get(name) == self.after.get(name):
                    assert found[name] == self.before[name]
        again = SteppedFolder(target)  # the start was interrupted, and is made again
        assert {name: data for name, data in read_all(again).items() if data} == {
            name: data for name, data in found.items() if data
        }
        again.abandon()
        shutil.rmtree(target)

    @staticmethod
    def _not_empty(contents: Contents) -> Contents:
        """An empty file may have been made, or not: it says nothing."""
        return {name: data for name, data in contents.items() if data}


@pytest.mark.parametrize("seed", range(8))
def test_no_crash_loses_what_a_batch_was_told(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    random = Random(seed)
    disk = Disk(tmp_path / "disk", random)
    (tmp_path / "disk").mkdir()
    folder = SteppedFolder(tmp_path / "disk")
    crashes = Crashes(disk, tmp_path / "crashes", random)
    with monkeypatch.context() as patched:
        disk.patch(patched)
        disk.on_call = crashes.maybe
        take_overs = 0
        for turn in range(75):  # the first ones use the tail, and empty it, now and then
            is_few = turn < 15 or random.random() < 0.3
            count = random.choice((1, 1, 1, 3)) if is_few else random.randint(9, len(FILES))
            writes = some_writes(random, crashes.before, count)
            crashes.after = carried_out(crashes.before, writes)
            is_many = count > log_files.FEW_FILES
            crashes.is_through_tail = lambda is_many=is_many: is_many or folder._is_tail_used
            used = folder._tail.used_bytes
            folder.commit(writes)
            take_overs += folder._tail.used_bytes < used
            crashes.before = crashes.after
            if random.random() < 0.2:
                crashes.crash()
            while random.random() < 0.4:
                folder.step()
            assert read_all(folder) == crashes.before
        assert take_overs > 2
        assert crashes.count > 10
    folder.abandon()


def test_a_clean_stop_leaves_an_empty_tail_and_whole_files(tmp_path: Path, small: None) -> None:
    random, contents = Random(1), Contents()
    folder = LogFolder(tmp_path)
    for _ in range(30):
        writes = some_writes(random, contents, 10)
        contents = carried_out(contents, writes)
        folder.commit(writes)
    folder.close()
    assert LogTail(tmp_path / "log", 4_000).is_empty
    on_disk = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.segment")}
    assert {name: path.read_bytes() for name, path in on_disk.items()} == contents


def test_files_are_written_to_once_for_many_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = os.write

    def counted(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        return real(descriptor, data)

    folder = LogFolder(tmp_path)
    monkeypatch.setattr(os, "write", counted)
    for _ in range(50):
        folder.commit([Append(name, bytes(100)) for name in FILES])
    assert written == []
    assert folder.read(FILES[3], 4_950, 100) == bytes(50)
    folder.close()
    assert sorted(written) == [5_000] * len(FILES)


def test_what_waits_in_memory_is_written_when_a_file_has_much_of_it(tmp_path: Path) -> None:
    folder = SteppedFolder(tmp_path)
    folder.commit([Append(name, bytes(100)) for name in FILES])
    folder.commit([Append(FILES[0], bytes(pending_writes.WRITE_BYTES))])
    while folder.due:
        folder.step()
    path = tmp_path / FILES[0]
    assert path.stat().st_size == pending_writes.WRITE_BYTES + 100
    assert (tmp_path / FILES[1]).stat().st_size == 0
    folder.abandon()


def test_a_failure_of_the_other_thread_is_told_and_nothing_is_promised_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    told: list[BaseException] = []
    folder = LogFolder(tmp_path, told.append)

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", refuse)

    def until_it_fails() -> None:
        for _ in range(1_000):
            folder.commit([Append(name, bytes(20)) for name in FILES])

    with pytest.raises(OSError, match="Input/output"):
        until_it_fails()
    with pytest.raises(OSError, match="Input/output"):
        folder.commit([Append(FILES[0], b"x")])
    assert [str(error) for error in told] == ["[Errno 5] Input/output error"]
    monkeypatch.undo()
    folder.close()
    assert not LogTail(tmp_path / "log", 4_000).is_empty


def test_a_tail_of_one_file_that_an_earlier_version_wrote_is_read(tmp_path: Path) -> None:
    """Its head is "WMTH", its numbers begin at 0."""
    folder = SteppedFolder(tmp_path / "one")
    folder.commit([Append(name, b"promised") for name in FILES])
    image = tmp_path / "two/log"
    image.mkdir(parents=True)
    tail = LogTail(image, 4_000)
    for each in tail._files:
        each.number -= each.generation << 32
    path = image / NAMES[0]
    tail.append([TailWrite(Kind.APPEND, name, 0, b"promised") for name in FILES])
    tail.close()
    content = bytearray(path.read_bytes())
    content[:16] = (head := struct.pack(">4sQ", b"WMTH", 0)) + struct.pack(">I", zlib.crc32(head))
    path.write_bytes(content)
    opened = SteppedFolder(tmp_path / "two")
    assert read_all(opened) == dict.fromkeys(FILES, b"promised")
    opened.abandon()
    folder.abandon()


def test_a_full_file_that_lost_its_last_record_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    tail = LogTail(tmp_path / "log", 4_000)
    tail.append([TailWrite(Kind.APPEND, FILES[0], 0, b"first")])
    tail.append([TailWrite(Kind.APPEND, FILES[0], 5, b"second")])
    tail.take_over()
    tail.append([TailWrite(Kind.APPEND, FILES[1], 0, b"third")])
    tail.close()
    full = tmp_path / TAILS[0]
    full.write_bytes(full.read_bytes().replace(b"second", b"damage"))
    with pytest.raises(StoreDamaged, match="tail2 goes on"):
        LogFolder(tmp_path)


def test_a_start_that_dies_between_emptying_both_files_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    random, contents = Random(3), Contents()
    folder = SteppedFolder(tmp_path)
    while not folder._tail._other.used_bytes or folder._tail.used_bytes < 1_000:
        writes = some_writes(random, contents, 10)
        contents = carried_out(contents, writes)
        folder.commit(writes)
    folder.abandon()
    cleared: list[str] = []
    real = _TailFile.clear

    def clear(file: _TailFile, number: int) -> None:
        if cleared:
            raise OSError(5, "the process dies here")
        cleared.append(file.path.name)
        real(file, number)

    with monkeypatch.context() as patched:
        patched.setattr(_TailFile, "clear", clear)
        with pytest.raises(OSError, match="dies here"):
            SteppedFolder(tmp_path)
    assert cleared
    opened = SteppedFolder(tmp_path)
    assert read_all(opened) == contents
    opened.abandon()


def outcome_of(records: list[list[TailWrite]], on_disk: bytes) -> bytes | None:
    """Carry out writes one by one."""
    found: bytes | None = on_disk
    for write in [write for writes in records for write in writes]:
        is_removal = write.kind == Kind.REMOVE
        found = None if is_removal else (found or b"")[: write.position] + write.data
    return found


def histories(random: Random) -> Iterator[tuple[list[list[TailWrite]], bytes]]:
    """What a tail may hold of one file, and what the file had before."""
    while True:
        before = random.randbytes(random.randint(0, 20))
        now: bytes | None = before
        records = []
        for _ in range(random.randint(1, 12)):
            if random.random() < 0.15:
                records.append([TailWrite(Kind.REMOVE, "f")])
                now = None
            elif random.random() < 0.25 and now:
                size = random.randint(0, len(now))
                records.append([TailWrite(Kind.CUT, "f", size)])
                now = now[:size]
            else:
                data = random.randbytes(random.randint(1, 9))
                records.append([TailWrite(Kind.APPEND, "f", len(now or b""), data)])
                now = (now or b"") + data
        yield records, before


def test_an_outcome_is_what_the_writes_come_to_one_by_one() -> None:
    for (records, before), _ in zip(histories(Random(2)), range(500), strict=False):
        found = Outcomes(records)
        assert not found.holes
        outcome = found["f"]
        expected = outcome_of(records, before)
        if outcome.is_removed:
            assert expected is None
        else:
            assert outcome.keep_bytes <= len(before)
            assert before[: outcome.keep_bytes] + bytes(outcome.data) == expected


def test_an_outcome_knows_a_hole_between_two_writes() -> None:
    writes = [TailWrite(Kind.APPEND, "f", 4, b"56"), TailWrite(Kind.APPEND, "f", 7, b"8")]
    assert Outcomes([writes]).holes == ["f"]
