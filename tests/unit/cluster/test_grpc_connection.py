"""gRPC's wire protocol: what comes out is what went in, whatever the pieces and windows."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster import grpc_connection
from broker.cluster.grpc_connection import (
    CALLS_MAX,
    LINK_METHOD,
    WINDOW_BYTES,
    CallEnded,
    CallOpened,
    GrpcConnection,
    GrpcEvent,
    GrpcFault,
    MessageReceived,
)

LARGEST = 1 << 20
REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", LINK_METHOD),
    (b":authority", b"x"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]


def pair() -> tuple[GrpcConnection, GrpcConnection]:
    return (
        GrpcConnection(is_dialler=True, message_bytes_max=LARGEST),
        GrpcConnection(is_dialler=False, message_bytes_max=LARGEST),
    )


def output(end: GrpcConnection) -> bytes:
    return b"".join(end.take_output())


def receive(end: GrpcConnection, data: bytes) -> list[GrpcEvent]:
    told: list[GrpcEvent] = []
    while data:
        room = end.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        told += map(kept, end.received(count))
    return told


def kept(event: GrpcEvent) -> GrpcEvent:
    """Messages are views of what the next read overwrites."""
    if isinstance(event, MessageReceived):
        return MessageReceived(event.stream, memoryview(bytes(event.message)))
    return event


def exchange(near: GrpcConnection, far: GrpcConnection) -> list[GrpcEvent]:
    """Carry bytes until nobody has any; what `far` was told."""
    told: list[GrpcEvent] = []
    while data := output(near):
        told += receive(far, data)
        if data := output(far):
            receive(near, data)
    return told


@given(
    st.lists(st.one_of(st.integers(0, 40), st.integers(60_000, 70_000)), max_size=12),
    st.lists(st.integers(1, 30_000), min_size=1, max_size=20),
)
def test_messages_come_out_whole_and_in_order(sizes: list[int], cuts: list[int]) -> None:
    near, far = pair()
    stream = near.call("b:1")
    told = exchange(near, far)
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]
    for message in messages:
        near.send(stream, message)
    data, turn = output(near), 0
    while data:
        size = cuts[turn % len(cuts)]
        told += receive(far, data[:size])
        data, turn = data[size:], turn + 1
    assert told[0] == CallOpened(stream)
    assert told[1:] == [MessageReceived(stream, memoryview(message)) for message in messages]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, LARGEST), min_size=1, max_size=4),
    st.lists(st.integers(1, 400_000), min_size=1, max_size=5),
)
def test_messages_larger_than_what_is_read_at_once(sizes: list[int], cuts: list[int]) -> None:
    near, far = pair()
    stream = near.call("b:1")
    exchange(near, far)
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]
    for message in messages:
        near.send(stream, message[:7], message[7:])
    data, turn, told = output(near), 0, []
    while data:
        size = cuts[turn % len(cuts)]
        told += receive(far, data[:size])
        data, turn = data[size:], turn + 1
    assert told == [MessageReceived(stream, memoryview(message)) for message in messages]
    assert len(far.room()) <= max(grpc_connection.READ_BYTES, LARGEST + 100)


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=8), st.integers(0, 5_000))
def test_a_peer_with_small_windows_gets_everything_as_it_makes_room(
    sizes: list[int], window: int
) -> None:
    """As gRPC's own library or a slow stranger: what it has no room for waits here."""
    near = GrpcConnection(is_dialler=True, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    peer.initiate_connection()
    peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    receive(near, peer.data_to_send())
    stream = near.call("b:1")
    for size in sizes:
        near.send(stream, bytes([size % 256]) * size)
    expected = b"".join(b"\0" + s.to_bytes(4, "big") + bytes([s % 256]) * s for s in sizes)
    got = b""
    while True:
        data = output(near)
        events = peer.receive_data(data)
        fresh = [event for event in events if isinstance(event, DataReceived)]
        for event in fresh:
            got += event.data
            peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        assert near.unsent_bytes == len(expected) - len(got)
        if len(got) == len(expected):
            break
        if not fresh and window < 5_000:
            peer.increment_flow_control_window(20_000, stream)
        receive(near, peer.data_to_send())
    assert got == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.none() | st.integers(0, 255)), min_size=1, max_size=8
    ),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
)
def test_frames_of_any_form_hold_messages(
    frames: list[tuple[int, int | None]], cuts: list[int]
) -> None:
    """Cut into frames anywhere, padded or not, the last one ending the stream."""
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.send_headers(1, REQUEST)
    whole = b"".join(b"\0" + s.to_bytes(4, "big") + bytes([s % 256]) * s for s, _ in frames)
    pos = 0
    for turn, (_, padding) in enumerate(frames):
        is_last = turn == len(frames) - 1
        size = len(whole) - pos if is_last else min(cuts[turn % len(cuts)], len(whole) - pos)
        peer.send_data(1, whole[pos : pos + size], end_stream=is_last, pad_length=padding)
        pos += size
    data, told, turn = peer.data_to_send(), [], 0
    while data:
        size = cuts[turn % len(cuts)]
        told += receive(far, data[:size])
        data, turn = data[size:], turn + 1
    messages = [MessageReceived(1, bytes([size % 256]) * size) for size, _ in frames]
    assert told == [CallOpened(1), *messages, CallEnded(1)]


