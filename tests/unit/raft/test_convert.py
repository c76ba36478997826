"""raft.wire.convert: every message there and back."""

from __future__ import annotations

import contextlib
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.core import messages as core
from raft.wire import convert
from raft.wire import raft_pb2 as wire

U63 = st.integers(0, 2**63 - 1)
NAME = st.text(st.characters(codec="utf-8"), max_size=8)
FIXED: dict[str, st.SearchStrategy[typing.Any]] = {"sender": st.just("a"), "to": st.just("b")}
NAMES = st.lists(NAME, max_size=3).map(tuple)
CONFIGURATION = st.builds(core.Configuration, NAMES, NAMES)
META = st.builds(core.SnapshotMeta, U63, U63, CONFIGURATION)
ENTRY = st.builds(core.Entry, U63, U63, st.integers(0, 2), st.binary(max_size=20))
BY_TYPE: dict[object, st.SearchStrategy[typing.Any]] = {
    int: st.integers(0, 2**32 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    core.SnapshotMeta: META,
    list[core.Entry]: st.lists(ENTRY, max_size=4),
}


def build(kind: type) -> st.SearchStrategy[typing.Any]:
    hints = typing.get_type_hints(kind)
    names = list(kind.__struct_fields__)  # type: ignore[attr-defined]
    return st.builds(
        kind, **{name: FIXED[name] if name in FIXED else BY_TYPE[hints[name]] for name in names}
    )


KINDS = typing.get_args(core.Message)
MESSAGE = st.one_of([build(kind) for kind in KINDS])


def decoded(payloads: list[list[bytes]]) -> list[core.Message]:
    return [m for p in payloads for m in convert.decode(b"".join(p), sender="a", to="b")]


@given(st.lists(MESSAGE, max_size=10))
def test_messages_come_back(messages: list[core.Message]) -> None:
    """In order, except that heartbeats and their answers are merged behind the others."""
    late = (core.Heartbeat, core.HeartbeatReply)
    expected = [m for m in messages if not isinstance(m, late)]
    expected += [m for m in messages if isinstance(m, core.Heartbeat)]
    expected += [m for m in messages if isinstance(m, core.HeartbeatReply)]
    assert decoded(convert.encode("a", "b", messages)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_message_is_known(kind: type) -> None:
    assert kind in convert._ENCODERS


def test_all_bodies_of_the_schema_are_decoded() -> None:
    oneof = wire.Envelope.DESCRIPTOR.oneofs_by_name["body"]
    assert {field.name for field in oneof.fields} == convert._DECODERS.keys()


def test_heartbeats_of_a_thousand_groups_travel_in_one_payload() -> None:
    beats = [core.Heartbeat(group, "a", "b", 3, 99) for group in range(1000)]
    payloads = convert.encode("a", "b", beats)
    assert len(payloads) == 1
    assert sum(map(len, payloads[0])) < 14_000
    assert decoded(payloads) == beats


def test_payloads_stay_below_the_links_limit() -> None:
    entries = [core.Entry(index, 1, 0, bytes(1000)) for index in range(1, 1001)]
    appends = [core.Append(group, "a", "b", 1, 0, 0, 0, entries) for group in range(1, 8)]
    payloads = convert.encode("a", "b", appends)
    assert max(sum(map(len, payload)) for payload in payloads) <= 4 * 1024 * 1024
    assert len(payloads) == 7
    assert decoded(payloads) == appends


def test_nothing_to_say_is_no_payload() -> None:
    assert convert.encode("a", "b", []) == []


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_breaks(data: bytes) -> None:
    with contextlib.suppress(convert.PayloadDamaged):
        convert.decode(data, sender="a", to="b")


def test_a_payload_for_another_pair_is_refused() -> None:
    ((payload,),) = convert.encode("a", "b", [core.TimeoutNow(1, "a", "b", 1)])
    with pytest.raises(convert.PayloadDamaged, match="from 'a' to 'b', expected 'c' to 'b'"):
        convert.decode(payload, sender="c", to="b")


def test_another_version_is_refused() -> None:
    payload = wire.Payload(version=2, sender="a", to="b").SerializeToString()
    with pytest.raises(convert.PayloadDamaged, match="version 2, expected 1"):
        convert.decode(payload, sender="a", to="b")


def test_an_unknown_body_is_refused() -> None:
    payload = wire.Payload(version=1, sender="a", to="b")
    payload.messages.add(group=1, term=1)
    with pytest.raises(convert.PayloadDamaged, match="without a known body"):
        convert.decode(payload.SerializeToString(), sender="a", to="b")
