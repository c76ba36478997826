"""Links between the nodes: in order, late, and cut. A cut loses what is on its way, or holds it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

HELD_MAX = 20_000


class Links:
    """All links. What arrives at a node is for the process that was there when it was sent.

    Args:
        loop: The loop.
        rng: Draws delays.
        latency_s: Most of a delay.

    Attributes:
        cut: (from, to) -> True where a cut holds what is sent, False where it loses it.
        sent: Messages so far.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: random.Random, latency_s: float
    ) -> None:
        self.cut: dict[tuple[str, str], bool] = {}
        self.sent = 0
        self._loop = loop
        self._rng = rng
        self._latency_s = latency_s
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._due: dict[tuple[str, str, str], float] = {}

    def send(self, sender: str, to: str, stream: str, arrive: Callable[[], None]) -> None:
        """Carry something; `arrive` is called at the other end, if it gets there."""
        way = (sender, to)
        self.sent += 1
        if way in self.cut:
            self._hold(way, arrive)
            return
        delay = self._latency_s * (0.2 + 0.8 * self._rng.random())
        at = max(self._due.get((*way, stream), 0.0) + 1e-7, self._loop.time() + delay)
        self._due[*way, stream] = at
        self._loop.call_at(at, self._arrive, way, arrive)

    def _arrive(self, way: tuple[str, str], arrive: Callable[[], None]) -> None:
        if way in self.cut:
            self._hold(way, arrive)
        else:
            arrive()

    def _hold(self, way: tuple[str, str], arrive: Callable[[], None]) -> None:
        held = self._held.setdefault(way, [])
        if self.cut[way] and len(held) < HELD_MAX:
            held.append(arrive)

    def heal(self, way: tuple[str, str]) -> None:
        """End a cut: what was held arrives."""
        if self.cut.pop(way, None) is None:
            return
        for arrive in self._held.pop(way, ()):
            self.send(*way, "held", arrive)
