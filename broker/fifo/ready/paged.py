"""Messages of which only number and size are in memory (delta): a set, four bytes for each.

The messages are on disk. The queue machine finds here what it must know without reading them: how
many they are, how long their bodies are, which number is next, and whether a number is among them.

Numbers lie in chunks of 1,024 neighbours, one unsigned 32-bit cell each: the body's size in bytes
plus one, 0 for a number that is not here. A queue's numbers are nearly consecutive, so chunks are
nearly full; a chunk without numbers is dropped.

Invariants: 1. `len` and `size_bytes` are the sums over all cells. 2. `_order` holds the ids of the
chunks, ascending; none of them is empty.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

CHUNK: Final = 1024
CHUNK_RAM_BYTES: Final = 4 * CHUNK + 300
SIZE_MAX: Final = (1 << 32) - 2
"""A body's size in bytes is noted exactly up to here; RabbitMQ's largest message is far below."""

_BLANK: Final = array("I", bytes(4 * CHUNK))


class _Chunk:
    """Attributes: cells; count, of cells in use; low, before which no cell is in use."""

    __slots__ = ("cells", "count", "low")

    def __init__(self, cells: array[int] | None = None) -> None:
        self.cells = _BLANK[:] if cells is None else cells
        self.count = 0 if cells is None else CHUNK - cells.count(0)
        self.low = 0 if self.count else CHUNK

    def first(self) -> int:
        """The lowest cell in use; there is one."""
        cells, low = self.cells, self.low
        while not cells[low]:
            low += 1
        self.low = low
        return low


_NO_CHUNK: Final = _Chunk()
"""Placeholder for a chunk that was not looked up yet; never written to."""


class Paged:
    """A set of message numbers with their body sizes.

    Attributes:
        size_bytes: Sum of the body sizes.
    """

    __slots__ = ("_chunks", "_count", "_order", "size_bytes")

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        self._chunks: dict[int, _Chunk] = {}
        self._order: list[int] = []
        self._count = 0
        self.size_bytes = 0
        self.add(items)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        chunk = self._chunks.get(number // CHUNK)
        return chunk is not None and chunk.cells[number % CHUNK] > 0

    def __iter__(self) -> Iterator[int]:
        """All numbers, ascending. Nothing may be added or removed meanwhile."""
        return self.numbers_from(0)

    @property
    def ram_bytes(self) -> int:
        """About how much memory this takes, in bytes."""
        return len(self._order) * CHUNK_RAM_BYTES

    def add(self, items: Iterable[tuple[int, int]]) -> None:
        """Add numbers; a number that is here gets the new size.

        Args:
            items: (number, body size in bytes), in any order.
        """
        chunk_id, chunk = -1, _NO_CHUNK
        cells = chunk.cells
        more_bytes = 0
        for number, size in items:
            if number // CHUNK != chunk_id:
                chunk_id = number // CHUNK
                chunk = self._chunk(chunk_id)
                cells = chunk.cells
            cell = number % CHUNK
            before = cells[cell]
            if before:
                more_bytes -= before - 1
            else:
                chunk.count += 1
                self._count += 1
                if cell < chunk.low:  # noqa: PLR1730  # min() takes longer
                    chunk.low = cell
            if size > SIZE_MAX:  # noqa: PLR1730
                size = SIZE_MAX  # noqa: PLW2901
            cells[cell] = size + 1
            more_bytes += size
        self.size_bytes += more_bytes

    def add_run(self, first: int, sizes: list[int]) -> None:
        """Add consecutive numbers; as `add`, and several times as fast.

        Args:
            first: The lowest number; the others follow without a gap.
            sizes: Their body sizes in bytes.
        """
        at = 0
        while at < len(sizes):
            number = first + at
            cell = number % CHUNK
            some = sizes[at : at + CHUNK - cell]
            chunk = self._chunk(number // CHUNK)
            end = cell + len(some)
            if max(some) > SIZE_MAX or any(chunk.cells[cell:end]):
                self.add(enumerate(some, number))
            else:
                chunk.cells[cell:end] = array("I", [size + 1 for size in some])
                chunk.count += len(some)
                chunk.low = min(chunk.low, cell)
                self._count += len(some)
                self.size_bytes += sum(some)
            at += len(some)

    def remove(self, numbers: list[int]) -> list[int]:
        """Remove numbers; return those that were here, in the order of the argument."""
        if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return self._remove_run(numbers[0], len(numbers))
        chunks = self._chunks
        found: list[int] = []
        for number in numbers:
            chunk_id = number // CHUNK
            chunk = chunks.get(chunk_id)
            if chunk is None:
                continue
            cell = number % CHUNK
            before = chunk.cells[cell]
            if not before:
                continue
            chunk.cells[cell] = 0
            self.size_bytes -= before - 1
            self._count -= 1
            chunk.count -= 1
            if not chunk.count:
                self._drop(chunk_id)
            found.append(number)
        return found

    def _remove_run(self, first: int, count: int) -> list[int]:
        found: list[int] = []
        number, after = first, first + count
        while number < after:
            chunk_id, cell = divmod(number, CHUNK)
            more = min(CHUNK - cell, after - number)
            if chunk_id in self._chunks:
                part = self._blank(chunk_id, cell, cell + more)
                if 0 in part:
                    found += [number + at for at, size in enumerate(part) if size]
                else:
                    found += range(number, number + more)
                if chunk_id not in self._chunks:
                    del self._order[bisect_left(self._order, chunk_id)]
            number += more
        return found

    def remove_range(self, first: int, last: int) -> int:
        """Remove all numbers from `first` to `last`, both included; return how many."""
        before = self._count
        low = bisect_left(self._order, first // CHUNK)
        high = bisect_right(self._order, last // CHUNK)
        for chunk_id in self._order[low:high]:
            start = chunk_id * CHUNK
            self._blank(chunk_id, max(0, first - start), min(CHUNK, last - start + 1))
        self._order[low:high] = [each for each in self._order[low:high] if each in self._chunks]
        return before - self._count

    def clear(self) -> None:
        """Remove everything."""
        self._chunks = {}
        self._order = []
        self._count = 0
        self.size_bytes = 0

    def size_of(self, number: int) -> int | None:
        """The body size of a number in bytes; None where it is not here."""
        chunk = self._chunks.get(number // CHUNK)
        size = 0 if chunk is None else chunk.cells[number % CHUNK]
        return size - 1 if size else None

    def lowest(self) -> int | None:
        """The lowest number here; None without any."""
        if not self._order:
            return None
        chunk_id = self._order[0]
        return chunk_id * CHUNK + self._chunks[chunk_id].first()

    def highest(self) -> int | None:
        """The highest number here; None without any."""
        if not self._order:
            return None
        chunk_id = self._order[-1]
        cells = self._chunks[chunk_id].cells
        return chunk_id * CHUNK + next(n for n in range(CHUNK - 1, -1, -1) if cells[n])

    def first(self, count: int, bytes_max: int, *, each_bytes: int = 0) -> list[int]:
        """Return the lowest numbers, ascending: they are read next.

        Args:
            count: At most so many.
            bytes_max: Together they take at most so many bytes; one is always given.
            each_bytes: What each takes beside its body.
        """
        found: list[int] = []
        size_bytes = 0
        for chunk_id in self._order:
            start, chunk = chunk_id * CHUNK, self._chunks[chunk_id]
            low, cells = chunk.first(), chunk.cells
            part = cells[low : low + max(1, count - len(found))]
            more_bytes = sum(part) + (each_bytes - 1) * len(part)
            if 0 not in part and size_bytes + more_bytes <= bytes_max:
                found += range(start + low, start + low + len(part))
                size_bytes += more_bytes
            elif 0 not in part:
                ends = [end + (each_bytes - 1) * n for n, end in enumerate(accumulate(part), 1)]
                fit = bisect_right(ends, bytes_max - size_bytes) or int(not found)
                found += range(start + low, start + low + fit)
                if fit < len(part):
                    return found
                size_bytes += ends[-1]
            else:
                for cell in range(low, CHUNK):
                    if not cells[cell]:
                        continue
                    size_bytes += cells[cell] - 1 + each_bytes
                    if found and (len(found) >= count or size_bytes > bytes_max):
                        return found
                    found.append(start + cell)
            if len(found) >= count:
                return found
        return found

    def numbers_from(self, low: int) -> Iterator[int]:
        """The numbers from `low` on, ascending. Nothing may be added or removed meanwhile."""
        for chunk_id in self._order[bisect_left(self._order, low // CHUNK) :]:
            start = chunk_id * CHUNK
            for cell, size in enumerate(self._chunks[chunk_id].cells):
                if size and start + cell >= low:
                    yield start + cell

    def ranges(self, low: int = 0, count: int | None = None) -> list[tuple[int, int]]:
        """The numbers from `low` on as runs without a gap, ascending.

        Args:
            low: The first number that counts.
            count: At most so many runs; None is without limit.

        Returns:
            First and last number of each run.
        """
        runs: list[tuple[int, int]] = []
        first = last = -1
        for start, end in self._stretches(low):
            if start == last + 1 and first >= 0:
                last = end
                continue
            if first >= 0:
                runs.append((first, last))
                if len(runs) == count:
                    return runs
            first, last = start, end
        if first >= 0:
            runs.append((first, last))
        return runs

    def copy(self) -> Paged:
        """Return a copy."""
        return Paged.load(self.dump())

    def dump(self) -> list[tuple[int, bytes]]:
        """Return everything as bytes in this machine's byte order, for `load`."""
        return [(chunk_id, self._chunks[chunk_id].cells.tobytes()) for chunk_id in self._order]

    @classmethod
    def load(cls, chunks: Iterable[tuple[int, bytes]]) -> Paged:
        """Return the set that `dump` wrote.

        Args:
            chunks: What `dump` returned, in any order.

        Raises:
            ValueError: A chunk has the wrong size.
        """
        paged = cls()
        for chunk_id, data in chunks:
            if len(data) != len(_BLANK) * _BLANK.itemsize:
                raise ValueError(f"expected a chunk of {CHUNK} cells, found {len(data)} bytes")
            chunk = _Chunk(array("I", data))
            if chunk.count:
                paged._chunks[chunk_id] = chunk
                paged._count += chunk.count
                paged.size_bytes += sum(chunk.cells) - chunk.count
        paged._order = sorted(paged._chunks)
        return paged

    def _stretches(self, low: int) -> Iterator[tuple[int, int]]:
        """First and last numbers of runs that may touch each other."""
        for chunk_id in self._order[bisect_left(self._order, low // CHUNK) :]:
            chunk, start = self._chunks[chunk_id], chunk_id * CHUNK
            if chunk.count == CHUNK:
                yield max(low, start), start + CHUNK - 1
                continue
            cells = chunk.cells
            cell = max(chunk.first(), low - start)
            while cell < CHUNK:
                if not cells[cell]:
                    cell += 1
                    continue
                end = cell + 1
                while end < CHUNK and cells[end]:
                    end += 1
                yield start + cell, start + end - 1
                cell = end

    def _blank(self, chunk_id: int, low: int, high: int) -> array[int]:
        """Empty the cells from `low` up to `high`, and return them; the caller updates `_order`."""
        chunk = self._chunks[chunk_id]
        part = chunk.cells[low:high]
        used = len(part) - part.count(0)
        self._count -= used
        self.size_bytes -= sum(part) - used
        chunk.count -= used
        if chunk.count:
            chunk.cells[low:high] = _BLANK[: len(part)]
        else:
            del self._chunks[chunk_id]
        return part

    def _chunk(self, chunk_id: int) -> _Chunk:
        chunk = self._chunks.get(chunk_id)
        if chunk is None:
            chunk = self._chunks[chunk_id] = _Chunk()
            insort(self._order, chunk_id)
        return chunk

    def _drop(self, chunk_id: int) -> None:
        del self._chunks[chunk_id]
        del self._order[bisect_left(self._order, chunk_id)]
