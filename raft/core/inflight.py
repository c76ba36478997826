"""The window of appends sent to one follower and not answered yet."""

from __future__ import annotations

from collections import deque


class Inflight:
    """Bounded by count and by bytes; full means: send no more.

    Attributes:
        bytes_max: It is full with so many.
    """

    __slots__ = ("_bytes", "_count_max", "_sent", "bytes_max")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._sent: deque[tuple[int, int]] = deque()  # (last index, bytes), indexes rising
        self._bytes = 0
        self._count_max = count_max
        self.bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        """True if another append would exceed a limit."""
        return len(self._sent) >= self._count_max or self._bytes >= self.bytes_max

    def add(self, last_index: int, bytes_count: int) -> None:
        """Note an append in flight that ends at `last_index`."""
        self._sent.append((last_index, bytes_count))
        self._bytes += bytes_count

    def free_to(self, index: int) -> None:
        """Remove the appends up to `index`, which were answered."""
        while self._sent and self._sent[0][0] <= index:
            self._bytes -= self._sent.popleft()[1]

    def free_first(self) -> None:
        """Make room for one append: the oldest may have been lost."""
        if self._sent:
            self._bytes -= self._sent.popleft()[1]

    def clear(self) -> None:
        """Forget all appends in flight."""
        self._sent.clear()
        self._bytes = 0
