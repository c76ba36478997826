"""The sink: rows as messages, exactly once in streams, at least once anywhere.

Exactly once: what a task has of a batch is one unit of a named publisher, whose name is the query
and the task's partition, and whose id is the batch. A unit is stored whole or not at all, and one
whose id is known is dropped. So a task that is tried again, runs twice, or whose node dies before
it answers, stores its rows once, in whatever order they come.

At least once: every message is confirmed before the task ends; what was not when a connection went
is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from typing_extensions import override

from pipeline.connector.connections import Patience, borrowed
from pipeline.connector.failures import WriteFailed
from pipeline.connector.messages import Messages, Row
from pipeline.connector.options import Sink
from pipeline.wire.failures import ChannelClosed, NotFound, WireError
from pipeline.wire.management import Management
from pipeline.wire.publisher import Publisher, Rejected, Returned, Transaction

T = TypeVar("T")

UNIT_BYTES_MAX: Final = 32 << 20
"""Of the broker: what one unit may have."""

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_WINDOW: Final = 10_000
"""So many messages are on their way to be confirmed."""

_PIECE: Final = 1000


@dataclass
class Written(WriterCommitMessage):
    """What a task has done.

    Attributes:
        partition: Of the task.
        rows: How many rows it had.
        query: Of which query; "" if it was no unit.
    """

    partition: int
    rows: int
    query: str = ""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches.

    Args:
        sink: Where to.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        if not self._sink.is_exact:
            return Written(task.partitionId(), publish(self._sink, iterator, task.partitionId()))
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if not query or batch is None:
            raise WriteFailed(
                "Spark does not say which batch this is; delivery=at-least-once does without"
            )
        unit = Unit(self._sink, f"{_prefix(query)}{task.partitionId()}", int(batch))
        return Written(task.partitionId(), unit.write(iterator, task.partitionId()), query)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Look whether another attempt at the batch had other tasks: its rows are there, too."""
        done = [each for each in messages if isinstance(each, Written) and each.query]
        if done and self._sink.broker.http:
            task_ids = {each.partition for each in done}
            check_publishers(self._sink, _prefix(done[0].query), batchId, task_ids)

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what is stored is known when the batch comes again."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame once, at least once.

    Args:
        sink: Where to.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        partition = _task().partitionId()
        return Written(partition, publish(self._sink, iterator, partition))


class Unit:
    """The rows of one task and batch.

    Args:
        sink: Where they go.
        name: Of the publisher.
        number: Of the batch.
    """

    def __init__(self, sink: Sink, name: str, number: int) -> None:
        self._sink = sink
        self._name = name
        headers = {"x-warren-publisher": name, "x-warren-publishing-id": number}
        self._messages = Messages(sink, headers)

    def write(self, batches: Iterator[pa.RecordBatch], node: int) -> int:
        """Store them; returns how many.

        Raises:
            WriteFailed: They are too many, or no node stores them.
        """
        rows = [row for batch in batches for row in self._messages.rows(batch)]
        if not rows:
            return 0
        self._check(rows)
        patience = Patience(f"unit {self._name}", self._sink.broker.timeout_s)
        while True:
            try:
                self._commit(rows, node + patience.failures)
            except (Returned, Rejected) as error:
                raise WriteFailed(str(error)) from None
            except WireError as error:
                if isinstance(error, ChannelClosed) and "is larger than" in error.text:
                    raise WriteFailed(_too_large(error.text)) from None
                # Not known whether it is stored: it is sent again, under the same id.
                patience.failed(error)
            else:
                return len(rows)

    def _commit(self, rows: Sequence[Row], node: int) -> None:
        with borrowed(self._sink.broker, node) as connection:
            if not connection.is_ours:
                raise WriteFailed(
                    f"{connection.where} does not know units: it is no WarrenMQ. There is "
                    "delivery=at-least-once"
                )
            transaction = Transaction(connection)
            one = transaction.publishes.message
            transaction.commit([one(*row) for row in rows], self._sink.broker.timeout_s)
            transaction.close()

    def _check(self, rows: Sequence[Row]) -> None:
        """What would be refused in part is refused whole, before anything is stored."""
        sizes: dict[str, int] = {}
        for row in rows:
            sizes[row.routing_key] = (
                sizes.get(row.routing_key, 0) + len(row.content) + len(row.body)
            )
        if self._sink.is_super:
            keys = partitions(self._sink)
            for key in sizes:
                if key not in keys:
                    raise WriteFailed(
                        f"super stream '{self._sink.exchange}' has no partition for routing key "
                        f"'{key}'; it has {', '.join(sorted(keys)[:20])}"
                    )
        largest = max(sizes.values())
        if largest > UNIT_BYTES_MAX:
            raise WriteFailed(_too_large(f"{largest} bytes of a batch for one stream in one task"))


