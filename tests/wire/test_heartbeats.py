"""Heartbeats, both ways, of intervals so short that a second would show."""

from __future__ import annotations

import selectors
import time

from tests.machine import lateness, standstills
from tests.nodes import Node
from tests.wire.raw import HEARTBEAT, Raw, frame

BEAT = frame(HEARTBEAT, 0, b"")
INTERVAL_S = 1
SLACK_S = 0.25


def is_dropped(raw: Raw) -> bool:
    try:
        return not raw.socket.recv(1 << 10)
    except ConnectionResetError:
        return True


def test_a_silent_peer_is_dropped_after_two_to_three_intervals(node: Node) -> None:
    """Whenever in the node's second it fell silent.

    Rows: 1.1 Heartbeat
    """
    silent_since: dict[Raw, float] = {}
    took_s: list[float] = []
    with selectors.DefaultSelector() as selector:
        deadline = time.monotonic() + 8 * lateness()
        while len(took_s) < 12:
            assert time.monotonic() < deadline, took_s
            if len(silent_since) + len(took_s) < 12:
                raw = Raw(node.amqp_port).to_channel(heartbeat=1)
                selector.register(raw.socket, selectors.EVENT_READ, raw)
                silent_since[raw] = time.monotonic()
            for key, _ in selector.select(0.09):
                if is_dropped(key.data):
                    selector.unregister(key.fileobj)
                    took_s.append(time.monotonic() - silent_since.pop(key.data))
                    key.data.socket.close()
    assert min(took_s) >= 2.0
    assert max(took_s) <= 3.0 + SLACK_S * lateness()


def test_heartbeats_come_every_half_interval_and_keep_a_client(node: Node) -> None:
    """Twice an interval, and never an interval apart: a client gives up after two without any.

    A beat may be later by what the machine served nobody meanwhile.

    Rows: 1.1 Heartbeat
    """
    beats = 8
    with Raw(node.amqp_port) as raw, standstills() as stood:
        raw.to_channel(heartbeat=INTERVAL_S)
        began = last = time.monotonic()
        for count in range(beats):
            assert raw.socket.recv(len(BEAT)) == BEAT
            now = time.monotonic()
            assert now - last <= INTERVAL_S * lateness() + stood.during(last, now)
            last = now
            if count % 2:
                raw.send(BEAT)
        due_s = beats * INTERVAL_S / 2
        assert last - began <= 1.25 * due_s * lateness() + stood.during(began, last)
