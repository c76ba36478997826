"""One segment of a log: where its entries are, and what of it is read."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable

from raft.core.messages import Entry
from raft.log_keys import Base, RecordDamaged
from raft.ports import LogFiles
from raft.segments import records

READ_BYTES_MIN = 64 << 10
"""Read at least: a small read costs as much as a large one."""


class Segment:
    """The entries behind a base.

    Args:
        files: Where it lies.
        group: Its group.
        sequence: Its number in the group's folder.
        base: The last entry before its own.
        places: Where each entry's record begins, and the term of each; None reads the index when
            it is needed.
        count: Number of entries.
        size_bytes: Of the file, with what is on its way there.

    Attributes:
        sequence: As given.
        base: As given.
        count: Number of entries.
        size_bytes: As given, kept up to date.
        name: Of its file.
        index_name: Of its index, once it is sealed.
    """

    def __init__(
        self,
        files: LogFiles,
        group: int,
        sequence: int,
        base: Base,
        places: tuple[array[int], array[int]] | None,
        count: int,
        size_bytes: int,
    ) -> None:
        self.sequence = sequence
        self.base = base
        self.count = count
        self.size_bytes = size_bytes
        self.name = records.segment_name(group, sequence)
        self.index_name = records.index_name(group, sequence)
        self._files = files
        self._group = group
        self._seed = records.seed_of(group)
        self._places = places

    @classmethod
    def begin(
        cls, files: LogFiles, group: int, sequence: int, head: records.SegmentHead
    ) -> Segment:
        """A new, empty segment; its head is written with the journal's turn."""
        places = (array("I"), array("Q"))
        made = cls(files, group, sequence, head.base, places, 0, records.HEAD_BYTES)
        files.append(made.name, records.segment_head(group, head))
        return made

    @property
    def last(self) -> int:
        """Index of its last entry; the base's if it is empty."""
        return self.base.index + self.count

    @property
    def is_loaded(self) -> bool:
        """True while its index is in memory."""
        return self._places is not None

    def append(self, entries: list[Entry]) -> int:
        """Write entries behind the last one.

        Returns:
            How many bytes it has grown.
        """
        positions, terms = self._index()
        seed, at, pieces = self._seed, self.size_bytes, []
        for entry in entries:
            piece = records.record(seed, entry)
            positions.append(at)
            terms.append(entry.term)
            pieces.append(piece)
            at += len(piece)
        self._files.append(self.name, b"".join(pieces))
        grown = at - self.size_bytes
        self.size_bytes = at
        self.count += len(entries)
        return grown

    def truncate(self, index: int) -> int:
        """Remove an entry and all behind it, with the journal's turn; the segment is the last.

        Returns:
            How many bytes it has shrunk.
        """
        positions, terms = self._index()
        keep = index - self.base.index - 1
        size = positions[keep] if keep < len(positions) else self.size_bytes
        del positions[keep:], terms[keep:]
        shrunk = self.size_bytes - size
        self._files.cut(self.name, size)
        self.size_bytes, self.count = size, keep
        return shrunk

    def seal(self) -> None:
        """Write its index, and forget it: nothing is appended any more."""
        positions, terms = self._index()
        content = records.index_file(self._group, self.base, positions, terms)
        self._files.append(self.index_name, content)

    def unseal(self) -> None:
        """Make it the last one again."""
        self._index()
        self._files.remove(self.index_name)

    def load_soon(self, done: Callable[[], None]) -> None:
        """Read the index away from the event loop; one that is lost is made anew when it is used.

        Args:
            done: Called when that is over.
        """

        def parse(content: bytes) -> tuple[array[int], array[int]] | None:
            try:
                return records.parse_index(self._group, self.base, content)
            except RecordDamaged:
                return None

        def loaded(found: tuple[array[int], array[int]] | None) -> None:
            if found is not None and self._places is None and len(found[0]) == self.count:
                self._places = found
            done()

        size = records.INDEX_HEAD_BYTES + records.PLACE_BYTES * self.count
        self._files.read_soon(self.index_name, 0, size, parse, loaded)

    def forget_index(self) -> None:
        """Free the memory of a sealed segment's index."""
        self._places = None

    def remove(self) -> None:
        """Remove its files, with the journal's turn."""
        self._files.remove(self.name)
        self._files.remove(self.index_name)

    def term(self, index: int) -> int:
        """Term of one of its entries, or of its base.

        Raises:
            RecordDamaged: Its files are damaged.
        """
        if index == self.base.index:
            return self.base.term
        return int(self._index()[1][index - self.base.index - 1])

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Some entries from `low` on, before `high`, at least one.

        Raises:
            RecordDamaged: One is damaged.
        """
        span = self.span(low, high, size_bytes_max)
        return span.parse(self._files.read(span.name, span.position, span.size_bytes))

    def span(self, low: int, high: int, size_bytes_max: int) -> records.Span:
        """Where some entries from `low` on are, before `high`, at least one.

        Raises:
            RecordDamaged: Where they are can't be known.
        """
        positions, _ = self._index()
        first = low - self.base.index - 1
        end = min(high - self.base.index - 1, self.count)
        start = positions[first]
        last = first
        while last + 1 < end and self._end(positions, last + 1) - start <= size_bytes_max:
            last += 1
        size = self._end(positions, last) - start
        places = [position - start for position in positions[first : last + 1]]
        return records.Span(self.name, start, size, low, places, self._seed)

    def entry_head(self, index: int, size_bytes: int) -> records.RecordHead:
        """The beginning of an entry; its checksum is not looked at.

        Raises:
            RecordDamaged: It is not there.
        """
        place = index - self.base.index - 1
        if self._places is None and place:
            # A search looks at few entries of each segment: its index would be read for each.
            with contextlib.suppress(RecordDamaged):
                at = records.place_of(place)
                content = self._files.read(self.index_name, at, records.POSITION_BYTES)
                return self._head_at(records.parse_position(content), index, size_bytes)
        position = self._index()[0][place] if place else records.HEAD_BYTES
        return self._head_at(position, index, size_bytes)

    def _head_at(self, position: int, index: int, size_bytes: int) -> records.RecordHead:
        block = self._files.read(self.name, position, records.RECORD_HEAD_BYTES + size_bytes)
        head = records.parse_record_head(block)
        if head.number != index:
            raise RecordDamaged(f"entry {head.number} stands in place of {index}")
        return head

    def _end(self, positions: array[int], place: int) -> int:
        return positions[place + 1] if place + 1 < len(positions) else self.size_bytes

    def _index(self) -> tuple[array[int], array[int]]:
        if self._places is None:
            self._places = self._read_index()
        return self._places

    def check(self) -> None:
        """Check that a sealed segment has as many entries as it must have, by its index.

        Raises:
            RecordDamaged: It has not.
        """
        head = self._files.read(self.index_name, 0, records.INDEX_HEAD_BYTES)
        if records.index_count(self._group, self.base, head) != self.count:
            self._read_index()

    def _read_index(self) -> tuple[array[int], array[int]]:
        """Read the index of a sealed segment; one that is lost or damaged is made anew."""
        files = self._files
        try:
            content = files.read(self.index_name, 0, files.size(self.index_name) or 0)
            found = records.parse_index(self._group, self.base, content)
            if len(found[0]) == self.count:
                return found
        except RecordDamaged:
            pass  # it is made anew
        scanned = self.scan()
        if scanned.damage or len(scanned.positions) != self.count:
            raise RecordDamaged(
                f"{self.name}: {scanned.damage or 'it does not reach the next segment'}"
            )
        return scanned.positions, scanned.terms

    def scan(self) -> records.Scan:
        """Read and check all of it."""
        files, name = self._files, self.name
        return records.scan(
            self._group, self.base, self.size_bytes, lambda at, size: files.read(name, at, size)
        )
