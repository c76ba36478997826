"""One consumer of a stream: where it is, its credit and its filter. It lives on this node alone.

Attaching, settling and dying cost the stream's group nothing, and the death of its leader is not
noticed by a reader that reads from another replica.

Invariants:
1. Messages come in the order of their offsets, each once, from the one asked for on.
2. There are never more unsettled messages than the prefetch.
3. Nothing comes that is not applied at the replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.ports import ConsumerPort
from broker.queues.streams.log import Piece
from broker.queues.timing import Defer
from broker.streams.chunk import Chunk
from broker.streams.deliveries import StreamDeliveries
from broker.streams.machine import Place
from broker.streams.offsets import OffsetSpec

_log = logging.getLogger(__name__)

UNLIMITED: Final = 1 << 31

TURN_BYTES_MAX: Final = 256 << 10
"""A reader delivers so much before others of this node have their turn."""


class Filter(NamedTuple):
    """Which messages a consumer wants.

    Attributes:
        values: Filter values.
        match_unfiltered: Those without a value, too.
    """

    values: frozenset[str]
    match_unfiltered: bool


class ReadableLog(Protocol):
    """The log of a replica, here or at another node, as its readers see it."""

    @property
    def applied_index(self) -> int:
        """Raft index of the newest entry applied, as far as known here."""
        ...

    @property
    def first_index(self) -> int:
        """Raft index of the oldest entry that is needed; 0 while all are."""
        ...

    def place(self, spec: OffsetSpec, done: Callable[[Place | Exception], None]) -> None:
        """Look up where to read; `done` may be called within this call."""
        ...

    def find(self, index: int) -> Piece | None:
        """Return the piece that begins at an index, if it is in memory."""
        ...

    def load(self, index: int, done: Callable[[Piece | Exception], None]) -> None:
        """Bring the piece at an index to memory, and some behind it; `done` is given it."""
        ...

    def wait(self, reader: StreamReader) -> None:
        """Call `wake` when another entry is applied."""
        ...


class StreamReader:
    """A consumer.

    Args:
        tag: Its consumer tag.
        port: Its channel.
        prefetch: Most unsettled messages; 0 is without limit.
        wanted: Its filter, or None.
        defer: `loop.call_soon`.

    Attributes:
        offset: Of the next message it looks at.
        unsettled: Messages it holds.
        delivered: How many messages it got.
        log: Where it reads; None once it has ended.
    """

    def __init__(
        self,
        tag: str,
        port: ConsumerPort,
        prefetch: int,
        wanted: Filter | None,
        defer: Defer,
    ) -> None:
        self.tag = tag
        self.port = port
        self.prefetch = prefetch
        self.offset = 0
        self.unsettled = 0
        self.delivered = 0
        self.is_active = True
        self._filter = wanted
        self._defer = defer
        self.log: ReadableLog | None = None
        self._index = 0  # Raft index of the piece to look at next
        self._from_ms = 0  # a time: skip chunks before it
        self._chunk: Chunk | None = None
        self._picked: Sequence[int] = ()
        self._is_due = False
        self._is_loading = False
        self._asked: OffsetSpec | None = None  # where to begin, until that is known

    @property
    def is_over(self) -> bool:
        """True once it gets nothing more."""
        return self.log is None

    @property
    def credit(self) -> int:
        """How many messages it may get now."""
        return (self.prefetch or UNLIMITED) - self.unsettled

    def begin(self, log: ReadableLog, spec: OffsetSpec) -> None:
        """Begin to read, or go on at another replica.

        Args:
            log: The replica's.
            spec: Where.
        """
        self.log = log
        self._chunk = None
        self._is_loading = True
        self._asked = spec

        def placed(found: Place | Exception) -> None:
            if self.log is not log:
                return
            self._is_loading = False
            if isinstance(found, Exception):
                self._lose(found)
                return
            self._asked = None
            self._index, self.offset, self._from_ms = found
            self._wake()

        log.place(spec, placed)

    def go_on(self, log: ReadableLog) -> None:
        """Read on at another replica, or behind what was dropped."""
        if self._asked is not None:
            self.begin(log, self._asked)
        elif self._from_ms:
            self.begin(log, OffsetSpec("timestamp", self._from_ms))
        else:
            self.begin(log, OffsetSpec("offset", self.offset))

    def settle(self, count: int) -> None:
        """Give so much credit back."""
        self.unsettled = max(0, self.unsettled - count)
        self._wake()

    def set_active(self, *, active: bool) -> None:
        """Pause or go on: its socket is full, or has drained."""
        self.is_active = active
        if active:
            self._wake()

    def end(self) -> None:
        """It gets nothing more."""
        self.log = None
        self._chunk = None

    def wake(self) -> None:
        """There is more to read."""
        self._wake()

    def _wake(self) -> None:
        if not self._is_due and not self._is_loading and self.log is not None:
            self._is_due = True
            self._defer(self._turn)

    def _turn(self) -> None:
        """Deliver what there is credit for, and not too much at once."""
        self._is_due = False
        size = 0
        while self.log is not None and self.is_active and self.credit > 0:
            if self._chunk is None and not self._advance(self.log):
                return
            if self._chunk is not None:
                size += self._deliver(self._chunk)
            if size >= TURN_BYTES_MAX:
                self._wake()
                return

    def _advance(self, log: ReadableLog) -> bool:
        """Go to the next piece; False where it must be waited for."""
        if self._index < log.first_index:  # dropped meanwhile
            self.go_on(log)
            return False
        if self._index > log.applied_index:
            log.wait(self)
            return False
        piece = log.find(self._index)
        if piece is None:
            self._load(log)
            return False
        self._take(piece)
        return True

    def _load(self, log: ReadableLog) -> None:
        self._is_loading = True
        index = self._index

        def loaded(found: Piece | Exception) -> None:
            if self.log is not log or self._index != index:
                return
            self._is_loading = False
            if not isinstance(found, Exception):
                self._take(found)
            elif index >= log.first_index:
                self._lose(found)
                return
            self._wake()

        log.load(index, loaded)

    def _lose(self, error: Exception) -> None:
        _log.error("stream.unreadable", extra={"why": str(error), "offset": self.offset})
        self.end()
        self.port.consumer_lost(self.tag)

    def _take(self, piece: Piece) -> None:
        """Begin with a piece, if it has something for this consumer."""
        self._index = piece.next_index
        chunk = piece.chunk
        if chunk is None or chunk.last_offset < self.offset:
            return
        if self._from_ms:
            if chunk.timestamp_ms < self._from_ms:
                self.offset = chunk.last_offset + 1
                return
            self._from_ms = 0
        if chunk.first_offset > self.offset:
            lost = {"offset": self.offset, "count": chunk.first_offset - self.offset}
            _log.error("stream.messages_lost", extra=lost | {"consumer": self.tag})
            self.offset = chunk.first_offset
        if self._filter is not None:
            found = chunk.matches(
                self._filter.values, match_unfiltered=self._filter.match_unfiltered
            )
            start = self.offset - chunk.first_offset
            self._picked = [each for each in found if each >= start]
            if not self._picked:
                self.offset = chunk.last_offset + 1
                return
        self._chunk = chunk

    def _deliver(self, chunk: Chunk) -> int:
        """Deliver of a chunk what there is credit for; return about how many bytes."""
        most = self.credit
        if self._filter is not None:
            given, self._picked = self._picked[:most], self._picked[most:]
            deliveries = StreamDeliveries(chunk, given[0], given[-1] + 1, given)
            last = not self._picked
            self.offset = chunk.first_offset + given[-1] + 1
        else:
            start = self.offset - chunk.first_offset
            stop = min(chunk.count, start + most)
            deliveries = StreamDeliveries(chunk, start, stop)
            last = stop == chunk.count
            self.offset = chunk.first_offset + stop
        count = len(deliveries)
        self.unsettled += count
        self.delivered += count
        if last:
            self._chunk = None
            self.offset = chunk.last_offset + 1
        self.port.deliver(self.tag, deliveries)
        return deliveries.size_bytes
