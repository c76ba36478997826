"""Rates of many objects from two samples of their counters. Pure."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from broker.management.pace import STEP

Numbers = tuple[int, ...]
K = TypeVar("K", bound=Hashable)


class _Sample(NamedTuple):
    at_ms: int
    numbers: Numbers
    rates: tuple[float, ...] | None


class Rates(Generic[K]):
    """The rates of objects of one kind, by whatever tells them apart.

    An object has rates from its second sample on. One that is missing in a sample is forgotten; a
    number that became smaller was counted anew, so it grew by what it is now: give numbers that
    may fall (messages in a queue) as `levels`.

    Args:
        levels: How many of the last numbers of each object may fall.
    """

    def __init__(self, levels: int = 0) -> None:
        self._levels = levels
        self._samples: dict[K, _Sample] = {}

    def sample(
        self, now_ms: int, objects: Iterable[tuple[K, Numbers]]
    ) -> Generator[None, None, None]:
        """Take a sample, in steps (`broker.management.pace`).

        Args:
            now_ms: Monotonic milliseconds.
            objects: All that there are, with their numbers.
        """
        known, found = self._samples, dict[K, _Sample]()
        for count, (key, numbers) in enumerate(objects, 1):
            last = known.get(key)
            if last is None:
                found[key] = _Sample(now_ms, numbers, None)
            elif numbers == last.numbers:
                found[key] = _Sample(now_ms, last.numbers, None)
            else:
                rates = self._rates(last, now_ms, numbers)
                found[key] = _Sample(now_ms, numbers, rates)
            if not count % STEP:
                yield
        self._samples = found

    def _rates(self, last: _Sample, now_ms: int, numbers: Numbers) -> tuple[float, ...]:
        passed_s = max(1, now_ms - last.at_ms) / 1000
        counters = len(numbers) - self._levels
        return tuple(
            [
                (now - (before if now >= before or index >= counters else 0)) / passed_s
                for index, (now, before) in enumerate(zip(numbers, last.numbers, strict=True))
            ]
        )

    def of(self, key: K) -> tuple[float, ...]:
        """Return an object's rates per second, in the order of its numbers.

        Empty where all of them are 0, and before the second sample.
        """
        found = self._samples.get(key)
        return () if found is None or found.rates is None else found.rates
