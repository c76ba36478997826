"""Group commit: the node's one writer, with one sync for everyone who waits.

Implements the `Journal` port. Writes of one turn of the event loop gather in a batch; at the
turn's end the batch goes to one dedicated thread, which writes it and syncs the log; then all who
waited are told in one call. While a sync runs the next batches gather, so the cost of a sync is
shared by everything that came meanwhile.

Invariants:

1. All writes of one turn are in one batch, and a batch is written whole or not at all.
2. Batches are written in the order they were gathered.
3. A callback runs only after `flush_wal(True)` returned for its batch and all before it.
4. After a failure no callback ever runs and nothing more is written: a sync that failed once is
   never tried again as if nothing had happened; the process must end (code 74).

Within a batch only the last word on a key counts, so tombstones are written before puts and a
removed range cuts the batch into segments. In a write-once family a put that is deleted before it
was handed over leaves no trace at all.

Source:
    reliability.md D1-D6; rocksdict holds the GIL during a synced write but not in `flush_wal`,
    hence the unsynced write followed by `flush_wal(True)` in the thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Final

from rocksdict import WriteBatch

from broker.storage.store import BATCH_KEY, FAMILIES, Store, batch_number

WRITE_ONCE_FAMILIES: Final = frozenset({"queue_index", "bodies"})
"""Families whose keys are never written twice: a pending put there is not on disk as well."""

BATCH_BYTES_MAX: Final = 1024 * 1024
BATCH_RECORDS_MAX: Final = 1000
"""A batch this big is closed at the turn's end. One write of 1,000 records holds the GIL 3 ms."""

LAZY_S: Final = 0.010
"""How long writes nobody waits for may gather; most messages are settled within it."""

MARK_SYNC_BATCHES: Final = 256
"""How often the mark file itself is synced."""

_log = logging.getLogger(__name__)


class _Segment:
    """Writes of one family between two removed ranges; the last word on each key."""

    __slots__ = ("cut", "deletes", "puts")

    def __init__(self) -> None:
        self.puts: dict[bytes, bytes] = {}
        self.deletes: set[bytes] = set()
        # The range removed after these writes, if any.
        self.cut: tuple[bytes, bytes] | None = None


class _Batch:
    """Everything written in one or several turns of the loop, and who waits for it."""

    __slots__ = ("families", "size_bytes", "waiting")

    def __init__(self) -> None:
        self.families: dict[str, list[_Segment]] = {name: [_Segment()] for name in FAMILIES}
        self.waiting: list[Callable[[], None]] = []
        self.size_bytes = 0

    def has_writes(self) -> bool:
        """True when there is something to write."""
        return any(s.puts or s.deletes or s.cut for f in self.families.values() for s in f)

    def is_full(self) -> bool:
        """True when the batch should be closed at the end of this turn."""
        if self.size_bytes >= BATCH_BYTES_MAX:
            return True
        records = sum(len(s.puts) + len(s.deletes) for f in self.families.values() for s in f)
        return records >= BATCH_RECORDS_MAX

    def look_up(self, family: str, key: bytes) -> tuple[bool, bytes | None]:
        """Whether the batch says something of the key, and what."""
        for segment in reversed(self.families[family]):
            if segment.cut is not None and segment.cut[0] <= key < segment.cut[1]:
                return True, None
            value = segment.puts.get(key)
            if value is not None:
                return True, value
            if key in segment.deletes:
                return True, None
        return False, None


_Work = list[_Batch] | None


