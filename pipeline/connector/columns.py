"""Messages as Arrow batches, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.connector.failures import OptionRefused
from pipeline.connector.options import unknown_column
from pipeline.wire.deliveries import Rows, Shape

TYPES: Final[Mapping[str, DataType]] = {
    "stream": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "exchange": StringType(),
    "routing_key": StringType(),
    "message_id": StringType(),
    "correlation_id": StringType(),
    "content_type": StringType(),
    "delivery_mode": ByteType(),
    "priority": ByteType(),
    "headers": MapType(StringType(), StringType()),
    "body": BinaryType(),
}
_MICROSECONDS: Final = 1_000_000
_TIME_MAX: Final = 253_402_300_800
"""Seconds of the year 10000: Spark's timestamps end before."""

_BYTE_MAX: Final = 127


def schema(columns: Sequence[str]) -> StructType:
    """Spark's schema of these columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def check(given: StructType) -> None:
    """Look at a schema that the reader was given (`.schema(...)`): it may choose and reorder.

    Raises:
        OptionRefused: It has a column that is not there, or of another type.
    """
    for column in given.fields:
        if column.name not in TYPES:
            raise OptionRefused(f"schema: {unknown_column(column.name)}")
        if column.dataType != TYPES[column.name]:
            raise OptionRefused(
                f"schema: column '{column.name}' is {TYPES[column.name].simpleString()}, "
                f"not {column.dataType.simpleString()}"
            )


class Batches:
    """Makes record batches of messages.

    Args:
        given: The schema.
        stream: Name of the stream.
    """

    def __init__(self, given: StructType, stream: str) -> None:
        self._schema = to_arrow_schema(given, timezone="UTC")
        self._stream = stream

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """One batch of all rows."""
        arrays = [self._column(column.name, column.type, rows) for column in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, kind: pa.DataType, rows: Rows) -> pa.Array:
        if name == "offset":
            return pa.array(rows.offsets, kind)
        if name == "body":
            return pa.array(rows.bodies, kind)
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream, kind), len(rows))
        value = _VALUES[name]
        first = value(rows.shapes[0][1]) if rows.shapes else None
        found: list[Any] = []
        is_same = True
        for count, shape in rows.shapes:
            one = value(shape)
            is_same = is_same and one == first
            found += [one] * count
        if is_same and name != "headers":
            return pa.repeat(pa.scalar(first, kind), len(rows))
        return pa.array(found, kind)


def _property(name: str) -> Callable[[Shape], Any]:
    return lambda shape: shape.properties.get(name)


def _number(name: str) -> Callable[[Shape], Any]:
    def value(shape: Shape) -> Any:
        found = shape.properties.get(name)
        return found if found is None or found <= _BYTE_MAX else None

    return value


def _timestamp(shape: Shape) -> int | None:
    seconds = shape.properties.get("timestamp")
    return None if seconds is None or seconds >= _TIME_MAX else int(seconds) * _MICROSECONDS


def _headers(shape: Shape) -> list[tuple[str, str | None]] | None:
    found = shape.properties.get("headers")
    return [(key, text(value)) for key, value in found.items()] if found else None


def text(value: object) -> str | None:
    """A header's value as text: strings as they are, times in ISO 8601, tables as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool | int | float | dict | list):
        return json.dumps(value, default=text, ensure_ascii=False)
    return str(value)


_VALUES: Final[Mapping[str, Callable[[Shape], Any]]] = {
    "exchange": lambda shape: shape.exchange,
    "routing_key": lambda shape: shape.routing_key,
    "message_id": _property("message_id"),
    "correlation_id": _property("correlation_id"),
    "content_type": _property("content_type"),
    "delivery_mode": _number("delivery_mode"),
    "priority": _number("priority"),
    "timestamp": _timestamp,
    "headers": _headers,
}
