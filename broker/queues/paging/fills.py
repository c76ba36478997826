"""Bodies that are read from a queue's log for others than consumers: dead letters, peeks, moves.

Each reading goes on for itself while the disk is read in another thread; what consumers get waits
for none of them (`broker.queues.paging.outgoing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.queues.paging.log_bodies import LogBodies, ReadableLog

Filled = Callable[[bool], None]
"""Told once that all was read; False: it can't be, for the replica is over or has another state."""


class Fills:
    """What is being read of one queue.

    Args:
        log: The queue's.
        bodies: What is read of it.
    """

    def __init__(self, log: ReadableLog, bodies: LogBodies) -> None:
        self._log = log
        self._bodies = bodies
        self._under_way: list[_Fill] = []

    @property
    def is_reading(self) -> bool:
        """True while anything is read: the log must keep all that it has."""
        return bool(self._under_way)

    def begin(self, steps: Iterator[int], done: Filled) -> None:
        """Read what some steps ask for, and tell when they are over.

        Args:
            steps: Yield the entry that they need decoded next.
            done: Told once, possibly before this returns.
        """
        fill = _Fill(self, steps, done)
        self._under_way.append(fill)
        fill.go_on()

    def drop(self) -> None:
        """Give up all: the log has other entries now."""
        under_way, self._under_way = self._under_way, []
        for fill in under_way:
            fill.done(False)

    def read(self, index: int, fill: _Fill) -> None:
        """Have an entry read for a reading."""
        self._bodies.read_later(index, fill.arrived)

    def is_given_up(self, fill: _Fill) -> bool:
        """True if nobody waits for it any more."""
        return fill not in self._under_way

    def end(self, fill: _Fill, error: Exception | None) -> None:
        """Tell that a reading is over; the replica stops if it can't be made."""
        if self.is_given_up(fill):
            return
        self._under_way.remove(fill)
        if error is not None:
            self._log.fail(error)
        fill.done(error is None)


class _Fill:
    """One reading."""

    __slots__ = ("_fills", "_is_going_on", "_is_reading", "_steps", "done")

    def __init__(self, fills: Fills, steps: Iterator[int], done: Filled) -> None:
        self.done = done
        self._fills = fills
        self._steps = steps
        self._is_reading = False
        self._is_going_on = False

    def go_on(self) -> None:
        """Take the steps up to one that must wait."""
        if self._is_going_on:  # a read was over at once
            return
        self._is_going_on = True
        error: Exception | None = None
        try:
            while not self._is_reading:
                entry = next(self._steps, None)
                if entry is None:
                    break
                self._is_reading = True
                self._fills.read(entry, self)
        except Exception as found:  # noqa: BLE001 - whoever called has nothing to do with it
            error = found
        finally:
            self._is_going_on = False
        if error is not None or not self._is_reading:
            self._fills.end(self, error)

    def arrived(self, error: Exception | None) -> None:
        """An entry is decoded, or never will be."""
        self._is_reading = False
        if error is not None:
            self._is_reading = True  # never to go on
            self._fills.end(self, error)
        elif not self._fills.is_given_up(self):
            self.go_on()
