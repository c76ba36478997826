"""The end of the log that is held in memory: what is not durable yet, and a cache of what is.

Three marks divide it. Invariant: stable <= handed <= last, and everything above `stable` is here.

    offset ......... stable ......... handed ......... last
      durable (cache)    written, not yet     appended, not yet
                         known durable        given to the host

A sync is reported by Ready number, not by (index, term): when entries were overwritten while
their write was under way, the same term may come back at the same index by a third leader, and the
first write's sync says nothing about the third's. So a truncation cuts the claims of all writes
under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from raft.core.messages import Entry

ENTRY_OVERHEAD_BYTES = 16  # index, term and kind as they travel


def size_bytes(entry: Entry) -> int:
    """Return the bytes that an entry counts against limits."""
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


class Unstable:
    """The part of the log that is in memory."""

    __slots__ = (
        "_bytes",
        "_cache_bytes_max",
        "_cache_max",
        "_writes",
        "entries",
        "handed",
        "offset",
        "stable",
    )

    def __init__(self, last_index: int, cache_max: int, cache_bytes_max: int) -> None:
        self.entries: list[Entry] = []
        self._bytes = 0  # of all of them
        self.offset = last_index + 1
        self.handed = last_index
        self.stable = last_index
        self._writes: deque[list[int]] = deque()  # [ready number, last index it makes durable]
        self._cache_max = cache_max
        self._cache_bytes_max = cache_bytes_max

    @property
    def size_bytes(self) -> int:
        """What all entries here count against limits."""
        return self._bytes

    @property
    def last_index(self) -> int:
        """Index of the newest entry, or the one before `offset`."""
        return self.offset + len(self.entries) - 1

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries that follow the last one."""
        self.entries.extend(entries)
        self._bytes += sum(map(size_bytes, entries))

    def truncate(self, index: int) -> None:
        """Remove `index` and everything after it, also from what writes under way will prove."""
        if index <= self.offset:
            self._clear()
            self.offset = index
        else:
            position = index - self.offset
            self._bytes -= sum(map(size_bytes, self.entries[position:]))
            del self.entries[position:]
        self.handed = min(self.handed, index - 1)
        self.stable = min(self.stable, index - 1)
        for write in self._writes:
            write[1] = min(write[1], index - 1)

    def restart(self, index: int) -> None:
        """Empty the log to begin after a snapshot at `index`."""
        self._clear()
        self._writes.clear()
        self.offset = index + 1
        self.handed = self.stable = index

    def take_unwritten(self, number: int) -> list[Entry]:
        """Hand out what Ready `number` must write."""
        if self.handed == self.last_index:
            return []
        entries = self.entries[self.handed + 1 - self.offset :]
        self.handed = self.last_index
        self._writes.append([number, self.handed])
        return entries

    def synced(self, number: int) -> bool:
        """Note that all writes up to Ready `number` are durable; True if `stable` moved."""
        before = self.stable
        while self._writes and self._writes[0][0] <= number:
            self.stable = max(self.stable, self._writes.popleft()[1])
        return self.stable != before

    def trim(self, applied: int) -> None:
        """Let go of durable, applied entries beyond the cache's limits.

        Works in big steps, so that its cost per entry stays constant however many are held.
        """
        surplus = len(self.entries) - self._cache_max
        if surplus < self._cache_max // 4:
            surplus = 0
        surplus = max(surplus, self._surplus_by_bytes())
        self._drop(min(surplus, min(self.stable, applied) + 1 - self.offset))

    def compacted(self, index: int) -> None:
        """Drop entries up to `index`, which were compacted."""
        self._drop(min(index, self.stable) + 1 - self.offset)

    def _surplus_by_bytes(self) -> int:
        """Count the oldest entries to let go of; 0 until a quarter too many bytes are held."""
        surplus_bytes = self._bytes - self._cache_bytes_max
        if surplus_bytes < self._cache_bytes_max // 4:
            return 0
        count = 0
        while surplus_bytes > 0:
            surplus_bytes -= size_bytes(self.entries[count])
            count += 1
        return count

    def _drop(self, count: int) -> None:
        """Let go of the `count` oldest entries, of none if it is not positive."""
        if count > 0:
            self._bytes -= sum(map(size_bytes, self.entries[:count]))
            del self.entries[:count]
            self.offset += count

    def _clear(self) -> None:
        self.entries.clear()
        self._bytes = 0
