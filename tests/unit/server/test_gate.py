"""The bounds on strangers, in numbers."""

from __future__ import annotations

from broker.server.gate import (
    ADDRESSES_MAX,
    FAILURE_DELAY_MS,
    FAILURES_BURST,
    FAILURES_PER_S,
    HANDSHAKES_MAX,
    Gate,
)


class Socket:
    is_dropped = False

    def abort(self) -> None:
        self.is_dropped = True


def test_too_many_handshakes_cost_the_oldest_its_socket() -> None:
    gate = Gate()
    sockets = [Socket() for _ in range(HANDSHAKES_MAX + 2)]
    for number, socket in enumerate(sockets):
        gate.enter(number, socket)
    assert [each.is_dropped for each in sockets[:3]] == [True, True, False]
    assert not any(each.is_dropped for each in sockets[3:])


def test_open_connections_are_no_handshakes() -> None:
    gate = Gate()
    first = Socket()
    gate.enter(0, first)
    gate.opened(0)
    for number in range(1, HANDSHAKES_MAX + 1):
        gate.enter(number, Socket())
    assert not first.is_dropped


def test_failing_logins_of_one_address_are_slowed() -> None:
    gate = Gate()
    delays = [gate.failed_login("192.0.2.1", 0) for _ in range(FAILURES_BURST + 2)]
    assert delays == [0] * FAILURES_BURST + [FAILURE_DELAY_MS] * 2
    assert gate.failed_login("192.0.2.2", 0) == 0
    later_ms = 1000 // FAILURES_PER_S
    assert gate.failed_login("192.0.2.1", later_ms) == 0
    assert gate.failed_login("192.0.2.1", later_ms) == FAILURE_DELAY_MS


def test_addresses_are_not_remembered_without_end() -> None:
    gate = Gate()
    for number in range(ADDRESSES_MAX + 10):
        gate.failed_login(str(number), 0)
    assert len(gate._failures) == ADDRESSES_MAX


def test_incomplete_contents_are_counted_over_all() -> None:
    gate = Gate(100)
    assert gate.buffered(60)
    assert gate.buffered(40)
    assert not gate.buffered(1)
    assert gate.buffered(-1)
    assert gate.partial_bytes == 100
    assert not gate.buffered(1)
    assert gate.buffered(-101)
    assert gate.buffered(100)
