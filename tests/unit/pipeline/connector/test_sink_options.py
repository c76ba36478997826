"""Options and columns of the sink."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pipeline.connector import messages, options
from pipeline.connector.failures import OptionRefused, WriteFailed
from pipeline.connector.options import Sink
from pipeline.wire.deliveries import read_properties

URL = "amqp://u:secret@a"
HTTP = "http://a:1"


def sink(*, has_batches: bool = True, **given: str) -> Sink:
    return options.sink({"url": URL, **given}, has_batches=has_batches)


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TEXT = StringType()


def test_where_rows_go_and_how():
    found = {
        kind: (made.exchange, made.routing_key, made.is_super, made.is_exact)
        for kind, made in {
            "stream": sink(stream="s"),
            "queue": sink(queue="q"),
            "exchange": sink(exchange="e", routingKey="k"),
            "any key": sink(exchange="e"),
            "super": sink(superStream="x", httpUrl=HTTP),
            "batch": sink(stream="s", has_batches=False),
            "asked": sink(stream="s", delivery="at-least-once"),
        }.items()
    }
    assert found == {
        "stream": ("", "s", False, True),
        "queue": ("", "q", False, False),
        "exchange": ("e", "k", False, False),
        "any key": ("e", None, False, False),
        "super": ("x", None, True, True),
        "batch": ("", "s", False, False),
        "asked": ("", "s", False, False),
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "exactly one of the options stream, superStream, exchange and queue"),
        ({"stream": "s", "queue": "q"}, "exactly one of"),
        ({"stream": "s", "routingKey": "k"}, "routingKey: it goes with option exchange"),
        ({"stream": "s", "delivery": "exactly_once"}, "no exactly-once, at-least-once"),
        ({"queue": "q", "delivery": "exactly-once"}, "for streams .*: not to a queue"),
        ({"superStream": "x"}, "superStream needs httpUrl"),
        ({"stream": "s", "prefetch": "5"}, "unknown option 'prefetch'"),
    ],
)
def test_what_is_refused(given, text):
    with pytest.raises(OptionRefused, match=text):
        sink(**given)


def test_a_batch_is_never_exactly_once():
    with pytest.raises(OptionRefused, match="a batch has no number to know it by"):
        sink(stream="s", delivery="exactly-once", has_batches=False)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"offset": LongType(), "body": BinaryType()}, "no column 'offset'"),
        ({"bodi": BinaryType()}, "did you mean body"),
        ({"body": IntegerType()}, "'body' must be binary, and is int"),
        (
            {"headers": MapType(TEXT, IntegerType()), "body": TEXT},
            "'headers' must be map<string,string>",
        ),
        ({"message_id": TEXT}, "no column 'body'"),
        ({"body": TEXT, "routing_key": TEXT}, "'routing_key' goes with option exchange or"),
        ({"body": TEXT, "exchange": TEXT}, "'exchange' has a meaning with option exchange only"),
    ],
)
def test_columns_that_are_refused(columns, text):
    with pytest.raises(OptionRefused, match=text):
        messages.check(schema(**columns), sink(stream="s"))


def test_a_row_needs_a_routing_key_from_somewhere():
    body = schema(body=TEXT)
    messages.check(body, sink(exchange="e", routingKey="k"))
    with pytest.raises(OptionRefused, match="no column 'routing_key', and there is no routingKey"):
        messages.check(body, sink(exchange="e"))


def test_rows_are_messages():
    batch = pa.RecordBatch.from_pydict(
        {
            "routing_key": ["a", None],
            "body": ["é", None],
            "message_id": ["m", None],
            "priority": pa.array([3, None], pa.int8()),
            "timestamp": pa.array([1_700_000_000_999_999, None], pa.timestamp("us", "UTC")),
            "headers": pa.array([[("x", "y")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    made = messages.Messages(sink(exchange="e", routingKey="k"), {"own": 1})
    first, second = made.rows(batch)
    assert (first.exchange, first.routing_key, first.body) == ("e", "a", "é".encode())
    assert (second.exchange, second.routing_key, second.body) == ("e", "k", b"")
    assert read_properties(bytes(12) + first.content) == {
        "headers": {"x": "y", "own": 1},
        "delivery_mode": 2,
        "priority": 3,
        "message_id": "m",
        "timestamp": 1_700_000_000,
    }
    assert read_properties(bytes(12) + second.content) == {
        "headers": {"own": 1},
        "delivery_mode": 2,
    }


def test_a_value_that_no_message_can_have_is_told():
    batch = pa.RecordBatch.from_pydict({"body": ["x"], "message_id": ["m" * 256]})
    with pytest.raises(WriteFailed, match="at most 255"):
        list(messages.Messages(sink(stream="s"), {}).rows(batch))
    keyless = {"body": ["x"], "routing_key": pa.array([None], pa.string())}
    rows = pa.RecordBatch.from_pydict(keyless)
    with pytest.raises(WriteFailed, match="a row has no routing_key"):
        list(messages.Messages(sink(exchange="e"), {}).rows(rows))
