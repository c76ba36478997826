"""Events are read again by their place, from lines and from Parquet."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq

from chaos import history
from pipeline.sieving import sources
from pipeline.sieving.sources import Ndjson, Parquet
from pipeline.sources import conversion
from pipeline.sources.conversion import NotAlike
from tests.unit.chaos import forge

LINE = '{{"run_id":"r","recorder":"c","event_no":{},"ts_us":2,{}"op":"ack","type":"ok"}}\n'


@pytest.fixture
def events(tmp_path):
    made = forge.spoiled(forge.clean())
    history.save(tmp_path / history.FILE, made)
    return made


def all_of(source):
    return pa.concat_tables(
        [
            conversion.SCHEMA.empty_table(),
            *(t for part in source.parts() for t in source.read(part)),
        ]
    )


def check_picks(source):
    for part in source.parts():
        whole = pa.concat_tables([conversion.SCHEMA.empty_table(), *source.read(part)])
        for rows in ([0], [len(whole) - 1], list(range(0, len(whole), 3))):
            if len(whole):
                assert source.pick(part, rows) == whole.take(pa.array(rows, pa.int64()))


@pytest.mark.parametrize(
    ("part_bytes", "block_bytes"), [(100, 1 << 24), (10_000, 1_000), (1 << 24, 1_000)]
)
def test_lines_are_found_again_wherever_the_file_is_cut(
    tmp_path, monkeypatch, events, part_bytes, block_bytes
):
    monkeypatch.setattr(sources, "PART_BYTES", part_bytes)
    monkeypatch.setattr(conversion, "BLOCK_BYTES", block_bytes)
    source = Ndjson(tmp_path / history.FILE)
    assert len(all_of(source)) == len(events)
    check_picks(source)


@pytest.mark.parametrize("between", ["\r", "\t", '"code":"\\r\\n\\u0001",', ""])
def test_a_line_ends_at_a_line_feed_alone(tmp_path, between):
    path = tmp_path / history.FILE
    path.write_bytes("".join(LINE.format(n, between * (n % 3)) for n in range(1, 20)).encode())
    if between.startswith('"'):
        path.write_bytes("".join(LINE.format(n, between) for n in range(1, 20)).encode())
    check_picks(Ndjson(path))


@pytest.mark.parametrize("rows", [[], [0], [2], [0, 2], [1, 2], [0, 1, 2]])
def test_lines_of_a_block_are_found_by_their_place(rows):
    lines = [b'{"a":"\x01"}\n', b'{"b":"\r"}\n', b'{"c":1}\n']
    assert list(sources._lines(b"".join(lines), rows)) == [lines[row] for row in rows]


def test_a_line_that_spark_might_read_in_another_way_is_left_to_it(tmp_path):
    path = tmp_path / history.FILE
    path.write_text(LINE.format(1, "") + "{\n")
    with pytest.raises(NotAlike):
        all_of(Ndjson(path))


def test_parquet_has_its_events_found_again(tmp_path, monkeypatch, events):
    monkeypatch.setattr(sources, "BATCH_ROWS", 50)
    table = conversion.table_of((tmp_path / history.FILE).read_bytes())
    folder = tmp_path / "parquet"
    folder.mkdir()
    pq.write_table(table.slice(0, 300), folder / "a.parquet", row_group_size=120)
    pq.write_table(table.slice(300), folder / "b.parquet", row_group_size=1_000)
    source = Parquet(folder)
    assert all_of(source) == table
    check_picks(source)


def test_columns_that_are_null_or_missing_have_their_default(tmp_path):
    folder = tmp_path / "parquet"
    folder.mkdir()
    pq.write_table(
        pa.table({"op": ["ack", None], "seq": pa.array([None, 3], pa.int64()), "more": [1, 2]}),
        folder / "a.parquet",
    )
    rows = all_of(Parquet(folder)).to_pylist()
    assert [(row["op"], row["seq"], row["msg_id"], row["redelivered"]) for row in rows] == [
        ("ack", 0, "", False), ("", 3, "", False),
    ]  # fmt: skip


def test_an_empty_file_has_no_parts(tmp_path):
    path = tmp_path / history.FILE
    path.touch()
    assert Ndjson(path).parts() == []
