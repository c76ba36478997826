"""One range of a stream, read in a task: through any node, and through another when that one goes.

What was yielded is not read again: after a failure reading goes on at the next offset. Offsets of
our streams have no holes, so one in them is a loss. RabbitMQ's have, where it keeps tracking data
in the log; there a hole is a loss only if the stream by then begins behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipeline.connector.connections import Patience, borrowed, is_not_found
from pipeline.connector.failures import DataLost
from pipeline.connector.options import Source
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.wire.connection import Connection
from pipeline.wire.consumer import Consumer
from pipeline.wire.deliveries import Rows
from pipeline.wire.failures import Stalled, WireError

ROWS: Final = 10_000
SIZE: Final = 8 << 20
"""A batch has about so many rows, or bytes of bodies."""

_PREFETCH_MIN: Final = 1000
"""RabbitMQ begins at the chunk that holds the offset: what is before it takes credit, too."""


class RangeReader:
    """Reads a range.

    Args:
        source: The query's options.
        wanted: What to read.
        places: Looks up streams.
    """

    def __init__(self, source: Source, wanted: Range, places: Places) -> None:
        self._source = source
        self._wanted = wanted
        self._places = places
        self._next = wanted.start
        what = f"stream '{wanted.stream}' from offset {wanted.start} to {wanted.stop}"
        self._patience = Patience(what, source.broker.timeout_s)

    def rows(self) -> Iterator[Rows]:
        """The messages of the range, in pieces.

        Raises:
            DataLost: Some are gone.
            ReadFailed: No node serves them.
        """
        while self._next < self._wanted.stop:
            try:
                yield from self._through_a_node()
            except WireError as error:
                if is_not_found(error):
                    raise DataLost(f"stream '{self._wanted.stream}' was deleted: {error}") from None
                self._patience.failed(error)

    def _through_a_node(self) -> Iterator[Rows]:
        wanted = self._wanted
        node = wanted.number + self._patience.failures
        with borrowed(self._source.broker, node) as connection:
            left = wanted.stop - self._next
            prefetch = min(self._source.prefetch, max(left, _PREFETCH_MIN))
            consumer = Consumer(connection, wanted.stream, self._next, prefetch)
            self._check_incarnation()
            while self._next < wanted.stop:
                rows = self._gathered(consumer, connection)
                if rows.offsets:
                    yield rows
            consumer.close()

    def _gathered(self, consumer: Consumer, connection: Connection) -> Rows:
        """Read until a batch is full, or the range ends."""
        stop = self._wanted.stop
        rows = Rows()
        while len(rows) < ROWS and rows.size < SIZE:
            # With other nodes to try, one that is silent gets half of the time.
            share = 2 if len(self._source.broker.endpoints) > 1 else 1
            if not consumer.read(rows, self._source.broker.timeout_s / share):
                raise Stalled(
                    f"{connection.where} sent nothing from offset {self._expected(rows)} on"
                )
            self._patience.progressed()
            if rows.offsets[-1] >= stop - 1:
                break
            consumer.ack(rows.tag)
        reached = rows.offsets[-1] + 1
        rows.clip(self._next, stop)
        self._check_holes(rows, reached, connection)
        self._next = min(reached, stop)
        return rows

    def _expected(self, rows: Rows) -> int:
        return rows.offsets[-1] + 1 if rows.offsets else self._next

    def _check_incarnation(self) -> None:
        uid = self._wanted.uid
        facts = self._places.facts(self._wanted.stream) if uid else None
        if facts is not None and facts.uid != uid:
            raise DataLost(
                f"stream '{self._wanted.stream}' was deleted and declared again while it was read: "
                f"incarnation {uid} was planned, now it is {facts.uid}"
            )

    def _check_holes(self, rows: Rows, reached: int, connection: Connection) -> None:
        end = min(reached, self._wanted.stop)
        if not self._source.fails_on_loss or len(rows) == end - self._next:
            return
        hole = self._next
        for offset in rows.offsets:
            if offset != hole:
                break
            hole += 1
        after = next((offset for offset in rows.offsets if offset > hole), end)
        if not connection.is_ours and self._places.first(self._wanted.stream) <= hole:
            return
        where = f"from offset {hole} to {after - 1}"
        raise DataLost(f"stream '{self._wanted.stream}': the messages {where} are gone")
