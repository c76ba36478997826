"""Files that grow at their ends, on disk: written by the commit thread, read by anyone.

What the batches of one hand-over ask for is carried out in order and made durable (`commit`) before
the records of the same batches are written to the store. So a record proves what was written to
files with it (`raft.ports.LogFiles`).

A file alone, or a few with much for each, are written and synced. For others there is the tail,
which is written and synced in their place (`broker.storage.tail.log_tail`); what is appended to
each waits in memory meanwhile (`broker.storage.tail.pending_writes`):

    the tail is not used                  carry out, sync each
    many files, or a few with little      begin to use it
    the tail is used                      write to the tail, sync it; keep what is appended
    much was kept for a file              another thread writes it
    the file in use is full               go on in the other one; another thread writes what is kept
                                          in memory, syncs the files, empties the full one
    one file, or a few with much          write and sync all files of the tail, empty it

Descriptors are kept open, the least recently used are closed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVarTuple

from broker.durable_files import sync_folder
from broker.storage.store import StoreDamaged
from broker.storage.tail.log_tail import NAMES, Kind, LogTail, TailWrite
from broker.storage.tail.outcome import Outcomes
from broker.storage.tail.pending_writes import PendingWrites, write_all

OPEN_MAX: Final = 256
"""Descriptors for writing, and as many for reading: a thousand logs share them."""

SYNC_THREADS: Final = 4
"""Files that are synced at a time: a disk works on several at once."""

FEW_FILES: Final = 8
"""So many files cost less than a tail, which writes everything twice, if each gets much."""

LITTLE_BYTES: Final = 32 << 10
"""Less than this for each file: several syncs, and the threads that do them, cost more than to
write it twice. With six queues and ten messages of 1 KB in each the tail saved three nodes a tenth
of their processor time and half of their thread switches."""

BALANCE_MAX: Final = 32
"""By so many batches those of one kind must prevail before the way is changed: each change costs
some syncs, and the first one fills the tail with zeros."""

TAIL_BYTES_MAX: Final = 16 << 20
"""A file of the tail that has grown so far is full. A start repeats both; what they hold is in
memory, too."""

TAIL_MARGIN_BYTES: Final = 4 << 20
"""It is full when it has less room: most batches are smaller."""

SYNCED_AT_ONCE: Final = 64
"""Files that are open while the tail is emptied."""

_LOG: Final = "log"
_TAILS: Final = frozenset(f"{_LOG}/{name}" for name in NAMES)


_Args = TypeVarTuple("_Args")

_log = logging.getLogger(__name__)


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


def own_entries(data_folder: Path) -> list[Path]:
    """What of a node's log files lies in its data folder; `log` can have other things, too."""
    try:
        found = sorted((data_folder / "log").iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [each for each in found if each.name in NAMES or _is_folder_of_group(each)]


def _is_folder_of_group(path: Path) -> bool:
    return path.name.isdecimal() and path.is_dir()


class LogFolder:
    """The folder below which all log files of a node are.

    Args:
        path: It; `log` in it is made when the first file is.
        on_failed: Called in another thread when what it did there failed: nothing more may be
            promised, as if `commit` had raised it.

    Raises:
        StoreDamaged: The tail of the process before is damaged.
        OSError: It can't be read, or what it holds can't be written.
    """

    def __init__(
        self, path: Path, on_failed: Callable[[BaseException], None] = lambda error: None
    ) -> None:
        self.path = path
        self._on_failed = on_failed
        self._writing = _Descriptors(self._open_to_write)
        self._reading = _Descriptors(self._open_to_read)
        self._reading_lock = threading.Lock()
        self._unsynced: dict[str, None] = {}
        self._changed_folders: dict[Path, None] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._tail = LogTail(path / _LOG, TAIL_BYTES_MAX)
        self._is_tail_used = False
        self._balance = 0  # of batches: above 0 more cost less in the tail
        self._pending = PendingWrites(path)
        self._behind: ThreadPoolExecutor | None = None
        self._emptying: Future[None] | None = None
        self._error: BaseException | None = None
        self._repeat_tail()

    # -- by the commit thread -----------------------------------------------------------------

    def commit(self, writes: list[FileWrite]) -> None:
        """Carry out writes, in order, and make them durable.

        Raises:
            OSError: The disk refused one, now or in the other thread; what is durable is not known.
        """
        self._require_no_failure()
        try:
            self._commit(writes)
        except BaseException as error:
            self._error = error
            raise

    def _commit(self, writes: list[FileWrite]) -> None:
        names = {each.name for each in writes}
        self._note(writes, len(names))
        if self._is_tail_used and self._is_worth_emptying():
            self._empty_tail()
        is_many = len(names) > FEW_FILES
        if self._is_tail_used or is_many or self._balance >= BALANCE_MAX:
            self._through_tail(writes)
        else:
            for each in writes:
                self._carry_out(each)
            self._sync()

    def close(self) -> None:
        """Write what files lack, unless that failed before, and close all descriptors."""
        try:
            if self._is_tail_used and self._error is None:
                self._empty_tail()
        except OSError as error:
            # The tail has all of it, and the next start repeats it.
            _log.warning("log_files.closed_early: %s; the next start reads the tail", error)
        for each in (self._behind, self._pool):
            if each is not None:
                each.shutdown()
        self._tail.close()
        self._writing.close()
        with self._reading_lock:
            self._reading.close()

    def _note(self, writes: list[FileWrite], count: int) -> None:
        """Count a batch, for so many files, among those that cost less in the tail, or do not."""
        size = sum([len(each.data) for each in writes if isinstance(each, Append)])
        is_for_tail = count > FEW_FILES or (count > 1 and size < count * LITTLE_BYTES)
        balance = self._balance + (1 if is_for_tail else -1)
        self._balance = max(-BALANCE_MAX, min(BALANCE_MAX, balance))

    def _is_worth_emptying(self) -> bool:
        if self._balance > -BALANCE_MAX or len(self._unsynced) > FEW_FILES:
            return False
        return self._emptying is None or self._emptying.done()

    def _through_tail(self, writes: list[FileWrite]) -> None:
        if not self._is_tail_used:
            self._make_folder(self.path / _LOG)
        if self._tail.used_bytes > TAIL_BYTES_MAX - TAIL_MARGIN_BYTES:
            self._take_over()
        self._tail.append(self._placed(writes))
        if not self._is_tail_used:
            self._is_tail_used = True
            self._emptying = self._do_behind(self._tail.make_ready)
        appends: list[tuple[str, bytes]] = []
        removed: set[str] = set()
        for each in writes:
            if isinstance(each, Append):
                appends.append(each)
                self._unsynced[each.name] = None
                if each.name in removed:  # it comes back
                    removed.remove(each.name)
                    self._watched_size(each.name)
            elif not isinstance(each, Barrier):  # the tail has all of it, in order
                self._add(appends)
                appends = []
                self._change_now(each)
                if isinstance(each, Remove):
                    removed.add(each.name)
        self._add(appends)

    def _placed(self, writes: list[FileWrite]) -> list[TailWrite]:
        """The writes with their places in the files, all of which are watched then."""
        sizes: dict[str, int] = {}
        found = []
        for each in writes:
            if isinstance(each, Append):
                position = sizes.get(each.name, -1)
                if position < 0:
                    position = self._watched_size(each.name)
                found.append(TailWrite(Kind.APPEND, each.name, position, each.data))
                sizes[each.name] = position + len(each.data)
            elif isinstance(each, Cut):
                self._watched_size(each.name)
                found.append(TailWrite(Kind.CUT, each.name, each.size_bytes))
                sizes[each.name] = each.size_bytes
            elif isinstance(each, Remove):
                found.append(TailWrite(Kind.REMOVE, each.name))
                sizes[each.name] = 0
        return found

    def _watched_size(self, name: str) -> int:
        size = self._pending.size(name)
        if size is None:
            size = os.fstat(self._writing.get(name)).st_size  # makes it where there is none
            self._pending.watch(name, size)
        return size

    def _add(self, appends: list[tuple[str, bytes]]) -> None:
        for name in self._pending.add(appends):
            self._do_behind(self._write_out, name)

    def _change_now(self, write: FileWrite) -> None:
        """Carry out what shortens a file, or removes it; the tail has it."""
        if isinstance(write, Cut):
            self._pending.cut(write.name, write.size_bytes)
            self._unsynced[write.name] = None
            return
        self._pending.forget(write.name)
        self._remove(write.name)

    def _take_over(self) -> None:
        """Go on in the tail's other file, while another thread empties the one that is full."""
        self._wait_for_emptying()
        names, self._unsynced = self._unsynced, {}
        folders, self._changed_folders = self._changed_folders, {}
        self._pending.keep(names)
        self._tail.take_over()
        self._emptying = self._do_behind(self._empty_full, list(names), list(folders))

    def _empty_tail(self) -> None:
        """Make the files as durable as the tail, and use it no more."""
        self._wait_for_emptying()
        names, self._unsynced = self._unsynced, {}
        folders, self._changed_folders = self._changed_folders, {}
        self._make_durable(list(names), list(folders))
        self._tail.empty()
        self._pending.keep(())
        self._is_tail_used = False

    def _wait_for_emptying(self) -> None:
        if self._emptying is not None:
            self._emptying.result()
            self._emptying = None
            self._require_no_failure()

    def _require_no_failure(self) -> None:
        if self._error is not None:
            raise self._error

    def _repeat_tail(self) -> None:
        """Carry out what the process before had promised, and may not have carried out."""
        outcomes = Outcomes(self._tail.records())
        for name, outcome in outcomes.items():
            size = self.size(name) or 0
            if name in outcomes.holes or size < outcome.keep_bytes:
                raise StoreDamaged(
                    self.path / name, f"it ends at {size}, and the tail goes on later"
                )
            if outcome.is_removed:
                self._carry_out(Remove(name))
                continue
            self._carry_out(Cut(name, outcome.keep_bytes))
            self._carry_out(Append(name, bytes(outcome.data)))
        if not self._tail.is_empty:
            self._sync()
            self._tail.empty()

    # -- by another thread --------------------------------------------------------------------

    def _do_behind(self, do: Callable[[*_Args], None], *args: *_Args) -> Future[None]:
        def run() -> None:
            try:
                if self._error is None:
                    do(*args)
            except BaseException as error:  # noqa: BLE001 - the outermost frame of a thread's work
                self._error = error
                self._on_failed(error)

        self._behind = self._behind or ThreadPoolExecutor(1, "log-behind")
        return self._behind.submit(run)

    def _write_out(self, name: str) -> None:
        descriptor = self._pending.write_out(name)
        if descriptor is not None:
            os.close(descriptor)

    def _empty_full(self, names: list[str], folders: list[Path]) -> None:
        self._make_durable(names, folders)
        self._tail.empty_full()

    def _make_durable(self, names: list[str], folders: list[Path]) -> None:
        """Write what watched files lack, and sync them, and folders."""
        _sync_folders(folders)
        for first in range(0, len(names), SYNCED_AT_ONCE):
            descriptors: list[int] = []
            try:
                for name in names[first : first + SYNCED_AT_ONCE]:
                    descriptor = self._pending.write_out(name)
                    if descriptor is not None:
                        descriptors.append(descriptor)
                self._sync_all(descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    # -- files --------------------------------------------------------------------------------

    def _carry_out(self, write: FileWrite) -> None:
        if isinstance(write, Append):
            write_all(self._writing.get(write.name), write.data)
            self._unsynced[write.name] = None
        elif isinstance(write, Cut):
            os.ftruncate(self._writing.get(write.name), write.size_bytes)
            self._unsynced[write.name] = None
        elif isinstance(write, Remove):
            self._remove(write.name)
        else:
            self._sync_changed_folders()
            if write.name in self._unsynced:
                del self._unsynced[write.name]
                os.fdatasync(self._writing.get(write.name))

    def _sync(self) -> None:
        self._sync_changed_folders()
        names, self._unsynced = list(self._unsynced), {}
        for first in range(0, len(names), OPEN_MAX):
            self._sync_all([self._writing.get(name) for name in names[first : first + OPEN_MAX]])

    def _sync_all(self, descriptors: list[int]) -> None:
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

    def _sync_changed_folders(self) -> None:
        folders, self._changed_folders = self._changed_folders, {}
        _sync_folders(folders)

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
        end = position + size_bytes
        behind = self._pending.behind(name, end)
        if behind is None:
            return self._read_file(name, position, size_bytes)
        written_bytes, data = behind
        found = b""
        if position < written_bytes:
            found = self._read_file(name, position, written_bytes - position)
            if position + len(found) < written_bytes:
                return found
        return found + data[max(0, position - written_bytes) : end - written_bytes]

    def _read_file(self, name: str, position: int, size_bytes: int) -> bytes:
        with self._reading_lock:
            try:
                # Its own, which nobody closes meanwhile; nobody waits for the disk with the lock.
                descriptor = os.dup(self._reading.get(name))
            except FileNotFoundError:
                return b""
        try:
            return os.pread(descriptor, size_bytes, position)
        finally:
            os.close(descriptor)

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if there is none."""
        size = self._pending.size(name)
        if size is not None:
            return size
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The files of a folder, but the tail, with its name before theirs, sorted."""
        return self._listed(folder, are_folders=False)

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder, with its name before theirs, sorted."""
        return self._listed(folder, are_folders=True)

    def _listed(self, folder: str, *, are_folders: bool) -> list[str]:
        try:
            with os.scandir(self.path / folder) as found:
                names = [each.name for each in found if each.is_dir() is are_folders]
        except FileNotFoundError:
            return []
        return sorted(name for each in names if (name := f"{folder}/{each}") not in _TAILS)

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


def _sync_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        if folder.is_dir():
            sync_folder(folder)
