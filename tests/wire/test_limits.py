"""The limits of a connection: frame sizes and the number of channels.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import HEARTBEAT, Raw, content_header, frame, start_ok

INITIAL_FRAME_MAX = 4096


def start_ok_of(size: int) -> bytes:
    """connection.start-ok whose payload has this many bytes."""
    padding = size - (len(start_ok(padding="")) - 8)
    found = start_ok(padding="x" * padding)
    assert len(found) == size + 8
    return found


def test_a_frame_before_tune_has_at_most_4096_bytes(node: Node) -> None:
    """Case 9. RabbitMQ 3 hangs up without a word where we say 501.

    Rows: 1.1 Frame errors
    """
    with Raw(node.amqp_port) as raw:
        raw.to_starting().send(start_ok_of(INITIAL_FRAME_MAX))
        raw.expect(spec.ConnectionTune)
    with Raw(node.amqp_port) as raw:
        raw.to_starting().send(start_ok_of(INITIAL_FRAME_MAX + 1))
        answer = raw.read()
        if answer is not None:
            close = answer.method
            assert isinstance(close, spec.ConnectionClose)
            assert (close.reply_code, close.reply_text[:11]) == (501, "FRAME_ERROR")


FULL = "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)"


def opened(node: Node) -> Raw:
    """A connection of three channels at most, which are open."""
    raw = Raw(node.amqp_port).to_channel(65_535, channel_max=3)
    raw.open_channel(1)
    raw.open_channel(500)
    return raw


def refused(raw: Raw, piece: bytes) -> None:
    raw.send(piece)
    close = raw.expect(spec.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (530, FULL)
    assert (close.failed_class_id, close.failed_method_id) == (0, 0)


@pytest.mark.parametrize("number", [2, 4, 499, 65_534])
def test_channels_are_counted_and_any_number_is_free(node: Node, number: int) -> None:
    """Rows: 1.1 channel_max"""
    with opened(node) as raw:
        refused(raw, method_frame(number, spec.ChannelOpen()))


@pytest.mark.parametrize(
    "piece",
    [
        method_frame(2, spec.QueueDeclare("limits.none")),
        method_frame(2, spec.BasicAck(1)),
        content_header(2, 1),
        frame(3, 2, b"x"),
    ],
    ids=["method", "ack", "header", "body"],
)
def test_any_frame_on_one_channel_too_many_is_refused_for_that(node: Node, piece: bytes) -> None:
    """Rows: 1.1 channel_max"""
    with opened(node) as raw:
        refused(raw, piece)


def test_a_channel_counts_until_its_close_is_answered(node: Node) -> None:
    """Rows: 1.1 channel_max"""
    with opened(node) as raw:
        raw.call(500, spec.ChannelClose(200, ""), spec.ChannelCloseOk)
        raw.open_channel(7)
        raw.send(method_frame(7, spec.QueueDeclare("limits.none", passive=True)))
        assert raw.expect(spec.ChannelClose).reply_code == 404
        raw.send(method_frame(7, spec.ChannelCloseOk()))
        raw.open_channel(8)
        raw.send(method_frame(8, spec.QueueDeclare("limits.none", passive=True)))
        raw.expect(spec.ChannelClose)
        refused(raw, method_frame(9, spec.ChannelOpen()))


def test_a_heartbeat_belongs_to_no_channel(node: Node) -> None:
    with opened(node) as raw:
        raw.send(frame(HEARTBEAT, 0, b""), frame(HEARTBEAT, 1, b""))
        close = raw.expect(spec.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (
            505,
            "UNEXPECTED_FRAME - type 8, all octets = <<>>",
        )
