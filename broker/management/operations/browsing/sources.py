"""Messages behind a place, a batch at a time, with the first bytes of their bodies.

A batch is bounded by messages and bytes, so that to read it takes the loop a millisecond or two. A
classic queue's bodies are in RocksDB, whose reads hold the interpreter from whatever thread: they
are made here. Those of a quorum queue or a stream are in files, and read behind the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeVar

from broker.amqp.content import raw_properties
from broker.amqp.frames import start_of_body
from broker.fifo.ready.places import BEGINNING, Place, Placed
from broker.management.operations.browsing.documents import LOOKED_AT_BYTES
from broker.management.operations.browsing.views import Seen
from broker.management.pace import WorkPacer
from broker.message import Delivery
from broker.queues.streams.log import Piece
from broker.queues.streams.reader import ReadableLog
from broker.streams.chunk import Chunk
from broker.streams.machine import Place as LogPlace
from broker.streams.offsets import OffsetSpec

BATCH: Final = 128
BATCH_BYTES: Final = 256 << 10
PART_BYTES: Final = 1 << 20
"""What is read at most of a message (`MessageStore.read_starts`)."""

SKIP: Final = 1_000
"""Messages passed over in one step."""

KEPT_BYTES: Final = LOOKED_AT_BYTES + 1
"""One more than is looked at: so a body that goes on is known as one."""

SEEN: Final = 16
"""Messages of a stream between two yields."""

T = TypeVar("T")


class Gone(Exception):
    """The messages can't be read here any more: another node serves the queue, or nobody."""


class Source(Protocol):
    """Messages in their order.

    Attributes:
        unreadable: Messages that were there and could not be read.
    """

    unreadable: int

    async def batch(self, pace: WorkPacer) -> Sequence[Seen] | None:
        """The next messages, perhaps none of them could be read; None at the end.

        Args:
            pace: Runs what takes the loop's time.

        Raises:
            Gone: They can't be read here.
        """
        ...

    def has_more(self, place: Place) -> bool:
        """Tell whether there may be a message behind a place."""
        ...


class WalkedQueue(Protocol):
    """A classic or quorum queue that is served here."""

    def walk(self, after: Place, count: int) -> list[Placed]:
        """Return ready messages behind a place, stubs among them."""
        ...

    def read(self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]) -> None:
        """Read the contents of stubs; None: they can't be read here any more.

        Must be called in the turn in which they were walked to: what leaves the queue is erased.
        """
        ...


class QueueSource:
    """The ready messages of a classic or quorum queue.

    Args:
        queue: The queue.
        after: Where to begin.
        skip: How many to pass over.

    Attributes:
        after: Where it goes on.
    """

    def __init__(self, queue: WalkedQueue, after: Place | None, skip: int = 0) -> None:
        self.unreadable = 0
        self._queue = queue
        self.after = BEGINNING if after is None else after
        self._skip = 0 if after is not None else skip

    async def batch(self, pace: WorkPacer) -> Sequence[Seen] | None:
        """As `Source.batch`."""
        found = await self.placed(pace)
        return None if found is None else await pace.run(_all_seen(found))

    async def placed(self, pace: WorkPacer) -> list[Placed] | None:
        """As `batch`, the messages themselves; of large ones, only bodies' starts may be here."""
        if self._skip:
            await pace.run(self._skipped())
        read: asyncio.Future[list[Delivery] | None] = asyncio.get_running_loop().create_future()
        found = await pace.run(self._begun(_teller(read)))
        if not found:
            return None
        whole = await read
        if whole is None:
            raise Gone
        self.after = found[-1][0]
        self.unreadable += len(found) - len(whole)
        places = {item.number: place for place, item in found}
        return [(places[item.number], item) for item in whole]

    def _skipped(self) -> Generator[None, None, None]:
        """Pass over what is before the beginning, in steps."""
        while self._skip > 0:
            found = self._queue.walk(self.after, min(SKIP, self._skip))
            self._skip = self._skip - len(found) if found else 0
            self.after = found[-1][0] if found else self.after
            yield

    def _begun(
        self, done: Callable[[list[Delivery] | None], None]
    ) -> Generator[None, None, list[Placed]]:
        """Walk on and have the bodies read: in one step, for what leaves the queue is erased."""
        found = _within(self._queue.walk(self.after, BATCH))
        if found:
            self._queue.read([item for _, item in found], done)
        yield
        return found

    def has_more(self, place: Place) -> bool:
        """As `Source.has_more`."""
        return bool(self._queue.walk(place, 1))


