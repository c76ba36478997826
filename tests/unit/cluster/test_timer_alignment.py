from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.timer_alignment import WakeSignal, aligned_delay_s, midway_delay_s, tenth
from tests.virtual_loop import run


async def wakes(interval_s: float, phase_ms: int, first_s: float, until_s: float) -> list[int]:
    """The milliseconds at which somebody who began late does its work."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(first_s)
    found = []
    while loop.time() < until_s:
        await asyncio.sleep(aligned_delay_s(interval_s, phase_ms))
        found.append(round(loop.time() * 1000))
    return found


@given(st.integers(0, 9_999), st.integers(0, 400), st.integers(0, 400))
def test_work_begun_at_any_time_falls_together(phase_ms: int, one_ms: int, other_ms: int) -> None:
    async def main() -> None:
        often, seldom = await asyncio.gather(
            wakes(0.1, phase_ms, one_ms / 1000, 2.0), wakes(0.2, phase_ms, other_ms / 1000, 2.0)
        )
        assert {b - a for a, b in itertools.pairwise(often)} == {100}
        assert {b - a for a, b in itertools.pairwise(seldom)} == {200}
        assert set(seldom) <= set(often) | set(range(often[0])) | set(range(often[-1] + 1, 3000))

    run(main())


def test_the_next_multiple_is_never_now() -> None:
    """Else a task that wakes at a multiple would work twice at it."""

    async def main() -> None:
        for now_ms in range(500):
            wait_s = aligned_delay_s(0.1, 0)
            assert wait_s == (100 - now_ms % 100) / 1000
            await asyncio.sleep(0.001)

    run(main())


def test_midway_lies_in_the_middle() -> None:
    async def main() -> None:
        for _ in range(300):
            aligned_s, midway_s = aligned_delay_s(0.2, 7), midway_delay_s(0.2, 7)
            assert round(abs(aligned_s - midway_s), 3) == 0.1
            await asyncio.sleep(0.001)

    run(main())


def test_duties_of_a_second_fall_on_its_tenths_and_never_together() -> None:
    async def main() -> None:
        for _ in range(1_200):
            waits_s = [tenth(number)(1.0) for number in range(10)]
            assert len(set(waits_s)) == 10
            nearest_s = aligned_delay_s(0.1)
            assert all(round((wait_s - nearest_s) * 1000) % 100 == 0 for wait_s in waits_s)
            assert waits_s[0] == aligned_delay_s(1.0)
            await asyncio.sleep(0.001)

    run(main())


def test_a_signal_wakes_at_once_and_only_once() -> None:
    async def main() -> None:
        loop, signal = asyncio.get_running_loop(), WakeSignal()
        loop.call_later(0.05, signal.set)
        await signal.wait(60.0)
        assert round(loop.time(), 3) == 0.05
        signal.set()
        await signal.wait(60.0)  # set before it slept
        assert round(loop.time(), 3) == 0.05
        await signal.wait(1.0)
        assert 0.05 < loop.time() <= 1.05

    run(main())
