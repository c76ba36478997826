"""The log of a group in segments: an `raft.entry_log.EntryLog`.

Invariants:

1. The entries are contiguous from the first segment's base on: each segment's base is the last
   entry of the one before. A log never loses its middle.
2. Only the last segment grows. The others are sealed, and change no more until they are removed,
   or until a truncation makes one of them the last again.
3. What is removed, cut or appended in a turn is on disk in that order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict

from raft import log_keys
from raft.core.messages import Entry
from raft.errors import LogCorrupt
from raft.log_keys import Base, FirstSegment, RecordDamaged
from raft.ports import Journal, LogFiles
from raft.segments import records
from raft.segments.records import SegmentHead
from raft.segments.segment import Segment

SEGMENT_BYTES = 64 << 20
"""A segment that has grown so far is sealed with the next entry."""

INDEXES_KEPT = 2
"""Indexes of sealed segments in memory, for each log: replicas that catch up read in order."""


class SegmentedEntries:
    """Entries in files.

    Args:
        journal: Knows where the log begins in them.
        files: Where they are.
        group: The group's id.
        segment_bytes: When a segment is sealed.

    Attributes:
        log_bytes: Size of the entries since it was last set to 0.
    """

    def __init__(
        self, journal: Journal, files: LogFiles, group: int, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.log_bytes = 0
        self._journal = journal
        self._files = files
        self._group = group
        self._segment_bytes = min(segment_bytes, records.SEGMENT_BYTES_MAX)
        self._segments: list[Segment] = []
        self._loaded: OrderedDict[Segment, None] = OrderedDict()

    # -- what is there ------------------------------------------------------------------------

    @property
    def base(self) -> Base:
        """The last entry before the first one kept."""
        return self._segments[0].base

    @property
    def last(self) -> int:
        """Index of the newest entry; the base's if there is none."""
        return self._segments[-1].last

    def term(self, index: int) -> int:
        """Term of an entry, or of the base.

        Raises:
            LogCorrupt: The entry is damaged.
        """
        segment = self._segment_of(index) if index > self.base.index else self._segments[0]
        try:
            return segment.term(index)
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one; never more than a segment's.

        Raises:
            LogCorrupt: One is missing or damaged.
        """
        if not self.base.index < low <= self.last:
            raise self._corrupt(f"entry {low} is missing in {self.base.index + 1}..{self.last}")
        segment = self._segment_of(low)
        try:
            return segment.entries(low, high, size_bytes_max)
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why

    # -- writing ------------------------------------------------------------------------------

    def create(self) -> None:
        """Begin a log without entries."""
        self._begin(Base())

    def reset(self, base: Base) -> None:
        """Replace all entries by none behind a snapshot's.

        The files of the log before stay until the journal knows that this one counts.
        """
        gone, self._segments = self._segments, []
        self._loaded.clear()
        self._begin(base, gone[-1].sequence + 1)
        self.log_bytes = 0
        self._journal.when_synced(lambda: _remove(gone))

    def _begin(self, base: Base, sequence: int = 0) -> None:
        """Begin a log in a segment whose number no file has."""
        taken = [records.sequence_of(name) for name in self._names()]
        sequence = max([sequence, *(each + 1 for each in taken if each is not None)])
        head = SegmentHead(base, begins=True)
        self._segments.append(Segment.begin(self._files, self._group, sequence, head))
        self._put_first(sequence)

    def _put_first(self, sequence: int) -> None:
        key = log_keys.state_key(self._group, FirstSegment)
        self._journal.put("raft_state", key, log_keys.state_record(key, FirstSegment(sequence)))

    def append(self, entries: list[Entry]) -> None:
        """Write entries, after removing all from the first one's index on.

        Raises:
            LogCorrupt: They do not follow what is there.
        """
        first = entries[0].index
        if not self.base.index < first <= self.last + 1:
            raise self._corrupt(f"entry {first} does not follow {self.base.index}..{self.last}")
        if first <= self.last:
            self._truncate(first)
        tail = self._segments[-1]
        if tail.size_bytes >= self._segment_bytes and tail.count:
            term = tail.term(tail.last)
            tail.seal()
            self._files.barrier(tail.name)  # so that a later segment proves that this one is whole
            self._forget_when_durable(tail)
            head = SegmentHead(Base(tail.last, term), begins=False)
            tail = Segment.begin(self._files, self._group, tail.sequence + 1, head)
            self._segments.append(tail)
        self.log_bytes += tail.append(entries)

    def compact(self, index: int) -> None:
        """Remove the segments in which no entry is behind `index`; the last one stays.

        Their files stay until the journal knows that the log begins later: some of them alone
        would be a log with a hole.
        """
        gone = []
        while len(self._segments) > 1 and self._segments[0].last <= index:
            gone.append(self._segments.pop(0))
            self._loaded.pop(gone[-1], None)
        if gone:
            self._put_first(self._segments[0].sequence)
            self._journal.when_synced(lambda: _remove(gone))

    def files(self) -> list[str]:
        """Names of its files, also of those on their way to disk."""
        return [name for each in self._segments for name in (each.name, each.index_name)]

    def _truncate(self, index: int) -> None:
        while self._segments[-1].base.index >= index:
            gone = self._segments.pop()
            self.log_bytes = max(0, self.log_bytes - gone.size_bytes + records.HEAD_BYTES)
            gone.remove()
            self._files.barrier(gone.name)  # before an earlier one is cut, or goes
            tail = self._segments[-1]
            tail.unseal()
            self._loaded.pop(tail, None)
        self.log_bytes = max(0, self.log_bytes - self._segments[-1].truncate(index))

    # -- opening ------------------------------------------------------------------------------

    def recover(self, snapshot_index: int) -> None:
        """Read and check what is on disk.

        A segment's end that was being written when the process died is cut off. Sealed segments
        are checked when they are read.

        Args:
            snapshot_index: Entries up to there do not count as log that has grown.

        Raises:
            LogCorrupt: A segment is missing or damaged.
        """
        first, is_over = self._first(), False
        numbers = map(records.sequence_of, self._names())
        for sequence in [number for number in numbers if number is not None]:
            is_over = is_over or (
                sequence >= first
                and not self._recover_segment(sequence, is_first=sequence == first)
            )
            if sequence < first or is_over:  # of a log that was replaced, or of one never begun
                self._files.remove(records.segment_name(self._group, sequence))
                self._files.remove(records.index_name(self._group, sequence))
        if not self._segments or self._segments[0].sequence != first:
            raise self._corrupt(f"{records.segment_name(self._group, first)} is missing")
        self._recover_tail()
        for segment in self._segments:
            if segment.last > snapshot_index:
                self.log_bytes += segment.size_bytes - records.HEAD_BYTES

    def _recover_segment(self, sequence: int, *, is_first: bool) -> bool:
        """Take over a segment; False where the process died before the journal knew of it."""
        name = records.segment_name(self._group, sequence)
        size = self._files.size(name) or 0
        if size < records.HEAD_BYTES and not is_first:
            return False
        try:
            content = self._files.read(name, 0, records.HEAD_BYTES)
            head = records.parse_segment_head(self._group, content)
        except RecordDamaged as why:
            raise self._corrupt(f"{name}: {why}") from why
        if head.begins and not is_first:
            return False
        if self._segments:
            before = self._segments[-1]
            before.count = head.base.index - before.base.index
            self._check(before)
        self._segments.append(Segment(self._files, self._group, sequence, head.base, None, 0, size))
        return True

    def _first(self) -> int:
        """Number of the segment in which the log begins."""
        key = log_keys.state_key(self._group, FirstSegment)
        value = self._journal.get("raft_state", key)
        try:
            if value is not None:
                return log_keys.parse_state(key, value, FirstSegment).sequence
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why
        raise self._corrupt("where its log begins is not known")

    def _names(self) -> list[str]:
        return self._files.names(records.folder_of(self._group))

    def _check(self, segment: Segment) -> None:
        """Find out that a sealed segment reaches the next one's base."""
        try:
            segment.check()
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why

    def _recover_tail(self) -> None:
        tail = self._segments.pop()
        found = tail.scan()
        if found.damage:
            raise self._corrupt(f"{tail.name}: {found.damage}")
        if found.size_bytes < tail.size_bytes:
            self._files.cut(tail.name, found.size_bytes)
        self._segments.append(
            Segment(
                self._files,
                self._group,
                tail.sequence,
                tail.base,
                (found.positions, found.terms),
                len(found.positions),
                found.size_bytes,
            )
        )
        self._files.remove(tail.index_name)  # of before a truncation that was not finished

    def _segment_of(self, index: int) -> Segment:
        """The segment of an entry; at most `INDEXES_KEPT` sealed ones keep their index."""
        place = bisect_left(self._segments, index, key=lambda segment: segment.base.index) - 1
        segment = self._segments[place]
        if place + 1 < len(self._segments):
            self._use(segment)
        return segment

    def _forget_when_durable(self, sealed: Segment) -> None:
        """Keep the index of a segment in memory until it can be read from its file."""

        def durable() -> None:
            if sealed in self._segments[:-1]:
                self._use(sealed)

        self._journal.when_synced(durable)

    def _use(self, segment: Segment) -> None:
        self._loaded[segment] = None
        self._loaded.move_to_end(segment)
        if len(self._loaded) > INDEXES_KEPT:
            self._loaded.popitem(last=False)[0].forget_index()

    def _corrupt(self, why: str) -> LogCorrupt:
        return LogCorrupt(f"group {self._group}: {why}")


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()
