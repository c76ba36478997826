"""Timing of queues: the next turn of the loop, and one timer for each queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.ports import Clock

Defer = Callable[[Callable[[], None]], object]
"""Run something in the event loop's next turn (`loop.call_soon`)."""

Later = Callable[[float, Callable[[], None]], object]
"""Run something after so many seconds (`loop.call_later`); what it returns may have `cancel()`."""

WAIT_MS_MAX: Final = 3_600_000
"""A timer is looked at once an hour at least: due times are wall clock, which may be set."""


class DueTimer:
    """One timer that rings no later than the earliest time it was set to.

    It is not moved to a later time: it rings, finds nothing due, and its owner sets it again. So a
    queue whose messages come and go costs a timer now and then, not one a message.

    Args:
        clock: Measures waits.
        later: Runs it.
        ring: Called when it is due.
    """

    __slots__ = ("_at_ms", "_clock", "_count", "_handle", "_later", "_ring")

    def __init__(self, clock: Clock, later: Later, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._later = later
        self._ring = ring
        self._at_ms: int | None = None
        self._count = 0
        self._handle: object = None

    def set(self, wait_ms: int) -> None:
        """Ring after so many milliseconds, or earlier."""
        wait_ms = min(max(wait_ms, 0), WAIT_MS_MAX)
        at_ms = self._clock.monotonic_ms() + wait_ms
        if self._at_ms is not None and self._at_ms <= at_ms:
            return
        self.end()
        self._at_ms = at_ms
        self._count = count = self._count + 1
        self._handle = self._later(wait_ms / 1000, lambda: self._rang(count))

    def end(self) -> None:
        """Cancel the timer."""
        handle, self._handle = self._handle, None
        self._at_ms = None
        self._count += 1
        if handle is not None and hasattr(handle, "cancel"):
            handle.cancel()

    def _rang(self, count: int) -> None:
        if count == self._count:
            self._at_ms = self._handle = None
            self._ring()
