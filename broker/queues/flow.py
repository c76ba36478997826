"""When publishers wait: for a disk that is behind, and for consumers that lag."""

from __future__ import annotations

from typing import Final

JOURNAL_BEHIND_BYTES: Final = 16 * 1024 * 1024
"""Unsynced bytes above which publishers wait: about a tenth of a second of this disk."""

SLOWDOWN_US_MAX: Final = 40
"""A publisher is never held below 25,000 messages/s by consumers that lag."""

LAG_PER_US: Final = 250
"""Waiting messages for each microsecond of slowdown: the maximum is reached at 10,000."""


def lag_slowdown_us(ready: int) -> int:
    """How much publishers wait per message while consumers are this far behind.

    Args:
        ready: Messages that wait although consumers are attached.
    """
    return min(SLOWDOWN_US_MAX, ready // LAG_PER_US)
