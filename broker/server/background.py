"""Work that goes on for as long as the node serves: a failure costs one round, never the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.cluster.timer_alignment import aligned_delay_s

_log = logging.getLogger(__name__)


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
