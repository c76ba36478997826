"""A stream's state: what replicas learn by applying entries, without looking at a message. Pure.

It holds how far the stream reaches, the publishing nodes' sessions, named publishers, stored
offsets, and where in the log to look for an offset or a time. Its size depends on the number of
segments, not of messages: 24 bytes for each `INTERVAL_BYTES` of log.

Invariants:
1. Offsets of messages are 0, 1, 2 ... in the order of the log. An entry that does not continue them
   is a bug, and stops the replica before it can serve anything wrong; but for one behind an entry
   that is lost (`raft.parts.LOST`), whose offsets are left out.
2. Times never fall from one entry to the next.
3. A cut keeps the newest segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import msgspec

from broker.fifo.sessions import SessionRecord, SessionTable
from broker.streams.entry import Delta, StreamEntry
from broker.streams.offsets import OffsetSpec

PUBLISHERS_MAX: Final = 10_000
"""Named publishers that are remembered; the one that was silent for longest is forgotten first."""

OFFSETS_MAX: Final = 10_000
"""Names under which consumers can store offsets, likewise."""

INTERVAL_BYTES: Final = 4 << 20
"""An offset or time is looked for by reading at most so much of the log."""

LOST_OFFSETS: Final = 1 << 24
"""Offsets that are left out where the newest entries are lost, so that none of theirs is used
again: a file of 64 MiB has fewer messages."""

_NAME_BYTES: Final = 250
"""Memory of a name that is remembered, and what is known under it."""

_PLACE_BYTES: Final = 130
"""Memory of an index point or a segment."""

PART_BYTES_MAX: Final = 1 << 20
"""Size of the parts of a snapshot (docs/protocol-rules.md P13)."""


class IndexPoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A place in the log.

    Attributes:
        index: Raft index of an entry.
        offset: Of its first message; the next offset if it has none.
        timestamp_ms: Its time.
    """

    index: int
    offset: int
    timestamp_ms: int


class StreamSegment(msgspec.Struct, array_like=True, gc=False):
    """A segment of the stream, by which retention goes.

    Attributes:
        index: Raft index of its first entry.
        offset: Offset of its first message.
        first_ms: Time of its first entry.
        last_ms: Time of its last.
        size_bytes: Of its entries.
        chunks: How many entries with messages.
    """

    index: int
    offset: int
    first_ms: int
    last_ms: int
    size_bytes: int = 0
    chunks: int = 0


class StreamSnapshot(msgspec.Struct, array_like=True):
    """The whole state, as a checkpoint holds it. Fields are only appended, with defaults."""

    version: int
    first_offset: int
    next_offset: int
    last_chunk: int
    timestamp_ms: int
    since_point_bytes: int
    segments: list[StreamSegment]
    points: list[IndexPoint]
    sessions: list[SessionRecord]
    ended: list[tuple[str, str]]
    publishers: list[tuple[str, int, int]]
    offsets: list[tuple[str, int]]
    publishers_forgotten: int = 0
    is_behind_loss: bool = False


class Place(NamedTuple):
    """Where a consumer reads.

    Attributes:
        raft_index: Of the entry to look at next.
        offset: Of the first message it wants.
        from_ms: It wants no chunk of before that time; 0: any.
    """

    raft_index: int
    offset: int
    from_ms: int = 0


VERSION: Final = 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StreamSnapshot)


