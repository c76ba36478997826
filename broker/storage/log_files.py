"""Files that grow at their ends, on disk: written by the commit thread, read by anyone.

What a batch asks for is carried out in order (`LogFolder.write`) and made durable at once
(`LogFolder.sync`), before the records of the same batch are written to the store. So a record
proves what was written to files with it (`raft.ports.LogFiles`).

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

OPEN_MAX: Final = 256
"""Descriptors for writing, and as many for reading: a thousand logs share them."""

SYNC_THREADS: Final = 4
"""Files of one batch that are synced at a time: a disk works on several at once."""


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
        path: It; made when the first file is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = _Descriptors(self._open_to_write)
        self._reading = _Descriptors(self._open_to_read)
        self._reading_lock = threading.Lock()
        self._unsynced: dict[str, None] = {}
        self._changed_folders: dict[Path, None] = {}
        self._pool: ThreadPoolExecutor | None = None

    # -- by the commit thread -----------------------------------------------------------------

    @property
    def has_unsynced(self) -> bool:
        """True while something was written that `sync` has not made durable."""
        return bool(self._unsynced or self._changed_folders)

    def write(self, writes: list[FileWrite]) -> None:
        """Carry out the writes of a batch, in order.

        Raises:
            OSError: The disk refused one; those before it may be carried out.
        """
        for each in writes:
            if isinstance(each, Append):
                _write_all(self._writing.get(each.name), each.data)
                self._unsynced[each.name] = None
            elif isinstance(each, Cut):
                os.ftruncate(self._writing.get(each.name), each.size_bytes)
                self._unsynced[each.name] = None
            elif isinstance(each, Remove):
                self._remove(each.name)
            else:
                self._sync_folders()
                if each.name in self._unsynced:
                    del self._unsynced[each.name]
                    os.fdatasync(self._writing.get(each.name))

    def sync(self) -> None:
        """Make everything written durable.

        Raises:
            OSError: A sync failed; what is durable is not known.
        """
        self._sync_folders()
        names, self._unsynced = list(self._unsynced), {}
        for first in range(0, len(names), OPEN_MAX):
            descriptors = [self._writing.get(name) for name in names[first : first + OPEN_MAX]]
            if len(descriptors) == 1:
                os.fdatasync(descriptors[0])
            elif descriptors:
                self._pool = self._pool or ThreadPoolExecutor(SYNC_THREADS, "log-sync")
                list(self._pool.map(os.fdatasync, descriptors))

    def close(self) -> None:
        """Close all descriptors."""
        self._writing.close()
        with self._reading_lock:
            self._reading.close()
        if self._pool is not None:
            self._pool.shutdown()

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

    def _sync_folders(self) -> None:
        folders, self._changed_folders = self._changed_folders, {}
        for folder in folders:
            if folder.is_dir():
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _open_to_write(self, name: str) -> int:
        path = self.path / name
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            pass
        missing = path.parent
        while not missing.is_dir():  # the folder of each new folder, too
            self._changed_folders[missing.parent] = None
            missing = missing.parent
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
