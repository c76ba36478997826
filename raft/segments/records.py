"""Bytes of segments and of their indexes. Pure.

```
segment  | "WMSG" | version 1 | begins 1 | group 8 | base index 8 | base term 8 | crc32 4 |
           then records; begins is 1 where a log begins, and 0 where it goes on
record   | size 4 | crc32 4 | index 8 | term 8 | kind 1 | data |     size is that of the data
           crc32 covers the group, index, term, kind and data
index    | "WMSX" | version 1 | group 8 | base index 8 | count 4 | crc32 4 |
         | position 4, count times | term 8, count times |     crc32 covers all of it but itself
```
Numbers are big-endian. The group is part of every checksum, so a file in a wrong folder is noticed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from raft.core.messages import NORMAL, Entry
from raft.log_keys import Base, RecordDamaged
from raft.parts import LOST

VERSION: Final = 1
SEGMENT_BYTES_MAX: Final = 1 << 31
"""Positions are 4 bytes: a segment ends well below 4 GiB, whatever its last record adds."""

_SEGMENT: Final = struct.Struct(">4sBBQQQ")
_RECORD: Final = struct.Struct(">IIQQB")
_COVERED: Final = struct.Struct(">QQB")
_INDEX: Final = struct.Struct(">4sBQQI")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")

HEAD_BYTES: Final = _SEGMENT.size + _U32.size
RECORD_HEAD_BYTES: Final = _RECORD.size
INDEX_HEAD_BYTES: Final = _INDEX.size + _U32.size
PLACE_BYTES: Final = 12
POSITION_BYTES: Final = 4

_SEGMENT_MAGIC: Final = b"WMSG"
_INDEX_MAGIC: Final = b"WMSX"

SCAN_BYTES: Final = 4 << 20
"""Read at a time when a segment is scanned."""

UNSYNCED_BYTES_MAX: Final = 64 << 20
"""The journal syncs more often than so many bytes come to one group: behind a record that is not
whole no more can be an unfinished write."""

LOOKED_FOR: Final = 8
"""Entries behind a damaged one that are looked for; one whole one is enough."""

NUMBER_AT: Final = 8
"""Where the number of an entry stands in its record."""


FOLDER: Final = "log"
"""Where the folders of all groups are."""


def folder_of(group: int) -> str:
    """Where the files of a group are."""
    return f"{FOLDER}/{group}"


def group_of(folder: str) -> int | None:
    """The group whose folder it is; None if it can't be one's."""
    name = folder.rpartition("/")[2]
    group = int(name) if name.isdecimal() else None
    return group if group is not None and folder_of(group) == folder else None


def segment_name(group: int, sequence: int) -> str:
    """Name of a segment."""
    return f"log/{group}/{sequence:010d}.segment"


def index_name(group: int, sequence: int) -> str:
    """Name of a segment's index."""
    return f"log/{group}/{sequence:010d}.index"


def sequence_of(name: str) -> int | None:
    """The number of a segment by its name; None for another file."""
    stem, dot, suffix = name.rpartition("/")[2].partition(".")
    return int(stem) if dot and suffix == "segment" and stem.isdecimal() else None


def next_sequence(names: list[str]) -> int:
    """The number of a segment behind all those of these files."""
    taken = [sequence_of(name) for name in names]
    return max([0, *(each + 1 for each in taken if each is not None)])


def is_log_file(name: str) -> bool:
    """True for the name of a segment, or of an index."""
    stem, _, suffix = name.rpartition("/")[2].partition(".")
    return suffix in ("segment", "index") and stem.isdecimal()


class SegmentHead(NamedTuple):
    """What a segment says of itself.

    Attributes:
        base: The last entry before its own.
        begins: Its log begins with it: what lies in segments before it does not belong to it.
    """

    base: Base
    begins: bool


def segment_head(group: int, head: SegmentHead) -> bytes:
    """The first bytes of a segment."""
    base = head.base
    packed = _SEGMENT.pack(_SEGMENT_MAGIC, VERSION, head.begins, group, base.index, base.term)
    return packed + _U32.pack(crc32(packed))


def begins(head: bytes) -> bool:
    """True for the head of a segment in which a log begins."""
    return head[5:6] == b"\x01"


def parse_segment_head(group: int, head: bytes) -> SegmentHead:
    """Return what a segment says of itself.

    Raises:
        RecordDamaged: It is none of this group, or damaged.
    """
    if len(head) < HEAD_BYTES:
        raise RecordDamaged(f"a segment ends within its head, after {len(head)} bytes")
    magic, version, begins, found, index, term = _SEGMENT.unpack_from(head)
    if (magic, version) != (_SEGMENT_MAGIC, VERSION):
        raise RecordDamaged(f"a segment begins with {head[:5]!r}")
    if _U32.unpack_from(head, _SEGMENT.size)[0] != crc32(head[: _SEGMENT.size]):
        raise RecordDamaged("the checksum of a segment's head does not match")
    if found != group:
        raise RecordDamaged(f"a segment is one of group {found}")
    return SegmentHead(Base(index, term), bool(begins))


