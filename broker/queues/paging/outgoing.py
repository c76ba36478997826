"""Effects of a queue on their way out: in order, while the bodies of some are read from its log.

Reading may take as long as a disk takes. The loop goes on meanwhile, and so does the queue's
machine: what it hands out later waits here behind what is read for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from broker.fifo.effects import Effects
from broker.fifo.logged.positions import Positions
from broker.queues.paging.log_bodies import LogBodies, ReadableLog


class _Waiting(NamedTuple):
    """Effects that wait for bodies, or behind others that do."""

    effects: Effects
    filling: Iterator[int]


class Leader(Protocol):
    """The replica that hands out what its queue's machine says."""

    def hand_out(self, effects: Effects) -> None:
        """Take effects whose bodies are all there."""
        ...


class Outgoing:
    """What leaves one queue.

    Args:
        log: The queue's.
        bodies: What is read of it.
        leader: Takes effects when they are filled, in the order in which they came.
    """

    def __init__(self, log: ReadableLog, bodies: LogBodies, leader: Leader) -> None:
        self._log = log
        self._bodies = bodies
        self._leader = leader
        self._waiting: deque[_Waiting] = deque()
        self._is_reading = False
        self._is_going_on = False

    @property
    def is_waiting(self) -> bool:
        """True while effects wait: the log must keep all that it has."""
        return bool(self._waiting)

    def fill(self, effects: Effects, positions: Positions) -> None:
        """Fill effects; the leader gets them before this returns if nothing must be read.

        Not after `drop`, and not when the replica fails.

        Args:
            effects: Behind those of all calls before.
            positions: Where the bodies are.
        """
        if not self._waiting and not effects.deliveries and not effects.replies:
            self._leader.hand_out(effects)  # answers to publishers, mostly
            return
        self._waiting.append(_Waiting(effects, self._bodies.filling(effects, positions)))
        self._go_on()

    def drop(self) -> None:
        """Forget what waits: this replica leads no more, and the next leader delivers it."""
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._is_going_on:  # a read was over at once, or the leader led here
            return
        self._is_going_on = True
        try:
            while self._waiting and not self._is_reading:
                first = self._waiting[0]
                entry = next(first.filling, None)
                if entry is not None:
                    self._is_reading = True
                    self._bodies.read_later(entry, self._arrived)
                else:
                    self._waiting.popleft()
                    self._leader.hand_out(first.effects)
        except Exception as error:  # noqa: BLE001 - whoever called has nothing to do with it
            self.drop()
            self._log.fail(error)
        finally:
            self._is_going_on = False

    def _arrived(self, error: Exception | None) -> None:
        self._is_reading = False
        if error is not None:
            self.drop()
            self._log.fail(error)
        self._go_on()
