"""Messages as record batches of exactly the schema that Spark asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pipeline.connector import columns
from pipeline.connector.failures import OptionRefused
from pipeline.connector.options import COLUMNS
from pipeline.wire.contents import properties
from pipeline.wire.deliveries import Rows, Shape


def rows(*messages: tuple[int, bytes, dict[str, object]]) -> Rows:
    found = Rows()
    for offset, body, given in messages:
        found.offsets.append(offset)
        found.bodies.append(body)
        content = bytes(4) + len(body).to_bytes(8, "big") + properties(given)
        found.shapes.append((1, Shape(b"ex", b"key", content)))
    return found


def batch(found: Rows, names=COLUMNS):
    return columns.Batches(columns.schema(names), "s").batch(found)


def test_all_columns():
    given = {
        "content_type": "text/plain",
        "correlation_id": "c",
        "message_id": "m",
        "delivery_mode": 2,
        "priority": 9,
        "timestamp": 1_700_000_000,
        "headers": {"a": 1, "b": b"\xff", "n": None, "l": [{"x": True}]},
    }
    made = batch(rows((7, b"\xff", given), (8, b"", {})))
    assert made.schema.equals(to_arrow_schema(columns.schema(COLUMNS), timezone="UTC"))
    first, second = made.to_pylist()
    assert first == {
        "stream": "s",
        "offset": 7,
        "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
        "exchange": "ex",
        "routing_key": "key",
        "message_id": "m",
        "correlation_id": "c",
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 9,
        "headers": [("a", "1"), ("b", "\ufffd"), ("n", None), ("l", '[{"x": true}]')],
        "body": b"\xff",
    }
    assert (second["offset"], second["headers"], second["message_id"]) == (8, None, None)


def test_a_time_or_number_that_spark_has_no_place_for_is_null():
    made = batch(rows((0, b"", {"timestamp": 1 << 62, "priority": 200})), ("timestamp", "priority"))
    assert made.to_pylist() == [{"timestamp": None, "priority": None}]


def test_a_schema_may_choose_columns_but_not_invent_them():
    columns.check(StructType([StructField("offset", LongType())]))
    with pytest.raises(OptionRefused, match="no column 'ofset'; did you mean offset"):
        columns.check(StructType([StructField("ofset", LongType())]))
    with pytest.raises(OptionRefused, match="'offset' is bigint, not string"):
        columns.check(StructType([StructField("offset", StringType())]))
