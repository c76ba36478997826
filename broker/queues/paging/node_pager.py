"""Divides the node's memory: every queue and mirror gets a limit while memory is short.

On a node below its share of the watermark this costs one read of the resident memory each time: the
queues are asked only while memory is short. Queues above the limit take turns, one step in each
turn of the loop, because a thousand of them must not block the node.

The allocator keeps freed memory, which counts as resident and would keep an alarm on. So the node
returns freed memory to the system while it is above its share, and ever more rarely if that does
not help.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from broker.ports import Clock
from broker.queues.paging.memory_budget import budget_bytes, fair_limit
from broker.queues.timing import Defer

LOOK_S: Final = 0.2
"""How often `NodePager.tick` must be called."""

ENDS_AT: Final = 0.9
"""Paging ends below this share of the memory at which it begins."""

TRIM_MIN_MS: Final = 1_000
TRIM_MAX_MS: Final = 60_000
"""Wait between two trims: the minimum after one that helped, doubled after each that did not."""

TRIM_FREED_BYTES: Final = 16 * 1024 * 1024
"""A trim is due at once when queues have freed so much."""

TRIM_HELPS_SHARE: Final = 0.02
"""A trim that frees less than this share of the memory did not help."""

_log = logging.getLogger(__name__)


class MemoryUse(NamedTuple):
    """The memory use of the process.

    Attributes:
        used_bytes: Resident memory.
        watermark_bytes: The resident memory above which there is an alarm.
    """

    used_bytes: int
    watermark_bytes: int


class Pageable(Protocol):
    """A queue (`queue_pager.QueuePager`) or a mirror (`mirrored.mirror.Mirror`)."""

    @property
    def ram_bytes(self) -> int:
        """About how much memory its messages take, in bytes."""
        ...

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Set the memory limit in bytes from now on; None is no limit.

        Takes one step towards it, of a few milliseconds.
        """
        ...


class ProcessMemory(Protocol):
    """The memory of this process."""

    def look(self) -> MemoryUse:
        """Read how much is used, and the watermark."""
        ...

    def trim(self) -> None:
        """Give freed memory back to the system."""
        ...


class MessageHolders(Protocol):
    """Everything on this node that holds messages (`broker.queues.registry`)."""

    def in_memory(self) -> Iterable[Pageable]:
        """All queues and mirrors of the node."""
        ...


class NodePager:
    """Divides the memory of a node between its queues and mirrors.

    Args:
        memory: The memory of this process.
        ratio: `vm_memory_high_watermark_paging_ratio`.
        holders: All queues and mirrors of the node.
        clock: Time.
        defer: `loop.call_soon`.
    """

    def __init__(
        self,
        memory: ProcessMemory,
        ratio: float,
        holders: MessageHolders,
        clock: Clock,
        defer: Defer,
    ) -> None:
        self._memory = memory
        self._ratio = ratio
        self._holders = holders
        self._clock = clock
        self._defer = defer
        self._paging: deque[Pageable] = deque()  # still above the limit
        self._limit_bytes: int | None = None
        self._freed_bytes = 0  # since the last trim
        self._trim_due_ms = 0
        self._trim_wait_ms = TRIM_MIN_MS

    def tick(self) -> None:
        """Measure the memory, and give queues their limits if these change."""
        use = self._memory.look()
        if self._is_above(use) and self._is_trim_due():
            use = self._give_back(use)  # before anything is paged out for memory that is free
        if not self._is_above(use) and self._limit_bytes is None:
            return
        queues = list(self._holders.in_memory())
        sizes = [queue.ram_bytes for queue in queues]
        budget = budget_bytes(use.watermark_bytes, self._ratio, use.used_bytes, sum(sizes))
        before = self._limit_bytes
        self._limit_bytes = fair_limit(sizes, budget)
        if self._limit_bytes is None and self._is_above(use, ENDS_AT):
            self._limit_bytes = before  # keep the limit: the next messages would bring it back
        if (before is None) is not (self._limit_bytes is None):
            _log.info(
                "paging.ended" if self._limit_bytes is None else "paging.began",
                extra={
                    "used": use.used_bytes,
                    "queues": sum(sizes),
                    "limit_bytes": self._limit_bytes,
                },
            )
        self._tell(queues, sizes)

    def _is_above(self, use: MemoryUse, share: float = 1.0) -> bool:
        return use.used_bytes > use.watermark_bytes * self._ratio * share

    def _tell(self, queues: list[Pageable], sizes: list[int]) -> None:
        """Give every queue the limit, also if it has not changed: some queues may be new."""
        was_paging = bool(self._paging)
        self._paging.clear()
        for queue, size in zip(queues, sizes, strict=True):
            if self._limit_bytes is None or size <= self._limit_bytes:
                queue.set_memory_limit(self._limit_bytes)
            else:
                self._paging.append(queue)
        if self._paging and not was_paging:
            self._defer(self._page_on)

    def _page_on(self) -> None:
        """Let one queue take a step; it gets further turns while that frees memory."""
        if not self._paging or self._limit_bytes is None:
            self._paging.clear()
            return
        queue = self._paging.popleft()
        before = queue.ram_bytes
        queue.set_memory_limit(self._limit_bytes)
        after = queue.ram_bytes
        self._freed_bytes += max(0, before - after)
        if self._limit_bytes < after < before:
            self._paging.append(queue)
        if self._paging:
            self._defer(self._page_on)

    def _is_trim_due(self) -> bool:
        if self._freed_bytes >= TRIM_FREED_BYTES:
            return True
        return self._clock.monotonic_ms() >= self._trim_due_ms

    def _give_back(self, use: MemoryUse) -> MemoryUse:
        """Trim, and read the memory use again."""
        self._freed_bytes = 0
        self._memory.trim()
        after = self._memory.look()
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
