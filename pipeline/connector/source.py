"""The data source as Spark sees it: readers and writers of batches and streams.

Spark pickles these objects: to the process that plans, and with each task. So they hold options
alone, and connect where they are used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType
from typing_extensions import override

from pipeline.connector import columns, messages, offsets, options, planning
from pipeline.connector.failures import DataLost, OffsetsRefused, OptionRefused
from pipeline.connector.offsets import Position
from pipeline.connector.options import Source
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.connector.reading import RangeReader
from pipeline.connector.sink import BatchWriter, StreamWriter
from pipeline.wire.failures import WireError

_log = logging.getLogger(__name__)

NAME = "amqp-stream"


class Part(InputPartition):
    """A task's range.

    Attributes:
        range: It.
    """

    def __init__(self, wanted: Range) -> None:
        super().__init__(tuple(wanted))
        self.range = wanted


class AmqpStreamDataSource(DataSource):
    """`format("amqp-stream")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    @override
    def name(cls) -> str:
        return NAME

    @override
    def schema(self) -> StructType:
        return columns.schema(options.source(self.options).columns)

    @override
    def reader(self, schema: StructType) -> BatchReader:
        columns.check(schema)
        return BatchReader(options.source(self.options), schema)

    @override
    def streamReader(self, schema: StructType) -> StreamReader:
        columns.check(schema)
        return StreamReader(options.source(self.options), schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise OptionRefused("messages are appended: mode('append')")
        sink = options.sink(self.options, has_batches=False)
        messages.check(schema, sink)
        return BatchWriter(sink)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        if overwrite:
            raise OptionRefused("messages are appended: outputMode('append')")
        sink = options.sink(self.options, has_batches=True)
        messages.check(schema, sink)
        return StreamWriter(sink)


class BatchReader(DataSourceReader):
    """Reads from startingOffsets to endingOffsets once."""

    def __init__(self, source: Source, schema: StructType) -> None:
        self._source = source
        self._schema = schema

    @override
    def partitions(self) -> Sequence[InputPartition]:
        source = self._source
        places = Places(source)
        try:
            names = places.streams()
            starting = offsets.specs("startingOffsets", source.starting, names)
            ending = offsets.specs("endingOffsets", source.ending, names)
            # The end first: retention may move the beginning meanwhile, and that is noticed.
            end = places.positions("endingOffsets", ending)
            start = places.positions("startingOffsets", starting)
        finally:
            places.close()
        for name, position in start.items():
            if position.uid != end[name].uid:
                raise DataLost(f"stream '{name}' was deleted and declared again meanwhile")
            if position.next > end[name].next:
                raise OffsetsRefused(
                    f"stream '{name}': startingOffsets is {position.next}, behind endingOffsets, "
                    f"{end[name].next}"
                )
        return [Part(each) for each in planning.ranges(start, end, source.partitions_min)]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._source, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches, in one process for the whole query."""

    def __init__(self, source: Source, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._places: Places | None = None
        self._target: dict[str, planning.Extent] | None = None
        self._seen: dict[str, planning.Extent] = {}
        self._stored: dict[str, Position] = {}

    @override
    def initialOffset(self) -> dict[str, Any]:
        places = self._opened()
        found = offsets.specs("startingOffsets", self._source.starting, places.streams())
        return offsets.encode(places.positions("startingOffsets", found))

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        if self._source.rows_max:
            return ReadMaxRows(self._source.rows_max)
        if self._source.bytes_max:
            return ReadMaxBytes(self._source.bytes_max)
        return ReadAllAvailable()

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        places = self._opened()
        self._target = places.extents(places.streams())

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        places = self._opened()
        read = offsets.decode(start)
        self._store(read)
        self._seen = self._target or places.extents(places.streams(), read)
        begin = planning.follow(
            read,
            self._seen,
            is_super=bool(self._source.super_stream),
            fails_on_loss=self._source.fails_on_loss,
        )
        if isinstance(limit, ReadAllAvailable):
            return offsets.encode(planning.admit(begin, self._seen))
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._source.bytes_max
        return offsets.encode(planning.admit(begin, self._seen, rows, size))

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        if not self._seen:
            return None
        ends = {name: Position(each.uid, each.next) for name, each in self._seen.items()}
        return offsets.encode(ends)

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = offsets.decode(start), offsets.decode(end)
        found = planning.ranges(begin, stop, self._source.partitions_min)
        return [Part(each) for each in found]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._source, self._schema, partition)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        self._store(offsets.decode(end))

    @override
    def stop(self) -> None:
        if self._places is not None:
            self._places.close()
            self._places = None

    def _store(self, done: dict[str, Position]) -> None:
        """Store how far the query is in the broker.

        Spark tells of a commit when it begins the next batch. A query that ends has none; but
        before that Spark asks once more what there is, from where the committed batches ended.
        """
        if not self._source.consumer or done == self._stored:
            return
        try:
            self._opened().store(done, self._source.consumer)
            self._stored = done
        except WireError as error:
            # The checkpoint is what counts; the next commit says more.
            _log.warning("offsets of '%s' were not stored: %s", self._source.consumer, error)

    def _opened(self) -> Places:
        if self._places is None:
            self._places = Places(self._source)
        return self._places


def _read(
    source: Source, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Part):
        return  # Spark's, for a batch that has no partition: there is nothing to read
    wanted = partition.range
    batches = columns.Batches(schema, wanted.stream)
    places = Places(source)
    try:
        for rows in RangeReader(source, wanted, places).rows():
            yield batches.batch(rows)
    finally:
        places.close_http()
