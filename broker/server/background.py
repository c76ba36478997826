"""Work that goes on for as long as the node serves: a failure costs one round, never the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


async def every(seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    """Do a step again and again until cancelled.

    Args:
        seconds: Pause before each step.
        step: What to do; what it raises is logged.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except Exception:  # noqa: BLE001 - the outermost frame of a background task
            _log.exception("task.failed", extra={"step": getattr(step, "__qualname__", "")})
