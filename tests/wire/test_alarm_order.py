"""Methods that a connection may still use under an alarm, and the order in which it resumes.

Against a reference, WARRENMQ_REFERENCE_CTL is the command that is its `rabbitmqctl`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from broker.cli.ctl.commands import run
from tests import reference
from tests.nodes import Node
from tests.wire.raw import BODY, Raw, content_header, frame, publish

SILENCE_S = 0.3
CLOSE = method_frame(0, spec.ConnectionClose(200, "bye"))
Alarm = Callable[[bool], None]


def set_watermark(node: Node, value: str) -> None:
    words = ["set_vm_memory_high_watermark", value]
    if reference.IS_SET:
        subprocess.run([*shlex.split(os.environ["WARRENMQ_REFERENCE_CTL"]), *words], check=True)
    else:
        assert run(["--url", f"http://127.0.0.1:{node.management_port}", "-q", *words], {}) == 0


@pytest.fixture
def alarm(node: Node) -> Iterator[Alarm]:
    """Sets the memory alarm and takes it back; at the end it is off."""
    yield lambda is_on: set_watermark(node, "0" if is_on else "0.4")
    set_watermark(node, "0.4")


@pytest.fixture
def raw(node: Node, name: str) -> Iterator[Raw]:
    """A channel of a connection that has published: the queue `name` is there and empty."""
    with Raw(node.amqp_port) as connected:
        connected.to_channel()
        connected.call(1, spec.QueueDeclare(name), spec.QueueDeclareOk)
        connected.send(message(name, b"before"))
        while connected.call(1, spec.QueuePurge(name), spec.QueuePurgeOk).message_count == 0:
            pass
        yield connected


def message(queue: str, body: bytes) -> bytes:
    frames = publish(1, queue) + content_header(1, len(body))
    return frames + frame(BODY, 1, body) if body else frames


def get(queue: str) -> bytes:
    return method_frame(1, spec.BasicGet(queue, no_ack=True))


def got(raw: Raw) -> bytes:
    raw.expect(spec.BasicGetOk)
    header = raw.read()
    assert header is not None
    size, body = int.from_bytes(header.payload[4:12], "big"), b""
    while len(body) < size:
        piece = raw.read()
        assert piece is not None
        body += piece.payload
    return body


def count(node: Node, queue: str) -> int:
    with Raw(node.amqp_port) as other:
        other.to_channel()
        asked = spec.QueueDeclare(queue, passive=True)
        return other.call(1, asked, spec.QueueDeclareOk).message_count


def is_silent(raw: Raw) -> None:
    raw.socket.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        raw.read()
    raw.socket.settimeout(60)


def is_blocked(raw: Raw) -> None:
    assert raw.expect(spec.ConnectionBlocked).reason == "low on memory"


def test_who_has_published_gets_and_declares_until_it_publishes_again(
    node: Node, raw: Raw, name: str, alarm: Alarm
) -> None:
    """Rows: 1.1 connection.blocked / unblocked"""
    alarm(True)
    raw.call(1, spec.BasicGet(name), spec.BasicGetEmpty)
    raw.call(1, spec.QueueDeclare(name), spec.QueueDeclareOk)
    raw.send(message(name, b"held"))
    is_blocked(raw)
    raw.send(get(name), CLOSE)
    is_silent(raw)
    assert count(node, name) == 0
    alarm(False)
    raw.expect(spec.ConnectionUnblocked)
    assert got(raw) == b"held"
    raw.expect(spec.ConnectionCloseOk)


def test_what_stands_before_the_publish_is_done_and_what_stands_behind_it_waits(
    node: Node, raw: Raw, name: str, alarm: Alarm
) -> None:
    """Rows: 1.1 connection.blocked / unblocked"""
    alarm(True)
    pieces = [get(name), message(name, b"1"), get(name), message(name, b"2"), get(name)]
    raw.send(*pieces)
    first, second = raw.read(), raw.read()
    assert first is not None
    assert second is not None
    # RabbitMQ's reader blocks while its channel still answers.
    kinds = {type(first.method), type(second.method)}
    assert kinds == {spec.ConnectionBlocked, spec.BasicGetEmpty}
    is_silent(raw)
    assert count(node, name) == 0
    alarm(False)
    raw.expect(spec.ConnectionUnblocked)
    assert [got(raw), got(raw)] == [b"1", b"2"]


def test_a_publish_without_a_body_is_carried_out(
    node: Node, raw: Raw, name: str, alarm: Alarm
) -> None:
    """Rows: 1.1 connection.blocked / unblocked"""
    alarm(True)
    raw.send(message(name, b""), get(name))
    is_blocked(raw)
    is_silent(raw)
    assert count(node, name) == 1
    alarm(False)
    raw.expect(spec.ConnectionUnblocked)
    assert got(raw) == b""


def test_an_alarm_in_the_middle_of_a_message_lets_its_next_piece_pass(
    node: Node, raw: Raw, name: str, alarm: Alarm
) -> None:
    """Rows: 1.1 connection.blocked / unblocked"""
    raw.send(publish(1, name), content_header(1, 6))
    raw.call(0, spec.ConnectionUpdateSecret(b"guest", ""), spec.ConnectionUpdateSecretOk)
    alarm(True)
    raw.send(frame(BODY, 1, b"abc"))
    is_blocked(raw)
    raw.send(frame(BODY, 1, b"def"))
    is_silent(raw)
    assert count(node, name) == 0
    alarm(False)
    raw.expect(spec.ConnectionUnblocked)
    raw.send(get(name))
    assert got(raw) == b"abcdef"
    raw.send(publish(1, name), content_header(1, 3))
    raw.call(0, spec.ConnectionUpdateSecret(b"guest", ""), spec.ConnectionUpdateSecretOk)
    alarm(True)
    raw.send(frame(BODY, 1, b"ghi"))
    is_blocked(raw)
    assert count(node, name) == 1  # its last piece completes it


def test_who_was_freed_is_blocked_by_its_next_publish_only(
    node: Node, raw: Raw, name: str, alarm: Alarm
) -> None:
    alarm(True)
    raw.send(message(name, b"1"))
    is_blocked(raw)
    alarm(False)
    raw.expect(spec.ConnectionUnblocked)
    alarm(True)
    raw.send(get(name))
    assert got(raw) == b"1"
    raw.send(method_frame(1, spec.BasicPublish("", name)), get(name)[:3])
    is_silent(raw)  # the method alone is no publish yet
