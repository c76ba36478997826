"""A map from number to a positive 64-bit value, at about nine bytes an entry.

The store keeps one entry per large message; a dict of Python integers would take a hundred bytes.
Keys of one map are nearly consecutive, so they lie in chunks of neighbours; 0 is "not here".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

CHUNK: Final = 128

_BLANK: Final = array("Q", bytes(8 * CHUNK))


class IntMap:
    """A map from number to a positive value below 2^64."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        self._chunks: dict[int, array[int]] = {}
        self._count = 0
        for number, value in items:
            self.set(number, value)

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> int:
        """The value of a number; 0 where it is not here."""
        chunk = self._chunks.get(number // CHUNK)
        return 0 if chunk is None else chunk[number % CHUNK]

    def set(self, number: int, value: int) -> None:
        """Note the value of a number, which is not 0."""
        chunk = self._chunks.get(number // CHUNK)
        if chunk is None:
            chunk = self._chunks[number // CHUNK] = _BLANK[:]
        cell = number % CHUNK
        if not chunk[cell]:
            self._count += 1
        chunk[cell] = value

    def pop(self, number: int) -> int:
        """Take out a number; its value, 0 where it was not here."""
        chunk = self._chunks.get(number // CHUNK)
        if chunk is None:
            return 0
        cell = number % CHUNK
        value = chunk[cell]
        if value:
            self._count -= 1
            chunk[cell] = 0
            if chunk == _BLANK:
                del self._chunks[number // CHUNK]
        return value

    def pop_range(self, first: int, last: int) -> list[int]:
        """Take out all numbers from `first` to `last`, both included; their values, in order."""
        values: list[int] = []
        for each in sorted(i for i in self._chunks if first // CHUNK <= i <= last // CHUNK):
            start = each * CHUNK
            if first <= start and start + CHUNK - 1 <= last:
                found = [value for value in self._chunks.pop(each) if value]
                self._count -= len(found)
            else:
                numbers = range(max(first, start), min(last, start + CHUNK - 1) + 1)
                found = [value for number in numbers if (value := self.pop(number))]
            values += found
        return values

    def items(self) -> Iterator[tuple[int, int]]:
        """Numbers and values, by number. Nothing may change meanwhile."""
        for each in sorted(self._chunks):
            for cell, value in enumerate(self._chunks[each]):
                if value:
                    yield each * CHUNK + cell, value

    def dump(self) -> list[tuple[int, bytes]]:
        """Everything as bytes in this machine's byte order, for `load`."""
        return [(each, chunk.tobytes()) for each, chunk in self._chunks.items()]

    @classmethod
    def load(cls, chunks: Iterable[tuple[int, bytes]]) -> IntMap:
        """The map that `dump` wrote.

        Raises:
            ValueError: A chunk has another size than all have.
        """
        found = cls()
        for each, data in chunks:
            chunk = array("Q", data)
            if len(chunk) != CHUNK:
                raise ValueError(f"expected a chunk of {CHUNK} cells, found {len(data)} bytes")
            found._chunks[each] = chunk
            found._count += CHUNK - chunk.count(0)
        return found
