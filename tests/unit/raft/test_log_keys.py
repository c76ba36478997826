"""raft.log_keys: the drawn bytes, and what damage does to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import log_keys
from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta

U63 = st.integers(0, 2**63 - 1)
NAMES = st.tuples(st.text(max_size=5), st.text(max_size=5))


@given(st.tuples(U63, U63), st.tuples(U63, U63))
def test_log_keys_sort_as_group_and_index(left: tuple[int, int], right: tuple[int, int]) -> None:
    assert (log_keys.entry_key(*left) < log_keys.entry_key(*right)) == (left < right)


@given(U63, U63, U63, st.sampled_from([0, 1, 2]), st.binary(max_size=50))
def test_an_entry_comes_back(group: int, index: int, term: int, kind: int, data: bytes) -> None:
    key = log_keys.entry_key(group, index)
    entry = Entry(index, term, kind, data)
    assert log_keys.parse_entry(key, log_keys.entry_record(key, entry)) == entry


def test_an_entry_as_drawn() -> None:
    key = log_keys.entry_key(7, 3)
    assert key == bytes(7) + b"\x07" + bytes(7) + b"\x03"
    record = log_keys.entry_record(key, Entry(3, 2, 1, b"data"))
    assert record[:10] == b"\x01\x01" + bytes(7) + b"\x02"
    assert record[14:] == b"data"


@given(st.data())
def test_a_flipped_bit_of_an_entry_is_noticed(data: st.DataObject) -> None:
    key = log_keys.entry_key(7, 3)
    record = bytearray(log_keys.entry_record(key, Entry(3, 2, 0, b"some data")))
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(log_keys.RecordDamaged):
        log_keys.parse_entry(key, bytes(record))


def test_an_entry_in_the_wrong_place_is_noticed() -> None:
    record = log_keys.entry_record(log_keys.entry_key(7, 3), Entry(3, 2, 0, b"x"))
    with pytest.raises(log_keys.RecordDamaged, match="checksum"):
        log_keys.parse_entry(log_keys.entry_key(7, 4), record)
    with pytest.raises(log_keys.RecordDamaged, match="checksum"):
        log_keys.parse_entry(log_keys.entry_key(8, 3), record)


@pytest.mark.parametrize(
    "record",
    [
        HardState(5, None, 3),
        HardState(5, "rabbit@node1", 2**40),
        Configuration(("a", "b"), ("c",)),
        log_keys.Base(9, 4),
        log_keys.SnapshotRecord(SnapshotMeta(9, 4, Configuration(("a",))), 3, 2**21),
    ],
)
def test_state_records_come_back_and_damage_is_noticed(record: HardState) -> None:
    key = log_keys.state_key(7, type(record))
    value = log_keys.state_record(key, record)
    assert log_keys.parse_state(key, value, type(record)) == record
    assert log_keys.parse_state_key(key) == 7
    for position in range(len(value)):
        damaged = bytearray(value)
        damaged[position] ^= 4
        with pytest.raises(log_keys.RecordDamaged):
            log_keys.parse_state(key, bytes(damaged), type(record))
        with pytest.raises(log_keys.RecordDamaged):
            log_keys.parse_state(key, value[:position], type(record))


def test_state_records_have_different_keys() -> None:
    kinds = (HardState, Configuration, log_keys.Base, log_keys.SnapshotRecord)
    start, end = log_keys.state_range(7)
    keys = {log_keys.state_key(7, kind) for kind in kinds}
    assert len(keys) == 4
    assert all(start <= key < end for key in keys)


def test_parts_ranges_leave_out_the_snapshot_itself() -> None:
    low, middle, high = (log_keys.part_key(7, index, 5) for index in (1, 2, 3))
    before, after = log_keys.parts_before(7, 2), log_keys.parts_after(7, 2)
    own = log_keys.parts_range(7, 2)
    assert [before[0] <= key < before[1] for key in (low, middle, high)] == [True, False, False]
    assert [own[0] <= key < own[1] for key in (low, middle, high)] == [False, True, False]
    assert [after[0] <= key < after[1] for key in (low, middle, high)] == [False, False, True]


def test_a_damaged_part_is_noticed() -> None:
    key = log_keys.part_key(7, 2, 0)
    value = log_keys.part_record(key, b"part")
    assert log_keys.parse_part(key, value) == b"part"
    with pytest.raises(log_keys.RecordDamaged):
        log_keys.parse_part(log_keys.part_key(7, 2, 1), value)
    with pytest.raises(log_keys.RecordDamaged):
        log_keys.parse_part(key, value[:-1])
