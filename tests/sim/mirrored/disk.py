"""A node's journal: `tests.memory_journal` on the virtual clock, with the sync a seed draws.

A batch is written whole or not at all. One that nobody waited for is written without a sync, and a
power cut loses such batches from any point on. A full disk holds everything that is not written
yet; a sync that fails ends the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.memory_journal import MemoryDisk, MemoryJournal, Write

if TYPE_CHECKING:
    from tests.sim.mirrored.process import Process

AGAIN_MS = 250
"""How often a full disk is looked at."""

POWER_CUT_P = 0.5

Undo = list[tuple[str, bytes, bytes | None]]
"""What was there before a batch: family, key, and value or None."""


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
        for family in ("pages", "page_bodies"):  # they end with the process
            disk.families.pop(family, None)
        super().__init__(loop, disk)
        self._process = process
        self._tail: list[Undo] = []  # of batches written since the last sync

    def _end_turn(self) -> None:
        world, name = self._process.world, self._process.name
        if not self.is_dead and world.full_disks.get(name, 0) > world.clock.now_ms:
            world.counts["held"] += 1
            self._process.after(AGAIN_MS, self._end_turn)  # until then no turn ends
        else:
            super()._end_turn()

    def _landed(self) -> None:
        world, name = self._process.world, self._process.name
        if not self.is_dead and name in world.bad_syncs and self._in_flight[1]:
            world.bad_syncs.discard(name)
            self.sync_failed()
        else:
            super()._landed()

    def sync_failed(self) -> None:
        """Nothing is told or written any more."""
        self._process.world.sync_failed(self._process.name)

    def _land(self, writes: list[Write], waiting: list[Callable[[], None]]) -> None:
        if waiting:
            self._tail.clear()
        else:
            self._tail.append(self._undo(writes))
        super()._land(writes, waiting)

    def _undo(self, writes: list[Write]) -> Undo:
        found: Undo = []
        for operation, family, key, value in writes:
            records = self.disk.families.get(family, {})
            if operation == "range":
                found += [(family, each, records[each]) for each in records if key <= each < value]
            else:
                found.append((family, key, records.get(key)))
        return found

    def _cut_tail(self, rng: random.Random) -> None:
        """The power is gone: of what was written without a sync a first part is there."""
        kept = rng.randint(0, len(self._tail))
        self._process.world.counts["torn tails"] += kept < len(self._tail)
        for batch in reversed(self._tail[kept:]):
            for family, key, value in reversed(batch):
                if value is None:
                    self.disk.families[family].pop(key, None)
                else:
                    self.disk.families[family][key] = value

    def close(self) -> None:
        """The process ends in good order: everything reaches the disk."""
        in_flight = len(self._in_flight[0]) if self._in_flight is not None else 0
        self.crash(in_flight + len(self._pending))

    def die(self, rng: random.Random) -> None:
        """Of what was not synced a first part reaches the disk: whole turns, in order."""
        if self.is_dead:
            return
        in_flight = len(self._in_flight[0]) if self._in_flight is not None else 0
        kept = rng.choice((0, in_flight))
        self.crash(kept)
        world = self._process.world
        if world.options.disk_p and not kept and world.disk_rng.random() < POWER_CUT_P:
            self._cut_tail(world.disk_rng)
