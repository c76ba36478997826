"""Rates of many objects from two samples of their counters, and their past. Pure."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from broker.management.pace import STEP
from broker.management.statistics.ages import Span
from broker.management.statistics.history import HOUR, MINUTE, History, Series, Steps
from broker.management.statistics.measured import Measured

Numbers = tuple[int, ...]
K = TypeVar("K", bound=Hashable)


class _Sample(NamedTuple):
    at_ms: int
    numbers: Numbers
    rates: tuple[float, ...] | None
    changed_ms: int


class Rates(Generic[K]):
    """The rates of objects of one kind, by whatever tells them apart.

    An object has rates from its second sample on. One that is missing in a sample is forgotten; a
    number that became smaller was counted anew, so it grew by what it is now: give numbers that
    may fall (messages in a queue) as `levels`.

    Args:
        levels: How many of the last numbers of each object may fall.
        interval_ms: A rate is that of at least so long, however often samples are taken.
        rings: Of the past; none: it has none.

    Attributes:
        history: The past of the objects.
    """

    def __init__(
        self, levels: int = 0, interval_ms: int = 0, rings: Sequence[Steps] = (MINUTE, HOUR)
    ) -> None:
        self._levels = levels
        self._enough_ms = interval_ms * 9 // 10  # ticks are never quite in time
        self._has_past = bool(rings)
        self.history = History[K](rings)
        self._samples: dict[K, _Sample] = {}

    def sample(
        self, now_ms: int, objects: Iterable[tuple[K, Numbers]], date_ms: int = 0
    ) -> Generator[None, None, None]:
        """Take a sample, in steps (`broker.management.pace`).

        Args:
            now_ms: Monotonic milliseconds.
            objects: All that there are, with their numbers.
            date_ms: Milliseconds since 1970, for the past and for when numbers last changed.
        """
        known, found = self._samples, dict[K, _Sample]()
        for count, (key, numbers) in enumerate(objects, 1):
            if self._has_past:
                self.history.add(key, date_ms, numbers)
            last = known.get(key)
            if last is not None and now_ms - last.at_ms < self._enough_ms:
                found[key] = last
            elif last is None:
                found[key] = _Sample(now_ms, numbers, None, date_ms)
            elif numbers == last.numbers:
                found[key] = _Sample(now_ms, last.numbers, None, last.changed_ms)
            else:
                rates = self._rates(last, now_ms, numbers)
                found[key] = _Sample(now_ms, numbers, rates, date_ms)
            if not count % STEP:
                yield
        self._samples = found
        self.history.keep(found)

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

    def rates(self) -> Iterator[tuple[K, tuple[float, ...]]]:
        """The objects whose numbers changed between the last two samples, with their rates."""
        for key, found in list(self._samples.items()):
            if found.rates is not None:
                yield key, found.rates

    def sampled(self) -> Iterator[tuple[K, Numbers]]:
        """All objects with their numbers in a sample, at most `interval_ms` and a sample old."""
        return ((key, found.numbers) for key, found in list(self._samples.items()))

    def measured(self, key: K, numbers: Numbers, spans: Sequence[Span] = ()) -> Measured:
        """Put numbers with their rates and their past.

        Args:
            key: The object.
            numbers: As they are now.
            spans: For each number at which times its past is asked for; none: for no number.
        """
        if any(numbers):
            series = [self.history.series(key, index, span) for index, span in enumerate(spans)]
        else:  # it never was more than 0
            series = [Series(each.end_ms, each.step_ms, [0] * each.count) for each in spans]
        found = self._samples.get(key)
        is_idle = found is not None and found.numbers[: len(numbers)] == numbers
        since_ms = found.changed_ms if found is not None and is_idle else 0
        return Measured(numbers, self.of(key), series, since_ms)