class GroupCommit:
    """The journal of a node. Lives on one event loop; only its thread touches the disk's writes.

    Args:
        store: The open store; closed by `close`.
        on_failure: Called once on the loop when a write or sync failed; must end the process.
        loop: The loop whose turns make the batches; the running one by default.
    """

    def __init__(
        self,
        store: Store,
        on_failure: Callable[[BaseException], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._store = store
        self._on_failure = on_failure
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._gathering = _Batch()
        self._sealed: list[_Batch] = []
        self._in_flight: list[_Batch] = []
        self._turn_end_is_due = False
        self._lazy: asyncio.TimerHandle | None = None
        self._lazy_is_over = False
        self._is_syncing = False  # what is in flight ends with a sync
        self._is_all_synced = False  # and so did everything before
        self._current: dict[str, _Segment] = {}
        self._begin_batch()
        self._is_failed = False
        self._is_closed = False
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    @property
    def is_failed(self) -> bool:
        """True after a failed write or sync: nothing is promised any more."""
        return self._is_failed

    @property
    def pending_bytes(self) -> int:
        """Bytes not yet handed to the disk, a measure for flow control."""
        return self._gathering.size_bytes + sum(batch.size_bytes for batch in self._sealed)

    # -- the Journal port ---------------------------------------------------------------------

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a record with this turn's batch."""
        self._current[family].puts[key] = value
        self._gathering.size_bytes += len(value)
        if not self._turn_end_is_due:
            self._turn_end_is_due = True
            self._loop.call_soon(self._end_turn)

    def put_many(self, family: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """`put` for many records of one family."""
        puts = self._current[family].puts
        size = 0
        for key, value in records:
            puts[key] = value
            size += len(value)
        self._gathering.size_bytes += size
        self._touch()

    def delete(self, family: str, key: bytes) -> None:
        """Remove a record; one still gathering in a write-once family is never written."""
        segment = self._current[family]
        value = segment.puts.pop(key, None)
        if value is not None:
            self._gathering.size_bytes -= len(value)
            if family in WRITE_ONCE_FAMILIES:
                return
        segment.deletes.add(key)
        self._touch()

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove all keys in [start, end)."""
        if start >= end:
            return
        self._current[family].cut = (start, end)
        fresh = _Segment()
        self._gathering.families[family].append(fresh)
        self._current[family] = fresh
        self._touch()

    def when_synced(self, done: Callable[[], None]) -> None:
        """Call `done` on the loop when everything written so far is durable.

        Who has written nothing since the last hand-over waits for no sync of its own.
        """
        batch = self._gathering
        if not batch.waiting and not batch.has_writes() and not self._sealed:
            if self._in_flight and self._is_syncing:
                self._in_flight[-1].waiting.append(done)
                return
            if not self._in_flight and self._is_all_synced and not self._is_failed:
                self._loop.call_soon(done)
                return
        batch.waiting.append(done)
        self._touch()

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Records in [start, end) in key order, as of the last finished batch."""
        return self._store.scan(family, start, end)

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, pending writes included."""
        for batch in (self._gathering, *reversed(self._sealed), *reversed(self._in_flight)):
            is_known, value = batch.look_up(family, key)
            if is_known:
                return value
        found: bytes | None = self._store.families[family].get(key)
        return found

    def close(self) -> None:
        """Write and sync what is pending, then close the store. Waiters are still told.

        Blocks until the disk has answered, so it may run in another thread, once nobody writes
        any more. After a failure it only releases the store.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Syncs earlier writes that nobody waited for, too.
        self._gathering.waiting.append(_nothing)
        self._seal()
        if not self._is_failed:
            self._work.put(self._sealed)
        self._work.put(None)
        self._thread.join()
        self._store.close()

    # -- on the loop --------------------------------------------------------------------------

    def _touch(self) -> None:
        if not self._turn_end_is_due:
            self._turn_end_is_due = True
            self._loop.call_soon(self._end_turn)

    def _begin_batch(self) -> None:
        self._gathering = _Batch()
        self._current = {name: segments[0] for name, segments in self._gathering.families.items()}

    def _seal(self) -> None:
        batch = self._gathering
        if batch.waiting or batch.has_writes():
            self._sealed.append(batch)
            self._begin_batch()

    def _end_turn(self) -> None:
        self._turn_end_is_due = False
        if self._is_closed or self._is_failed:
            return
        if self._in_flight:
            # Closed only at a turn's end, so that no turn's writes are parted.
            if self._gathering.is_full():
                self._seal()
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
        self._lazy_is_over = False
        self._in_flight, self._sealed = self._sealed, []
        self._is_syncing = any(batch.waiting for batch in self._in_flight)
        self._work.put(self._in_flight)

    def _finished(self, batches: list[_Batch]) -> None:
        if self._is_failed:
            return
        self._in_flight = []
        self._is_all_synced = self._is_syncing
        for batch in batches:
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
        _log.critical("journal.failed", extra={"error": str(error), "path": str(self._store.path)})
        self._on_failure(error)

    # -- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        number = self._store.last_batch
        while (batches := self._work.get()) is not None:
            try:
                number = self._write(batches, number)
            except Exception as error:  # noqa: BLE001 - the thread's outermost frame
                self._tell(self._failed, error)
                return
            self._tell(self._finished, batches)

    def _tell(self, what: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, argument)
        except RuntimeError:
            # The loop was closed while the last batch was written; nobody is left to tell.
            _log.warning("journal.loop_closed", extra={"path": str(self._store.path)})

    def _write(self, batches: list[_Batch], number: int) -> int:
        database = self._store.database
        is_awaited = False
        for batch in batches:
            number += 1
            database.write(self._translate(batch, number))
            is_awaited = is_awaited or bool(batch.waiting)
        if is_awaited or self._is_closed:
            database.flush_wal(True)
            self._store.mark.write(number)
            if number % MARK_SYNC_BATCHES == 0 or self._is_closed:
                self._store.mark.sync()
        return number

    def _translate(self, batch: _Batch, number: int) -> WriteBatch:
        writes = WriteBatch(raw_mode=True)
        for family, segments in batch.families.items():
            handle = self._store.handles[family]
            for segment in segments:
                for key in segment.deletes:
                    writes.delete(key, handle)
                for key, value in segment.puts.items():
                    writes.put(key, value, handle)
                if segment.cut is not None:
                    writes.delete_range(*segment.cut, handle)
        writes.put(BATCH_KEY, batch_number(number), self._store.handles["meta"])
        return writes


def _nothing() -> None:
    """Wait for a sync without anything to do after it."""