def _within(found: list[Placed]) -> list[Placed]:
    """The first ones that may be read together: at least one."""
    size = 0
    for at, (_, item) in enumerate(found):
        size += min(item.message.body_size, PART_BYTES)
        if size > BATCH_BYTES and at:
            return found[:at]
    return found


def _all_seen(found: list[Placed]) -> Generator[None, None, Sequence[Seen]]:
    seen = list[Seen]()
    for place, item in found:
        seen.append(_seen(place, item))
        if not len(seen) % SEEN:
            yield
    return seen


def _seen(place: Place, item: Delivery) -> Seen:
    message = item.message
    return Seen(
        place,
        message.exchange,
        message.routing_key,
        raw_properties(message),
        start_of_body(message, KEPT_BYTES),
        message.body_size,
        item.delivery_count,
    )


class StreamSource:
    """The messages of a stream, as a consumer of this node would read them.

    Args:
        log: Of the nearest replica.
        spec: Where to begin.
    """

    def __init__(self, log: ReadableLog, spec: OffsetSpec) -> None:
        self.unreadable = 0
        self._log = log
        self._spec: OffsetSpec | None = spec
        self._offset = self._index = self._from_ms = 0
        self._chunk: Chunk | None = None

    async def batch(self, pace: WorkPacer) -> Sequence[Seen] | None:
        """As `Source.batch`."""
        while self._chunk is None or self._offset > self._chunk.last_offset:
            if not await self._advance():
                return None
        return await pace.run(self._all_seen(self._chunk))

    def _all_seen(self, chunk: Chunk) -> Generator[None, None, Sequence[Seen]]:
        found, size = list[Seen](), 0
        while self._offset <= chunk.last_offset and len(found) < BATCH and size < BATCH_BYTES:
            found.append(_seen_in(chunk, self._offset - chunk.first_offset))
            size += len(found[-1].body)
            self._offset += 1
            if not len(found) % SEEN:
                yield
        return found

    async def _advance(self) -> bool:
        """Go to the next piece; False at the end of the log."""
        log = self._log
        if self._spec is not None:
            self._index, self._offset, self._from_ms = await self._place(self._spec)
            self._spec = None
        if self._index < log.first_index:  # retention dropped it meanwhile
            self._spec = OffsetSpec("offset", self._offset)
            return True
        if self._index > log.applied_index:
            return False
        piece = log.find(self._index) or await self._load(self._index)
        if piece is None:
            return True
        self._index, chunk = piece.next_index, piece.chunk
        if chunk is None or chunk.last_offset < self._offset:
            return True
        if chunk.timestamp_ms < self._from_ms:
            self._offset = chunk.last_offset + 1
            return True
        self._from_ms = 0
        self._offset = max(self._offset, chunk.first_offset)
        self._chunk = chunk
        return True

    async def _place(self, spec: OffsetSpec) -> LogPlace:
        told: asyncio.Future[LogPlace | Exception] = asyncio.get_running_loop().create_future()
        self._log.place(spec, _teller(told))
        found = await told
        if isinstance(found, Exception):
            raise Gone from found
        return found

    async def _load(self, index: int) -> Piece | None:
        """A piece that is not in memory; None if it was dropped meanwhile."""
        told: asyncio.Future[Piece | Exception] = asyncio.get_running_loop().create_future()
        self._log.load(index, _teller(told))
        found = await told
        if not isinstance(found, Exception):
            return found
        if index >= self._log.first_index:
            raise Gone from found
        return None

    def has_more(self, place: Place) -> bool:
        """As `Source.has_more`."""
        chunk = self._chunk
        in_chunk = chunk is not None and place.number < chunk.last_offset
        return in_chunk or self._index <= self._log.applied_index


def _seen_in(chunk: Chunk, i: int) -> Seen:
    exchange, routing_key, raw = chunk.properties(i)
    body, size = chunk.start_of_body(i, KEPT_BYTES)
    place = Place(0, chunk.first_offset + i)
    return Seen(place, exchange, routing_key, raw, body, size, at_ms=chunk.timestamp_ms)


def _teller(told: asyncio.Future[T]) -> Callable[[T], None]:
    """What gives a future its result, unless nobody waits for it any more."""

    def tell(found: T) -> None:
        if not told.done():
            told.set_result(found)

    return tell
