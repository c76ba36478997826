"""Group commit: the one writer of a node, with one sync for all callers that wait.

Implements the ports `Journal` and `LogFiles`. Writes of one turn of the event loop gather in a
batch; at the turn's end the batch goes to one dedicated thread, which writes it and syncs the log;
then all who waited are told in one call. While a sync runs the next batches gather, so the cost of
a sync is shared by everything that came meanwhile.

Invariants:

1. All writes of one turn are in one batch, and a batch is written whole or not at all.
2. Batches are written in the order they were gathered.
3. A callback runs only after `flush_wal(True)` returned for its batch and all before it.
4. After a failure no callback ever runs and nothing more is written: a sync that failed once is
   never tried again as if nothing had happened; the process must end (code 74).
5. What the disk has no room for is held, all of it as one batch, and nobody is told; it goes on by
   itself when there is room. What is removed meanwhile is never written.
6. What can't be read for a reason outside the store is not lost: that is a failure as in 4.

Page families hold what was moved out of memory and dies with the process. They are written past
the log, before the rest of their batch, and nobody waits for a sync on their account.

Source:
    docs/planted-bugs.md D1-D6; rocksdict holds the GIL during a synced write but not in
    `flush_wal`, hence the unsynced write followed by `flush_wal(True)` in the thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from broker.storage.commit_batch import WRITE_ONCE_FAMILIES, CommitBatch, Segment
from broker.storage.commit_stats import JournalStats
from broker.storage.commit_writer import CommitFailed, CommitWriter, Look
from broker.storage.log_files import Append, Barrier, Cut, LogFolder, Remove
from broker.storage.store import Store, StoreUnusable

LAZY_S: Final = 0.010
"""How long writes without a waiting caller gather; most messages are settled within it."""

AGAIN_S: Final = 0.25
"""How often a short disk is looked at, written to or not."""

READ_THREADS: Final = 4
"""Reads of log files at a time: a disk works on several at once."""

_MB: Final = 1000 * 1000

_log = logging.getLogger(__name__)


_Work = list[CommitBatch] | None
_Parsed = TypeVar("_Parsed")


class GroupCommit:
    """The journal of a node. Lives on one event loop; only its thread touches the disk's writes.

    Args:
        store: The open store; closed by `close`.
        on_failure: Called once on the loop when a write or sync failed; must end the process.
        loop: The loop whose turns make the batches; the running one by default.

    Attributes:
        stats: What it has cost so far.
        on_short: Called on the loop when `is_short` has changed.
    """

    def __init__(
        self,
        store: Store,
        on_failure: Callable[[BaseException], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.stats = JournalStats()
        self.on_short: Callable[[], None] = _nothing
        self._store = store
        self._files = LogFolder(store.path.parent, self._files_failed)
        self._writer = CommitWriter(store, self._files, self.stats)
        self._on_failure = on_failure
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._gathering = CommitBatch()
        self._sealed: list[CommitBatch] = []
        self._in_flight: list[CommitBatch] = []
        self._turn_end_is_due = False
        self._lazy: asyncio.TimerHandle | None = None
        self._lazy_is_over = False
        self._is_syncing = False  # what is in flight ends with a sync
        self._is_all_synced = False  # and so did everything before
        self._is_failed = False
        self._is_closed = False
        self._is_short = False
        self._held_since_s: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._is_again_due = False
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        # The thread's own: how it last found the disk, and what it had no room for.
        self._was_short = False
        self._put_back: CommitBatch | None = None
        self._readers = ThreadPoolExecutor(READ_THREADS, "log-read")  # begun when they are needed
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._start()

    def memory_bytes(self) -> int:
        """Bytes that the store holds in memory."""
        return 0 if self._is_closed else self._store.memory_bytes()

    @property
    def is_failed(self) -> bool:
        """True after a failed write or sync: nothing is promised any more."""
        return self._is_failed

    @property
    def is_short(self) -> bool:
        """True while the disk has little more room than what is under way needs."""
        return self._is_short

    @property
    def held_s(self) -> float:
        """Seconds for which batches have been held because the disk is full; 0 while none are."""
        return 0.0 if self._held_since_s is None else time.monotonic() - self._held_since_s

    @property
    def pending_bytes(self) -> int:
        """Bytes not yet handed to the disk, a measure for flow control."""
        size_bytes = self._gathering.size_bytes
        for batch in self._sealed:
            size_bytes += batch.size_bytes
        return size_bytes

    # -- the Journal port ---------------------------------------------------------------------

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a record with this turn's batch."""
        self._gathering.families[family][-1].puts[key] = value
        self._gathering.size_bytes += len(value)
        if not self._turn_end_is_due:
            self._turn_end_is_due = True
            self._loop.call_soon(self._end_turn)

    def put_many(self, family: str, records: list[tuple[bytes, bytes]]) -> None:
        """`put` for many records of one family."""
        self._gathering.families[family][-1].puts.update(records)
        self._gathering.size_bytes += sum([len(value) for _, value in records])
        self._touch()

    def delete(self, family: str, key: bytes) -> None:
        """Remove a record; one still gathering in a write-once family is never written."""
        segment = self._gathering.families[family][-1]
        value = segment.puts.pop(key, None)
        if value is not None:
            self._gathering.size_bytes -= len(value)
            if family in WRITE_ONCE_FAMILIES:
                return
        segment.deletes[key] = None
        self._touch()

    def delete_many(self, family: str, keys: list[bytes]) -> None:
        """`delete` for many records of one family."""
        segment = self._gathering.families[family][-1]
        if segment.puts:
            keys = self._unput(segment, family, keys)
        segment.deletes.update(dict.fromkeys(keys))
        self._touch()

    def _unput(self, segment: Segment, family: str, keys: list[bytes]) -> list[bytes]:
        """Forget what is still gathering of some records; returns those to be removed on disk."""
        take, size = segment.puts.pop, 0
        left: list[bytes] = []
        for key in keys:
            value = take(key, None)
            if value is None:
                left.append(key)
            else:
                size += len(value)
        self._gathering.size_bytes -= size
        return left if family in WRITE_ONCE_FAMILIES else keys

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove all keys in [start, end)."""
        if start >= end:
            return
        current = self._gathering.families[family][-1]
        if self._held_since_s is not None:
            self._gathering.size_bytes -= current.drop(start, end)
        current.cut = (start, end)
        self._gathering.families[family].append(Segment())
        self._touch()

    def when_synced(self, done: Callable[[], None]) -> None:
        """Call `done` on the loop when everything written so far is durable.

        Who has written nothing since the last hand-over waits for no sync of its own.
        """
        batch = self._gathering
        if not batch.waiting and not batch.has_durable_writes() and not self._sealed:
            if self._in_flight and self._is_syncing:
                self._in_flight[-1].waiting.append(done)
                return
            if self._is_all_synced and not self._is_failed:
                self._loop.call_soon(done)
                return
        batch.waiting.append(done)
        self._touch()

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Records in [start, end) in key order, as of the last finished batch."""
        try:
            yield from self._store.scan(family, start, end)
        except StoreUnusable as error:
            self._failed(error)
            raise

    def values(self, family: str, start: bytes, end: bytes) -> Iterable[bytes]:
        """Yield what `scan` finds, without the keys; it may end early."""
        return self._store.values(family, start, end)

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, pending writes included."""
        for batch in (self._gathering, *reversed(self._sealed), *reversed(self._in_flight)):
            is_known, value = batch.look_up(family, key)
            if is_known:
                return value
        try:
            return self._store.get(family, key)
        except StoreUnusable as error:
            self._failed(error)
            raise

    # -- the LogFiles port --------------------------------------------------------------------

    def append(self, name: str, data: bytes) -> None:
        """Write behind the end of a file, which is made if there is none."""
        self._gathering.files.append(Append(name, data))
        self._gathering.size_bytes += len(data)
        self._touch()

    def cut(self, name: str, size_bytes: int) -> None:
        """Shorten a file."""
        self._gathering.files.append(Cut(name, size_bytes))
        self._touch()

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        self._gathering.files.append(Remove(name))
        self._touch()

    def barrier(self, name: str) -> None:
        """Make a file, or its removal, durable before what is asked for later is written."""
        self._gathering.files.append(Barrier(name))
        self._touch()

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read what is durable of a file."""
        try:
            return self._files.read(name, position, size_bytes)
        except OSError as error:
            self._failed(error)
            raise

    def read_soon(
        self,
        name: str,
        position: int,
        size_bytes: int,
        parse: Callable[[bytes], _Parsed],
        done: Callable[[_Parsed], None],
    ) -> None:
        """Read what is durable of a file, and parse it, in a thread; `done` is called on the loop.

        Never after `close` or a failure.
        """

        def read() -> None:
            try:
                parsed = parse(self._files.read(name, position, size_bytes))
            except Exception as error:  # noqa: BLE001 - the outermost frame of a thread's work
                self._loop.call_soon_threadsafe(self._failed, error)
            else:
                self._loop.call_soon_threadsafe(told, parsed)

        def told(parsed: _Parsed) -> None:
            if not self._is_failed and not self._is_closed:
                done(parsed)

        if not self._is_closed:
            self._readers.submit(read)

    def size(self, name: str) -> int | None:
        """Size of a file on disk, in bytes; None if there is none."""
        return self._files.size(name)

    def names(self, folder: str) -> list[str]:
        """The files of a folder on disk, sorted."""
        return self._files.names(folder)

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder on disk, sorted."""
        return self._files.folders(folder)

    def close(self) -> None:
        """Write and sync what is pending, then close the store. Waiters are still told.

        Blocks until the disk has answered, so it may run in another thread, once nobody writes
        any more. After a failure it only releases the store. What there is no room for is not
        written, and nobody was told that it is.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Syncs earlier writes without waiting callers, too.
        self._gathering.waiting.append(_nothing)
        self._seal()
        if not self._is_failed:
            self._work.put(self._sealed)
        self._work.put(None)
        self._thread.join()
        self._readers.shutdown(cancel_futures=True)
        self._files.close()
        try:
            self._store.close()
        except Exception as error:  # noqa: BLE001 - RocksDB's own
            # Closing writes tables out. What is in them is in the log, too.
            _log.warning("store.closed_early: %s; the next start reads the log", error)

    def _start(self) -> None:
        self._thread.start()

    # -- on the loop --------------------------------------------------------------------------

    def _touch(self) -> None:
        if not self._turn_end_is_due:
            self._turn_end_is_due = True
            self._loop.call_soon(self._end_turn)

    def _seal(self) -> None:
        batch = self._gathering
        if batch.waiting or batch.has_writes():
            batch.began_s = time.perf_counter()
            self._sealed.append(batch)
            self._gathering = CommitBatch()

    def _end_turn(self) -> None:
        self._turn_end_is_due = False
        if self._is_closed or self._is_failed:
            return
        if self._in_flight:
            # Closed only at a turn's end, so that no turn's writes are parted.
            if self._gathering.is_full():
                self._seal()
            return
        if self._held_since_s is not None:
            if self._is_again_due:
                self._hand_over()
            return
        is_due = self._lazy_is_over or self._gathering.waiting or self._gathering.is_full()
        if self._sealed or is_due:
            self._hand_over()
        elif self._lazy is None:
            self._lazy = self._loop.call_later(LAZY_S, self._end_lazy)

    def _end_lazy(self) -> None:
        self._lazy = None
        # Not handed over here: the gathering batch may hold half of a turn.
        self._lazy_is_over = True
        self._touch()

    def _hand_over(self) -> None:
        self._seal()
        if not self._sealed or self._is_failed:
            return
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        self._lazy_is_over = self._is_again_due = False
        self._in_flight, self._sealed = self._sealed, []
        self._is_syncing = any(batch.waiting for batch in self._in_flight)
        if not self._is_syncing and any(b.has_durable_writes() for b in self._in_flight):
            self._is_all_synced = False
        self._work.put(self._in_flight)

    def _finished(self, batches: list[CommitBatch]) -> None:
        if self._is_failed:
            return
        self._in_flight = []
        if self._held_since_s is not None:
            self._go_on()
        if self._is_syncing:
            self._is_all_synced = True
        now_s = time.perf_counter()
        for batch in batches:
            if batch.waiting:
                self.stats.told(now_s - batch.began_s)
            for done in batch.waiting:
                try:
                    done()
                except Exception:  # noqa: BLE001 - one waiter's bug must not silence the others
                    _log.exception("journal.callback_failed")
        # What the callbacks wrote, and what gathered meanwhile, ends with this turn.
        self._touch()

    def _failed(self, error: BaseException) -> None:
        if self._is_failed:
            return
        self._is_failed = True
        self._on_failure(error)

    # -- a disk without room ------------------------------------------------------------------

    def _looked(self, look: Look) -> None:
        """Note that the disk has become short of space, or is so no longer."""
        if self._is_closed or look.is_short is self._is_short:
            return
        self._is_short = look.is_short
        if look.is_short:
            _log.warning(
                "store.short: %d MB are free at %s: publishers are blocked on all nodes until the "
                "store has room again; let consumers drain queues, or free space on that disk",
                look.free_bytes // _MB,
                self._store.path,
            )
            self._look_again()
        else:
            _log.warning("store.short is over: %d MB are free", look.free_bytes // _MB)
        self.on_short()

    def _hold(self, batches: list[CommitBatch], look: Look) -> None:
        """Hold all batches on a full disk, as one: what is removed meanwhile is never written.

        Nothing of it was written, and the gathering batch is not closed: a turn is not parted.
        """
        if self._is_closed or self._is_failed:
            return
        held = batches[0]
        for batch in (*batches[1:], *self._sealed, self._gathering):
            held.absorb(batch)
        self._in_flight, self._sealed = [], []
        self._gathering = held
        if self._held_since_s is None:
            self._held_since_s = time.monotonic()
            self.stats.holds += 1
            _log.error(
                "store.held: %s has %d bytes free, and %d are needed: nothing is written or "
                "confirmed until then; free space on that disk, and the node goes on by itself",
                *(self._store.path, look.free_bytes, look.needed_bytes),
            )
        self._look_again()

    def _go_on(self) -> None:
        held_s, self._held_since_s = self.held_s, None
        self.stats.hold_s += held_s
        _log.warning("store.held is over after %.1f s: what waited is on disk", held_s)

    def _look_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(AGAIN_S, self._look_now)

    def _look_now(self) -> None:
        self._again = None
        if self._is_closed or self._is_failed:
            return
        if self._held_since_s is not None:
            self._is_again_due = True
            self._touch()
        elif self._is_short:
            if not self._in_flight:
                self._work.put([])
        else:
            return
        self._look_again()

    # -- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while (batches := self._work.get()) is not None:
            if not self._carry_out(batches):
                return

    def _carry_out(self, batches: list[CommitBatch]) -> bool:
        """Look for room and write; False after a failure, when nothing may follow."""
        try:
            look = self._writer.look(batches)
            if look.is_short is not self._was_short:
                self._was_short = look.is_short
                self._tell(self._looked, look)
            if not batches:
                return True
            # Closed before the loop had heard of it: what came behind must not go before it.
            is_parted = self._put_back is not None and batches[0] is not self._put_back
            if look.fits and not is_parted:
                self._writer.write(batches, is_last=self._is_closed)
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            self._tell(self._failed, error)
            return False
        if look.fits and not is_parted:
            self._put_back = None
            self._tell(self._finished, batches)
            return True
        if not is_parted:
            self._put_back = batches[0]
        if self._is_closed:
            _log.error("store.not_written: no room; nothing of it was confirmed")
        else:
            self._tell(self._hold, batches, look)
        return True

    def _files_failed(self, error: BaseException) -> None:
        """Note, from a thread, that log files could not be brought up to date."""
        failed = CommitFailed(self._files.path, "writing log files", error)
        self._tell(self._failed, failed)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            # The loop was closed while the last batch was written; no caller is left.
            _log.warning("journal.loop_closed", extra={"path": str(self._store.path)})


def _nothing() -> None:
    """Do nothing."""