class StreamMachine:
    """The state of one replica.

    Attributes:
        first_offset: Of the oldest message kept.
        next_offset: Of the next message.
        last_chunk: Offset of the first message of the newest entry with messages.
        timestamp_ms: Time of the newest entry.
        segments: Oldest first.
        sessions: What publishing nodes have brought.
        publishers: Named publishers: the last id stored, and its offset.
        offsets: Stored by consumers.
        publishers_forgotten: How many named publishers were forgotten for want of room.
    """

    def __init__(self) -> None:
        self.first_offset = 0
        self.next_offset = 0
        self.last_chunk = 0
        self.timestamp_ms = 0
        self.segments: list[StreamSegment] = []
        self.sessions = SessionTable()
        self.publishers: dict[str, tuple[int, int]] = {}
        self.offsets: dict[str, int] = {}
        self.publishers_forgotten = 0
        self._points: list[IndexPoint] = []
        self._since_point_bytes = 0  # of log since the newest point
        self._is_behind_loss = False  # what stood before the next entry is lost

    @property
    def begin_offset(self) -> int:
        """Where a leader goes on: behind a loss at the end, far behind all that can be lost."""
        return self.next_offset + (LOST_OFFSETS if self._is_behind_loss else 0)

    @property
    def size_bytes(self) -> int:
        """Of the entries kept."""
        return sum([each.size_bytes for each in self.segments])

    @property
    def ram_bytes(self) -> int:
        """What the state takes of the memory, about, but for the sessions of nodes."""
        names = len(self.publishers) + len(self.offsets)
        return names * _NAME_BYTES + (len(self._points) + len(self.segments)) * _PLACE_BYTES

    @property
    def first_timestamp_ms(self) -> int:
        """Time of the oldest segment's first entry; 0 if there is none."""
        return self.segments[0].first_ms if self.segments else 0

    @property
    def first_index(self) -> int:
        """Raft index of the oldest entry that is needed; 0 while all are."""
        return self.segments[0].index if self.segments and self.first_offset else 0

    def apply(self, index: int, entry: StreamEntry, size_bytes: int) -> None:
        """Apply an entry.

        Args:
            index: Its Raft index; of the first part, where it takes several.
            entry: The entry.
            size_bytes: Its size in the log.

        Raises:
            ValueError: It does not continue the stream (a bug).
        """
        if self._is_behind_loss:
            self.next_offset = max(self.next_offset, entry.first_offset)
            self._is_behind_loss = False
        if entry.first_offset != self.next_offset:
            raise ValueError(
                f"entry {index} begins at offset {entry.first_offset}, "
                f"the stream ends before {self.next_offset}"
            )
        self.timestamp_ms = max(self.timestamp_ms, entry.timestamp_ms)
        self._note_place(index, entry, size_bytes)
        delta, offset = entry.delta, entry.first_offset
        for span in delta.spans:
            if span.is_stored:
                self.sessions.replay_enqueued(
                    span.session, span.first, span.count, span.lowest, offset
                )
                offset += span.count
            else:
                last = span.first + span.count - 1
                self.sessions.replay_passed(
                    span.session, span.first, last, is_rejected=span.is_rejected
                )
        self.next_offset += entry.records
        self._apply_names(delta)
        for node, boot in delta.ended:
            self.sessions.end_boot(node, boot)
        if delta.cut:
            self._cut(delta.cut)

    def lose(self) -> None:
        """An entry is lost: the next one may continue behind it, and so leave offsets out."""
        self._is_behind_loss = True

    def _note_place(self, index: int, entry: StreamEntry, size_bytes: int) -> None:
        if entry.begins_segment or not self.segments:
            self.segments.append(
                StreamSegment(index, entry.first_offset, self.timestamp_ms, self.timestamp_ms)
            )
        segment = self.segments[-1]
        segment.size_bytes += size_bytes
        segment.last_ms = self.timestamp_ms
        if entry.records:
            segment.chunks += 1
            self.last_chunk = entry.first_offset
        is_due = not self._points or self._since_point_bytes >= INTERVAL_BYTES
        if entry.begins_segment or (entry.records and is_due):
            self._points.append(IndexPoint(index, entry.first_offset, self.timestamp_ms))
            self._since_point_bytes = 0
        self._since_point_bytes += size_bytes

    def _apply_names(self, delta: Delta) -> None:
        for name, number, offset in delta.publishers:
            self.publishers.pop(name, None)  # the dictionary's order is that of last use
            self.publishers[name] = (number, offset)
            if len(self.publishers) > PUBLISHERS_MAX:
                del self.publishers[next(iter(self.publishers))]
                self.publishers_forgotten += 1
        for name, offset in delta.offsets:
            self.offsets.pop(name, None)
            self.offsets[name] = offset
            if len(self.offsets) > OFFSETS_MAX:
                del self.offsets[next(iter(self.offsets))]

    def _cut(self, offset: int) -> None:
        """Drop the segments below an offset (invariant 3)."""
        while len(self.segments) > 1 and self.segments[1].offset <= offset:
            del self.segments[0]
        self.first_offset = max(self.first_offset, self.segments[0].offset)
        keep = bisect_left(self._points, self.segments[0].index, key=lambda point: point.index)
        del self._points[:keep]

    # Where to read.

    def place(self, spec: OffsetSpec, end_index: int) -> Place:
        """Return where a consumer begins to read.

        Args:
            spec: What it asked for.
            end_index: Raft index behind the newest entry applied.
        """
        if spec.kind == "timestamp":
            if spec.value > self.timestamp_ms or not self._points:
                return Place(end_index, self.next_offset)
            place = bisect_left(self._points, spec.value, key=lambda point: point.timestamp_ms) - 1
            point = self._points[max(0, place)]
            return Place(point.index, max(self.first_offset, point.offset), spec.value)
        offset = {
            "first": self.first_offset,
            "last": self.last_chunk,
            "next": self.next_offset,
            "offset": spec.value,
        }[spec.kind]
        offset = max(self.first_offset, offset)
        if offset >= self.next_offset or not self._points:
            return Place(end_index, offset)
        place = bisect_right(self._points, offset, key=lambda point: point.offset) - 1
        return Place(self._points[max(0, place)].index, offset)

    # Snapshots.

    def snapshot(self) -> list[bytes]:
        """The whole state, in parts."""
        state = StreamSnapshot(
            VERSION,
            self.first_offset,
            self.next_offset,
            self.last_chunk,
            self.timestamp_ms,
            self._since_point_bytes,
            self.segments,
            self._points,
            self.sessions.records(),
            self.sessions.ended(),
            [(name, number, offset) for name, (number, offset) in self.publishers.items()],
            list(self.offsets.items()),
            self.publishers_forgotten,
            self._is_behind_loss,
        )
        data = _encoder.encode(state)
        return [data[at : at + PART_BYTES_MAX] for at in range(0, len(data), PART_BYTES_MAX)]

    def restore(self, parts: list[bytes]) -> None:
        """Load what `snapshot` returned.

        Raises:
            msgspec.DecodeError: The bytes are no snapshot, or of a version not known here.
        """
        state = _decoder.decode(b"".join(parts))
        if state.version != VERSION:
            raise msgspec.DecodeError(f"expected snapshot {VERSION}, found {state.version}")
        self.first_offset = state.first_offset
        self.next_offset = state.next_offset
        self.last_chunk = state.last_chunk
        self.timestamp_ms = state.timestamp_ms
        self._since_point_bytes = state.since_point_bytes
        self.segments = state.segments
        self._points = state.points
        self.sessions = SessionTable()
        self.sessions.load(state.sessions, state.ended)
        self.publishers = {name: (number, offset) for name, number, offset in state.publishers}
        self.offsets = dict(state.offsets)
        self.publishers_forgotten = state.publishers_forgotten
        self._is_behind_loss = state.is_behind_loss
