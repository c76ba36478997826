"""Reading a group's log by those who follow it: what is applied, from memory or from files.

The newest entries are in the core's memory, durable or not; older ones are durable, and are read
where they lie. Nobody sees an entry before the machine has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from raft.core.messages import NORMAL, Entry
from raft.core.node import RaftNode
from raft.entry_log import EntryLog
from raft.errors import RaftError

ReadDone: TypeAlias = Callable[[list[Entry] | RaftError], None]


class LogReading:
    """The applied entries of one group.

    Args:
        node: The core.
        entry_log: What it has on disk.
        applied: The last entry that the machine has.

    Attributes:
        applied: As given, kept up to date by the group.
    """

    def __init__(self, node: RaftNode, entry_log: EntryLog, applied: int) -> None:
        self.applied = applied
        self._node = node
        self._entry_log = entry_log

    def read(self, low: int, size_bytes_max: int) -> list[Entry]:
        """Entries from `low` on, or from the first kept one on, at least one if there is any.

        Raises:
            LogCorrupt: One is damaged.
        """
        low = max(low, self._node.first_index)
        if low > self.applied:
            return []
        return self._node.entries(low, self.applied + 1, size_bytes_max)

    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        """`read`, without waiting for a disk; `done` is told once, possibly before this returns.

        Raises:
            LogCorrupt: The log lacks an entry that it must have.
        """
        low = max(low, self._node.first_index)
        cached_from = self._node.cached_from
        if low > self.applied or low >= cached_from:
            done(self.read(low, size_bytes_max))
            return

        def arrived(found: list[Entry] | RaftError | None) -> None:
            if found is None:  # it was compacted meanwhile
                self.read_later(low, size_bytes_max, done)
            else:
                done(found)

        high = min(self.applied + 1, cached_from)
        self._entry_log.read_soon(low, high, size_bytes_max, arrived)

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The first bytes of an entry's data, from a file without a look at its checksum.

        Raises:
            LogCorrupt: There is no such entry.
            ValueError: It is not applied, or not kept.
        """
        if not self._node.first_index <= index <= self.applied:
            raise ValueError(f"{index} is not in {self._node.first_index}..{self.applied}")
        if index < self._node.cached_from:
            return self._entry_log.entry_head(index, size_bytes)
        (entry,) = self._node.entries(index, index + 1, 0)
        return entry.data[:size_bytes] if entry.kind == NORMAL else b""
