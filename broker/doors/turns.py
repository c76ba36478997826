"""Strangers' work in turns: so much of it in each turn of the loop, of each address alike. Pure.

A handshake costs a node 1 ms in some five steps. Work of strangers beyond `STEPS` in one turn of
the loop waits for the next one, behind what everybody else has to do there, and of those that wait
each address has one step before any has its second. An address that is alone waits for nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

STEPS: Final = 16
"""Steps in a turn: some 2 ms."""

Work = Callable[[], None]


class Turns:
    """The steps of all handshakes of a node.

    Args:
        defer: Runs a callback in the next turn of the loop.
    """

    def __init__(self, defer: Callable[[Work], object]) -> None:
        self._defer = defer
        self._left = STEPS
        self._is_deferred = False
        self._waiting: dict[str, deque[Work]] = {}

    def run(self, address: str, work: Work) -> bool:
        """Do a step now, or in its turn.

        Args:
            address: Whose.
            work: The step; it raises nothing.

        Returns:
            False: it waits. Who waits gives no second step before.
        """
        if not self._is_deferred:
            self._is_deferred = True
            self._defer(self._turn)
        if self._waiting or not self._left:
            self._waiting.setdefault(address, deque()).append(work)
            return False
        self._left -= 1
        work()
        return True

    def _turn(self) -> None:
        """A turn later: those that waited, one of each address after the other."""
        self._left = STEPS
        if not self._waiting:
            self._is_deferred = False
            return
        self._defer(self._turn)  # first: a step that fails must not end the turns
        while self._waiting and self._left:
            address = next(iter(self._waiting))
            line = self._waiting.pop(address)
            work = line.popleft()
            if line:
                self._waiting[address] = line  # behind the others
            self._left -= 1
            work()
