"""A log in segments with damaged or missing parts, read around them.

For a replica that nobody else has the log of, and whose log is what it holds (a stream): what
stands before and behind the damage is read on, and each entry that is lost is read as
`raft.parts.LOST`. Nothing of the files is changed, so what is missing can still be put back: a
start reads all of it again. New entries go to a new segment.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from raft.log_keys import Base, RecordDamaged
from raft.ports import LogFiles
from raft.segments import records
from raft.segments.records import SegmentHead
from raft.segments.segment import Segment

_LOST_AT: Final = -1
"""In the place of a record's position: there is none."""

_NUMBERS_LEFT: Final = 1000
"""Numbers that files may have which are missing at the end, and are put back."""

_ENTRIES_LEFT: Final = 256
"""The journal is told of a commit with the next entries: so many more may have been durable, and
what is put back has them."""

_LOST_MAX: Final = 1024
"""So many lost entries are read at once."""


class ReadableFiles(Protocol):
    """The reading half of `raft.ports.LogFiles`."""

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read a part of a file."""
        ...

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files of a folder, sorted."""
        ...


class FoundRecord(NamedTuple):
    """A whole record of a damaged segment.

    Attributes:
        number: Index of its entry.
        term: Of its entry.
        position: Where it begins.
        size_bytes: Of the record.
    """

    number: int
    term: int
    position: int
    size_bytes: int


class HoledSegment(Segment):
    """A segment some of whose entries are lost; nothing is appended to it.

    Args:
        files: Where it lies, if it is there at all.
        group: Its group.
        sequence: Its number.
        base: The last entry before its own.
        last: Its last entry, lost or not.
        found: What is whole of it, in order.
    """

    def __init__(
        self,
        files: LogFiles,
        group: int,
        sequence: int,
        base: Base,
        last: int,
        found: list[FoundRecord],
    ) -> None:
        count = last - base.index
        size = files.size(records.segment_name(group, sequence)) or 0
        self._sizes = array("I", bytes(4 * count))
        positions, terms = array("q", [_LOST_AT]) * count, array("Q", [0]) * count
        for each in found:
            place = each.number - base.index - 1
            positions[place], self._sizes[place] = each.position, each.size_bytes
            terms[place] = each.term
        term = base.term
        for place, known in enumerate(terms):
            term = terms[place] = known or term  # of a lost one: that of the entry before
        super().__init__(files, group, sequence, base, (positions, terms), count, size)

    def lost(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last entry of what is lost, for each part."""
        positions, at = self._index()[0], 0
        while at < self.count:
            end = at
            while end < self.count and positions[end] == _LOST_AT:
                end += 1
            if end > at:
                yield self.base.index + 1 + at, self.base.index + end
            at = end + 1

    @override
    def span(self, low: int, high: int, size_bytes_max: int) -> records.Span:
        positions, terms = self._index()
        first = low - self.base.index - 1
        end = min(high - self.base.index - 1, self.count, first + _LOST_MAX)
        start = stop = 0
        places: list[int] = []
        for place in range(first, end):
            at = positions[place]
            if at != _LOST_AT:
                start = start if stop else at
                if places and at + self._sizes[place] - start > size_bytes_max:
                    break
                stop = at + self._sizes[place]
            places.append(at if at == _LOST_AT else at - start)
        known = list(terms[first : first + len(places)])
        return records.Span(self.name, start, stop - start, low, places, self._seed, known)

    @override
    def forget_index(self) -> None:
        """No-op: it can't be read again from a file."""

    @override
    def check(self) -> None:
        """No-op: what is wrong with it is known."""


def recovered(
    files: LogFiles, group: int, first: int, oldest: Base, needed: Base
) -> tuple[list[Segment], int]:
    """Return the segments of a log around what is damaged, and the number of the one to begin.

    That is 0 where the last one goes on.

    Args:
        files: Where they are.
        group: The group.
        first: Number of the segment in which the log begins.
        oldest: Where the oldest checkpoint stands; (0, 0) without one.
        needed: The log reaches this entry, or one behind it.
    """
    heads = list(_heads(files, group, first))
    if not heads or heads[0][1].index > oldest.index:
        heads.insert(0, (first, oldest))
    segments: list[Segment] = []
    for (sequence, base), (_, behind) in pairwise(heads):
        last = max(base.index, behind.index)
        size = files.size(records.segment_name(group, sequence)) or 0
        whole = Segment(files, group, sequence, base, None, last - base.index, size)
        try:
            whole.check()
        except RecordDamaged:
            found = _found(files, group, sequence, base, last)
            segments.append(HoledSegment(files, group, sequence, base, last, found))
        else:
            segments.append(whole)
    sequence, base = heads[-1]
    tail = _sound_tail(files, group, sequence, base, needed)
    if tail is not None:
        return [*segments, tail], 0
    found = _found(files, group, sequence, base, None)
    last = max(needed.index + _ENTRIES_LEFT, base.index, *[each.number for each in found[-1:]])
    segments.append(HoledSegment(files, group, sequence, base, last, found))
    folder = files.names(records.folder_of(group))
    return segments, max(records.next_sequence(folder), sequence + 1) + _NUMBERS_LEFT


def _sound_tail(
    files: LogFiles, group: int, sequence: int, base: Base, needed: Base
) -> Segment | None:
    """Return the last segment if nothing is wrong with it, and none seems to have followed it."""
    name = records.segment_name(group, sequence)
    size = files.size(name) or 0
    content = files.read(name, 0, records.HEAD_BYTES)
    try:
        records.parse_segment_head(group, content)
    except RecordDamaged:
        return None
    is_sealed = files.size(records.index_name(group, sequence)) is not None
    scan = Segment(files, group, sequence, base, None, 0, size).scan()
    if is_sealed or scan.damage or base.index + len(scan.positions) < needed.index:
        return None
    if scan.size_bytes < size:
        files.cut(name, scan.size_bytes)
    places = scan.positions, scan.terms
    return Segment(files, group, sequence, base, places, len(scan.positions), scan.size_bytes)


def held(files: ReadableFiles, group: int) -> list[tuple[int, int]]:
    """Return first and last of the whole entries of a group that follow each other in its files.

    Nothing else is needed for that: of a store that is lost, nobody knows what of them counts.
    """
    numbers: list[int] = []
    for sequence, base in _heads(files, group, 0):
        found = _found(files, group, sequence, base, None)
        numbers += [each.number for each in found if not numbers or each.number > numbers[-1]]
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1] = parts[-1][0], number
        else:
            parts.append((number, number))
    return parts


