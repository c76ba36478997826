"""One consumer of a stream: messages from an offset on, acknowledged in batches."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Final

from pipeline.wire import frames
from pipeline.wire.connection import Connection
from pipeline.wire.deliveries import Deliveries, Rows
from pipeline.wire.failures import ConsumerCancelled

PREFETCH_MAX: Final = (1 << 16) - 1
_TAG: Final = "c"


class Consumer:
    """Consumes on a channel of its own.

    Args:
        connection: Where.
        stream: The stream's name.
        offset: Where to begin: "first", "last", "next", an offset or a time.
        prefetch: How many messages may come unacknowledged.
        arguments: More arguments of basic.consume, as x-stream-filter.

    Raises:
        ChannelClosed: The broker refuses it.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        offset: object,
        prefetch: int,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._acked = 0
        self._deliveries = Deliveries()
        self._channel = connection.open_channel()
        self._prefetch = max(1, min(prefetch, PREFETCH_MAX))
        count = self._prefetch.to_bytes(2, "big")
        connection.send(frames.method(self._channel, frames.QOS, bytes(4) + count + b"\0"))
        connection.answer(self._channel, frames.QOS_OK)
        given = {"x-stream-offset": offset, **(arguments or {})}
        connection.send(frames.consume(self._channel, stream, _TAG, given))
        connection.answer(self._channel, frames.CONSUME_OK)

    def read(self, rows: Rows, timeout_s: float) -> bool:
        """Append what comes next.

        Args:
            rows: Where to.
            timeout_s: How long to wait for the first message.

        Returns:
            False if nothing came.

        Raises:
            ConsumerCancelled: The broker ended it.
            ChannelClosed: The broker closed the channel.
            ConnectionLost: The node is gone.
        """
        deadline = monotonic() + timeout_s
        before = len(rows)

        def reader(data: bytes, at: int) -> int:
            return self._deliveries.read(data, at, rows)

        while len(rows) == before:
            frame = self._connection.feed(reader, deadline)
            if frame is None:
                return len(rows) > before
            if frame.channel != self._channel:
                continue
            if frame.name == frames.CHANNEL_CLOSE:
                self._connection.closed_by(frame)
            if frame.name == frames.CANCEL:
                where = self._connection.where
                raise ConsumerCancelled(f"{where} ended the consumer of stream '{self._stream}'")
        return True

    def ack(self, tag: int) -> None:
        """Acknowledge all up to a delivery tag, once half of the prefetch has gathered."""
        if tag - self._acked >= self._prefetch // 2:
            self._acked = tag
            self._connection.send(frames.ack(self._channel, tag))

    def close(self) -> None:
        """End it; what is on its way is dropped."""
        self._connection.close_channel(self._channel)