def test_a_peer_is_granted_again_what_it_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a link would stand still after 2 GiB."""
    monkeypatch.setattr(grpc_connection, "_GRANT_BYTES", 100_000)
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.send_headers(1, REQUEST)
    for _ in range(8):
        receive(far, peer.data_to_send())
        peer.receive_data(output(far))
        assert peer.local_flow_control_window(1) > WINDOW_BYTES - 100_000
        peer.send_data(1, b"\0\0\0\xea\x60" + bytes(60_000))


def test_a_call_ends_after_what_was_sent_in_it() -> None:
    near, far = pair()
    stream = near.call("b:1")
    exchange(near, far)
    far.send(stream, b"refused")
    far.end(stream)
    assert exchange(far, near) == [MessageReceived(stream, b"refused"), CallEnded(stream)]


def test_an_end_waits_for_what_the_peer_has_no_room_for() -> None:
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    peer.send_headers(1, REQUEST)
    receive(far, peer.data_to_send())
    far.send(1, b"refused")
    far.end(1)
    peer.receive_data(output(far))
    peer.increment_flow_control_window(100, 1)
    receive(far, peer.data_to_send())
    names = [type(event).__name__ for event in peer.receive_data(output(far))]
    assert names == ["DataReceived", "TrailersReceived", "StreamEnded"]
    assert far.unsent_bytes == 0


def test_what_comes_in_a_call_that_was_ended_here_is_dropped() -> None:
    near, far = pair()
    stream = near.call("b:1")
    exchange(near, far)
    far.end(stream)
    near.send(stream, b"late")
    assert receive(far, output(near)) == []


@pytest.mark.parametrize(
    "name", [b"/broker.wire.Node/Nothing", b"/", b"/broker.wire.Node/Link/more"]
)
def test_another_method_is_not_implemented(name: bytes) -> None:
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.send_headers(1, [(k, name if k == b":path" else v) for k, v in REQUEST])
    assert receive(far, peer.data_to_send()) == []
    [headers, _ended] = [
        event for event in peer.receive_data(output(far)) if hasattr(event, "stream_id")
    ][-2:]
    assert (b"grpc-status", b"12") in headers.headers


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" + (LARGEST + 1).to_bytes(4, "big"),
        b"\1" + (1).to_bytes(4, "big") + b"x",
        b"\0\xff\xff\xff\xff",
    ],
    ids=["too long", "compressed", "4 GiB"],
)
def test_a_message_that_may_not_be_is_a_fault_before_it_is_all_here(sent: bytes) -> None:
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    peer.send_headers(1, REQUEST)
    peer.send_data(1, sent)
    with pytest.raises(GrpcFault):
        receive(far, peer.data_to_send())


def test_more_calls_than_a_connection_may_have_are_a_fault() -> None:
    far = GrpcConnection(is_dialler=False, message_bytes_max=LARGEST)
    peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    peer.initiate_connection()
    for number in range(CALLS_MAX + 1):
        peer.send_headers(2 * number + 1, REQUEST)
    with pytest.raises(GrpcFault):
        receive(far, peer.data_to_send())


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_understood_or_a_fault(data: bytes) -> None:
    near, far = pair()
    near.call("b:1")
    receive(far, output(near))
    try:
        receive(far, data)
    except GrpcFault:
        output(far)
