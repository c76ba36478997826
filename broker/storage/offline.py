"""The store of a stopped node, for tools that change it. No loop, no thread.

Keeps what the running node relies on: writes go in numbered batches, and the mark says which of
them is synced (see `store`). While this is open nobody else can open the store.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import WriteBatch

from broker.storage.log_files import Append, Barrier, Cut, FileWrite, LogFolder, Remove
from broker.storage.store import BATCH_KEY, Store, StoreLocked, batch_number, open_store

_LOCK_FILE: Final = "LOCK"  # RocksDB's, held by a POSIX record lock
_FLOCK: Final = struct.Struct("hhqqi4x")  # Linux: type, whence, start, length, pid

_Write = tuple[str, str, bytes, bytes]
_Parsed = TypeVar("_Parsed")


class StoreMissing(Exception):
    """There is no store in this folder."""


class OfflineStore:
    """A `raft.ports.Journal` and `LogFiles` on a stopped node's store; durable with `flush`.

    Args:
        path: The store's directory.

    Raises:
        StoreMissing: There is none.
        StoreLocked: A node runs on it; the text names the process if it can be known.
        StoreDamaged: It does not open.
        OSError: The log files can't be brought up to date.
    """

    def __init__(self, path: Path) -> None:
        if not (path / "CURRENT").is_file():
            raise StoreMissing(f"there is no store in {path}: give the data folder of a node")
        owner = lock_owner(path)
        if owner:
            raise StoreLocked(f"store {path} is in use by {owner}: stop that node first")
        self._store: Store = open_store(path)
        self._number = self._store.last_batch
        self._pending: list[_Write] = []
        self._file_writes: list[FileWrite] = []
        try:
            self._files = LogFolder(path.parent)
        except BaseException:
            self._store.close()
            raise

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a record with the next flush."""
        self._pending.append(("put", family, key, value))

    def delete(self, family: str, key: bytes) -> None:
        """Remove a record with the next flush."""
        self._pending.append(("delete", family, key, b""))

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove all keys in [start, end) with the next flush."""
        if start < end:
            self._pending.append(("cut", family, start, end))

    def when_synced(self, done: Callable[[], None]) -> None:
        """Flush, then call `done`."""
        self.flush()
        done()

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Records in [start, end) in key order, as of the last flush."""
        return self._store.scan(family, start, end)

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, pending writes included."""
        for what, where, first, value in reversed(self._pending):
            if where != family:
                continue
            if what == "cut" and first <= key < value:
                return None
            if first == key and what != "cut":
                return value if what == "put" else None
        return self._store.get(family, key)

    def flush(self) -> None:
        """Write what is pending as one batch; durable when this returns."""
        if self._file_writes:
            writes, self._file_writes = self._file_writes, []
            self._files.commit(writes)
        if not self._pending:
            return
        batch = WriteBatch(raw_mode=True)
        for what, family, key, value in self._pending:
            handle = self._store.handles[family]
            if what == "put":
                batch.put(key, value, handle)
            elif what == "delete":
                batch.delete(key, handle)
            else:
                batch.delete_range(key, value, handle)
        self._number += 1
        batch.put(BATCH_KEY, batch_number(self._number), self._store.handles["meta"])
        self._store.database.write(batch)
        self._store.database.flush_wal(True)
        self._store.mark.write(self._number)
        self._store.mark.sync()
        self._pending.clear()

    def close(self) -> None:
        """Release the store; what was not flushed is dropped."""
        self._pending.clear()
        self._file_writes.clear()
        self._files.close()
        self._store.close()

    # -- the LogFiles port --------------------------------------------------------------------

    def append(self, name: str, data: bytes) -> None:
        """Write behind the end of a file with the next flush."""
        self._file_writes.append(Append(name, data))

    def cut(self, name: str, size_bytes: int) -> None:
        """Shorten a file with the next flush."""
        self._file_writes.append(Cut(name, size_bytes))

    def remove(self, name: str) -> None:
        """Remove a file with the next flush."""
        self._file_writes.append(Remove(name))

    def barrier(self, name: str) -> None:
        """Make a file, or its removal, durable before what is asked for later is written."""
        self._file_writes.append(Barrier(name))

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read a part of a file, as of the last flush."""
        return self._files.read(name, position, size_bytes)

    def read_soon(
        self,
        name: str,
        position: int,
        size_bytes: int,
        parse: Callable[[bytes], _Parsed],
        done: Callable[[_Parsed], None],
    ) -> None:
        """Read at once: nobody else waits."""
        done(parse(self.read(name, position, size_bytes)))

    def size(self, name: str) -> int | None:
        """Size of a file in bytes, as of the last flush; None if there is none."""
        return self._files.size(name)

    def names(self, folder: str) -> list[str]:
        """The files of a folder, as of the last flush."""
        return self._files.names(folder)

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder, as of the last flush."""
        return self._files.folders(folder)


def lock_owner(path: Path) -> str:
    """Return the process that has the lock of a store: "process 123 (warrenmq server ...)"; or "".

    Never asks from within the process that holds it: closing the file would drop the lock.
    """
    try:
        descriptor = os.open(path / _LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return ""
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    if kind == fcntl.F_UNLCK:
        return ""
    return f"process {pid}{_command_line(pid)}" if pid > 0 else "a process elsewhere"


def _command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = b" ".join(words).decode(errors="replace").strip()
    return f" ({text[:120]})" if text else ""