def record(seed: int, entry: Entry) -> bytes:
    """The bytes of one entry.

    Args:
        seed: Of the group's checksums, see `seed_of`.
        entry: The entry.
    """
    index, term, kind, data = entry.index, entry.term, entry.kind, entry.data
    crc = crc32(data, crc32(_COVERED.pack(index, term, kind), seed))
    return _RECORD.pack(len(data), crc, index, term, kind) + data


def seed_of(group: int) -> int:
    """What the checksums of a group's records begin with."""
    return crc32(_U64.pack(group))


class Span(NamedTuple):
    """Entries that follow each other in a segment, and are read at once.

    Attributes:
        name: Of the file.
        position: Where the first one's record begins.
        size_bytes: Of all their records.
        first: Index of the first.
        places: Where each record begins behind `position`.
        seed: Of the group's checksums.
        terms: Of all of them, where those that are damaged or have no place are given as lost.
    """

    name: str
    position: int
    size_bytes: int
    first: int
    places: list[int]
    seed: int
    terms: list[int] | None = None

    def parse(self, block: bytes) -> list[Entry]:
        """Return the entries in what was read of the file.

        Raises:
            RecordDamaged: One is damaged, or missing.
        """
        if self.terms is not None:
            return self._around_damage(block, self.terms)
        return [self._parsed(block, index, at) for index, at in enumerate(self.places, self.first)]

    def _parsed(self, block: bytes, index: int, at: int) -> Entry:
        if at < 0:
            raise RecordDamaged(f"entry {index} is lost")
        entry = parse_record(self.seed, block, at)
        if entry.index != index:
            raise RecordDamaged(f"entry {entry.index} stands in place of {index}")
        return entry

    def _around_damage(self, block: bytes, terms: list[int]) -> list[Entry]:
        found = []
        for index, (at, term) in enumerate(zip(self.places, terms, strict=True), self.first):
            entry = Entry(index, term, NORMAL, LOST)
            with suppress(RecordDamaged):
                entry = self._parsed(block, index, at)
            found.append(entry)
        return found

    def parse_soon(self, block: bytes) -> list[Entry] | RecordDamaged:
        """`parse` in a thread: what it would raise is returned."""
        try:
            return self.parse(block)
        except RecordDamaged as why:
            return why


class RecordHead(NamedTuple):
    """What the first bytes of a record say; no checksum tells whether it is true.

    Attributes:
        number: Index of its entry.
        kind: Of its entry.
        data: The first bytes of its entry's data.
    """

    number: int
    kind: int
    data: bytes


def parse_record_head(block: bytes) -> RecordHead:
    """Return what the beginning of a record says.

    Raises:
        RecordDamaged: It is shorter than a record's head.
    """
    if len(block) < RECORD_HEAD_BYTES:
        raise RecordDamaged("a record ends within its head")
    size, _, index, _, kind = _RECORD.unpack_from(block)
    return RecordHead(index, kind, block[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + size])


def parse_record(seed: int, block: bytes, at: int) -> Entry:
    """Return the entry that begins at a position of a block.

    Raises:
        RecordDamaged: There is none, or not all of it.
    """
    start = at + RECORD_HEAD_BYTES
    if start > len(block):
        raise RecordDamaged("a record ends within its head")
    size, crc, index, term, kind = _RECORD.unpack_from(block, at)
    data = block[start : start + size]
    if len(data) < size:
        raise RecordDamaged(f"record {index} ends within its data")
    if crc32(data, crc32(block[at + 8 : start], seed)) != crc:
        raise RecordDamaged("the checksum of a record does not match")
    return Entry(index, term, kind, data)


def index_file(group: int, base: Base, positions: array[int], terms: array[int]) -> bytes:
    """The index of a sealed segment.

    Args:
        group: The group.
        base: The segment's.
        positions: Where each entry's record begins.
        terms: The term of each.
    """
    head = _INDEX.pack(_INDEX_MAGIC, VERSION, group, base.index, len(positions))
    places = _big_endian(positions).tobytes() + _big_endian(terms).tobytes()
    return head + _U32.pack(crc32(places, crc32(head))) + places


