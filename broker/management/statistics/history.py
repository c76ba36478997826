"""The past of many objects' numbers in rings of fixed size. Pure.

    ring    steps      time
    minute  60 x 1 s   all objects
    hour    360 x 10 s all objects
    day     288 x 300 s what stands for a node or a vhost

A number has a column in each ring from the first time that it is not 0: eight bytes a step. Nothing
is written while an object's numbers stay as they are; a change fills the steps in between.
Samples are taken when the loop has time, so between two of them a number is taken to have grown
evenly: a step has the value of its own time, however late the samples around it were.

What it costs: 3,360 bytes for each number of a queue that was ever above 0. A queue that is
published to and consumed from has about five of them, 17 KB; 10,000 such queues would be 168 MB.
So `BYTES_MAX` bounds each kind of objects: the first 3,994 of these queues have a past, those
beyond have rates only, until one of the first has not changed for an hour and makes room.

Invariants:
1. The columns of all objects together have at most `bytes_max` bytes.
2. A step's value is the number at the step's time, read off the line between the samples around it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from broker.management.statistics.ages import Span

BYTES_MAX: Final = 64 * 1024 * 1024
_IDLE_MS: Final = 3_600_000
_NUMBER_BYTES: Final = 8

Numbers = tuple[int, ...]
K = TypeVar("K", bound=Hashable)


class Steps(NamedTuple):
    """The size of a ring: how many steps, of how many milliseconds."""

    step_ms: int
    slots: int


MINUTE: Final = Steps(1_000, 60)
HOUR: Final = Steps(10_000, 360)
DAY: Final = Steps(300_000, 288)


class Series(msgspec.Struct, array_like=True):
    """One number in the past.

    Attributes:
        end_ms: Time of the first value, in milliseconds since 1970.
        step_ms: From one value to the next older one.
        values: Newest first; None: nothing is known of that time.
    """

    end_ms: int
    step_ms: int
    values: list[int | None]


class _Track:
    """The past of one object.

    Attributes:
        numbers: As they are since `changed_ms`.
        since_ms: Nothing is known of the time before.
        changed_ms: Until when the rings are written.
    """

    __slots__ = ("changed_ms", "columns", "numbers", "since_ms")

    def __init__(self, since_ms: int, count: int) -> None:
        self.numbers: Numbers = (0,) * count
        self.since_ms = self.changed_ms = since_ms
        self.columns: dict[int, list[array[int]]] = {}

    def change(self, was_ms: int, now_ms: int, numbers: Numbers, rings: Sequence[Steps]) -> None:
        """Write the steps from the last change to now.

        Args:
            was_ms: When the numbers were still as they are here; at least `changed_ms`.
            now_ms: Later than `was_ms`.
            numbers: As they are at `now_ms`.
            rings: What the columns have.
        """
        passed_ms = now_ms - was_ms
        for index, columns in self.columns.items():
            old = self.numbers[index]
            grown = numbers[index] - old
            for (step_ms, count), column in zip(rings, columns, strict=True):
                written, now = self.changed_ms // step_ms, now_ms // step_ms
                for step in range(max(written, now - count) + 1, now + 1):
                    at_ms = step * step_ms - was_ms
                    column[step % count] = old + grown * at_ms // passed_ms if at_ms > 0 else old
        self.numbers, self.changed_ms = numbers, now_ms

    def at(self, index: int, time_ms: int, ring: int, steps: Steps) -> int | None:
        step_ms, count = steps
        step, newest = time_ms // step_ms, self.changed_ms // step_ms
        if step * step_ms < self.since_ms:
            return None
        if step > newest or index not in self.columns:
            return self.numbers[index]
        return self.columns[index][ring][step % count] if step > newest - count else None


class History(Generic[K]):
    """The past of objects of one kind.

    Args:
        rings: Finest first.
        bytes_max: Of all columns.
    """

    def __init__(self, rings: Sequence[Steps] = (MINUTE, HOUR), bytes_max: int = BYTES_MAX) -> None:
        self._rings = tuple(rings)
        self._column_bytes = _NUMBER_BYTES * sum(ring.slots for ring in rings)
        self._bytes_max = bytes_max
        self._tracks: dict[K, _Track] = {}  # who has changed last is last
        self._pass_ms: int | None = None
        self._before_ms: int | None = None
        self.bytes = 0

    def add(self, key: K, now_ms: int, numbers: Numbers) -> None:
        """Note an object's numbers.

        Args:
            key: Tells the object.
            now_ms: Milliseconds since 1970, the same for all objects of one sample; a time before
                the last one changes nothing.
            numbers: As many as ever for this object.
        """
        if now_ms != self._pass_ms:
            self._before_ms, self._pass_ms = self._pass_ms, now_ms
        was_ms = now_ms - 1 if self._before_ms is None else min(self._before_ms, now_ms - 1)
        track = self._tracks.get(key)
        if track is None:
            if not any(numbers):
                return
            track = _Track(was_ms, len(numbers))
        elif numbers == track.numbers or now_ms <= track.changed_ms:
            return
        new = [index for index, n in enumerate(numbers) if n and index not in track.columns]
        if new and not self._has_room(len(new) * self._column_bytes, key, now_ms):
            self.forget(key)
            return
        for index in new:
            track.columns[index] = [array("q", bytes(8 * ring.slots)) for ring in self._rings]
        self.bytes += len(new) * self._column_bytes
        track.change(max(was_ms, track.changed_ms), now_ms, numbers, self._rings)
        self._tracks.pop(key, None)
        self._tracks[key] = track

    def _has_room(self, more: int, key: K, now_ms: int) -> bool:
        while self.bytes + more > self._bytes_max:
            oldest = next(iter(self._tracks), key)
            if oldest == key or self._tracks[oldest].changed_ms > now_ms - _IDLE_MS:
                return False
            self.forget(oldest)
        return True

    def forget(self, key: K) -> None:
        """Drop an object's past."""
        track = self._tracks.pop(key, None)
        if track is not None:
            self.bytes -= len(track.columns) * self._column_bytes

    def keep(self, keys: Collection[K]) -> None:
        """Drop the past of all objects but these."""
        for key in [key for key in self._tracks if key not in keys]:
            self.forget(key)

    def series(self, key: K, index: int, span: Span) -> Series:
        """Return one number's past.

        Args:
            key: The object. Of one without a past nothing is known.
            index: Of the number.
            span: At which times. The finest ring that reaches so far back answers.
        """
        track = self._tracks.get(key)
        values: list[int | None] = [None] * span.count
        if track is not None:
            age_ms = span.step_ms * (span.count - 1)
            reach = [ring.step_ms * ring.slots > age_ms for ring in self._rings]
            ring = reach.index(True) if True in reach else len(reach) - 1
            steps = self._rings[ring]
            values = [track.at(index, time_ms, ring, steps) for time_ms in span.times()]
        return Series(span.end_ms, span.step_ms, values)
