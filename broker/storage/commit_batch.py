"""A batch: the writes of one or several turns of the event loop, until the disk has them.

Within a batch only the last word on a key counts, so tombstones are written before puts and a
removed range cuts a family's writes into segments. In a write-once family a put that is deleted
before it was handed over leaves no trace at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.storage.log_files import Append, FileWrite
from broker.storage.store import FAMILIES

PAGE_FAMILIES: Final = frozenset({"pages", "page_bodies"})
"""Families that live as long as the process: no log, no sync, emptied at start."""

DURABLE_FAMILIES: Final = tuple(name for name in FAMILIES if name not in PAGE_FAMILIES)

PASSING_FAMILIES: Final = tuple(name for name in FAMILIES if name in PAGE_FAMILIES)

WRITE_ONCE_FAMILIES: Final = frozenset({"queue_index", "bodies", *PAGE_FAMILIES})
"""Families whose keys are never written twice without a delete between: a pending put there is
not on disk as well."""

_KNOWN: Final = frozenset(FAMILIES)

BATCH_BYTES_MAX: Final = 1024 * 1024
BATCH_RECORDS_MAX: Final = 1000
"""A batch this big is closed at the turn's end. One write of 1,000 records holds the GIL 3 ms."""


class Segment:
    """Writes of one family between two removed ranges; the last word on each key."""

    __slots__ = ("cut", "deletes", "puts")

    def __init__(self) -> None:
        self.puts: dict[bytes, bytes] = {}
        # A dict for its order: neighbours that follow each other are removed fastest.
        self.deletes: dict[bytes, None] = {}
        # The range removed after these writes, if any.
        self.cut: tuple[bytes, bytes] | None = None

    def drop(self, start: bytes, end: bytes) -> int:
        """Forget puts with keys in [start, end), about to be removed; returns their bytes."""
        dropped = [key for key in self.puts if start <= key < end]
        return sum(len(self.puts.pop(key)) for key in dropped)


class _Families(dict[str, list[Segment]]):
    """Segments of the families that were written to; most batches write to one or two."""

    def __missing__(self, family: str) -> list[Segment]:
        if family not in _KNOWN:
            raise KeyError(family)
        segments = self[family] = [Segment()]
        return segments


class CommitBatch:
    """Everything written in one or several turns of the loop, and the callers that wait for it.

    Attributes:
        families: Per family its segments, in order; the last of them has no cut.
        files: Writes to log files, in order; carried out before the families' are.
        waiting: Called when all of it is durable.
        size_bytes: Of the values.
        began_s: When it was closed; what waits for it waits since then.
    """

    __slots__ = ("began_s", "families", "files", "size_bytes", "waiting")

    def __init__(self) -> None:
        self.families: dict[str, list[Segment]] = _Families()
        self.files: list[FileWrite] = []
        self.waiting: list[Callable[[], None]] = []
        self.size_bytes = 0
        self.began_s = 0.0

    def has_writes(self) -> bool:
        """True when there is something to write."""
        return bool(self.files) or self._writes_to(FAMILIES)

    def has_durable_writes(self) -> bool:
        """True when there is something that a sync is for."""
        return bool(self.files) or self.has_durable_records()

    def has_durable_records(self) -> bool:
        """True when there is something to write to the store that a sync is for."""
        return self._writes_to(DURABLE_FAMILIES)

    def has_pages(self) -> bool:
        """True when there is something to write past the log."""
        return self._writes_to(PASSING_FAMILIES)

    def _writes_to(self, names: tuple[str, ...]) -> bool:
        for name, segments in self.families.items():
            if name in names:
                for segment in segments:
                    if segment.puts or segment.deletes or segment.cut:
                        return True
        return False

    def records(self) -> int:
        """The number of keys and parts of files that it writes."""
        found = len(self.files)
        for segments in self.families.values():
            for segment in segments:
                found += len(segment.puts) + len(segment.deletes)
        return found

    def is_full(self) -> bool:
        """True when the batch should be closed at the end of this turn."""
        return self.size_bytes >= BATCH_BYTES_MAX or self.records() >= BATCH_RECORDS_MAX

    def look_up(self, family: str, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether the batch writes or removes a key, and the value that it writes."""
        for segment in reversed(self.families.get(family, ())):
            if segment.cut is not None and segment.cut[0] <= key < segment.cut[1]:
                return True, None
            value = segment.puts.get(key)
            if value is not None:
                return True, value
            if key in segment.deletes:
                return True, None
        return False, None

    def has_puts(self) -> bool:
        """True when it does not only remove."""
        return any(isinstance(each, Append) for each in self.files) or any(
            segment.puts for family in self.families.values() for segment in family
        )

    def absorb(self, later: CommitBatch) -> None:
        """Take over what was written after this batch: both are written as one, or not at all."""
        self.waiting += later.waiting
        self.size_bytes += later.size_bytes
        self.files += later.files
        for family, segments in later.families.items():
            for segment in segments:
                self._absorb(family, segment)

    def _absorb(self, family: str, later: Segment) -> None:
        last = self.families[family][-1]
        for key in later.deletes:
            value = last.puts.pop(key, None)
            if value is not None:
                self.size_bytes -= len(value)
                if family in WRITE_ONCE_FAMILIES:
                    continue
            last.deletes[key] = None
        for key, value in later.puts.items():
            self.size_bytes -= len(last.puts.get(key, b""))
            last.puts[key] = value
        if later.cut is not None:
            self.size_bytes -= last.drop(*later.cut)
            last.cut = later.cut
            self.families[family].append(Segment())
