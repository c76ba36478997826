from __future__ import annotations

import asyncio
import contextlib

from broker.server.background import every
from tests.unit.server.rig import virtually


@virtually
async def test_a_step_that_fails_is_done_again() -> None:
    """A port that is taken for a moment must not keep a node closed for ever (P4)."""
    steps: list[int] = []

    async def step() -> None:
        steps.append(len(steps))
        if len(steps) == 1:
            raise OSError("the address is taken")

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3.5):
            await every(1.0, step)
    assert steps[:3] == [0, 1, 2]
