"""Offsets, limits and tasks: nothing is read twice, nothing is left out, nothing starves."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.connector import offsets, planning
from pipeline.connector.failures import DataLost, OffsetsRefused, OptionRefused
from pipeline.connector.offsets import Position
from pipeline.connector.planning import Extent, Range

NAMES = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(0, 10_000)
STREAMS = st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS), min_size=1)


def follow(start, extents, *, is_super=False, fails=True):
    return planning.follow(start, extents, is_super=is_super, fails_on_loss=fails)


@given(
    st.dictionaries(NAMES, st.builds(Position, st.text(max_size=3), NUMBERS, st.none() | NUMBERS))
)
def test_offsets_are_read_as_they_were_written(positions):
    assert offsets.decode(json.loads(json.dumps(offsets.encode(positions)))) == positions


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"v": 2, "streams": {}}, "version 2, this connector knows 1"),
        ({"logOffset": 3}, "a query with another source"),
        ({"v": 1, "streams": {"a": {"uid": "1", "next": -1}}}, "another source"),
        ({"v": 1, "streams": {"a": {"uid": "1", "next": True}}}, "another source"),
    ],
)
def test_offsets_of_others_are_refused(found, text):
    with pytest.raises(OffsetsRefused, match=text):
        offsets.decode(found)


def test_values_of_starting_offsets():
    def one(text):
        return offsets.specs("startingOffsets", text, ["a"])["a"]

    assert [one(text) for text in ("first", "next", "17")] == ["first", "next", 17]
    assert one("2026-11-26T18:00:00Z") == datetime(2026, 11, 26, 18, tzinfo=UTC)
    assert one("2026-11-26") == datetime(2026, 11, 26, tzinfo=UTC)
    assert one('{"a": 5}') == 5
    for wrong in ("earliest", "-1", str(1 << 63), '{"b": 1}', "{", ""):
        with pytest.raises(OptionRefused, match="startingOffsets"):
            one(wrong)


@given(STREAMS, NUMBERS, st.integers(0, 50_000))
def test_a_batch_keeps_its_limit_and_nothing_starves(streams, rows_max, bytes_max):
    start = {name: Position("u", low) for name, (low, _) in streams.items()}
    extents = {name: Extent("u", 0, low + more, 100.0) for name, (low, more) in streams.items()}
    end = planning.admit(start, extents, rows_max, bytes_max)
    taken = {name: end[name].next - start[name].next for name in streams}
    left = {name: more for name, (_, more) in streams.items()}
    lagging = sum(1 for more in left.values() if more)
    assert all(0 <= taken[name] <= left[name] for name in streams)
    assert all(taken[name] for name in streams if left[name])
    limit = min(rows_max or 1 << 40, max(1, bytes_max // 100) if bytes_max else 1 << 40)
    total = sum(left.values())
    assert sum(taken.values()) <= max(limit, lagging)
    assert sum(taken.values()) >= min(total, limit) - 1  # of bytes: the average is a float


@given(STREAMS, st.integers(1, 20))
def test_every_message_is_in_one_task(streams, partitions_min):
    start = {name: Position("u", low) for name, (low, _) in streams.items()}
    end = {name: Position("u", low + more) for name, (low, more) in streams.items()}
    parts = planning.ranges(start, end, partitions_min)
    covered = [(part.stream, n) for part in parts for n in range(part.start, part.stop)]
    wanted = [
        (name, n) for name in sorted(streams) for n in range(start[name].next, end[name].next)
    ]
    assert covered == wanted
    assert all(part.start < part.stop for part in parts)
    assert [part.number for part in parts] == list(range(len(parts)))


def test_a_large_range_is_cut_evenly():
    parts = planning.ranges({"a": Position("u", 0)}, {"a": Position("u", 10)}, 3)
    assert parts == [Range("a", "u", 0, 3, 0), Range("a", "u", 3, 6, 1), Range("a", "u", 6, 10, 2)]


def test_a_stream_that_was_declared_again_is_an_error_or_begins_anew():
    start, extents = {"a": Position("1", 50)}, {"a": Extent("2", 3, 100)}
    with pytest.raises(
        DataLost, match="offset 50 of incarnation 1, now it is 2; option failOnData"
    ):
        follow(start, extents)
    begin = follow(start, extents, fails=False)
    end = planning.admit(begin, extents)
    assert planning.ranges(start, end, 0) == [Range("a", "2", 3, 100)]


def test_a_shorter_stream_without_an_incarnation_was_declared_again():
    with pytest.raises(DataLost, match="ends at offset 10, and the query has read up to 50"):
        follow({"a": Position("", 50)}, {"a": Extent("", None, 10)})


def test_an_end_that_an_old_leader_tells_takes_nothing_back():
    start, extents = {"a": Position("1", 50)}, {"a": Extent("1", 0, 40)}
    assert planning.admit(follow(start, extents), extents) == start


def test_what_retention_dropped_is_an_error_or_left_out():
    start, extents = {"a": Position("1", 50)}, {"a": Extent("1", 70, 100)}
    with pytest.raises(DataLost, match="begins at offset 70, and the query has read up to 50"):
        follow(start, extents)
    end = planning.admit(follow(start, extents, fails=False), extents)
    assert planning.ranges(start, end, 0) == [Range("a", "1", 70, 100)]


def test_a_partition_that_came_is_read_from_its_first_message():
    start, extents = {"a": Position("1", 5)}, {"a": Extent("1", 0, 5), "b": Extent("2", 4, 9)}
    end = planning.admit(follow(start, extents, is_super=True), extents, rows_max=2)
    assert planning.ranges(start, end, 0) == [Range("b", "2", 4, 6)]
    after = planning.admit(follow(end, extents, is_super=True), extents)
    assert planning.ranges(end, after, 0) == [Range("b", "2", 6, 9)]


def test_a_partition_that_went_is_an_error_or_left_out():
    start, extents = {"a": Position("1", 5), "b": Position("2", 5)}, {"a": Extent("1", 0, 6)}
    with pytest.raises(DataLost, match=r"partition 'b' .* read up to offset 5"):
        follow(start, extents, is_super=True)
    assert set(follow(start, extents, is_super=True, fails=False)) == {"a"}


def test_a_checkpoint_of_another_stream_is_refused():
    with pytest.raises(OffsetsRefused, match=r"the checkpoint is of stream 'a', .* reads 'b'"):
        follow({"a": Position("1", 5)}, {"b": Extent("1", 0, 6)}, fails=False)