def publish(sink: Sink, batches: Iterator[pa.RecordBatch], node: int) -> int:
    """Publish rows with confirms; returns how many.

    Raises:
        WriteFailed: A row has no queue, or no node takes them.
    """
    sending = _Sending(sink)
    patience = Patience(f"publishing to '{sink.exchange}'", sink.broker.timeout_s)
    while True:
        try:
            with borrowed(sink.broker, node + patience.failures) as connection:
                publisher = Publisher(connection)
                for _ in sending.through(publisher, batches):
                    patience.progressed()
                publisher.close()
        except (Returned, Rejected) as error:
            raise WriteFailed(str(error)) from None
        except WireError as error:
            patience.failed(error)
        else:
            return sending.count


class _Sending:
    """What is on its way: kept until it is confirmed, and sent again through another node.

    Args:
        sink: Where it goes.
    """

    def __init__(self, sink: Sink) -> None:
        self._messages = Messages(sink, {})
        self._timeout_s = sink.broker.timeout_s
        self._open: dict[int, Row] = {}
        self._rows: Iterator[Row] | None = None
        self.count = 0

    def through(self, publisher: Publisher, batches: Iterator[pa.RecordBatch]) -> Iterator[None]:
        """Send what is left; yields when something was confirmed."""
        if self._rows is None:
            self._rows = (row for batch in batches for row in self._messages.rows(batch))
        again = list(self._open.values())
        self._open = {}
        number = 0
        for piece in _pieces(again, self._rows):
            self._open.update(enumerate(piece, number + 1))
            number += len(piece)
            publisher.send([publisher.publishes.message(*row) for row in piece])
            yield from self._confirmed(publisher, _WINDOW)
        yield from self._confirmed(publisher, 0)

    def _confirmed(self, publisher: Publisher, most: int) -> Iterator[None]:
        done = publisher.confirmed(most, self._timeout_s)
        for number in done:
            del self._open[number]
        self.count += len(done)
        if done:
            yield


def _pieces(again: list[Row], rows: Iterator[Row]) -> Iterator[list[Row]]:
    for at in range(0, len(again), _PIECE):
        yield again[at : at + _PIECE]
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) >= _PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


def check_publishers(sink: Sink, prefix: str, batch: int, task_ids: set[int]) -> None:
    """Compare who has stored units of a batch with the tasks it had.

    Raises:
        WriteFailed: Another attempt had other tasks; or a later batch is stored already, and this
            one was dropped.
    """
    with_key = partitions(sink) if sink.is_super else {"": sink.routing_key or ""}
    for stream in sorted(set(with_key.values())):
        found = _published(sink, stream)
        for name, number in found.items():
            if not name.startswith(prefix):
                continue
            if number > batch:
                raise WriteFailed(
                    f"stream '{stream}' has batch {number} of this query already, so batch {batch} "
                    "was not stored: the checkpoint is older than the stream. Begin with a new one"
                )
            if number == batch and int(name.removeprefix(prefix)) not in task_ids:
                raise WriteFailed(
                    f"stream '{stream}' has rows of batch {batch} from an attempt with more tasks: "
                    "some are there twice. Keep the number of partitions between restarts"
                )


def partitions(sink: Sink) -> dict[str, str]:
    """The partition of each routing key of the super stream."""
    return _asked(sink, sink.exchange, lambda http: http.routing_keys(sink.exchange))


def _asked(sink: Sink, name: str, ask: Callable[[Management], dict[str, T]]) -> dict[str, T]:
    patience = Patience(f"'{name}'", sink.broker.timeout_s)
    http = Management(sink.broker.http, sink.broker.vhost, sink.broker.settings.tls)
    try:
        while True:
            try:
                return ask(http)
            except NotFound:
                raise WriteFailed(f"'{name}' is not there") from None
            except WireError as error:
                patience.failed(error)
    finally:
        http.close()


def _published(sink: Sink, stream: str) -> dict[str, int]:
    return _asked(sink, stream, lambda http: http.publishers(stream))


def _too_large(what: str) -> str:
    return (
        f"{what}: a unit has at most {UNIT_BYTES_MAX >> 20} MiB. Make batches smaller "
        "(maxRowsPerTrigger of the source), or divide them among more tasks (repartition)"
    )


def _prefix(query: str) -> str:
    return f"SPARK/{query}/"


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise WriteFailed("rows are written by tasks of Spark alone")
    return task
