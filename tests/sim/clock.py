"""Virtual time: a heap of events. Ties are broken by the order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Milliseconds from 0. Nothing runs but through `run_until`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def after(self, delay_ms: int, call: Callable[..., None], *arguments: object) -> None:
        """Run `call(*arguments)` in `delay_ms`."""
        self._sequence += 1
        event = (self.now_ms + delay_ms, self._sequence, call, arguments)
        heapq.heappush(self._heap, event)

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Run events up to a time, or until `is_done` after some event."""
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)
            if is_done is not None and is_done():
                return
        self.now_ms = max(self.now_ms, end_ms)


class Wall:
    """`broker.ports.Clock` of a virtual clock, with a date: some day in November 2023."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self._clock.now_ms

    def monotonic_ms(self) -> int:
        return self._clock.now_ms
