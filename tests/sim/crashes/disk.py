"""A disk that fills up, fails and forgets, under the real journal on a virtual clock.

What is modelled: a batch is written whole or not at all; written batches that no sync has covered
are lost from any point on in a power cut, and kept by a kill; pages are forgotten at every start; a
write fails before any batch of several; a sync fails, and nothing that it was to cover is certain;
free space comes and goes. The journal's batches, its holding back and its callbacks are the real
`broker.storage.group_commit`; only RocksDB and the thread are not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from broker.storage.commit_batch import PAGE_FAMILIES, CommitBatch
from broker.storage.commit_writer import CommitFailed, Look
from broker.storage.disk_room import DiskRoom
from broker.storage.group_commit import GroupCommit
from broker.storage.store import FAMILIES
from tests.sim.clock import Clock

AMPLE = 1 << 40
PATH = Path("/simulated")
Families = dict[str, dict[bytes, bytes]]


class Disk:
    """What survives the process.

    Attributes:
        view: What a process reads: everything written.
        free_bytes: Room for more.
        fails: The next of "write" or "sync" that fails; "" for none.
    """

    def __init__(self) -> None:
        self.durable: Families = {name: {} for name in FAMILIES}
        self.view: Families = {name: {} for name in FAMILIES}
        self.unsynced: list[CommitBatch] = []
        self.free_bytes = AMPLE
        self.fails = ""

    def write(self, batch: CommitBatch) -> None:
        _put(self.view, batch)
        self.unsynced.append(batch)

    def sync(self) -> None:
        for batch in self.unsynced:
            _put(self.durable, batch)
        self.unsynced.clear()

    def crash(self, kept: int) -> None:
        """The process is gone; of what was not synced the first `kept` batches are there."""
        for batch in self.unsynced[:kept]:
            _put(self.durable, batch)
        self.unsynced.clear()
        for name in PAGE_FAMILIES:
            self.durable[name] = {}
        self.view = {name: dict(records) for name, records in self.durable.items()}
        self.fails = ""


def _put(families: Families, batch: CommitBatch) -> None:
    for name, segments in batch.families.items():
        records = families[name]
        for segment in segments:
            for key in segment.deletes:
                records.pop(key, None)
            records.update(segment.puts)
            if segment.cut is not None:
                start, end = segment.cut
                for key in [key for key in records if start <= key < end]:
                    del records[key]


class Store:
    """`broker.storage.store.Store`, as far as the journal reads it."""

    path = PATH
    last_batch = 0

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        records = self._disk.view[family]
        yield from sorted((key, value) for key, value in records.items() if start <= key < end)

    def values(self, family: str, start: bytes, end: bytes) -> Iterator[bytes]:
        return (value for _, value in self.scan(family, start, end))

    def get(self, family: str, key: bytes) -> bytes | None:
        return self._disk.view[family].get(key)

    def close(self) -> None:
        """There is nothing to close."""


class Writer:
    """`broker.storage.commit_writer.CommitWriter` on such a disk."""

    def __init__(self, disk: Disk, counts: Counter[str]) -> None:
        self._disk = disk
        self._counts = counts
        self._is_short = False

    def look(self, batches: list[CommitBatch]) -> Look:
        size = sum(batch.size_bytes for batch in batches)
        room = DiskRoom(self._disk.free_bytes, 0)
        self._is_short = room.is_short(size, was_short=self._is_short)
        is_removal = not any(batch.has_puts() for batch in batches)
        needed = room.needed_bytes(size, is_removal=is_removal)
        fits = room.free_bytes >= needed
        self._counts["holds"] += not fits
        return Look(fits, self._is_short, room.free_bytes, needed)

    def write(self, batches: list[CommitBatch], *, is_last: bool) -> None:
        for number, batch in enumerate(batches):
            if self._disk.fails == "write" and number == len(batches) - 1:
                self._counts["failed writes"] += 1
                raise CommitFailed(PATH, "writing", OSError("no"))
            self._disk.write(batch)
            self._counts["pages written"] += sum(len(s.puts) for s in batch.families["pages"])
        if is_last or any(batch.waiting for batch in batches):
            if self._disk.fails == "sync":
                self._counts["failed syncs"] += 1
                raise CommitFailed(PATH, "syncing", OSError("no"))
            self._disk.sync()
            self._counts["syncs"] += 1


class Handle:
    """What `call_later` returns."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Life:
    """One process: what was put off in it does not outlive it. As much of a loop as is needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_over = False

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> Handle:
        return self.call_later(0.0, call, *arguments)

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> Handle:
        handle = Handle()

        def run() -> None:
            if not self.is_over and not handle.is_cancelled:
                call(*arguments)

        self._clock.after(round(seconds * 1000), run)
        return handle


class Journal(GroupCommit):
    """The real one. Its thread needs a moment of virtual time for each list of batches."""

    def __init__(
        self,
        disk: Disk,
        life: Life,
        rng: random.Random,
        counts: Counter[str],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._life = life
        self._rng = rng
        self._under_way: list[CommitBatch] = []
        store: Any = Store(disk)
        loop: Any = life
        super().__init__(store, on_failure, loop)
        self._writer: Any = Writer(disk, counts)

    def _start(self) -> None:
        self._work: Any = _Work(self)

    def carry_out_later(self, batches: list[CommitBatch]) -> None:
        self._under_way = batches
        self._life.call_later(self._rng.choice((0.001, 0.004, 0.03)), self._carry_out, batches)

    def _carry_out(self, batches: list[CommitBatch]) -> bool:
        self._under_way = []
        return super()._carry_out(batches)

    def die(self) -> None:
        """The process ends in the middle of a write, or between it and its sync."""
        batches = self._under_way
        if batches and not self.is_failed and self._writer.look(batches).fits:
            self._disk.unsynced += batches[: self._rng.randint(0, len(batches))]


class _Work:
    """The thread's queue; there is never more than one list of batches in it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def put(self, batches: list[CommitBatch] | None) -> None:
        if batches is not None:
            self._journal.carry_out_later(batches)
