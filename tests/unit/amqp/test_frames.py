"""Encoded output: contents for other channels and frame sizes, and batches of deliveries."""

from __future__ import annotations

import pamqp.frame
import pytest

from broker.amqp import frames, methods, spec
from broker.amqp.content import Properties, build_message
from broker.message import Delivery, Message

BODY = bytes(range(256)) * 40


def message_of(size: int = 100, *, channel: int = 1, frame_max: int = 131_072) -> Message:
    properties = Properties(content_type="a", headers={"k": 1})
    return build_message("ex", "key", properties, BODY[:size], channel=channel, frame_max=frame_max)


def split(data: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while data:
        kind, channel, size = frames.FRAME.unpack_from(data)
        assert data[size + 7] == frames.FRAME_END
        found.append((kind, channel, data[7 : size + 7]))
        data = data[size + 8 :]
    return found


def test_content_goes_out_unchanged_on_its_own_channel() -> None:
    message = message_of(channel=5)
    assert frames.content_frames(message, 5, 4096) is message.content


@pytest.mark.parametrize("size", [0, 1, 100, 10_000])
@pytest.mark.parametrize("published_with", [64, 4096, 131_072])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
@pytest.mark.parametrize("channel", [1, 1999])
def test_content_for_any_channel_and_frame_size(
    size: int, published_with: int, frame_max: int, channel: int
) -> None:
    message = message_of(size, frame_max=published_with)
    header, *bodies = split(frames.content_frames(message, channel, frame_max))
    assert header == (2, channel, message.content[7 : 7 + message.header_size])
    assert all(kind == 3 and number == channel for kind, number, _ in bodies)
    assert all(0 < len(payload) + 8 <= frame_max for _, _, payload in bodies)
    assert b"".join(payload for _, _, payload in bodies) == BODY[:size]


@pytest.mark.parametrize("channel", [1, 2])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_a_batch_of_deliveries(channel: int, frame_max: int) -> None:
    other = build_message("", "ключ", Properties(), b"x")
    read = build_message("".join(["e", "x"]), "".join(["k", "ey"]), Properties(), b"y")  # own names
    elsewhere = build_message("ex2", read.routing_key, Properties(), b"z")
    messages = [message_of(), read, other, message_of(9000), elsewhere, read, message_of(0)]
    deliveries = [Delivery(10 + i, i % 2, each) for i, each in enumerate(messages)]
    out: list[bytes] = []
    after = frames.encode_deliveries(channel, b"ctag", 40, deliveries, frame_max, out)
    assert after == 47
    expected = b"".join(
        frames.method_frame(
            channel, spec.BasicDeliver("ctag", 40 + i, i % 2 == 1, each.exchange, each.routing_key)
        )
        + frames.content_frames(each, channel, frame_max)
        for i, each in enumerate(messages)
    )
    assert b"".join(out) == expected


def test_one_delivery_is_what_pamqp_reads() -> None:
    message = message_of(0, channel=3)
    out: list[bytes] = []
    frames.encode_deliveries(3, b"tag", 1 << 63, [Delivery(1, 1, message)], 4096, out)
    raw = b"".join(out).removesuffix(message.content)
    assert raw == frames.method_frame(3, spec.BasicDeliver("tag", 1 << 63, True, "ex", "key"))
    _, channel, theirs = pamqp.frame.unmarshal(raw)
    assert (channel, theirs.consumer_tag, theirs.redelivered) == (3, "tag", True)


def test_many_keys_are_remembered_within_bounds() -> None:
    """Keys of all sizes, more of them than are remembered: each message goes out with its own."""
    content = message_of().content
    keys = ["k" * (number % 256) + "é" * (number % 2) for number in range(254)]
    keys += [str(number) for number in range(frames.TAILS_MAX + 10)]
    messages = [Message("ex", key, content, 1, len(content) - 8, 100, False) for key in keys]
    out: list[bytes] = []
    deliveries = [Delivery(1 + i, 0, each) for i, each in enumerate(messages)]
    frames.encode_deliveries(1, b"c", 1, deliveries, 4096, out)
    assert [methods.decode(each[7:-1]) for each in out[::2]] == [
        spec.BasicDeliver("c", 1 + i, False, "ex", key) for i, key in enumerate(keys)
    ]
    assert len(frames._tails) <= frames.TAILS_MAX


def test_confirms_are_acks() -> None:
    raw = frames.encode_ack(9, 77, multiple=True)
    assert raw == frames.method_frame(9, spec.BasicAck(77, True))
    assert methods.decode(raw[7:-1]) == spec.BasicAck(77, True)


def test_one_consumers_deliveries_are_dropped_and_nothing_else() -> None:
    """What other consumers, channels and methods wrote between stays, in its order."""
    message = message_of(9000)
    pair = [Delivery(1, 0, message), Delivery(2, 1, message_of(0))]
    whole: list[bytes] = []
    kept: list[bytes] = []
    for outs, channel, tag in (
        ((whole, kept), 1, b"ct"),  # begins like the tag
        ((whole,), 1, b"ctag"),
        ((whole, kept), 257, b"ctag"),
        ((whole, kept), 1, b"ctags"),
        ((whole,), 1, b"ctag"),
    ):
        for out in outs:
            frames.encode_deliveries(channel, tag, 1, pair, 4096, out)
            out.append(frames.encode_ack(channel, 1, multiple=False))
    acks = [frames.encode_ack(1, 1, multiple=False)]
    frames.drop_deliveries(whole, 1, b"ctag")
    assert whole == [*kept[:5], *acks, *kept[5:], *acks]
    frames.drop_deliveries(whole, 1, b"nobody")
    assert whole == [*kept[:5], *acks, *kept[5:], *acks]