def _heads(files: ReadableFiles, group: int, first: int) -> Iterator[tuple[int, Base]]:
    """Yield number and base of each segment that can be told; the others' entries are lost."""
    seed, end, is_begun = records.seed_of(group), -1, False
    for name in files.names(records.folder_of(group)):
        sequence = records.sequence_of(name)
        if sequence is None or sequence < first:
            continue
        content = files.read(name, 0, records.HEAD_BYTES)
        try:
            head = records.parse_segment_head(group, content)
        except RecordDamaged:
            block = files.read(name, records.HEAD_BYTES, records.SCAN_BYTES)
            try:
                entry = records.parse_record(seed, block, 0)
            except RecordDamaged:
                continue
            head = SegmentHead(Base(entry.index - 1, entry.term), begins=False)
        if head.begins and is_begun:
            return  # of a log that the journal does not know of
        if head.base.index > end:
            yield sequence, head.base
            end, is_begun = head.base.index, True


def _found(
    files: ReadableFiles, group: int, sequence: int, base: Base, last: int | None
) -> list[FoundRecord]:
    """Return the whole records of a segment, in order, wherever they stand in it.

    Args:
        files: Where it is.
        group: Its group.
        sequence: Its number.
        base: Its base.
        last: Its last entry, if that is known.
    """
    name = records.segment_name(group, sequence)
    data = files.read(name, 0, files.size(name) or 0)
    seed, at, before = records.seed_of(group), records.HEAD_BYTES, base
    found: list[FoundRecord] = []
    while at < len(data):
        try:
            entry = records.parse_record(seed, data, at)
            is_next = before.index < entry.index and (last is None or entry.index <= last)
        except RecordDamaged:
            is_next = False
        if is_next:
            size = records.RECORD_HEAD_BYTES + len(entry.data)
            found.append(FoundRecord(entry.index, entry.term, at, size))
            before = Base(entry.index, entry.term)
            at += size
        else:
            at = _next_place(data, at + 1, before)
    return found


def _next_place(data: bytes, at: int, before: Base) -> int:
    """Where the next record may begin: index, term and kind stand there as they must."""
    index, term = before.index.to_bytes(8, "big"), before.term.to_bytes(8, "big")
    shape = re.escape(index[:5]) + rb"(?!\0\0\0)..." + re.escape(term[:6]) + rb"..[\0-\2]"
    found = re.compile(shape, re.DOTALL).search(data, at + records.NUMBER_AT)
    return len(data) if found is None else found.start() - records.NUMBER_AT
