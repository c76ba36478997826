"""Ring messages as bytes."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gm.core.messages import Activity, Catchup, Item, Message, Need, PublisherState
from gm.core.view import MemberId
from gm.errors import PayloadDamaged
from gm.wire import convert

A = MemberId("rabbit@a", "00aa", 3)
B = MemberId("rabbit@b", "00bb", 7)

names = st.text(max_size=8)
numbers = st.integers(0, 2**63)
members = st.builds(MemberId, names, names, numbers)
pubs = st.lists(st.binary(max_size=20), max_size=4)
activities = st.builds(
    Activity, numbers, st.lists(st.builds(Item, members, numbers, pubs, numbers, numbers))
)
catchups = st.builds(
    Catchup,
    numbers,
    st.dictionaries(members, st.builds(PublisherState, numbers, pubs), max_size=3),
    st.booleans(),
    st.booleans(),
)
messages = st.one_of(activities, catchups, st.just(Need()))


def decode(data: bytes) -> convert.Frame:
    return convert.decode(data, sender="rabbit@b", to="rabbit@a")


@given(numbers, numbers, messages)
def test_what_is_packed_comes_out(ring: int, version: int, message: Message) -> None:
    frame = decode(convert.encode(ring, A, B, version, message))
    assert (frame.ring, frame.to, frame.sender, frame.view_version) == (ring, A, B, version)
    assert frame.message == message
    assert isinstance(frame.to, MemberId)


@given(st.binary(max_size=200))
def test_garbage_is_damage_and_nothing_else(data: bytes) -> None:
    with pytest.raises(PayloadDamaged):
        decode(data)


@given(messages, st.data())
def test_a_flipped_byte_is_damage_or_another_message(message: Message, data: st.DataObject) -> None:
    packed = bytearray(convert.encode(1, A, B, 5, message))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(PayloadDamaged):
        assert isinstance(decode(bytes(packed)), convert.Frame)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_cut_message_is_damage(cut: int) -> None:
    packed = convert.encode(1, A, B, 5, Activity(1, [Item(A, 1, [b"x" * 50])]))
    with pytest.raises(PayloadDamaged):
        decode(packed[:-cut])


def test_another_version_is_damage() -> None:
    packed = msgspec.msgpack.encode(convert.Frame(2, 1, A, B, 5, Need()))
    with pytest.raises(PayloadDamaged, match="version 2, expected 1"):
        decode(packed)


def test_who_lies_about_its_node_is_not_heard() -> None:
    packed = convert.encode(1, A, MemberId("rabbit@c", "00cc", 1), 5, Need())
    with pytest.raises(PayloadDamaged, match="'rabbit@c'"):
        decode(packed)
    with pytest.raises(PayloadDamaged):
        decode(convert.encode(1, B, B, 5, Need()))


def test_a_negative_number_is_damage() -> None:
    packed = convert.encode(1, A, B, 5, Activity(-1, []))
    with pytest.raises(PayloadDamaged):
        decode(packed)
