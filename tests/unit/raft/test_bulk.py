"""raft.wire.bulk: large appends are what protobuf writes, and are read as protobuf reads them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.core.messages import Append, Entry
from raft.wire import bulk, convert
from raft.wire import raft_pb2 as wire

U63 = st.integers(0, 2**63 - 1)
SIZE = st.integers(bulk.LARGE_BYTES, bulk.LARGE_BYTES + 300)
ENTRY = st.builds(Entry, U63, U63, st.integers(0, 2), SIZE.map(bytes))
APPEND = st.builds(
    Append,
    U63,
    st.just("a"),
    st.just("b"),
    U63,
    U63,
    U63,
    U63,
    st.lists(ENTRY, min_size=1, max_size=3),
)
NAMES = wire.Payload(version=1, sender="a", to="b").SerializeToString()


def packed(append: Append) -> bytes:
    (payload,) = convert.encode("a", "b", [append])
    return b"".join(payload)


def by_library(append: Append) -> wire.Payload:
    payload = wire.Payload(version=1, sender="a", to="b")
    convert._append(payload, append)
    return payload


@given(APPEND)
def test_a_large_append_is_the_bytes_of_the_library(append: Append) -> None:
    data = packed(append)
    assert data == by_library(append).SerializeToString()
    assert bulk.decode(NAMES, data, "a", "b") == append


def test_the_data_of_entries_is_not_copied() -> None:
    entries = [Entry(7, 3, 0, bytes(5000)), Entry(8, 3, 0, bytes(6000))]
    (payload,) = convert.encode("a", "b", [Append(1, "a", "b", 3, 6, 2, 5, entries)])
    assert [each for each in payload if len(each) > 4999] == [each.data for each in entries]
    assert all(any(each is entry.data for each in payload) for entry in entries)


def test_a_large_append_keeps_its_place_among_others() -> None:
    small = [Append(group, "a", "b", 1, 0, 0, 0, [Entry(1, 1, 0, b"x")]) for group in range(1, 5)]
    large = Append(9, "a", "b", 1, 0, 0, 0, [Entry(1, 1, 0, bytes(9000))])
    sent = [small[0], small[1], large, small[2], large, small[3]]
    payloads = [b"".join(each) for each in convert.encode("a", "b", sent)]
    assert [m for each in payloads for m in convert.decode(each, sender="a", to="b")] == sent


@settings(deadline=None)
@given(APPEND, st.data())
def test_a_damaged_append_is_read_as_the_library_reads_it(
    append: Append, data: st.DataObject
) -> None:
    whole = bytearray(packed(append))
    heads = len(whole) - sum(len(each.data) for each in append.entries[:-1]) - 200
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, 60) | st.integers(0, heads))
        whole[min(place, len(whole) - 1)] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(len(whole) - 40, len(whole)))])
    found = bulk.decode(NAMES, damaged, "a", "b")
    if found is not None:
        read = wire.Payload.FromString(damaged)
        assert read == by_library(found)


@pytest.mark.parametrize("size", [10, 5000])
def test_entries_of_a_view_stay_when_it_is_overwritten(size: int) -> None:
    append = Append(1, "a", "b", 3, 6, 2, 5, [Entry(7, 3, 0, b"x" * size)])
    room = memoryview(bytearray(packed(append)))
    found = convert.decode(room, sender="a", to="b")
    room[:] = bytes(len(room))
    assert found == [append]