def parse_index(group: int, base: Base, content: bytes) -> tuple[array[int], array[int]]:
    """Return the positions and terms of an index.

    Raises:
        RecordDamaged: It is not that segment's, or damaged.
    """
    if len(content) < INDEX_HEAD_BYTES:
        raise RecordDamaged("an index ends within its head")
    magic, version, found, index, count = _INDEX.unpack_from(content)
    places = content[INDEX_HEAD_BYTES:]
    crc = crc32(places, crc32(content[: _INDEX.size]))
    is_its = (magic, version, found, index) == (_INDEX_MAGIC, VERSION, group, base.index)
    if not is_its or len(places) != count * PLACE_BYTES:
        raise RecordDamaged("an index is not that of its segment")
    if crc != _U32.unpack_from(content, _INDEX.size)[0]:
        raise RecordDamaged("the checksum of an index does not match")
    positions, terms = array("I", places[: 4 * count]), array("Q", places[4 * count :])
    return _big_endian(positions), _big_endian(terms)


def _big_endian(numbers: array[int]) -> array[int]:
    """The same numbers with their bytes in the order of files, or back again."""
    found = numbers[:]
    if sys.byteorder == "little":
        found.byteswap()
    return found


def place_of(place: int) -> int:
    """Where in an index the position of its entry `place` stands, counted from 0."""
    return INDEX_HEAD_BYTES + POSITION_BYTES * place


def parse_position(content: bytes) -> int:
    """Return a position of an index; no checksum tells whether it is true.

    Raises:
        RecordDamaged: The index ends before it.
    """
    if len(content) != POSITION_BYTES:
        raise RecordDamaged("an index ends within a position")
    return int(_U32.unpack(content)[0])


def index_count(group: int, base: Base, head: bytes) -> int | None:
    """How many entries an index says that its segment has; None if it is not that segment's."""
    if len(head) < INDEX_HEAD_BYTES:
        return None
    magic, version, found, index, count = _INDEX.unpack_from(head)
    is_its = (magic, version, found, index) == (_INDEX_MAGIC, VERSION, group, base.index)
    return int(count) if is_its else None


class Scan(NamedTuple):
    """What a segment holds.

    Attributes:
        positions: Where the record of each entry begins, in order, without a gap.
        terms: The term of each.
        size_bytes: Up to the end of the last whole record.
        damage: Why what follows is no unfinished write; "" where it can be one.
    """

    positions: array[int]
    terms: array[int]
    size_bytes: int
    damage: str


def scan(group: int, base: Base, size_bytes: int, read: Callable[[int, int], bytes]) -> Scan:
    """Read a whole segment behind its head, and check every record.

    The first record that is not whole ends it. If an entry with a later number stands whole behind
    that, somebody was once told that it is durable, or may have been: that is damage.

    Args:
        group: The group.
        base: The segment's.
        size_bytes: Of the file.
        read: Reads (position, size) of it.
    """
    seed, positions, terms = seed_of(group), array("I"), array("Q")
    at, expected = HEAD_BYTES, base.index + 1
    block, block_at = b"", at
    while at < size_bytes:
        try:
            found = parse_record(seed, block, at - block_at)
        except RecordDamaged as why:
            needed = _needed_bytes(block, at - block_at)
            has_more = block_at + len(block) < size_bytes
            if has_more and len(block) - (at - block_at) < needed:
                block, block_at = read(at, max(needed, SCAN_BYTES)), at
                if len(block) < min(needed, size_bytes - at):
                    return Scan(positions, terms, at, f"the file ends at {at + len(block)}")
                continue
            left = size_bytes - at
            later = _later_entry(seed, expected, read(at, min(left, UNSYNCED_BYTES_MAX)))
            is_damage = later is not None or left > UNSYNCED_BYTES_MAX
            damage = f"{why} at {at}, and {left} bytes follow" if is_damage else ""
            return Scan(positions, terms, at, damage)
        if found.index != expected:
            return Scan(positions, terms, at, f"entry {found.index} stands in place of {expected}")
        positions.append(at)
        terms.append(found.term)
        at += RECORD_HEAD_BYTES + len(found.data)
        expected += 1
    return Scan(positions, terms, at, "")


def _needed_bytes(block: bytes, at: int) -> int:
    """How many bytes the record at a position takes, as far as its head is known."""
    if len(block) < at + RECORD_HEAD_BYTES:
        return RECORD_HEAD_BYTES
    return RECORD_HEAD_BYTES + int(_U32.unpack_from(block, at)[0])


def _later_entry(seed: int, expected: int, rest: bytes) -> int | None:
    """Number of a whole record behind a damaged one; None if none of the next few is there.

    Looked for by its number, which stands 8 bytes behind its beginning.
    """
    for index in range(expected + 1, expected + 1 + LOOKED_FOR):
        number = _U64.pack(index)
        at = rest.find(number, NUMBER_AT)
        while at >= 0:
            try:
                if parse_record(seed, rest, at - NUMBER_AT).index == index:
                    return index
            except RecordDamaged:
                pass
            at = rest.find(number, at + 1)
    return None
