"""The end of a connection: the last answers, and who closes the socket.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.machine import lateness
from tests.nodes import Node, wait_until
from tests.wire.raw import (
    BODY,
    HEARTBEAT,
    Raw,
    content_header,
    frame,
    publish,
    tune_ok,
)

CLOSE = method_frame(0, spec.ConnectionClose(200, "bye"))
CLOSE_OK = method_frame(0, spec.ConnectionCloseOk())
DECLARE = method_frame(1, spec.QueueDeclare("closing.never", exclusive=True))
HARD_ERROR = method_frame(7, spec.QueueDeclare("closing.never"))
GRACE_S = 3.0


def closed_by_client(node: Node, heartbeat: int = 0) -> Raw:
    raw = Raw(node.amqp_port).to_channel(heartbeat=heartbeat)
    raw.send(CLOSE)
    raw.expect(spec.ConnectionCloseOk)
    return raw


def closed_by_server(node: Node, heartbeat: int = 0) -> Raw:
    raw = Raw(node.amqp_port).to_channel(heartbeat=heartbeat)
    raw.send(HARD_ERROR)
    assert raw.expect(spec.ConnectionClose).reply_code == 504
    return raw


Closed = Callable[[Node], Raw]
ENDS = pytest.mark.parametrize("closed", [closed_by_client, closed_by_server])


@ENDS
def test_a_repeated_close_is_answered_as_the_first(node: Node, closed: Closed) -> None:
    """Rows: 1.1 Close"""
    with closed(node) as raw:
        for _ in range(3):
            raw.send(CLOSE)
            raw.expect(spec.ConnectionCloseOk)


@ENDS
def test_what_comes_after_the_end_is_ignored(node: Node, closed: Closed) -> None:
    """Rows: 1.1 Close"""
    with closed(node) as raw:
        raw.send(DECLARE, tune_ok(), frame(HEARTBEAT, 7, b""), frame(9, 1, b"abc"))
        raw.send(frame(1, 0, b"ab"), frame(BODY, 1, b"x"), CLOSE)
        raw.expect(spec.ConnectionCloseOk)


@ENDS
def test_a_client_that_still_writes_sees_no_reset(node: Node, closed: Closed) -> None:
    """Rows: 1.1 Close"""
    piece = publish(1, "closing.never") + content_header(1, 50_000) + frame(BODY, 1, bytes(50_000))
    with closed(node) as raw:
        for _ in range(40):
            raw.socket.sendall(piece)
        raw.socket.sendall(CLOSE)
        raw.expect(spec.ConnectionCloseOk)


@ENDS
def test_close_ok_and_the_clients_own_end_end_it_at_once(node: Node, closed: Closed) -> None:
    """Rows: 1.1 Close"""
    with closed(node) as raw:
        raw.socket.settimeout(GRACE_S / 2 * lateness())
        raw.send(CLOSE_OK)
        assert raw.read() is None
    with closed(node) as raw:
        raw.socket.settimeout(GRACE_S / 2 * lateness())
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.read() is None


def test_the_socket_is_the_clients_for_a_heartbeat_interval_or_30_s(node: Node) -> None:
    """Case 38, and its like where the client closed.

    Rows: 1.1 Close"""
    began = time.monotonic()
    brief = [closed_by_client(node, heartbeat=1), closed_by_server(node, heartbeat=1)]
    lost = closed_by_client(node)
    lost.send(b"\xff" * 100)  # no frame: what follows cannot be understood
    patient = [closed_by_client(node), closed_by_server(node)]
    for raw in brief:
        assert raw.read() is None
        assert 0.9 <= time.monotonic() - began <= 2.5 * lateness()
    assert lost.read() is None
    assert GRACE_S - 0.1 <= time.monotonic() - began <= (GRACE_S + 1.5) * lateness()
    for raw in patient:  # longer than any grace for strangers; 30 s would be long for a test
        raw.send(CLOSE)
        raw.expect(spec.ConnectionCloseOk)
    for raw in (*brief, lost, *patient):
        raw.socket.close()


def test_heartbeats_come_until_the_socket_closes(node: Node) -> None:
    with closed_by_client(node, heartbeat=2) as raw:
        assert raw.socket.recv(8) == frame(HEARTBEAT, 0, b"")


def test_a_connection_counts_until_its_socket_closes(node: Node) -> None:
    def names() -> list[str]:
        return [each["name"] for each in node.api("GET", "/connections")]

    with closed_by_client(node) as raw:
        port = raw.socket.getsockname()[1]
        assert [name for name in names() if f":{port} -> " in name]
    wait_until(lambda: not any(f":{port} -> " in name for name in names()), "it is gone", 10)
