"""Looks at the node's memory and tells every queue and mirror how much of it it may use.

A node below its share of the watermark costs one look at its resident memory each time: the queues
are only asked while there is something to divide. Those that are above the level take turns, one
step a turn of the loop, for a thousand of them must not hold up the node.

Freed memory is not returned to the system by itself: the allocator keeps it, and an alarm would go
on for memory that nobody uses. So it is trimmed now and then while the node is above its share, and
ever more rarely where that does not help.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from broker.ports import Clock
from broker.queues.paging.level import budget_bytes, level
from broker.queues.timing import Defer

LOOK_S: Final = 0.2
"""How often `Pager.tick` is to be called."""

ENDS_AT: Final = 0.9
"""Paging ends below this share of the memory at which it begins."""

TRIM_MIN_MS: Final = 1_000
TRIM_MAX_MS: Final = 60_000
"""Between two trims: the first after one that helped, doubled each time after one that did not."""

TRIM_FREED_BYTES: Final = 16 * 1024 * 1024
"""A trim is due at once when queues have let go of so much."""

TRIM_HELPS_SHARE: Final = 0.02
"""A trim that frees less than this share of the memory did not help."""

_log = logging.getLogger(__name__)


class MemoryUse(NamedTuple):
    """One look at the process.

    Attributes:
        used_bytes: Resident memory.
        watermark_bytes: More of it is an alarm.
    """

    used_bytes: int
    watermark_bytes: int


class Pageable(Protocol):
    """A queue's window (`window.Window`) or a mirror (`mirrored.mirror.Mirror`)."""

    @property
    def ram_bytes(self) -> int:
        """The memory that its messages take, about."""
        ...

    def page_to(self, level: int | None) -> None:
        """Use at most so many bytes from now on; None: as many as there are messages.

        Takes one step towards it, of a few milliseconds.
        """
        ...


class Pager:
    """Divides the memory of a node between its queues and mirrors.

    Args:
        look: Reads the memory.
        ratio: `vm_memory_high_watermark_paging_ratio`.
        queues: All queues and mirrors of the node.
        clock: Time.
        defer: `loop.call_soon`.
        trim: Gives freed memory back to the system.
    """

    def __init__(
        self,
        look: Callable[[], MemoryUse],
        ratio: float,
        queues: Callable[[], Iterable[Pageable]],
        clock: Clock,
        defer: Defer,
        trim: Callable[[], None],
    ) -> None:
        self._look = look
        self._ratio = ratio
        self._queues = queues
        self._clock = clock
        self._defer = defer
        self._trim = trim
        self._paging: deque[Pageable] = deque()  # still above the level
        self._level: int | None = None
        self._freed_bytes = 0  # since the last trim
        self._trim_due_ms = 0
        self._trim_wait_ms = TRIM_MIN_MS

    def tick(self) -> None:
        """Look, and tell the queues where that changes anything for them."""
        use = self._look()
        if self._is_above(use) and self._is_trim_due():
            use = self._give_back(use)  # before anything is paged out for memory that is free
        if not self._is_above(use) and self._level is None:
            return
        queues = list(self._queues())
        sizes = [queue.ram_bytes for queue in queues]
        budget = budget_bytes(use.watermark_bytes, self._ratio, use.used_bytes, sum(sizes))
        before = self._level
        self._level = level(sizes, budget)
        if self._level is None and self._is_above(use, ENDS_AT):
            self._level = before  # not on and off: the next messages would be too much again
        if (before is None) is not (self._level is None):
            _log.info(
                "paging.ended" if self._level is None else "paging.began",
                extra={"used": use.used_bytes, "queues": sum(sizes), "level": self._level},
            )
        self._tell(queues, sizes)

    def _is_above(self, use: MemoryUse, share: float = 1.0) -> bool:
        return use.used_bytes > use.watermark_bytes * self._ratio * share

    def _tell(self, queues: list[Pageable], sizes: list[int]) -> None:
        """Tell every queue, also when the level is as before: some may be new."""
        was_paging = bool(self._paging)
        self._paging.clear()
        for queue, size in zip(queues, sizes, strict=True):
            if self._level is None or size <= self._level:
                queue.page_to(self._level)
            else:
                self._paging.append(queue)
        if self._paging and not was_paging:
            self._defer(self._page_on)

    def _page_on(self) -> None:
        """Let one queue take a step; it stays in line while that helps."""
        if not self._paging or self._level is None:
            self._paging.clear()
            return
        queue = self._paging.popleft()
        before = queue.ram_bytes
        queue.page_to(self._level)
        after = queue.ram_bytes
        self._freed_bytes += max(0, before - after)
        if self._level < after < before:
            self._paging.append(queue)
        if self._paging:
            self._defer(self._page_on)

    def _is_trim_due(self) -> bool:
        if self._freed_bytes >= TRIM_FREED_BYTES:
            return True
        return self._clock.monotonic_ms() >= self._trim_due_ms

    def _give_back(self, use: MemoryUse) -> MemoryUse:
        """Trim, and look again."""
        self._freed_bytes = 0
        self._trim()
        after = self._look()
        has_helped = use.used_bytes - after.used_bytes >= use.used_bytes * TRIM_HELPS_SHARE
        self._trim_wait_ms = TRIM_MIN_MS if has_helped else min(TRIM_MAX_MS, 2 * self._trim_wait_ms)
        self._trim_due_ms = self._clock.monotonic_ms() + self._trim_wait_ms
        return after


def trim_memory() -> None:
    """Have the C library give free memory back to the system; nothing where it can't."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


_libc = ctypes.CDLL(None)
