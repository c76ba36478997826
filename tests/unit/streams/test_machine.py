"""A stream's state: offsets, places, cuts, names; and that a checkpoint holds all of it."""

from __future__ import annotations

import pytest

from broker.streams.entry import (
    BEGINS_SEGMENT,
    Delta,
    EntryDamaged,
    Span,
    StreamEntry,
    decode_entry,
    encode_entry,
)
from broker.streams.machine import (
    INTERVAL_BYTES,
    LOST_OFFSETS,
    OFFSETS_MAX,
    PUBLISHERS_MAX,
    Place,
    StreamMachine,
)
from broker.streams.offsets import FIRST, LAST, NEXT, OffsetSpec
from broker.streams.retention import Retention, first_kept


def filled(entries: int = 20, per: int = 10, size: int = INTERVAL_BYTES) -> StreamMachine:
    """A stream of entries with 10 messages each, a segment each five entries."""
    machine = StreamMachine()
    for number in range(entries):
        flags = BEGINS_SEGMENT if number % 5 == 0 else 0
        entry = StreamEntry(number * per, 1_000 * number, per, Delta(), b"chunk", flags)
        machine.apply(2 * number + 3, entry, size)
    return machine


def test_offsets_go_on_without_a_hole() -> None:
    machine = filled()
    assert (machine.first_offset, machine.next_offset, machine.last_chunk) == (0, 200, 190)
    with pytest.raises(ValueError, match="begins at offset 201, the stream ends before 200"):
        machine.apply(99, StreamEntry(201, 0, 1, Delta(), b"x"), 1)


def test_behind_a_loss_offsets_may_be_left_out_once() -> None:
    machine = filled()
    machine.lose()
    again = StreamMachine()
    again.restore(machine.snapshot())
    for each in (machine, again):
        assert each.begin_offset == 200 + LOST_OFFSETS, "none of a lost one is used again"
        each.apply(99, StreamEntry(230, 0, 1, Delta(), b"x"), 1)
        assert (each.next_offset, each.begin_offset) == (231, 231)
        with pytest.raises(ValueError, match="begins at offset 240"):
            each.apply(100, StreamEntry(240, 0, 1, Delta(), b"x"), 1)
    machine.lose()
    with pytest.raises(ValueError, match="begins at offset 230"):
        machine.apply(101, StreamEntry(230, 0, 1, Delta(), b"x"), 1)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (FIRST, Place(3, 0)),
        (NEXT, Place(42, 200)),
        (LAST, Place(41, 190)),
        (OffsetSpec("offset", 57), Place(13, 57)),
        (OffsetSpec("offset", 1_000), Place(42, 1_000)),
        (OffsetSpec("timestamp", 0), Place(3, 0, 0)),
        (OffsetSpec("timestamp", 7_000), Place(15, 60, 7_000)),
        (OffsetSpec("timestamp", 7_500), Place(17, 70, 7_500)),
        (OffsetSpec("timestamp", 99_000), Place(42, 200)),
    ],
)
def test_where_a_consumer_begins(spec: OffsetSpec, place: Place) -> None:
    """A place is at or before the entry that holds what was asked for."""
    assert filled().place(spec, 42) == place


def test_a_cut_drops_whole_segments_and_never_the_newest() -> None:
    machine = filled()
    machine.apply(43, StreamEntry(200, 20_000, 0, Delta(cut=73), b""), 10)
    assert (machine.first_offset, machine.first_index) == (50, 13)
    assert machine.place(FIRST, 44) == Place(13, 50)
    machine.apply(44, StreamEntry(200, 20_000, 0, Delta(cut=10_000), b""), 10)
    assert (machine.first_offset, len(machine.segments)) == (150, 1)


def test_a_segment_that_begins_without_a_message_is_found_from_its_beginning() -> None:
    """What its first entry brought was stored before: it has no chunk."""
    machine = filled(5)
    machine.apply(20, StreamEntry(50, 9_000, 0, Delta(), b"", BEGINS_SEGMENT), 10)
    machine.apply(21, StreamEntry(50, 9_000, 10, Delta(), b"chunk"), 10)
    machine.apply(22, StreamEntry(60, 9_000, 10, Delta(cut=50), b"chunk"), INTERVAL_BYTES)
    machine.apply(23, StreamEntry(70, 9_000, 10, Delta(), b"chunk"), 10)
    assert machine.place(FIRST, 24) == Place(20, 50)
    assert machine.place(OffsetSpec("offset", 55), 24) == Place(20, 55)


def test_times_never_fall() -> None:
    machine = filled(2)
    machine.apply(9, StreamEntry(20, 5, 1, Delta(), b"x"), 1)
    assert machine.timestamp_ms == 1_000


def test_a_checkpoint_holds_everything() -> None:
    machine = filled()
    delta = Delta(
        spans=[Span("n/b/1/0", 1, 1, 3), Span("n/b/1/0", 1, 4, 1, False, True)],
        publishers=[("p", 4, 200)],
        ended=[("gone", "boot")],
        cut=50,
        offsets=[("reader", 17)],
    )
    machine.apply(43, StreamEntry(200, 21_000, 3, delta, b"abc"), 10)
    copy = StreamMachine()
    copy.restore(machine.snapshot())
    assert copy.snapshot() == machine.snapshot()
    assert copy.sessions.records() == machine.sessions.records()
    for spec in (FIRST, LAST, NEXT, OffsetSpec("offset", 120), OffsetSpec("timestamp", 11_000)):
        assert copy.place(spec, 44) == machine.place(spec, 44)
    assert (copy.publishers, copy.offsets) == ({"p": (4, 200)}, {"reader": 17})


def test_names_are_bounded_and_the_one_silent_for_longest_goes() -> None:
    machine = StreamMachine()
    names = [(f"p{i}", 1, 0) for i in range(PUBLISHERS_MAX)]
    machine.apply(1, StreamEntry(0, 0, 0, Delta(publishers=names), b""), 1)
    again = Delta(publishers=[("p0", 2, 0), ("new", 1, 0)], offsets=[("o", 1)] * OFFSETS_MAX)
    machine.apply(2, StreamEntry(0, 0, 0, again, b""), 1)
    assert machine.publishers_forgotten == 1
    assert "p0" in machine.publishers
    assert "p1" not in machine.publishers
    assert len(machine.offsets) == 1


def test_retention_counts_from_the_newest_segment_back() -> None:
    segments = filled(20, size=100).segments  # four of 500 bytes, last entries at 4, 9, 14, 19 s
    kept = [
        first_kept(segments, Retention(size, age, 1), 20_000)
        for size, age in [
            (None, None),
            (2_000, None),
            (1_999, None),
            (1, None),
            (None, 11_000),
            (None, 10_999),
            (None, 0),
            (1_000, 30_000),
        ]
    ]
    assert kept == [0, 0, 50, 150, 50, 100, 150, 100]
    assert first_kept([], Retention(1, 1, 1), 0) == 0


def test_bytes_that_are_no_entry_are_told() -> None:
    entry = StreamEntry(5, 6, 2, Delta(cut=3), b"chunk", BEGINS_SEGMENT)
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    damaged = [b"", data[:20], b"\x02" + data[1:], data[:27], data[:26] + b"\xc1" + data[27:]]
    for each in damaged:
        with pytest.raises(EntryDamaged):
            decode_entry(each)
