"""Periodic work of one process is aligned: its timers expire at the same instants.

To wake a process that sleeps costs 0.1 to 0.2 ms, mostly for caches that others have used since;
most of what a node does each 100 ms costs less than that. So periodic work is done at multiples of
its interval on one clock, and what it says to another node at the same time travels in one message.
Each process draws its own phase: nodes of one machine must not wake together, nor ask for votes
together.

A publish that arrives just then waits for all work that is due. So work that can wait is done
midway between two alignments, each duty of a second has a tenth of its own (`tenth`), and a task
that only reacts to changes sleeps on a `WakeSignal`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final

_PHASE_MS: Final = random.randrange(10_000)  # noqa: S311 - no secret


def aligned_delay_s(interval_s: float, phase_ms: int = _PHASE_MS) -> float:
    """The wait until the next multiple of an interval, on the running event loop.

    Args:
        interval_s: Seconds, a multiple of 0.001. Every multiple of 0.2 is one of 0.1 too.
        phase_ms: Where the multiples start.

    Returns:
        Seconds, more than 0 and at most `interval_s`.
    """
    interval_ms = round(interval_s * 1000)
    now_ms = round(asyncio.get_running_loop().time() * 1000)  # whole, for so count uvloop's timers
    return (interval_ms - (now_ms - phase_ms) % interval_ms) / 1000


def midway_delay_s(interval_s: float, phase_ms: int = _PHASE_MS) -> float:
    """The wait until the middle between two multiples; see `aligned_delay_s`."""
    return aligned_delay_s(interval_s, phase_ms + round(interval_s * 500))


def tenth(number: int) -> Callable[[float], float]:
    """Return `aligned_delay_s` for multiples that start so many tenths of a second later.

    A process wakes ten times a second in any case. When all that is due once a second was done at
    one of these instants, it took 1.3 to 2.3 ms, and a publish waited for all of it.

    Args:
        number: From 0, where work without a tenth of its own is done, to 9. Two duties with the
            same tenth are done together.

    Returns:
        A function from an interval in seconds to the wait in seconds.
    """
    phase_ms = _PHASE_MS + number * 100

    def delay_s(interval_s: float) -> float:
        return aligned_delay_s(interval_s, phase_ms)

    return delay_s


class WakeSignal:
    """Wakes one periodic task early, because what it looks at has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting task now, or as soon as it would sleep."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Sleep until the next multiple of `seconds`, or until `set` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(aligned_delay_s(seconds)):
                await self._event.wait()
        self._event.clear()
