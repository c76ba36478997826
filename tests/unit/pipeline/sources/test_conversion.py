"""NDJSON by Arrow: the values that the history's own reader sees, or none."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

from chaos import history
from chaos.history import Event
from pipeline.sources import conversion
from pipeline.sources.conversion import NotAlike, Part, converted, table_of
from tests.unit.chaos import forge

LINE = b'{"run_id":"r","recorder":"c","event_no":1,"ts_us":2,"op":"ack","type":"ok"}\n'


def events_of(table):
    return [msgspec.convert(row, Event) for row in table.to_pylist()]


def test_a_forged_history_has_the_same_events(tmp_path):
    events = forge.spoiled(forge.clean())
    history.save(tmp_path / history.FILE, events)
    assert events_of(table_of((tmp_path / history.FILE).read_bytes())) == events


@pytest.mark.parametrize("part_bytes", [1, 75, 76, 77, 1_000, 1 << 20])
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_wherever_the_file_is_cut_each_line_comes_once(
    tmp_path, monkeypatch, part_bytes, block_bytes
):
    monkeypatch.setattr(conversion, "BLOCK_BYTES", block_bytes)
    source = tmp_path / "h"
    source.write_bytes((LINE * 20)[:-1])  # the last line has no end
    parts = range(0, source.stat().st_size, part_bytes)
    rows = 0
    for n, begin in enumerate(parts):
        target = tmp_path / f"{n}.parquet"
        end = min(begin + part_bytes, source.stat().st_size)
        assert converted(Part(str(source), begin, end, str(target)))
        rows += pq.read_metadata(target).num_rows
    assert rows == 20


@pytest.mark.parametrize(
    "lines",
    [
        b"{\n",
        b"\n",
        b"[]\n",
        LINE[:-1] + LINE + b"\n",
        LINE.replace(b'"ts_us":2,', b""),
        LINE.replace(b'"ts_us":2', b'"ts_us":null'),
        LINE.replace(b'"ts_us":2', b'"ts_us":2.5'),
        LINE.replace(b'"ts_us":2', b'"ts_us":"2"'),
        LINE.replace(b'"ts_us":2', b'"ts_us":9223372036854775808'),
        LINE.replace(b'"r"', b"7"),
        LINE.replace(b'"r"', b'"\xff"'),
        LINE.replace(b'"op"', b'"ts_us":3,"op"'),
        LINE.replace(b"}\n", b',"x":\n{"y":1}}\n'),
        LINE + b"x" + LINE,
    ],
)
def test_what_spark_might_read_in_another_way_is_left_to_it(lines):
    with pytest.raises(NotAlike):
        table_of(LINE + lines)


def test_unknown_columns_are_left_out_and_missing_ones_have_their_default():
    (row,) = table_of(LINE.replace(b'"op"', b'"new":{"a":[1]},"op"')).to_pylist()
    assert msgspec.convert(row, Event) == Event("r", "c", 1, 2, "ack", "ok")
    assert None not in row.values()
