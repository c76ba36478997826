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

from raft import log_keys, parts
from raft.core.messages import NORMAL, Entry
from raft.entry_log import EntriesRead, LogSegment
from raft.errors import LogCorrupt
from raft.log_keys import Base, FirstSegment, RecordDamaged
from raft.ports import Journal, LogFiles
from raft.segments import damage, records
from raft.segments.records import SegmentHead
from raft.segments.segment import Segment

SEGMENT_BYTES = 64 << 20
"""A segment that has grown so far is sealed with the next entry."""

NOTHING = Base()

INDEXES_KEPT = 4
"""Indexes of sealed segments in memory, for each log, whatever their size: replicas that catch up
read in order, and so do most readers."""

INDEXED_KEPT = 1 << 18
"""More stay while they have together so many entries, of 12 bytes: many readers at many places."""


class SegmentedEntries:
    """Entries in files.

    Args:
        journal: Knows where the log begins in them.
        files: Where they are.
        group: The group's id.
        segment_bytes: When a segment is sealed.
        keeps_log: Noted for the next start.
        first_sequence: Of its first segment, if it is new: those below are about to be removed.

    Attributes:
        log_bytes: Size of the entries since it was last set to 0.
        is_read_around_damage: Nobody else has this log: entries that are damaged, or missing, are
            read as `raft.parts.LOST`.
    """

    def __init__(
        self,
        journal: Journal,
        files: LogFiles,
        group: int,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        keeps_log: bool = False,
        first_sequence: int = 0,
    ) -> None:
        self.log_bytes = 0
        self.is_read_around_damage = False
        self._first_sequence = first_sequence
        self._journal = journal
        self._files = files
        self._group = group
        self._segment_bytes = min(segment_bytes, records.SEGMENT_BYTES_MAX)
        self._keeps_log = keeps_log
        self._segments: list[Segment] = []
        self._loaded: OrderedDict[Segment, None] = OrderedDict()
        self._sealing: dict[Segment, object] = {}  # their indexes are not durable yet

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
        place = bisect_left(self._segments, index, key=lambda segment: segment.base.index)
        if place < len(self._segments) and self._segments[place].base.index == index:
            return self._segments[place].base.term  # a segment's last entry: no index is needed
        try:
            return self._segment_of(index).term(index)
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Entries in [low, high), as many as fit, at least one; never more than a segment's.

        Raises:
            LogCorrupt: One is missing or damaged.
        """
        try:
            span = self._span(self._holding(low), low, high, size_bytes_max)
            return span.parse(self._files.read(span.name, span.position, span.size_bytes))
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why

    def _span(self, segment: Segment, low: int, high: int, size_bytes_max: int) -> records.Span:
        span = segment.span(low, high, size_bytes_max)
        terms = span.terms
        if self.is_read_around_damage:
            terms = terms or [segment.term(low + at) for at in range(len(span.places))]
        return span._replace(terms=terms if self.is_read_around_damage else None)

    def read_soon(self, low: int, high: int, size_bytes_max: int, done: EntriesRead) -> None:
        """Read `entries` away from the event loop; `done` is told once, with what they raise."""
        segment = self._holding(low, is_loaded=False)
        if segment.is_loaded:
            self._use(segment)
            self._read_span(segment, low, high, size_bytes_max, done)
            return

        def loaded() -> None:
            if segment in self._segments:
                self._use(segment)
                self._read_span(segment, low, high, size_bytes_max, done)
            else:
                done(None)

        segment.load_soon(loaded)

    def _read_span(
        self, segment: Segment, low: int, high: int, size_bytes_max: int, done: EntriesRead
    ) -> None:
        def arrived(found: list[Entry] | RecordDamaged) -> None:
            if not isinstance(found, RecordDamaged):
                done(found)
            elif segment in self._segments:
                done(self._corrupt(f"{segment.name}: {found}"))
            else:
                done(None)

        try:
            span = self._span(segment, low, high, size_bytes_max)
        except RecordDamaged as why:
            done(self._corrupt(str(why)))
            return
        self._files.read_soon(span.name, span.position, span.size_bytes, span.parse_soon, arrived)

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The beginning of an entry's data; empty if it is none of a proposal."""
        try:
            head = self._holding(index, is_loaded=False).entry_head(index, size_bytes)
        except RecordDamaged as why:
            raise self._corrupt(str(why)) from why
        return head.data if head.kind == NORMAL else b""

    def segments(self) -> list[LogSegment]:
        """The segments, oldest first."""
        return [
            LogSegment(each.base.index + 1, each.last, each.size_bytes) for each in self._segments
        ]

    def sealed_end(self, index: int) -> int | None:
        """Last entry of the first sealed segment that ends at `index` or behind it."""
        if index > self._segments[-1].base.index:
            return None  # asked for each entry that is applied
        place = bisect_left(self._segments, index, key=lambda segment: segment.last)
        return self._segments[place].last if place + 1 < len(self._segments) else None

    def _holding(self, index: int, *, is_loaded: bool = True) -> Segment:
        if not self.base.index < index <= self.last:
            raise self._corrupt(f"entry {index} is missing in {self.base.index + 1}..{self.last}")
        return self._segment_of(index, is_loaded=is_loaded)

    # -- writing ------------------------------------------------------------------------------

    def create(self, base: Base = NOTHING) -> None:
        """Begin a log without entries.

        What an earlier store left of this group goes: the store that knew what it promised is lost.
        So does what a crash left of a log that was begun here, and that the journal does not know.

        Args:
            base: The last entry before those to come.
        """
        old = [name for name in self._names() if records.is_log_file(name)]
        self._begin(base)
        if old:
            self._journal.when_synced(lambda: self._remove_names(old))

    def _remove_names(self, names: list[str]) -> None:
        for name in names:
            self._files.remove(name)

    def reset(self, base: Base) -> None:
        """Replace all entries by none behind a snapshot's.

        The files of the log before stay until the journal knows that this one counts.
        """
        gone, self._segments = self._segments, []
        self._loaded.clear()
        self._sealing.clear()
        self._begin(base, gone[-1].sequence + 1)
        self.log_bytes = 0
        self._journal.when_synced(lambda: _remove(gone))

    def _begin(self, base: Base, sequence: int = 0) -> None:
        """Begin a log in a segment whose number no file has."""
        sequence = max(sequence, self._first_sequence, records.next_sequence(self._names()))
        head = SegmentHead(base, begins=True)
        self._segments.append(Segment.begin(self._files, self._group, sequence, head))
        self._put_first(sequence)

    def _put_first(self, sequence: int) -> None:
        key = log_keys.state_key(self._group, FirstSegment)
        first = FirstSegment(sequence, self._keeps_log)
        self._journal.put("raft_state", key, log_keys.state_record(key, first))

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
        run: list[Entry] = []
        size = self._segments[-1].size_bytes
        for entry in entries:
            is_full = size >= self._segment_bytes and (run or self._segments[-1].count)
            # A proposal ends in the segment in which it begins: a checkpoint is taken between both.
            if is_full and not parts.goes_on(entry):
                self._write(run)
                self._roll()
                run, size = [], records.HEAD_BYTES
            run.append(entry)
            size += records.RECORD_HEAD_BYTES + len(entry.data)
        self._write(run)

    def _write(self, entries: list[Entry]) -> None:
        if entries:
            self.log_bytes += self._segments[-1].append(entries)

    def _roll(self) -> None:
        """Seal the last segment and begin another."""
        tail = self._segments[-1]
        term = tail.term(tail.last)
        self._files.barrier(tail.name)  # so that a later segment proves that this one is whole
        head = SegmentHead(Base(tail.last, term), begins=False)
        self._segments.append(Segment.begin(self._files, self._group, tail.sequence + 1, head))
        self._files.barrier(self._segments[-1].name)  # so that an index proves that one follows
        tail.seal()
        self._forget_when_durable(tail)

    def compact(self, index: int) -> None:
        """Remove the segments in which no entry is behind `index`; the last one stays.

        Their files stay until the journal knows that the log begins later: some of them alone
        would be a log with a hole.
        """
        gone = []
        while len(self._segments) > 1 and self._segments[0].last <= index:
            gone.append(self._segments.pop(0))
            self._loaded.pop(gone[-1], None)
            self._sealing.pop(gone[-1], None)
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
            tail = self._segments[-1]
            tail.unseal()
            self._files.barrier(tail.index_name)  # which says that one follows
            gone.remove()
            self._files.barrier(gone.name)  # before an earlier one is cut, or goes
            self._loaded.pop(tail, None)
            self._sealing.pop(tail, None)
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
        self._check_heads(first)
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

    def recover_around(self, snapshot_index: int, oldest: Base, needed: Base) -> None:
        """Recover what `recover` finds damaged, around the damage; no file is changed.

        Args:
            snapshot_index: As in `recover`.
            oldest: Where the oldest checkpoint stands; (0, 0) without one.
            needed: The log reached this entry, or one behind it.

        Raises:
            LogCorrupt: Where the log begins is not known.
        """
        self.is_read_around_damage = True
        self.log_bytes = 0
        found, sequence = damage.recovered(self._files, self._group, self._first(), oldest, needed)
        self._segments = found
        if sequence:
            last = found[-1].last
            head = SegmentHead(Base(last, found[-1].term(last)), begins=False)
            self._segments.append(Segment.begin(self._files, self._group, sequence, head))
        self._loaded.clear()
        for segment in self._segments:
            if segment.last > snapshot_index:
                self.log_bytes += segment.size_bytes

    def lost(self) -> list[tuple[int, int]]:
        """First and last entry of each part that is known to be lost."""
        holed = [each for each in self._segments if isinstance(each, damage.HoledSegment)]
        return [part for each in holed for part in each.lost()]

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

    def _check_heads(self, first: int) -> None:
        """Raise where the log goes on behind a segment without a head: that was durable before."""
        short = ""
        for name in self._names():
            sequence = records.sequence_of(name)
            if sequence is None or sequence < first:
                continue
            content = self._files.read(name, 0, records.HEAD_BYTES)
            if len(content) < records.HEAD_BYTES:
                short = short or name
            elif records.begins(content) and sequence > first:
                return  # of a log that the journal may not know of
            elif short:
                raise self._corrupt(f"{short} ends within its head, and {name} follows")

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
        if self._files.size(tail.index_name) is not None:
            raise self._corrupt(f"{tail.name} was sealed, and no segment follows it")
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

    def _segment_of(self, index: int, *, is_loaded: bool = True) -> Segment:
        """The segment of an entry; at most `INDEXES_KEPT` sealed ones keep their index.

        Args:
            index: The entry.
            is_loaded: Its index will be loaded.
        """
        place = bisect_left(self._segments, index, key=lambda segment: segment.base.index) - 1
        segment = self._segments[place]
        if is_loaded and place + 1 < len(self._segments):
            self._use(segment)
        return segment

    def _forget_when_durable(self, sealed: Segment) -> None:
        """Keep the index of a segment in memory until it can be read from its file."""
        sealing = self._sealing[sealed] = object()

        def durable() -> None:
            if self._sealing.get(sealed) is sealing:
                del self._sealing[sealed]
                self._use(sealed)

        self._journal.when_synced(durable)

    def _use(self, segment: Segment) -> None:
        if segment in self._sealing or segment is self._segments[-1]:
            return
        self._loaded[segment] = None
        self._loaded.move_to_end(segment)
        while len(self._loaded) > INDEXES_KEPT and self._indexed() > INDEXED_KEPT:
            self._loaded.popitem(last=False)[0].forget_index()

    def _indexed(self) -> int:
        """How many entries the indexes of sealed segments in memory have."""
        return sum([each.count for each in self._loaded])

    def _corrupt(self, why: str) -> LogCorrupt:
        return LogCorrupt(f"group {self._group}: {why}")


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()
