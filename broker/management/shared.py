"""Shares one run of something among all requests that want its result at the same time.

Who asks while it runs gets the next run: nobody is shown what was found before it asked, so a
client that declares a queue and then lists finds it. Where a result `keeps`, who asks during its
run or in the rest after it gets that result instead.

    asks        a b     c d          e
    runs         |--1--|  |--2--|     |--3--|
    results            a        bcd         e      (b asked when run 1 had begun)

    asks        a b     c      d
    runs         |--1--|        |--2--|
    results            ab c           d            (1 keeps until d asks)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """The runs of one thing.

    Args:
        rest_s: How long after a run that found this the next one may begin, in seconds.
        keeps: True for a result that is good enough for those who ask in that time.
    """

    def __init__(
        self,
        rest_s: Callable[[T], float] = lambda _found: 0.0,
        keeps: Callable[[T], bool] = lambda _found: False,
    ) -> None:
        self._rest_s = rest_s
        self._keeps = keeps
        self._kept: list[T] = []  # one at most, until it has rested
        self._next: asyncio.Future[T] | None = None
        self._running = asyncio.Lock()
        self._rested_s = 0.0

    @property
    def is_idle(self) -> bool:
        """True if no request waits for a result."""
        return self._next is None and not self._running.locked()

    async def ask(self, run: Callable[[], Awaitable[T]]) -> T:
        """Get the result of a run that begins after this call, or of one that keeps.

        Args:
            run: Called unless somebody else's is about to be.

        Raises:
            Exception: What the run raised.
        """
        while not self._kept and (waiting := self._next) is not None:
            await asyncio.wait([waiting])
            if not waiting.cancelled():  # or else who was to run it has gone
                return waiting.result()
        if self._kept:
            return self._kept[0]
        mine = self._next = asyncio.get_running_loop().create_future()
        try:
            found = await self._run(run, mine)
        except BaseException as error:
            if self._next is mine:
                self._next = None
            if isinstance(error, Exception):
                mine.set_exception(error)
                mine.exception()  # perhaps nobody else waits for it
            else:
                mine.cancel()
            raise
        if not mine.done():
            mine.set_result(found)
        return found

    async def _run(self, run: Callable[[], Awaitable[T]], mine: asyncio.Future[T]) -> T:
        """Run it, unless the run before this one finds what keeps.

        Args:
            run: Finds it.
            mine: Those who ask until it begins wait for this.
        """
        loop = asyncio.get_running_loop()
        async with self._running:
            if mine.done():
                return mine.result()
            rest_s = self._rested_s - loop.time()
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            self._next = None
            found = await run()
            rest_s = self._rest_s(found)
            self._rested_s = loop.time() + rest_s
            if self._keeps(found):
                self._kept = [found]
                loop.call_later(rest_s, self._kept.clear)
                if self._next is not None:  # they have asked during this run
                    self._next.set_result(found)
                    self._next = None
            return found
