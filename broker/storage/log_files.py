"""Files that grow at their ends, on disk: written by the commit thread, read by anyone.

What the batches of one hand-over ask for is carried out in order and made durable (`commit`) before
the records of the same batches are written to the store. So a record proves what was written to
files with it (`raft.ports.LogFiles`).

Few files are synced each, some at a time. For many there is one tail, which is synced in their
place (`broker.storage.log_tail`):

    few files, and the tail is empty     carry out, sync each
    many, or the tail is not empty       write to the tail, sync it, carry out
    the tail is long, or few and little  sync all files of the tail, empty it

Descriptors are kept open, the least recently used are closed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from broker.storage.log_tail import Kind, LogTail, TailWrite
from broker.storage.store import StoreDamaged

OPEN_MAX: Final = 256
"""Descriptors for writing, and as many for reading: a thousand logs share them."""

SYNC_THREADS: Final = 4
"""Files that are synced at a time: a disk works on several at once."""

FEW_FILES: Final = 8
"""So many files cost less than a tail, which writes everything twice."""

TAIL_BYTES_MAX: Final = 32 << 20
"""A tail that has grown so far is emptied; a start repeats it in a tenth of a second."""

TAIL_MARGIN_BYTES: Final = 4 << 20
"""It is emptied when it has less room: most batches are smaller."""

TAIL: Final = "log/tail"


class Append(NamedTuple):
    """Bytes behind the end of a file."""

    name: str
    data: bytes


class Cut(NamedTuple):
    """A file becomes shorter."""

    name: str
    size_bytes: int


class Remove(NamedTuple):
    """A file goes."""

    name: str


class Barrier(NamedTuple):
    """A file, or its removal, becomes durable before what follows is written."""

    name: str


FileWrite = Append | Cut | Remove | Barrier


class LogFolder:
    """The folder below which all log files of a node are.

    Args:
        path: It; `log` in it is made when the first file is.

    Raises:
        StoreDamaged: The tail of the process before is damaged.
        OSError: It can't be read, or what it holds can't be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = _Descriptors(self._open_to_write)
        self._reading = _Descriptors(self._open_to_read)
        self._reading_lock = threading.Lock()
        self._unsynced: dict[str, None] = {}
        self._changed_folders: dict[Path, None] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._tail = LogTail(path / TAIL, TAIL_BYTES_MAX)
        self._repeat_tail()

    # -- by the commit thread -----------------------------------------------------------------

    def commit(self, writes: list[FileWrite]) -> None:
        """Carry out writes, in order, and make them durable.

        Raises:
            OSError: The disk refused one; what is durable is not known.
        """
        names = {each.name for each in writes}
        if not self._tail.is_empty and self._is_worth_emptying(len(names)):
            self._empty_tail()
        if not self._tail.is_empty or len(names) > FEW_FILES:
            self._through_tail(writes)
        else:
            for each in writes:
                self._carry_out(each)
            self._sync()

    def close(self) -> None:
        """Close all descriptors."""
        self._tail.close()
        self._writing.close()
        with self._reading_lock:
            self._reading.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _is_worth_emptying(self, count: int) -> bool:
        is_little = len(self._unsynced) <= FEW_FILES and count <= FEW_FILES
        return is_little or self._tail.used_bytes > TAIL_BYTES_MAX - TAIL_MARGIN_BYTES

    def _through_tail(self, writes: list[FileWrite]) -> None:
        self._make_folder(self.path / "log")
        sizes: dict[str, int] = {}
        found = []
        for each in writes:
            if isinstance(each, Append):
                position = sizes.get(each.name, -1)
                if position < 0:
                    position = os.fstat(self._writing.get(each.name)).st_size
                found.append(TailWrite(Kind.APPEND, each.name, position, each.data))
                sizes[each.name] = position + len(each.data)
            elif isinstance(each, Cut):
                found.append(TailWrite(Kind.CUT, each.name, each.size_bytes))
                sizes[each.name] = each.size_bytes
            elif isinstance(each, Remove):
                found.append(TailWrite(Kind.REMOVE, each.name))
                sizes[each.name] = 0
        self._tail.append(found)
        for each in writes:
            if not isinstance(each, Barrier):  # the tail has all of it, in order
                self._carry_out(each)

    def _empty_tail(self) -> None:
        self._sync()
        self._tail.clear()

    def _repeat_tail(self) -> None:
        """Carry out what the process before had promised, and may not have carried out."""
        holes: dict[str, int] = {}
        for writes in self._tail.records():
            for each in writes:
                self._repeat(each, holes)
        for name, position in holes.items():
            raise StoreDamaged(
                self.path / name, f"it ends at {position}, and the tail goes on later"
            )
        if not self._tail.is_empty:
            self._empty_tail()

    def _repeat(self, write: TailWrite, holes: dict[str, int]) -> None:
        """Carry out a write of the tail.

        Args:
            write: The write.
            holes: Where a file lacks what was durable before the tail, unless a later write cuts it
                there: a cut can have reached the disk before its turn comes here.
        """
        name, position = write.name, write.position
        if write.kind == Kind.REMOVE:
            holes.pop(name, None)
            self._carry_out(Remove(name))
            return
        size = self.size(name) or 0
        if write.kind == Kind.APPEND and size < position:
            holes.setdefault(name, size)
        elif write.kind == Kind.CUT and position <= holes.get(name, -1):
            del holes[name]
        self._carry_out(Cut(name, position))
        if write.kind == Kind.APPEND:
            self._carry_out(Append(name, write.data))

    def _carry_out(self, write: FileWrite) -> None:
        if isinstance(write, Append):
            _write_all(self._writing.get(write.name), write.data)
            self._unsynced[write.name] = None
        elif isinstance(write, Cut):
            os.ftruncate(self._writing.get(write.name), write.size_bytes)
            self._unsynced[write.name] = None
        elif isinstance(write, Remove):
            self._remove(write.name)
        else:
            self._sync_folders()
            if write.name in self._unsynced:
                del self._unsynced[write.name]
                os.fdatasync(self._writing.get(write.name))

    def _sync(self) -> None:
        self._sync_folders()
        names, self._unsynced = list(self._unsynced), {}
        for first in range(0, len(names), OPEN_MAX):
            descriptors = [self._writing.get(name) for name in names[first : first + OPEN_MAX]]
            if len(descriptors) == 1:
                os.fdatasync(descriptors[0])
            elif descriptors:
                self._pool = self._pool or ThreadPoolExecutor(SYNC_THREADS, "log-sync")
                list(self._pool.map(os.fdatasync, descriptors))

    def _remove(self, name: str) -> None:
        self._unsynced.pop(name, None)
        self._writing.forget(name)
        with self._reading_lock:
            self._reading.forget(name)
        path = self.path / name
        path.unlink(missing_ok=True)
        self._changed_folders[path.parent] = None
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
            self._changed_folders[path.parent.parent] = None

    def _sync_folders(self) -> None:
        folders, self._changed_folders = self._changed_folders, {}
        for folder in folders:
            if folder.is_dir():
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _make_folder(self, path: Path) -> None:
        missing = path
        while not missing.is_dir():
            self._changed_folders[missing.parent] = None
            missing = missing.parent
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _open_to_write(self, name: str) -> int:
        path = self.path / name
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            self._make_folder(path.parent)
            self._changed_folders[path.parent] = None
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    # -- by anyone ----------------------------------------------------------------------------

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read a part of a file; shorter at its end, empty where there is none.

        Raises:
            OSError: The disk refused it.
        """
        with self._reading_lock:
            try:
                descriptor = self._reading.get(name)
            except FileNotFoundError:
                return b""
            return os.pread(descriptor, size_bytes, position)

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if there is none."""
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The files of a folder, with its name before theirs, sorted."""
        try:
            return sorted(f"{folder}/{each.name}" for each in (self.path / folder).iterdir())
        except FileNotFoundError:
            return []

    def _open_to_read(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDONLY)


class _Descriptors:
    """Descriptors by name; the least recently used are closed."""

    def __init__(self, opened: Callable[[str], int]) -> None:
        self._opened = opened
        self._by_name: OrderedDict[str, int] = OrderedDict()

    def get(self, name: str) -> int:
        descriptor = self._by_name.get(name)
        if descriptor is None:
            descriptor = self._by_name[name] = self._opened(name)
            if len(self._by_name) > OPEN_MAX:
                os.close(self._by_name.popitem(last=False)[1])
        else:
            self._by_name.move_to_end(name)
        return descriptor

    def forget(self, name: str) -> None:
        descriptor = self._by_name.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        for name in list(self._by_name):
            self.forget(name)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])
