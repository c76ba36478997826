"""Costs of the journal's batches, waits and syncs since the node started."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

SYNC_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper ends of the histogram of syncs; one more place counts what took longer."""


class JournalStats:
    """Counted per batch, nothing per message.

    Attributes:
        batches: Written.
        records: Keys written or removed in them.
        bytes: Of the values written.
        write_s: Seconds in RocksDB's write, into its log and tables.
        syncs: Of the log.
        sync_s: Seconds in them, all together.
        sync_max_s: The longest.
        sync_counts: How many took up to each of `SYNC_BOUNDS_S`, and longer.
        waits: Batches for which a caller waited.
        wait_s: From a batch's end to its waiters being told, all together.
        holds: How often batches were held for want of disk space.
        hold_s: How long, all together, without the hold that lasts.
        stalls: Tries that RocksDB put off because it was behind with its tables.
    """

    __slots__ = (
        "batches",
        "bytes",
        "hold_s",
        "holds",
        "records",
        "stalls",
        "sync_counts",
        "sync_max_s",
        "sync_s",
        "syncs",
        "wait_s",
        "waits",
        "write_s",
    )

    def __init__(self) -> None:
        self.batches = self.records = self.bytes = 0
        self.write_s = 0.0
        self.syncs = 0
        self.sync_s = self.sync_max_s = 0.0
        self.sync_counts = [0] * (len(SYNC_BOUNDS_S) + 1)
        self.waits = 0
        self.wait_s = 0.0
        self.holds = 0
        self.hold_s = 0.0
        self.stalls = 0

    def written(self, records: int, size_bytes: int, took_s: float) -> None:
        """Count a batch that was written."""
        self.batches += 1
        self.records += records
        self.bytes += size_bytes
        self.write_s += took_s

    def synced(self, took_s: float) -> None:
        """Count a sync of the log."""
        self.syncs += 1
        self.sync_s += took_s
        self.sync_max_s = max(self.sync_max_s, took_s)
        self.sync_counts[bisect_left(SYNC_BOUNDS_S, took_s)] += 1

    def told(self, waited_s: float) -> None:
        """Count a batch whose callers were called back."""
        self.waits += 1
        self.wait_s += waited_s

    def facts(self) -> dict[str, object]:
        """Return all counts by name, for the node's report."""
        return {name: getattr(self, name) for name in self.__slots__}
