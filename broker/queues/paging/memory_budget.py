"""The memory that each queue may use for messages. Pure.

The node may use a share of its memory watermark. Memory in use beside its queues' messages is
subtracted; the rest is divided by max-min fairness, so that no queue pages out in favour of a
larger one: there is one limit for all, and only queues above it page out.

    ram       1   3   8   20        fair_limit(.., 18) = 7: the two small ones keep all they have
    limit 7   1   3   7    7
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BUDGET_MIN_BYTES: Final = 4 * 1024 * 1024
"""All queues of a node together may use this much, whatever the rest of the process takes."""

DEEP_RAM_BYTES: Final = 512 * 1024 * 1024
"""Most memory of any queue, however much is free (docs/decisions/0033)."""

LAZY_RAM_BYTES: Final = 256 * 1024
"""The limit of a lazy queue without consumers."""

LAZY_READ_BYTES: Final = 4 * 1024 * 1024
"""The limit of a lazy queue with consumers: room for read-ahead and unacknowledged messages."""


def budget_bytes(watermark_bytes: int, ratio: float, used_bytes: int, queues_bytes: int) -> int:
    """Return how much the messages of all queues of a node may take, in bytes.

    Args:
        watermark_bytes: More resident memory than this is an alarm.
        ratio: Share of it at which paging begins (`vm_memory_high_watermark_paging_ratio`).
        used_bytes: Resident memory of the process.
        queues_bytes: How much of that is messages, as the queues estimate it.
    """
    others = max(0, used_bytes - queues_bytes)
    return max(BUDGET_MIN_BYTES, int(watermark_bytes * ratio) - others)


def fair_limit(queues_bytes: Iterable[int], budget: int) -> int | None:
    """Return the most memory a queue may use; None while all of them together fit.

    Args:
        queues_bytes: Bytes that each queue's messages take now, in any order.
        budget: Bytes that they may take together.
    """
    sizes = sorted(queues_bytes)
    left = budget
    if sum(sizes) <= left:
        return None
    for index, size in enumerate(sizes):
        share = left // (len(sizes) - index)
        if size > share:
            return share
        left -= size
    return None
