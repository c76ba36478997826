"""Long work of the API, in slices: the loop serves clients in between.

What may take long is written as a generator that yields after every few items. `WorkPacer` runs it
for `SLICE_S` at a time. Then the loop has a turn; if that was used by anybody else, the API rests
for as long as the slice took. A node has one pacer: however many requests there are, beside clients
its API takes at most half of the loop's time, a few milliseconds a slice.

    busy   |slice|clients......|slice|clients......|slice|
    idle   |slice|slice|slice|

Invariants:
1. One slice runs at a time, and nothing of the API in the rest that follows it.
2. Work that ends within its first slice costs nobody a rest.
3. Between two slices the loop reads its sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeVar

SLICE_S: Final = 0.001
"""A slice ends with the first step after this; a step takes some tenths of a millisecond."""

IDLE_TURN_S: Final = 0.000_1
"""A turn that takes longer did something for somebody: a message takes at least that, none 0.02."""

STEP: Final = 16
"""Items between two yields."""

FIRSTS: Final = 3
"""Turns of what other nodes wait for, for each turn of the listings that are built here."""

CHUNK: Final = 1_024
"""Items between two yields of what takes well below a microsecond each, as sorting does."""

T = TypeVar("T")
R = TypeVar("R")


class WorkPacer:
    """Divides the loop's time between the API's work and all else.

    Args:
        clock: Seconds, from any beginning.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._is_taken = False
        self._waiting: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]]
        self._waiting = (deque(), deque())
        self._firsts = 0

    async def run(self, work: Generator[None, None, T], *, first: bool = False) -> T:
        """Run a generator to its end.

        Args:
            work: Yields often.
            first: It gets `FIRSTS` turns for each turn of the others: a node waits for it.

        Returns:
            What it returns.
        """
        clock = self._clock
        turn = self._queued(first=first)
        if not self._is_taken:
            self._end()
        while True:
            await self._come(turn)
            try:
                began_s = clock()
                try:
                    while clock() - began_s < SLICE_S:
                        next(work)
                except StopIteration as end:
                    found: T = end.value
                    return found
                await self._rest(clock() - began_s)
                turn = self._queued(first=first)
            finally:
                self._end()

    async def _rest(self, took_s: float) -> None:
        """Let others work: for as long as the slice took, if there is anything to do for them."""
        ended_s = self._clock()
        await asyncio.sleep(0)
        if self._clock() - ended_s > IDLE_TURN_S:
            await asyncio.sleep(took_s)

    def _queued(self, *, first: bool) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[not first].append(turn)
        return turn

    async def _come(self, turn: asyncio.Future[None]) -> None:
        """Wait for a turn."""
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come just now
                self._end()
            raise

    def _end(self) -> None:
        """Give the turn to the next one that waits."""
        firsts, others = self._waiting
        while firsts or others:
            is_first = bool(firsts) and (not others or self._firsts < FIRSTS)
            self._firsts = self._firsts + 1 if is_first else 0
            turn = (firsts if is_first else others).popleft()
            if not turn.cancelled():
                self._is_taken = True
                turn.set_result(None)
                return
        self._is_taken = False


def mapped(items: Sequence[R], make: Callable[[R], T]) -> Generator[None, None, list[T]]:
    """A list of what a function makes of each item, in steps.

    Args:
        items: What to go through.
        make: The function.
    """
    found: list[T] = []
    for start in range(0, len(items), STEP):
        found += map(make, items[start : start + STEP])
        yield
    return found


def kept(items: Iterable[R], is_wanted: Callable[[R], bool]) -> Generator[None, None, list[R]]:
    """The items for which a function is true, in steps.

    Args:
        items: What to go through.
        is_wanted: The function.
    """
    found = []
    for number, item in enumerate(items, 1):
        if is_wanted(item):
            found.append(item)
        if not number % STEP:
            yield
    return found


def ordered(
    items: Sequence[R], key: Callable[[R], Any], *, reverse: bool = False
) -> Generator[None, None, list[R]]:
    """The items sorted, in steps; equal ones stay in their order.

    Args:
        items: What to sort.
        key: As of `sorted`.
        reverse: As of `sorted`.
    """
    keys = yield from mapped(items, key)
    runs = []
    for start in range(0, len(items), CHUNK):
        run = range(start, min(start + CHUNK, len(items)))
        runs.append(sorted(run, key=keys.__getitem__, reverse=reverse))
        yield
    while len(runs) > 1:
        runs = yield from _halved(runs, keys, reverse=reverse)
    return [items[index] for run in runs for index in run]


def _halved(
    runs: list[list[int]], keys: list[Any], *, reverse: bool
) -> Generator[None, None, list[list[int]]]:
    """Merge neighbours: `list.sort` sees two runs in order and compares each index about once."""
    found = []
    for at in range(0, len(runs), 2):
        merged = [index for run in runs[at : at + 2] for index in run]
        merged.sort(key=keys.__getitem__, reverse=reverse)
        found.append(merged)
        yield
    return found
