"""A node's journal: `tests.memory_journal` on the virtual clock, with the sync a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.memory_journal import MemoryDisk, MemoryJournal

if TYPE_CHECKING:
    from tests.sim.mirrored.process import Process


class _Loop:
    """As much of an event loop as the journal needs."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def call_soon(self, call: Callable[[], None]) -> object:
        self._process.soon(call)
        return self

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> None:
        self._process.after(self._process.world.sync_ms(self._process.name), call)


class Journal(MemoryJournal):
    """Each turn's writes land together, after a while.

    Attributes:
        pending_bytes: Never behind.
    """

    pending_bytes = 0

    def __init__(self, process: Process, disk: MemoryDisk) -> None:
        loop: Any = _Loop(process)
        super().__init__(loop, disk)

    def close(self) -> None:
        """The process ends in good order: everything reaches the disk."""
        in_flight = len(self._in_flight[0]) if self._in_flight is not None else 0
        self.crash(in_flight + len(self._pending))

    def die(self, rng: random.Random) -> None:
        """Of what was not synced a first part reaches the disk: whole turns, in order."""
        if self.is_dead:
            return
        in_flight = len(self._in_flight[0]) if self._in_flight is not None else 0
        self.crash(rng.choice((0, in_flight)))
