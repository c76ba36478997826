"""A disk that forgets what was not synced, and the log image that lies on it.

Faults modelled, all of which a replica must survive: a crash keeps any prefix of the batches
written since the last sync (a batch is atomic; a torn one is dropped whole); syncs are slow; a
sync fails, after which an honest host is dead. Not modelled: damaged bytes in what was synced.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from raft.core.messages import Configuration, Entry, HardState, Snapshot, SnapshotMeta, SnapshotPart
from raft.core.unstable import size_bytes


class MemoryLog:
    """One group's hard state, log and snapshot; a raft.core.log.LogReader."""

    def __init__(
        self, configuration: Configuration | None = None, *, is_blank: bool = False
    ) -> None:
        self.initial = configuration or Configuration()
        self.is_blank = is_blank
        self.hard_state = HardState()
        self.base_index = 0
        self.base_term = 0
        self.log: list[Entry] = []
        self.stored: Snapshot | None = None

    # LogReader

    def first_index(self) -> int:
        return self.base_index + 1

    def last_index(self) -> int:
        return self.base_index + len(self.log)

    def term(self, index: int) -> int:
        if index == self.base_index:
            return self.base_term
        assert index > self.base_index, f"{index} is compacted ({self.base_index})"
        return self.log[index - self.base_index - 1].term

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        assert self.base_index < low < high <= self.last_index() + 1, (low, high, self.base_index)
        chosen: list[Entry] = []
        total = 0
        for entry in self.log[low - self.base_index - 1 : high - self.base_index - 1]:
            total += size_bytes(entry)
            if chosen and total > size_bytes_max:
                break
            chosen.append(entry)
        return chosen

    def snapshot(self) -> SnapshotMeta | None:
        return self.stored.meta if self.stored is not None else None

    def snapshot_part(self, index: int, part: int) -> SnapshotPart | None:
        if self.stored is None or self.stored.meta.index != index:
            return None
        parts = self.stored.parts
        return SnapshotPart(parts[part], part == len(parts) - 1)

    # writes; each is one operation of a batch

    def put_hard_state(self, hard_state: HardState) -> None:
        self.hard_state = hard_state

    def admit(self, _: None) -> None:
        self.is_blank = False

    def append(self, entries: list[Entry]) -> None:
        position = entries[0].index - self.base_index - 1
        assert 0 <= position <= len(self.log), f"gap before {entries[0].index}"
        del self.log[position:]
        self.log.extend(entries)

    def install(self, snapshot: Snapshot) -> None:
        self.stored = snapshot
        self.log = []
        self.base_index, self.base_term = snapshot.meta.index, snapshot.meta.term

    def save_snapshot(self, snapshot: Snapshot) -> None:
        if self.stored is None or self.stored.meta.index < snapshot.meta.index:
            self.stored = snapshot

    def trim(self, index: int) -> None:
        if index > self.base_index:
            term = self.term(index)
            del self.log[: index - self.base_index]
            self.base_index, self.base_term = index, term

    def copy(self) -> MemoryLog:
        twin = MemoryLog(self.initial, is_blank=self.is_blank)
        twin.hard_state = self.hard_state
        twin.base_index, twin.base_term = self.base_index, self.base_term
        twin.log = list(self.log)
        twin.stored = self.stored
        return twin


Operation = tuple[str, Any]  # a MemoryLog method and its argument
Batch = list[Operation]


class Disk:
    """One replica's disk: `live` is what reads see, `durable` what a crash leaves at least."""

    def __init__(self, configuration: Configuration, *, is_blank: bool = False) -> None:
        self.live = MemoryLog(configuration, is_blank=is_blank)
        self.durable = MemoryLog(configuration, is_blank=is_blank)
        self.written = 0  # number of the newest batch
        self._synced = 0
        self._pending: deque[Batch] = deque()
        self._is_poisoned = False

    def write(self, batch: Batch) -> None:
        """Write atomically; visible at once, durable once its number is synced."""
        _perform(self.live, batch)
        self._pending.append(batch)
        self.written += 1

    def sync_to(self, number: int) -> None:
        """Every batch up to `number` is durable."""
        while self._synced < number:
            self._synced += 1
            batch = self._pending.popleft()
            if not self._is_poisoned:
                _perform(self.durable, batch)

    def poison(self) -> None:
        """A sync failed and the host goes on: nothing written from here on will be found again."""
        self._is_poisoned = True

    def crash(self, share: float) -> None:
        """Lose the newest batches that were not synced; keep about this share of them."""
        self.sync_to(self._synced + int(len(self._pending) * share))
        self._pending.clear()
        self._synced = self.written
        self._is_poisoned = False
        self.live = self.durable.copy()


def _perform(image: MemoryLog, batch: Batch) -> None:
    for name, argument in batch:
        getattr(image, name)(argument)
