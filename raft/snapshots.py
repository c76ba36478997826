"""One group's snapshot on disk: written in parts, in force only when all of it is durable.

Invariants:

1. `current` is the newest snapshot whose parts and record are durable, or were installed with the
   batch that also replaced the log (then the Ready is not reported synced before they are).
2. The parts of the old snapshot go in the batch that puts the new one in force, so at every moment
   exactly one is whole (docs/protocol-rules.md P28).
3. Parts that belong to no snapshot in force are leftovers of a crash; `open` removes them.

A large snapshot is written over several turns, so that neither the loop nor one batch stalls for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from raft import log_keys
from raft.core.messages import Snapshot, SnapshotMeta, SnapshotPart
from raft.errors import LogCorrupt
from raft.log_keys import SnapshotRecord
from raft.ports import Journal

TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Written in one go; 4 MiB hold the interpreter for about 10 ms in the journal's thread."""


class Snapshots(Protocol):
    """What a group's log asks of the snapshots that it has: one, or several checkpoints."""

    @property
    def newest(self) -> SnapshotRecord | None:
        """The one that the machine is restored from."""
        ...

    @property
    def oldest(self) -> SnapshotRecord | None:
        """The one that a replica is sent which lacks what was compacted."""
        ...

    def recover(self) -> None:
        """Read what is on disk. Call once, before anything is written.

        Raises:
            LogCorrupt: It is damaged.
        """
        ...

    def install(self, snapshot: Snapshot) -> None:
        """Replace all by one received, with the journal's current turn."""
        ...

    def part(self, index: int, part: int) -> SnapshotPart | None:
        """One part of `oldest`; None when that is not the one at `index`.

        Raises:
            LogCorrupt: If the part is missing or damaged.
        """
        ...

    def read(self) -> list[bytes]:
        """All parts of `newest`.

        Raises:
            LogCorrupt: If one is missing or damaged.
        """
        ...

    def stop(self) -> None:
        """Write no more of what is under way."""
        ...


class SnapshotStore:
    """The snapshot of one group.

    Args:
        journal: Where it lives.
        group: The group.

    Attributes:
        current: The snapshot in force.
    """

    def __init__(self, journal: Journal, group: int) -> None:
        self._journal = journal
        self._group = group
        self._writing: int | None = None
        self.current: SnapshotRecord | None = None

    @property
    def newest(self) -> SnapshotRecord | None:
        """The snapshot in force."""
        return self.current

    @property
    def oldest(self) -> SnapshotRecord | None:
        """The same one."""
        return self.current

    @property
    def is_writing(self) -> bool:
        """True while a snapshot is on its way to disk."""
        return self._writing is not None

    def recover(self) -> None:
        """Read what is on disk, and remove parts a crash left behind.

        Raises:
            LogCorrupt: The record is damaged.
        """
        key = log_keys.state_key(self._group, SnapshotRecord)
        value = self._journal.get("raft_state", key)
        if value is not None:
            try:
                self.current = log_keys.parse_state(key, value, SnapshotRecord)
            except log_keys.RecordDamaged as error:
                raise LogCorrupt(f"group {self._group}: {error}") from error
        keep = 0 if self.current is None else self.current.meta.index
        for low, high in (
            log_keys.parts_before(self._group, keep),
            log_keys.parts_after(self._group, keep),
        ):
            if next(iter(self._journal.scan("snapshots", low, high)), None) is not None:
                self._journal.delete_range("snapshots", low, high)

    def write(self, meta: SnapshotMeta, parts: Sequence[bytes], done: Callable[[], None]) -> None:
        """Replace the snapshot by a newer one taken here.

        Args:
            meta: Where it was taken.
            parts: At most 1 MiB each.
            done: Called when it is in force and durable; never if another one came in between.
        """
        self._writing = meta.index
        self._write_from(0, meta, parts, done)

    def install(self, snapshot: Snapshot) -> None:
        """Replace the snapshot by one received, with the journal's current turn."""
        self._writing = None
        journal = self._journal
        journal.delete_range("snapshots", *log_keys.parts_range(self._group))
        put_parts(journal, self._group, snapshot.meta.index, 0, snapshot.parts)
        self._put_record(snapshot.meta, snapshot.parts)

    def stop(self) -> None:
        """Write no more of a snapshot under way."""
        self._writing = None

    def part(self, index: int, part: int) -> SnapshotPart | None:
        """One part of the snapshot at `index`; None when that is not the one in force.

        Raises:
            LogCorrupt: If the part is missing or damaged.
        """
        current = self.current
        if current is None or current.meta.index != index or part >= current.parts:
            return None
        data = read_part(self._journal, self._group, index, part)
        return SnapshotPart(data, part + 1 == current.parts)

    def read(self) -> list[bytes]:
        """All parts of the snapshot in force.

        Raises:
            LogCorrupt: If one is missing or damaged.
        """
        current = self.current
        if current is None:
            return []
        index = current.meta.index
        return [read_part(self._journal, self._group, index, part) for part in range(current.parts)]

    def _write_from(
        self, first: int, meta: SnapshotMeta, parts: Sequence[bytes], done: Callable[[], None]
    ) -> None:
        if self._writing != meta.index:
            self._abandon(meta.index)
            return
        size, end = 0, first
        while end < len(parts) and (size == 0 or size + len(parts[end]) <= TURN_BYTES_MAX):
            size += len(parts[end])
            end += 1
        put_parts(self._journal, self._group, meta.index, first, parts[first:end])
        if end < len(parts):
            self._journal.when_synced(lambda: self._write_from(end, meta, parts, done))
        else:
            self._journal.when_synced(lambda: self._put_in_force(meta, parts, done))

    def _put_in_force(
        self, meta: SnapshotMeta, parts: Sequence[bytes], done: Callable[[], None]
    ) -> None:
        if self._writing != meta.index:
            self._abandon(meta.index)
            return
        self._writing = None
        self._put_record(meta, parts)
        self._journal.delete_range("snapshots", *log_keys.parts_before(self._group, meta.index))
        self._journal.when_synced(done)

    def _abandon(self, index: int) -> None:
        if self.current is None or self.current.meta.index != index:
            self._journal.delete_range("snapshots", *log_keys.parts_range(self._group, index))

    def _put_record(self, meta: SnapshotMeta, parts: Sequence[bytes]) -> None:
        self.current = SnapshotRecord(meta, len(parts), sum(map(len, parts)))
        key = log_keys.state_key(self._group, SnapshotRecord)
        self._journal.put("raft_state", key, log_keys.state_record(key, self.current))


def put_parts(journal: Journal, group: int, index: int, first: int, parts: Sequence[bytes]) -> None:
    """Write parts of a snapshot, from its part `first` on."""
    for part, data in enumerate(parts, first):
        key = log_keys.part_key(group, index, part)
        journal.put("snapshots", key, log_keys.part_record(key, data))


def read_part(journal: Journal, group: int, index: int, part: int) -> bytes:
    """A part of a snapshot.

    Raises:
        LogCorrupt: If it is missing or damaged.
    """
    key = log_keys.part_key(group, index, part)
    value = journal.get("snapshots", key)
    if value is None:
        raise LogCorrupt(f"group {group}: part {part} of snapshot {index} is missing")
    try:
        return log_keys.parse_part(key, value)
    except log_keys.RecordDamaged as error:
        raise LogCorrupt(f"group {group}: {error}") from error
