from __future__ import annotations

import logging

import pytest

from broker.logs.formatting import PlainFormatter, fields_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('"', r'"\""'),
        ("a\\b", "a\\b"),
        ('a" level=forged', r'"a\" level=forged"'),
        ("a\nb", r'"a\nb"'),
        ("\x7f\x9b\u2028\u202e", r'"\u007f\u009b\u2028\u202e"'),
        ("é", "é"),
        (["a", 1], "\"['a', 1]\""),
        (7, "7"),
    ],
)
def test_a_value_reads_back_as_it_was(value: object, shown: str) -> None:
    record = logging.makeLogRecord({"msg": "queue.promoted", "levelname": "INFO"})
    vars(record).update(first=value, last="end")
    line = PlainFormatter().format(record)
    assert f" first={shown} last=end" in line
    assert line.isprintable()
    assert fields_of(line) == {"first": str(value), "last": "end"}
