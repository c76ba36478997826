"""Rows to publish: columns that the sink knows, and messages made of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.connector.failures import OptionRefused, WriteFailed
from pipeline.connector.options import Sink
from pipeline.wire.contents import properties

_TEXT: Final = (StringType,)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "headers": (MapType,),
    "message_id": _TEXT,
    "correlation_id": _TEXT,
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    "reply_to": _TEXT,
    "expiration": _TEXT,
    "type": _TEXT,
    "app_id": _TEXT,
    "delivery_mode": _WHOLE,
    "priority": _WHOLE,
    "timestamp": (TimestampType,),
}
_ROUTING: Final = ("exchange", "routing_key", "body")
_PERSISTENT: Final = 2


class Row(NamedTuple):
    """A message to be.

    Attributes:
        exchange: Its exchange.
        routing_key: Its routing key.
        content: Its properties, as bytes.
        body: Its body.
    """

    exchange: str
    routing_key: str
    content: bytes
    body: bytes


def check(schema: StructType, sink: Sink) -> None:
    """Look at the columns of the rows.

    Raises:
        OptionRefused: One is unknown, of another type, missing, or has no meaning here.
    """
    names = schema.names
    for column in schema.fields:
        name = column.name
        if name not in TYPES:
            near = difflib.get_close_matches(name, TYPES, 1)
            meant = f"did you mean {near[0]}?" if near else f"it knows {', '.join(TYPES)}"
            raise OptionRefused(f"the sink has no column '{name}': {meant}")
        is_map = not isinstance(column.dataType, MapType) or (
            isinstance(column.dataType.keyType, StringType)
            and isinstance(column.dataType.valueType, StringType)
        )
        if not isinstance(column.dataType, TYPES[name]) or not is_map:
            wanted = "map<string,string>" if name == "headers" else TYPES[name][0]().simpleString()
            found = column.dataType.simpleString()
            raise OptionRefused(f"column '{name}' must be {wanted}, and is {found}")
    if "body" not in names:
        raise OptionRefused("the rows have no column 'body', binary or string")
    if "exchange" in names and (sink.is_super or not sink.exchange):
        raise OptionRefused("column 'exchange' has a meaning with option exchange only: drop it")
    is_direct = not sink.exchange
    if "routing_key" in names and is_direct:
        raise OptionRefused(
            "column 'routing_key' goes with option exchange or superStream: drop it"
        )
    if "routing_key" not in names and sink.routing_key is None:
        raise OptionRefused("the rows have no column 'routing_key', and there is no routingKey")


class Messages:
    """Makes messages of record batches.

    Args:
        sink: Where they go.
        headers: Of each, beside its own.
    """

    def __init__(self, sink: Sink, headers: Mapping[str, object]) -> None:
        self._sink = sink
        self._headers = headers

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The messages of a batch.

        Raises:
            WriteFailed: A value has no form in a message.
        """
        columns = {name: batch.column(name) for name in batch.schema.names}
        bodies = _bodies(columns["body"])
        exchanges = self._texts(columns, "exchange", self._sink.exchange, batch.num_rows)
        keys = self._texts(columns, "routing_key", self._sink.routing_key, batch.num_rows)
        own = [name for name in columns if name not in _ROUTING]
        if not own:
            content = self._content({})
            yield from (
                Row(exchange, key, content, body)
                for exchange, key, body in zip(exchanges, keys, bodies, strict=True)
            )
            return
        values = zip(*(_values(columns[name]) for name in own), strict=True)
        for exchange, key, body, given in zip(exchanges, keys, bodies, values, strict=True):
            yield Row(exchange, key, self._content(dict(zip(own, given, strict=True))), body)

    @staticmethod
    def _texts(
        columns: Mapping[str, pa.Array], name: str, default: str | None, count: int
    ) -> Sequence[str]:
        if name not in columns:
            return [default or ""] * count
        found: list[str | None] = columns[name].to_pylist()
        if None in found:
            if default is None:
                raise WriteFailed(f"a row has no {name}")
            return [default if value is None else value for value in found]
        return found  # type: ignore[return-value]  # none of them is None

    def _content(self, given: dict[str, Any]) -> bytes:
        own = given.pop("headers", None)
        headers = {**(dict(own) if own else {}), **self._headers}
        if given.get("delivery_mode") is None:
            given["delivery_mode"] = _PERSISTENT
        try:
            return properties({**given, "headers": headers or None})
        except ValueError as error:
            raise WriteFailed(f"a row can't be a message: {error}") from None


def _bodies(column: pa.Array) -> list[bytes]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return [b"" if body is None else body for body in found] if None in found else found  # type: ignore[return-value]


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]
