"""The columns of a history and of findings, with their types."""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

CORRUPT = "_corrupt_record"
SECOND_US = 1_000_000
"""A second of `ts_us`: confirms are found, and kept by the sieve, by second."""

HISTORY = StructType(
    [
        StructField("run_id", StringType()),
        StructField("recorder", StringType()),
        StructField("event_no", LongType()),
        StructField("ts_us", LongType()),
        StructField("node", StringType()),
        StructField("op", StringType()),
        StructField("vhost", StringType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("queue", StringType()),
        StructField("connection", StringType()),
        StructField("channel", IntegerType()),
        StructField("consumer_tag", StringType()),
        StructField("publisher", StringType()),
        StructField("seq", LongType()),
        StructField("msg_id", StringType()),
        StructField("delivery_tag", LongType()),
        StructField("redelivered", BooleanType()),
        StructField("stream_offset", LongType()),
        StructField("size", LongType()),
        StructField("body_crc", LongType()),
        StructField("code", StringType()),
        StructField("op_id", StringType()),
        StructField("type", StringType()),
        StructField("epoch", IntegerType()),
    ]
)
"""One row for each event; a column left out of a line is "", 0 or false."""

REQUIRED = ("run_id", "recorder", "event_no", "ts_us", "op", "type")

FINDINGS = StructType(
    [
        StructField("kind", StringType(), nullable=False),
        StructField("subject", StringType(), nullable=False),
        StructField("queue", StringType(), nullable=False),
    ]
)
"""One row for each violated claim; `subject` names the message, node or fault it is about."""
