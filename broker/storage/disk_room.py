"""Checks that the disk has room for a batch, and for what RocksDB still has to write.

What was written lies in the log and in tables in memory; the tables are written out later, into
files of their own, and only then the log shrinks. A disk that fills up in between fails that, or
the next write of the log, and either ends the node. So a batch is handed over only if it, the
unwritten tables and a margin fit; and publishers are blocked some time before.

Decides nothing about batches; called by the commit thread alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

MIB: Final = 1024 * 1024

HOLD_MARGIN_BYTES: Final = 8 * MIB
"""Left free besides: a compaction may take some of it between the look and the write."""

REMOVAL_MARGIN_BYTES: Final = 2 * MIB
"""The same for a batch that only removes: it is small, and it is what makes room."""

SHORT_MARGIN_BYTES: Final = 32 * MIB
"""With less than this besides, publishers are blocked: what is under way must still find room."""

RELIEF_BYTES: Final = 8 * MIB
"""They are freed only with so much more: else the first ones freed would block the others."""


class DiskRoom(NamedTuple):
    """One look at the disk.

    Attributes:
        free_bytes: For us, at the store.
        unwritten_bytes: Tables in memory that RocksDB has yet to write.
    """

    free_bytes: int
    unwritten_bytes: int

    def needed_bytes(self, batch_bytes: int, *, is_removal: bool = False) -> int:
        """Free space without which a batch is not written.

        Args:
            batch_bytes: Of its values: written to the log now, from the tables later.
            is_removal: True if it only removes.
        """
        margin = REMOVAL_MARGIN_BYTES if is_removal else HOLD_MARGIN_BYTES
        return self.unwritten_bytes + 2 * batch_bytes + margin

    def fits(self, batch_bytes: int, *, is_removal: bool) -> bool:
        """True if a batch can be written."""
        return self.free_bytes >= self.needed_bytes(batch_bytes, is_removal=is_removal)

    def is_short(self, batch_bytes: int, *, was_short: bool) -> bool:
        """True while publishers must wait.

        Args:
            batch_bytes: What waits to be written.
            was_short: How it was at the last look.
        """
        needed = self.unwritten_bytes + 2 * batch_bytes + SHORT_MARGIN_BYTES
        return self.free_bytes < needed + (RELIEF_BYTES if was_short else 0)


def free_bytes(folder: Path) -> int | None:
    """Free space for this process at a folder; None if the file system does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
