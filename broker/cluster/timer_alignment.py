"""Periodic work of one process falls together.

To wake a process that sleeps costs 0.1 to 0.2 ms, mostly for caches that others have used since;
most of what a node does each 100 ms costs less than that. So all such work is done on the beats of
one clock, and what it says to another node at the same time travels in one message. Each process
has a clock of its own: nodes of one machine must not wake together, nor ask for votes together.

Whoever publishes just then waits for all that is due, so no beat may have much to do: what can wait
for the next off-beat does, and who only has to act on news sleeps until there are some.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

_PHASE_MS: Final = random.randrange(10_000)  # noqa: S311 - no secret


def until_beat(interval_s: float, phase_ms: int = _PHASE_MS) -> float:
    """Tell how long to wait for the next beat, on the running event loop.

    Args:
        interval_s: Seconds between beats, a multiple of 0.001. Beats of 0.2 fall on beats of 0.1.
        phase_ms: When the beats began.

    Returns:
        Seconds, more than 0 and at most `interval_s`.
    """
    interval_ms = round(interval_s * 1000)
    now_ms = round(asyncio.get_running_loop().time() * 1000)  # whole, for so count uvloop's timers
    return (interval_ms - (now_ms - phase_ms) % interval_ms) / 1000


def until_offbeat(interval_s: float, phase_ms: int = _PHASE_MS) -> float:
    """Tell how long to wait for the middle between two beats; see `until_beat`."""
    return until_beat(interval_s, phase_ms + round(interval_s * 500))


class News:
    """Wakes one task early: what it looks at on a beat has changed."""

    def __init__(self) -> None:
        self._has_come = asyncio.Event()

    def tell(self) -> None:
        """Let the waiting task look now, or as soon as it would sleep."""
        self._has_come.set()

    async def wait(self, seconds: float) -> None:
        """Sleep until the next beat of so many seconds, or until there are news."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_beat(seconds)):
                await self._has_come.wait()
        self._has_come.clear()
