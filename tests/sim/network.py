"""Links between nodes: delay, loss, duplication, reordering, cuts (also in one direction)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.clock import Clock
from tests.sim.options import Options


class Network:
    """Messages in order per link unless the options say otherwise; a cut link loses them."""

    def __init__(self, clock: Clock, rng: random.Random, options: Options) -> None:
        self._clock = clock
        self._rng = rng
        self._options = options
        self._link_free_ms: dict[tuple[str, str], int] = {}
        self.cut: set[tuple[str, str]] = set()
        self.is_healed = False

    def is_open(self, sender: str, to: str) -> bool:
        return (sender, to) not in self.cut

    def send(self, sender: str, to: str, deliver: Callable[..., None], *what: Any) -> None:
        """Call `deliver(*what)` later, once, twice or never."""
        options, rng = self._options, self._rng
        if not self.is_open(sender, to):
            return
        copies = 1
        if not self.is_healed:
            if rng.random() < options.drop:
                return
            if rng.random() < options.duplicate:
                copies = 2
        for _ in range(copies):
            delay = 1 + int(rng.random() * options.latency_ms_max)
            if self.is_healed or rng.random() >= options.reorder:
                arrival = max(self._clock.now_ms + delay, self._link_free_ms.get((sender, to), 0))
                self._link_free_ms[sender, to] = arrival
                delay = arrival - self._clock.now_ms
            else:
                delay *= 5
            self._clock.after(delay, deliver, *what)
