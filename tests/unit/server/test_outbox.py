from __future__ import annotations

import asyncio

from broker.server.sockets.outbox import WRITE_TOGETHER, Outbox
from tests.unit.server.rig import turn, virtually
from tests.virtual_loop import VirtualClock


class Connection:
    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_marked = False
        self.is_aborted = False
        self.flushes = 0
        self.flushed_ms = -1
        self._is_broken = is_broken

    def flush(self, now_ms: int) -> None:
        if self._is_broken:
            raise RuntimeError("a bug")
        self.flushes += 1
        self.flushed_ms = now_ms

    def abort(self) -> None:
        self.is_aborted = True


@virtually
async def test_marking_twice_flushes_once() -> None:
    outbox, connection = Outbox(asyncio.get_running_loop(), VirtualClock()), Connection()
    outbox.mark(connection)
    outbox.mark(connection)
    await turn()
    assert connection.flushes == 1


@virtually
async def test_a_flush_that_fails_costs_its_own_connection_only() -> None:
    """The others would stay marked, and nothing would ever be written to them again."""
    outbox = Outbox(asyncio.get_running_loop(), VirtualClock())
    broken, healthy = Connection(is_broken=True), Connection()
    outbox.mark(broken)
    outbox.mark(healthy)
    await turn()
    assert (broken.is_aborted, healthy.flushes) == (True, 1)
    outbox.mark(healthy)
    await turn()
    assert healthy.flushes == 2


@virtually
async def test_many_connections_are_written_before_the_turn_ends() -> None:
    outbox = Outbox(asyncio.get_running_loop(), VirtualClock())
    connections = [Connection() for _ in range(WRITE_TOGETHER)]
    for connection in connections[1:]:
        outbox.mark(connection)
    outbox.flush_if_many()
    assert [each.flushes for each in connections] == [0] * WRITE_TOGETHER
    outbox.mark(connections[0])
    outbox.flush_if_many()
    assert [each.flushes for each in connections] == [1] * WRITE_TOGETHER
    await turn()
    assert [each.flushes for each in connections] == [1] * WRITE_TOGETHER


@virtually
async def test_what_is_marked_after_an_early_write_is_written_at_the_end_of_the_turn() -> None:
    outbox = Outbox(asyncio.get_running_loop(), VirtualClock())
    connections = [Connection() for _ in range(WRITE_TOGETHER)]
    for connection in connections:
        outbox.mark(connection)
    outbox.flush_if_many()
    outbox.mark(connections[0])
    await turn()
    assert connections[0].flushes == 2
    outbox.mark(connections[0])
    await turn()
    assert connections[0].flushes == 3


class PassingClock(VirtualClock):
    """A clock on which each look takes a millisecond."""

    def __init__(self) -> None:
        self._passed_ms = 0

    def monotonic_ms(self) -> int:
        self._passed_ms += 1
        return self._passed_ms


@virtually
async def test_a_long_flush_looks_at_the_clock_again() -> None:
    """Each connection asks whether the lease lasts at the time that it is told."""
    outbox = Outbox(asyncio.get_running_loop(), PassingClock())
    connections = [Connection() for _ in range(2 * WRITE_TOGETHER + 1)]
    for connection in connections:
        outbox.mark(connection)
    await turn()
    expected = [1] * WRITE_TOGETHER + [2] * WRITE_TOGETHER + [3]
    assert [each.flushed_ms for each in connections] == expected
