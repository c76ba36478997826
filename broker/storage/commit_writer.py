"""The disk's side of the journal: looks for room, writes batches, syncs the log.

Called by the commit thread alone. Whatever raises here ends the node (code 74): a write or a sync
that failed is never tried again as if nothing had happened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import WriteBatch, WriteOptions

from broker.storage.commit_batch import DURABLE_FAMILIES, PASSING_FAMILIES, CommitBatch
from broker.storage.commit_stats import JournalStats
from broker.storage.disk_room import DiskRoom, free_bytes
from broker.storage.log_files import LogFolder
from broker.storage.store import BATCH_KEY, Store, batch_number

MARK_SYNC_BATCHES: Final = 256
"""The mark file itself is synced each time after so many batches."""

AMPLE_BYTES: Final = 2 * 1024 * 1024 * 1024
"""With more free space than this a write needs no check: tables in memory are never as big."""

AMPLE_S: Final = 0.050
"""How long no further look is taken then: each look releases the interpreter lock."""

STALL_WAIT_S: Final = 0.005
"""How long the next try waits when RocksDB is behind with its tables. RocksDB does not signal when
it is ready; only the commit thread waits."""

STALL_TOLD_S: Final = 1.0
"""A batch that has been delayed for so long is logged: nothing is confirmed meanwhile."""

RELIEF_INTERVAL_S: Final = 2.0
RELIEF_BYTES_MIN: Final = 64 * 1024
"""On a short disk tables of at least this size are written out early, so that the log shrinks and
removed records free their space."""


_log = logging.getLogger(__name__)


class CommitFailed(Exception):
    """Writing or syncing failed; nothing more is promised by this process.

    Args:
        path: The store's directory.
        what: What was tried.
        error: What the disk said.
    """

    def __init__(self, path: Path, what: str, error: BaseException) -> None:
        super().__init__(
            f"{what} failed in the store {path}: {error}. Everything that was confirmed is safe on "
            "disk, and nothing is confirmed any more. This node ends with code 74: see to the disk "
            "(space, limits, permissions, the kernel's log), then start the node again"
        )
        self.path = path
        self.what = what


class Look(NamedTuple):
    """The room on the disk, as the writer found it before a write.

    Attributes:
        fits: True if the batches can be written now.
        is_short: True while publishers must wait.
        free_bytes: Free space at the store.
        needed_bytes: Free space without which these batches are not written.
    """

    fits: bool
    is_short: bool
    free_bytes: int
    needed_bytes: int


_AMPLE: Final = Look(True, False, 0, 0)


class CommitWriter:
    """Writes to one open store.

    Args:
        store: Where.
        files: Where log files are.
        stats: Told what it costs.
    """

    def __init__(self, store: Store, files: LogFolder, stats: JournalStats) -> None:
        self._store = store
        self._files = files
        self._stats = stats
        self._number = store.last_batch
        self._has_unsynced = False  # something was written to the store since its last sync
        self._is_short = False
        self._ample_until_s = 0.0
        self._relieved_s = 0.0
        self._has_unwritten = False  # there was no room for tables; no write would be taken
        # A write that waits for RocksDB would stop every thread of the process meanwhile.
        self._options = WriteOptions()
        self._options.no_slowdown = True
        self._past_the_log = WriteOptions()
        self._past_the_log.no_slowdown = True
        self._past_the_log.disable_wal = True  # type: ignore[method-assign,assignment]

    def look(self, batches: list[CommitBatch]) -> Look:
        """Find out whether there is room for these batches; makes room where that is easy."""
        now_s = time.monotonic()
        if now_s < self._ample_until_s:
            return _AMPLE
        free = free_bytes(self._store.path)
        if self._has_unwritten and not self._write_tables(now_s):
            return Look(False, True, free or 0, self._unwritten_bytes())
        if free is None or free > AMPLE_BYTES:
            self._is_short = False
            self._ample_until_s = now_s + AMPLE_S
            return _AMPLE if free is None else Look(True, False, free, 0)
        size = sum(batch.size_bytes for batch in batches)
        room = DiskRoom(free, self._unwritten_bytes())
        is_short = room.is_short(size, was_short=self._is_short)
        if is_short and self._relieve(room):
            room = DiskRoom(free_bytes(self._store.path) or 0, self._unwritten_bytes())
            is_short = room.is_short(size, was_short=True)
        self._is_short = is_short or self._has_unwritten
        if self._has_unwritten:
            return Look(False, True, room.free_bytes, room.unwritten_bytes)
        is_removal = not any(batch.has_puts() for batch in batches)
        needed = room.needed_bytes(size, is_removal=is_removal)
        return Look(room.free_bytes >= needed, is_short, room.free_bytes, needed)

    def write(self, batches: list[CommitBatch], *, is_last: bool) -> None:
        """Write batches, and sync if a caller waits for one of them.

        Args:
            batches: In order.
            is_last: Sync in any case, the mark as well.

        Raises:
            CommitFailed: The disk refused; part of the batches may be written.
        """
        is_awaited = is_last or any(batch.waiting for batch in batches)
        self._write_files(batches)
        for batch in batches:
            self._write(batch)
        if is_awaited:
            self._sync(is_last=is_last)

    def _write_files(self, batches: list[CommitBatch]) -> None:
        """Write to log files, durably, before a record may say that it was done."""
        writes = [each for batch in batches for each in batch.files]
        if not writes:
            return
        began_s = time.perf_counter()
        try:
            self._files.commit(writes)
        except OSError as error:
            raise CommitFailed(self._files.path, "writing log files", error) from error
        self._stats.synced(time.perf_counter() - began_s)

    def _write(self, batch: CommitBatch) -> None:
        began_s = time.perf_counter()
        try:
            if batch.has_pages():
                self._put_through(batch, PASSING_FAMILIES, self._past_the_log)
            # Who waits for files alone waits for no sync of the store.
            if batch.has_durable_records() or (batch.waiting and not batch.files):
                self._number += 1
                self._put_through(batch, DURABLE_FAMILIES, self._options)
                self._has_unsynced = True
        except Exception as error:
            raise CommitFailed(self._store.path, f"writing batch {self._number}", error) from error
        self._stats.written(batch.records(), batch.size_bytes, time.perf_counter() - began_s)

    def _put_through(
        self, batch: CommitBatch, families: Iterable[str], options: WriteOptions
    ) -> None:
        began_s, is_told = time.monotonic(), False
        while True:
            writes = self._translate(batch, families)
            if families is DURABLE_FAMILIES:
                writes.put(BATCH_KEY, batch_number(self._number), self._store.handles["meta"])
            try:
                self._store.database.write(writes, options)
            except Exception as error:
                # Nothing of the batch was written then: RocksDB looks before it writes.
                if "Write stall" not in str(error):
                    raise
            else:
                if is_told:
                    _log.warning("store.stalled is over: %.1f s", time.monotonic() - began_s)
                return
            time.sleep(STALL_WAIT_S)
            self._stats.stalls += 1
            if not is_told and time.monotonic() - began_s > STALL_TOLD_S:
                is_told = True
                _log.warning(
                    "store.stalled: RocksDB at %s can't write its tables as fast as it is given "
                    "messages: nothing is confirmed until it has; see whether that disk is slow "
                    "or busy",
                    self._store.path,
                )

    def _sync(self, *, is_last: bool) -> None:
        if not self._has_unsynced and not is_last:
            return
        self._has_unsynced = False
        began_s = time.perf_counter()
        try:
            self._store.database.flush_wal(True)
            self._stats.synced(time.perf_counter() - began_s)
            self._store.mark.write(self._number)
            if self._number % MARK_SYNC_BATCHES == 0 or is_last:
                self._store.mark.sync()
        except Exception as error:
            raise CommitFailed(self._store.path, f"syncing batch {self._number}", error) from error

    def _translate(self, batch: CommitBatch, families: Iterable[str]) -> WriteBatch:
        writes = WriteBatch(raw_mode=True)
        for family in families:
            if family not in batch.families:
                continue
            handle, put, delete = self._store.handles[family], writes.put, writes.delete
            for segment in batch.families[family]:
                for key in segment.deletes:
                    delete(key, handle)
                for key, value in segment.puts.items():
                    put(key, value, handle)
                if segment.cut is not None:
                    writes.delete_range(*segment.cut, handle)
        return writes

    def _unwritten_bytes(self) -> int:
        found = 0
        for family in self._store.families.values():
            found += family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        return found

    def _relieve(self, room: DiskRoom) -> bool:
        """Write out what is in memory, where that fits; True if it was done."""
        is_worth_it = RELIEF_BYTES_MIN <= room.unwritten_bytes <= room.free_bytes
        return is_worth_it and self._write_tables(time.monotonic())

    def _write_tables(self, now_s: float) -> bool:
        """Write out what is in memory; False if it is too soon, or there was no room after all.

        Without room nothing is lost: the log has all of it. RocksDB takes no write then, until it
        has looked again by itself (5 s), and a write that is refused would end the node.
        """
        if now_s - self._relieved_s < RELIEF_INTERVAL_S:
            return False
        self._relieved_s = now_s
        try:
            for family in self._store.families.values():
                family.flush(True)
        except Exception as error:
            if "No space left" not in str(error):
                raise CommitFailed(self._store.path, "writing out tables", error) from error
            self._has_unwritten = True
            return False
        self._has_unwritten = False
        return True
