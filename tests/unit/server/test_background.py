from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from broker.server.background import SLICE_S, every, in_slices
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


@virtually
async def test_work_in_slices_gives_others_a_turn_after_each_slice() -> None:
    now_s = 0.0
    done: list[int] = []
    seen: list[int] = []

    def work() -> Iterator[None]:
        nonlocal now_s
        for number in range(10):
            now_s += SLICE_S / 2.5
            done.append(number)
            yield

    async def other() -> None:
        while len(done) < 10:
            seen.append(len(done))
            await asyncio.sleep(0)

    others = asyncio.ensure_future(other())
    await in_slices(work(), lambda: now_s)
    await others
    assert seen == [3, 6, 9]
