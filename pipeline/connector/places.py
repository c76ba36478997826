"""Where streams begin and end: from the HTTP API, or, on any broker, by consuming.

A consumer at `first` sees the oldest message, one at `last` the newest chunk. Every message it sees
can be read again, so the end found so is a valid one: more may have come, less has not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from pipeline.connector import connections
from pipeline.connector.connections import Patience, borrowed
from pipeline.connector.failures import OffsetsRefused, OptionRefused, ReadFailed
from pipeline.connector.offsets import FIRST, NEXT, Position, Spec
from pipeline.connector.options import Source
from pipeline.connector.planning import Extent
from pipeline.wire.connection import Connection
from pipeline.wire.consumer import Consumer
from pipeline.wire.deliveries import Rows
from pipeline.wire.failures import NotFound, Stalled, WireError
from pipeline.wire.management import Management, StreamFacts

_QUIET_S: Final = 0.3
"""No message for so long: the newest chunk is read."""

_DRAIN_MAX_S: Final = 5.0
_LATE_S: Final = 3.0
"""So long a consumer waits for a first message where there need not be one."""

_LAG_MAX_S: Final = 5.0
_PREFETCH: Final = 2000

T = TypeVar("T")


class Places:
    """Looks up what a query needs to plan.

    Args:
        source: Its options.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        broker = source.broker
        self._http = (
            Management(broker.http, broker.vhost, broker.settings.tls) if broker.http else None
        )

    def streams(self) -> list[str]:
        """Names of the streams that are read.

        Raises:
            OptionRefused: There is no such super stream.
        """
        name = self._source.super_stream
        if not name:
            return [self._source.stream]
        http = self._http
        assert http is not None  # options see to it
        found = self._tried(f"super stream '{name}'", lambda _: http.partitions(name))
        if not found:
            raise OptionRefused(f"option superStream: no stream is bound to exchange '{name}'")
        return found

    def extents(
        self, streams: Sequence[str], read: Mapping[str, Position] | None = None
    ) -> dict[str, Extent]:
        """What streams have now.

        Args:
            streams: Their names.
            read: How far they were read. A replica that lags behind is given time, and others
                are asked, before a stream is said to be shorter.

        Raises:
            ReadFailed: No node says it.
        """
        found: dict[str, Extent] = {}
        for name in streams:
            least = read[name].next if read and name in read else 0
            extent = self._extent(name)
            until = time.monotonic() + _LAG_MAX_S
            node = 1
            while not extent.uid and extent.next < least and time.monotonic() < until:
                time.sleep(_QUIET_S)
                extent = self._extent(name, node)
                node += 1
            found[name] = extent
        return found

    def first(self, stream: str) -> int:
        """Offset of the oldest message; that of the next one if there is none."""
        extent = self._extent(stream)
        return self._resolved(stream, extent, FIRST)

    def positions(self, option: str, found: Mapping[str, Spec]) -> dict[str, Position]:
        """What an option's values are as offsets.

        Args:
            option: Its name, for texts.
            found: By stream.

        Raises:
            OffsetsRefused: An offset is beyond the end, or was dropped.
        """
        positions: dict[str, Position] = {}
        for name, spec in found.items():
            extent = self._extent(name)
            if isinstance(spec, int) and spec > extent.next:
                raise OffsetsRefused(
                    f"option {option}: stream '{name}' ends at offset {extent.next}, before {spec}"
                )
            positions[name] = Position(extent.uid, self._resolved(name, extent, spec))
        return positions

    def store(self, positions: Mapping[str, Position], consumer: str) -> None:
        """Store the offsets of the last messages handled in the broker.

        Raises:
            WireError: It does not take one.
        """
        if self._http is None:
            return
        for name, position in positions.items():
            if position.next:
                self._http.store_offset(name, consumer, position.next - 1)

    def facts(self, stream: str) -> StreamFacts | None:
        """What the HTTP API says of a stream; None without one, or if it does not say it."""
        http = self._http
        if http is None:
            return None
        return self._tried(f"stream '{stream}'", lambda _: http.stream(stream))

    def close_http(self) -> None:
        """Close the connection to the HTTP API; those of AMQP are kept for the next task."""
        if self._http is not None:
            self._http.close()

    def close(self) -> None:
        """Close all connections of this process."""
        self.close_http()
        connections.close_all()

    def _extent(self, stream: str, node: int = 0) -> Extent:
        facts = self.facts(stream)
        if facts is not None:
            kept = facts.next - facts.first
            return Extent(facts.uid, facts.first, facts.next, facts.size / kept if kept else 0.0)
        return self._tried(f"stream '{stream}'", lambda n: self._consumed_end(stream, node + n))

    def _resolved(self, stream: str, extent: Extent, spec: Spec) -> int:
        if spec == NEXT:
            return extent.next
        if isinstance(spec, int) and not isinstance(spec, bool):
            return spec
        if spec == FIRST and extent.first is not None:
            return extent.first
        what = f"stream '{stream}'"
        found = self._tried(what, lambda node: self._consumed_first(stream, spec, node))
        return extent.next if found is None else found

    def _consumed_end(self, stream: str, node: int) -> Extent:
        with borrowed(self._source.broker, node) as connection:
            count = _count(connection, stream)
            consumer = Consumer(connection, stream, "last", _PREFETCH)
            rows = Rows()
            if self._begins(consumer, rows, stream, connection, count):
                until = time.monotonic() + _DRAIN_MAX_S
                while time.monotonic() < until and consumer.read(rows, _QUIET_S):
                    consumer.ack(rows.tag)
            consumer.close()
        if not rows.offsets:
            return Extent("", None, 0)
        return Extent("", None, rows.offsets[-1] + 1, rows.size / len(rows))

    def _consumed_first(self, stream: str, spec: Spec, node: int) -> int | None:
        with borrowed(self._source.broker, node) as connection:
            count = _count(connection, stream)
            consumer = Consumer(connection, stream, spec, 1)
            rows = Rows()
            if isinstance(spec, datetime):
                consumer.read(rows, _LATE_S)
            else:
                self._begins(consumer, rows, stream, connection, count)
            consumer.close()
        return rows.offsets[0] if rows.offsets else None

    def _begins(
        self, consumer: Consumer, rows: Rows, stream: str, connection: Connection, count: int
    ) -> bool:
        """Wait for a first message; False if there is none.

        RabbitMQ's counts are some seconds old: 0 may be wrong there, another number is not.
        """
        if not count and connection.is_ours:
            return False
        timeout_s = self._source.broker.timeout_s / 2 if count else _LATE_S
        if consumer.read(rows, timeout_s):
            return True
        if count:
            raise Stalled(
                f"{connection.where} has messages in stream '{stream}', and sent none "
                f"for {timeout_s:.0f} s"
            )
        return False

    def _tried(self, what: str, ask: Callable[[int], T]) -> T:
        patience = Patience(what, self._source.broker.timeout_s)
        while True:
            try:
                return ask(patience.failures)
            except NotFound:
                raise ReadFailed(f"{what} is not there") from None
            except WireError as error:
                if connections.is_not_found(error):
                    raise ReadFailed(f"{what} is not there: {error}") from None
                patience.failed(error)


def _count(connection: Connection, stream: str) -> int:
    channel = connection.open_channel()
    count = connection.count_messages(channel, stream)
    connection.close_channel(channel)
    return count
