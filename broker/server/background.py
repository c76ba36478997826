"""Work that goes on for as long as the node serves: a failure costs one round, never the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.cluster.beat import until_beat

_log = logging.getLogger(__name__)


async def every(
    seconds: float,
    step: Callable[[], Awaitable[None]],
    until: Callable[[float], float] = until_beat,
) -> None:
    """Do a step again and again until cancelled.

    Args:
        seconds: One step on each beat of so many seconds; see `until_beat`.
        step: What to do; what it raises is logged.
        until: The beats: seconds to the next one, given how far apart they are.
    """
    while True:
        await asyncio.sleep(until(seconds))
        try:
            await step()
        except Exception:  # noqa: BLE001 - the outermost frame of a background task
            _log.exception("task.failed", extra={"step": getattr(step, "__qualname__", "")})
