"""Coroutines that begin where they are made."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.eager_task import EagerTask

pytestmark = pytest.mark.asyncio


class Work:
    """Waits twice for `gates`, and notes how far it came."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.gates: list[asyncio.Future[None]] = [loop.create_future(), loop.create_future()]
        self.seen: list[str] = []

    async def run(self) -> None:
        try:
            self.seen.append("begun")
            await self.gates[0]
            self.seen.append("half")
            await self.gates[1]
            self.seen.append("over")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        except GeneratorExit:
            self.seen.append("given up")
            raise


async def rest(eager: EagerTask) -> None:
    await eager


async def test_it_runs_up_to_its_first_wait_and_then_on() -> None:
    work = Work()
    eager = EagerTask(work.run())
    assert work.seen == ["begun"]
    task = asyncio.ensure_future(rest(eager))
    work.gates[0].set_result(None)
    work.gates[1].set_result(None)
    await task
    assert work.seen == ["begun", "half", "over"]


async def test_what_was_over_at_once_is_not_waited_for() -> None:
    async def nothing() -> None: ...

    await EagerTask(nothing())


async def test_what_it_raises_at_once_is_for_whoever_awaits() -> None:
    async def fails() -> None:
        raise ValueError("told later")

    eager = EagerTask(fails())
    with pytest.raises(ValueError, match="told later"):
        await eager


async def test_what_it_waited_for_may_fail() -> None:
    work = Work()
    task = asyncio.ensure_future(rest(EagerTask(work.run())))
    work.gates[0].set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError, match="gone"):
        await task


@pytest.mark.parametrize("passed", [0, 1])
async def test_a_cancellation_is_told_where_it_waits(passed: int) -> None:
    work = Work()
    task = asyncio.ensure_future(rest(EagerTask(work.run())))
    for gate in work.gates[:passed]:
        gate.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.seen[-1] == "cancelled"
    assert work.gates[passed].cancelled()


async def test_it_may_wait_again_after_a_cancellation() -> None:
    """As a write that hangs up properly when it is given up."""
    gate = asyncio.get_running_loop().create_future()
    seen = []

    async def stubborn() -> None:
        try:
            await gate
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("tidied up")
            raise

    task = asyncio.ensure_future(rest(EagerTask(stubborn())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["tidied up"]


async def test_what_nobody_awaits_can_be_given_up() -> None:
    work = Work()
    eager = EagerTask(work.run())
    eager.close()
    eager.close()
    assert work.seen == ["begun", "given up"]
