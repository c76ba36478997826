"""The checkpoints of a group that keeps its log: states of the machine along the log, on disk.

A snapshot takes the place of the log before it. A checkpoint does not: a restart applies the log
from the newest one on, and the log can be cut behind any of them (`raft.checkpointing`). A replica
that begins behind the cut is sent the oldest one, and the log from there.

Invariants:

1. `oldest` and `newest` are durable, or were installed with the batch that also replaced the log.
2. The record of a checkpoint is written when all parts of its state are durable, or with the last
   of them, and both are removed in one batch. So what has a record is whole; parts without one are
   what a crash left, and a start removes them.
3. The log is cut behind the oldest one at most, in the batch that removes those before it
   (docs/protocol-rules.md P28).

Each part is made and written in a turn of its own: all at once would hold the loop, and one batch
of them the journal's thread, and everybody who waits for either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from raft import log_keys
from raft.core.messages import Snapshot, SnapshotMeta, SnapshotPart
from raft.errors import LogCorrupt
from raft.log_keys import SnapshotRecord
from raft.ports import Journal
from raft.snapshots import put_parts, read_part


class _Writing:
    """A checkpoint that is written part by part.

    Args:
        meta: Where it was taken.
        parts: At least one.
        done: Called when it is durable.

    Attributes:
        record: What was taken of it so far.
        is_over: That was all.
    """

    __slots__ = ("_next", "_parts", "done", "is_over", "record")

    def __init__(
        self, meta: SnapshotMeta, parts: Iterator[bytes], done: Callable[[], None]
    ) -> None:
        self.record = SnapshotRecord(meta, 0, 0)
        self.done = done
        self.is_over = False
        self._parts = parts
        self._next = next(parts)

    def take(self) -> bytes:
        """Return the next part; the one behind it is made, so that it is known if there is one."""
        data, found = self._next, next(self._parts, None)
        old = self.record
        self.record = SnapshotRecord(old.meta, old.parts + 1, old.size_bytes + len(data))
        if found is None:
            self.is_over = True
        else:
            self._next = found
        return data


class CheckpointStore:
    """The checkpoints of one group.

    Args:
        journal: Where they live.
        group: The group.
    """

    def __init__(self, journal: Journal, group: int) -> None:
        self._journal = journal
        self._group = group
        self._kept: list[SnapshotRecord] = []
        self._writing: list[SnapshotRecord] = []
        self._inserting: SnapshotRecord | None = None
        self._in_parts: _Writing | None = None  # the last one of `_writing`, without a record

    @property
    def is_in_parts(self) -> bool:
        """True while one is written over several turns: no other can be begun."""
        return self._in_parts is not None

    @property
    def kept(self) -> list[SnapshotRecord]:
        """Those that are durable, oldest first."""
        return self._kept.copy()

    @property
    def count(self) -> int:
        """How many are durable."""
        return len(self._kept)

    def kept_from(self, place: int) -> list[SnapshotRecord]:
        """Those that are durable, but the first few."""
        return self._kept[place:]

    @property
    def newest(self) -> SnapshotRecord | None:
        """The one from which a restart goes on."""
        return self._kept[-1] if self._kept else None

    @property
    def oldest(self) -> SnapshotRecord | None:
        """The one that a replica is sent which lacks what was cut."""
        return self._kept[0] if self._kept else None

    @property
    def last_index(self) -> int:
        """Where the newest one stands, durable or on its way; 0 if there is none."""
        found = (self._writing or self._kept)[-1:]
        return found[0].meta.index if found else 0

    @property
    def last_size_bytes(self) -> int:
        """Size of the newest one, durable or on its way; 0 if there is none."""
        found = (self._writing or self._kept)[-1:]
        return found[0].size_bytes if found else 0

    def newest_until(self, index: int) -> int:
        """Where the newest durable one at or before an index stands; 0 if there is none."""
        place = bisect_right(self._kept, index, key=_index_of)
        return self._kept[place - 1].meta.index if place else 0

    def before(self, index: int) -> set[int]:
        """Where the durable ones before an index stand."""
        return {_index_of(each) for each in self._kept[: self._place(index)]}

    def _place(self, index: int) -> int:
        return bisect_left(self._kept, index, key=_index_of)

    def recover(self) -> None:
        """Read the records, and remove parts that a crash left. Call once, before anything else.

        Raises:
            LogCorrupt: One is damaged.
        """
        for key, value in self._journal.scan(
            "raft_state", *log_keys.checkpoints_range(self._group)
        ):
            try:
                self._kept.append(log_keys.parse_state(key, value, SnapshotRecord))
            except log_keys.RecordDamaged as error:
                raise LogCorrupt(f"group {self._group}: {error}") from error
        low, _ = log_keys.parts_range(self._group)
        for each in self._kept:
            begin, end = log_keys.parts_range(self._group, each.meta.index)
            self._remove_parts(low, begin)
            low = end
        self._remove_parts(low, log_keys.parts_range(self._group)[1])

    def _remove_parts(self, low: bytes, high: bytes) -> None:
        if next(iter(self._journal.scan("snapshots", low, high)), None) is not None:
            self._journal.delete_range("snapshots", low, high)

    def write(self, meta: SnapshotMeta, parts: Iterable[bytes], done: Callable[[], None]) -> None:
        """Write one that is newer than all others, from the journal's current turn on.

        Args:
            meta: Where it was taken.
            parts: At most 1 MiB each: that holds the interpreter for about 3 ms in the journal's
                thread. Each is taken when the one before it is durable; two are taken now.
            done: Called when it is durable; never if another log took the place of this one.
        """
        assert meta.index > self.last_index, "checkpoints are taken in the order of the log"
        assert self._in_parts is None, "one is written at a time"
        writing = _Writing(meta, iter(parts), done)
        self._writing.append(writing.record)
        self._write_on(writing)

    def _write_on(self, writing: _Writing) -> None:
        """Write a part more, and the record with the last one."""
        meta, first = writing.record.meta, writing.record.parts
        try:
            data = writing.take()
        except Exception:
            self._writing.pop()  # or no other one could ever be begun
            self._in_parts = None
            raise
        put_parts(self._journal, self._group, meta.index, first, [data])
        self._writing[-1] = record = writing.record
        if writing.is_over:
            self._in_parts = None
            self._put_record(record)
            self._journal.when_synced(lambda: self._is_durable(record, writing.done))
            return
        self._in_parts = writing

        def go_on() -> None:
            if self._in_parts is writing:
                self._write_on(writing)

        self._journal.when_synced(go_on)

    def _is_durable(self, record: SnapshotRecord, done: Callable[[], None]) -> None:
        if record in self._writing:
            self._writing.remove(record)
            self._kept.append(record)
            done()

    def remove(self, indexes: set[int]) -> None:
        """Remove durable ones, with the journal's current turn."""
        for index in indexes:
            key = log_keys.checkpoint_key(self._group, index)
            self._journal.delete("raft_state", key)
            self._journal.delete_range("snapshots", *log_keys.parts_range(self._group, index))
            place = self._place(index)
            if place < len(self._kept) and self._kept[place].meta.index == index:
                del self._kept[place]

    def install(self, snapshot: Snapshot) -> None:
        """Replace all of them by one received, with the journal's current turn."""
        journal, group = self._journal, self._group
        journal.delete_range("raft_state", *log_keys.checkpoints_range(group))
        journal.delete_range("snapshots", *log_keys.parts_range(group))
        self._writing.clear()
        self._in_parts = self._inserting = None
        self._kept = [self._put(snapshot.meta, snapshot.parts)]

    def remove_before(self, index: int) -> None:
        """Remove those before an entry, also one on its way, with the journal's current turn."""
        late = self._inserting
        if late is not None and late.meta.index < index:
            self._inserting = None
            self.remove({late.meta.index})
        self.remove(self.before(index))

    def take_over(self, snapshot: SnapshotRecord) -> None:
        """Make the group's snapshot the first checkpoint, with the journal's current turn.

        Its parts are where those of a checkpoint are; what remains of another that was being
        written goes.
        """
        journal, group, index = self._journal, self._group, snapshot.meta.index
        journal.delete("raft_state", log_keys.state_key(group, SnapshotRecord))
        for low, high in (log_keys.parts_before(group, index), log_keys.parts_after(group, index)):
            journal.delete_range("snapshots", low, high)
        self._put_record(snapshot)
        self._kept = [snapshot]

    def insert(self, meta: SnapshotMeta, parts: Sequence[bytes], done: Callable[[], None]) -> None:
        """Write one that is older than the newest, with the journal's current turn.

        Args:
            meta: Where it was taken; no other stands there.
            parts: As in `write`.
            done: As in `write`.
        """
        record = self._put(meta, parts)
        self._inserting = record

        def durable() -> None:
            if record is self._inserting:
                self._inserting = None
                self._kept.insert(self._place(meta.index), record)
                done()

        self._journal.when_synced(durable)

    def stop(self) -> None:
        """Write no more parts: the next start removes those without a record."""
        if self._in_parts is not None:
            self._writing.remove(self._in_parts.record)
            self._in_parts = None

    def part(self, index: int, part: int) -> SnapshotPart | None:
        """One part of the oldest checkpoint, if that is the one at `index`.

        Raises:
            LogCorrupt: If the part is missing or damaged.
        """
        oldest = self.oldest
        if oldest is None or oldest.meta.index != index or part >= oldest.parts:
            return None
        data = read_part(self._journal, self._group, index, part)
        return SnapshotPart(data, part + 1 == oldest.parts)

    def read(self) -> list[bytes]:
        """All parts of the newest.

        Raises:
            LogCorrupt: If one is missing or damaged.
        """
        newest = self.newest
        if newest is None:
            return []
        index = newest.meta.index
        return [read_part(self._journal, self._group, index, part) for part in range(newest.parts)]

    def _put(self, meta: SnapshotMeta, parts: Sequence[bytes]) -> SnapshotRecord:
        put_parts(self._journal, self._group, meta.index, 0, parts)
        record = SnapshotRecord(meta, len(parts), sum(map(len, parts)))
        self._put_record(record)
        return record

    def _put_record(self, record: SnapshotRecord) -> None:
        key = log_keys.checkpoint_key(self._group, record.meta.index)
        self._journal.put("raft_state", key, log_keys.state_record(key, record))


def _index_of(record: SnapshotRecord) -> int:
    return record.meta.index
