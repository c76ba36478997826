from __future__ import annotations

import asyncio

from broker.server.outbox import Outbox
from tests.unit.server.rig import turn, virtually


class Connection:
    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_marked = False
        self.is_aborted = False
        self.flushes = 0
        self._is_broken = is_broken

    def flush(self) -> None:
        if self._is_broken:
            raise RuntimeError("a bug")
        self.flushes += 1

    def abort(self) -> None:
        self.is_aborted = True


@virtually
async def test_marking_twice_flushes_once() -> None:
    outbox, connection = Outbox(asyncio.get_running_loop()), Connection()
    outbox.mark(connection)
    outbox.mark(connection)
    await turn()
    assert connection.flushes == 1


@virtually
async def test_a_flush_that_fails_costs_its_own_connection_only() -> None:
    """The others would stay marked, and nothing would ever be written to them again."""
    outbox = Outbox(asyncio.get_running_loop())
    broken, healthy = Connection(is_broken=True), Connection()
    outbox.mark(broken)
    outbox.mark(healthy)
    await turn()
    assert (broken.is_aborted, healthy.flushes) == (True, 1)
    outbox.mark(healthy)
    await turn()
    assert healthy.flushes == 2
