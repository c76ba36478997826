"""Work that goes on for as long as the node serves: a failure costs one round, never the rest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from broker.cluster.timer_alignment import aligned_delay_s

_log = logging.getLogger(__name__)

SLICE_S: Final = 0.01
"""How long work goes on in one turn of the loop, where nobody is served yet but health checks."""

SERVING_SLICE_S: Final = 0.001
"""The same beside clients."""


async def every(
    seconds: float,
    step: Callable[[], Awaitable[None]],
    until: Callable[[float], float] = aligned_delay_s,
) -> None:
    """Do a step again and again until cancelled.

    Args:
        seconds: One step each so many seconds; see `aligned_delay_s`.
        step: What to do; what it raises is logged.
        until: Seconds to the next step, given those between two.
    """
    while True:
        await asyncio.sleep(until(seconds))
        try:
            await step()
        except Exception:  # noqa: BLE001 - the outermost frame of a background task
            _log.exception("task.failed", extra={"step": getattr(step, "__qualname__", "")})


async def in_slices(
    work: Iterator[None],
    clock: Callable[[], float] = time.perf_counter,
    *,
    slice_s: float = SLICE_S,
) -> None:
    """Do work step by step; after each slice all else has a turn.

    Args:
        work: Does a step for each item.
        clock: Seconds, from any beginning.
        slice_s: How long a slice is, in seconds.
    """
    ends_s = clock() + slice_s
    for _ in work:
        if clock() >= ends_s:
            await asyncio.sleep(0)
            ends_s = clock() + slice_s
