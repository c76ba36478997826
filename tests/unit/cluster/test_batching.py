"""Batches and parts: what goes in comes out, in order, in bounded pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.partial import MESSAGE_SIZE_CAP
from broker.cluster import batching
from broker.cluster.batching import (
    OutgoingBatch,
    PayloadBatch,
    Reassembly,
    SendQueue,
    decode_batch,
    encode_batch,
)
from broker.cluster.outbound import LinkLimits
from broker.wire import node_pb2

SIZES = st.sampled_from([0, 1, 100, 1 << 19, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])


def arrived(batch: OutgoingBatch) -> PayloadBatch:
    return PayloadBatch(batch.types, list(map(b"".join, batch.payloads)), batch.has_more)


def drain(queue: SendQueue) -> list[PayloadBatch]:
    batches = []
    while queue:
        batches.append(arrived(queue.take()))
    return batches


@settings(deadline=None)
@given(st.lists(SIZES, max_size=12))
def test_payloads_come_out_in_order_and_whole(sizes: list[int]) -> None:
    queue = SendQueue(1 << 30)
    sent = [(i, bytes([i]) * size) for i, size in enumerate(sizes)]
    for payload_type, payload in sent:
        assert queue.put(payload_type, payload[:100], payload[100:])
    reassembly = Reassembly()
    received = []
    for batch in drain(queue):
        assert sum(map(len, batch.payloads)) <= batching.BATCH_BYTES
        items = reassembly.feed(batch)
        assert items is not None
        received += items
    assert received == sent
    assert queue.size_bytes == 0


def test_small_payloads_of_a_tick_share_a_batch() -> None:
    queue = SendQueue(1 << 20)
    for i in range(100):
        queue.put(i, b"x")
    assert [len(batch.types) for batch in drain(queue)] == [100]


def test_full_queue_refuses_and_keeps_what_it_has() -> None:
    queue = SendQueue(10)
    assert queue.put(1, b"12345678")
    assert not queue.put(2, b"123")
    assert arrived(queue.take()) == PayloadBatch([1], [b"12345678"], False)


def test_clear_counts_what_it_drops_and_forgets_a_half_sent_payload() -> None:
    queue = SendQueue(1 << 30)
    queue.put(1, bytes(3 << 20))
    queue.take()
    assert queue.clear() == 1
    queue.put(2, b"next")
    assert arrived(queue.take()) == PayloadBatch([2], [b"next"], False)


def test_parts_stay_when_what_they_came_in_is_overwritten() -> None:
    reassembly = Reassembly()
    room = memoryview(bytearray(b"first"))
    assert reassembly.feed(PayloadBatch([1], [room], True)) == []
    room[:] = b"xxxxx"
    assert reassembly.feed(PayloadBatch([1], [b"last"], False)) == [(1, b"firstlast")]


def test_parts_that_never_end_are_malformed() -> None:
    reassembly = Reassembly()
    part = bytes(1 << 20)
    most = batching.PAYLOAD_BYTES_MAX // len(part) + 1
    results = [reassembly.feed(PayloadBatch([1], [part], True)) for _ in range(most)]
    assert results[0] == []
    assert results[-1] is None


class Sized(bytes):
    """As long as it says, and made of nothing."""

    size = 0

    def __len__(self) -> int:
        return self.size


def test_the_largest_message_any_node_may_take_can_travel() -> None:
    """With frames that make up an eighth of it; beside it there is room for what can't wait."""
    payload = Sized()
    payload.size = MESSAGE_SIZE_CAP * 9 // 8 + (1 << 20)
    queue = SendQueue(LinkLimits().data_bytes)
    assert queue.put(1, payload)
    for _ in range(60):
        assert queue.put(2, bytes(1 << 20))


def test_what_a_stream_can_never_carry_is_told_from_what_finds_it_full() -> None:
    queue = SendQueue(10)
    assert queue.put(1, bytes(8))
    assert not queue.put(1, bytes(8))
    assert queue.could_take(8)
    assert not queue.could_take(11)
    assert not SendQueue(1 << 40).could_take(batching.PAYLOAD_BYTES_MAX + 1)


def test_kinds_without_payloads_are_malformed() -> None:
    assert Reassembly().feed(PayloadBatch([1, 2], [b"x"], False)) is None
    assert Reassembly().feed(PayloadBatch([], [], True)) is None


@given(
    st.lists(st.tuples(st.integers(0, 127), st.binary(max_size=300)), max_size=300),
    st.booleans(),
    st.integers(0, 300),
)
def test_batches_are_what_protobuf_reads(
    items: list[tuple[int, bytes]], has_more: bool, cut_at: int
) -> None:
    types, payloads = [payload_type for payload_type, _ in items], [payload for _, payload in items]
    cut = [(payload[:cut_at], payload[cut_at:]) for payload in payloads]
    data = b"".join(encode_batch(OutgoingBatch(types, cut, has_more)))
    assert decode_batch(data) == PayloadBatch(types, payloads, has_more)
    packet = node_pb2.Packet.FromString(data)
    assert packet.WhichOneof("body") == "batch"
    assert list(packet.batch.kinds) == types
    assert list(packet.batch.payloads) == payloads
    assert packet.batch.more is has_more


@given(
    st.lists(st.tuples(st.integers(0, 127), st.binary(max_size=9)), max_size=5),
    st.booleans(),
    st.data(),
)
def test_a_damaged_batch_is_read_as_protobuf_reads_it(
    items: list[tuple[int, bytes]], has_more: bool, data: st.DataObject
) -> None:
    batch = OutgoingBatch(
        [payload_type for payload_type, _ in items], [(payload,) for _, payload in items], has_more
    )
    whole = bytearray(b"".join(encode_batch(batch)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found = decode_batch(damaged)
    if found is not None:
        read = node_pb2.Packet.FromString(damaged).batch
        assert found == PayloadBatch(list(read.kinds), list(read.payloads), read.more)
