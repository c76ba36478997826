"""Opening the node's RocksDB store, and the refusal to open a damaged one.

Does not write records; `group_commit` does. Invariants:

1. Every column family is in raw mode: keys and values are exactly our bytes.
2. The log is recovered with `tolerate_corrupted_tail_records`. RocksDB's default silently drops
   every synced record behind one flipped bit; this mode refuses to open instead. Only a torn last
   record, which no sync had covered, is dropped.
3. A log cut off at a record's edge looks like a torn tail. The mark file beside the data holds the
   number of the last batch known to be synced; a store that ends before it is damaged (protocol.md
   rule P30). The mark may be older than the data, never younger.

Source:
    reliability.md, durability rules D2 and D3 (the recovery modes were measured there).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict, ReadOptions

FAMILIES: Final = ("queue_index", "bodies", "raft_log", "raft_state", "snapshots", "meta")
"""Column families by purpose; docs/on-disk.md says what each holds."""

BATCH_KEY: Final = b"batch"
"""Key in `meta` of the number of the last batch written, 8 bytes big-endian."""

MARK_FILE: Final = "synced.mark"

_MARK: Final = struct.Struct(">QI")
_U64: Final = struct.Struct(">Q")
_BLOB_BYTES_MIN: Final = 4096  # values of this size and more live in blob files
_WAL_BYTES_MAX: Final = 256 * 1024 * 1024  # bounds the time a start spends on replay
_MEMTABLE_BYTES: Final = 32 * 1024 * 1024  # per family; 64 MiB peaked at 178 MB RSS


class StoreDamaged(Exception):
    """The store does not open, or lacks records that were synced. Set it aside and salvage it.

    Args:
        path: The store's directory.
        reason: What was expected and what was found.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"store {path} is damaged: {reason}")
        self.path = path
        self.reason = reason


class StoreLocked(Exception):
    """Another process (or an unclosed handle in this one) has the store open."""


class SyncedMark:
    """The small file that remembers the last synced batch.

    Written after each sync without a sync of its own (it survives kill -9), and synced by `sync`
    now and then (so that it survives a power cut, perhaps a little old, which is safe).

    Args:
        path: The store's directory, which must exist.

    Raises:
        OSError: If the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path / MARK_FILE, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> int:
        """The batch number, 0 when none was written or the file itself is torn."""
        data = os.pread(self._descriptor, _MARK.size, 0)
        if len(data) < _MARK.size:
            return 0
        number, checksum = _MARK.unpack(data)
        return int(number) if zlib.crc32(data[:8]) == checksum else 0

    def write(self, number: int) -> None:
        """Note that batch `number` is durable."""
        head = _U64.pack(number)
        os.pwrite(self._descriptor, head + zlib.crc32(head).to_bytes(4, "big"), 0)

    def sync(self) -> None:
        """Force the mark itself to disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Store:
    """An open store: the database, its families and its mark. Made by `open_store`.

    Attributes:
        path: The store's directory.
        database: The default family's handle; writes go through it.
        families: A handle per family for reads.
        mark: The synced mark.
        last_batch: Number of the last batch the store held when it was opened.
    """

    def __init__(self, path: Path, database: Rdict, mark: SyncedMark) -> None:
        self.path = path
        self.database = database
        self.families = {name: database.get_column_family(name) for name in FAMILIES}
        self.handles = {name: database.get_column_family_handle(name) for name in FAMILIES}
        self.mark = mark
        self.last_batch = 0

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Records with keys in [start, end), in key order.

        Raises:
            StoreDamaged: If a block read on the way fails its checksum.
        """
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self.families[family].iter(options)
        rows.seek(start)
        while rows.valid():
            yield rows.key(), rows.value()
            rows.next()
        try:
            rows.status()
        except Exception as error:
            raise StoreDamaged(self.path, f"reading {family}: {error}") from error

    def close(self) -> None:
        """Close the database and release its lock."""
        # A live family handle keeps RocksDB's lock after close().
        self.handles.clear()
        for family in self.families.values():
            family.close()
        self.families.clear()
        self.database.close()
        self.mark.close()


def options(recovery: DBRecoveryMode) -> Options:
    """RocksDB options of every family.

    Args:
        recovery: What to do with a damaged log.
    """
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.create_missing_column_families(True)
    chosen.set_wal_recovery_mode(recovery)
    chosen.set_paranoid_checks(True)
    chosen.set_max_total_wal_size(_WAL_BYTES_MAX)
    chosen.set_write_buffer_size(_MEMTABLE_BYTES)
    chosen.set_keep_log_file_num(3)
    return chosen


def family_options(family: str, recovery: DBRecoveryMode) -> Options:
    """RocksDB options of one family; bodies are kept as blobs, beside the tree.

    Args:
        family: Its name.
        recovery: What to do with a damaged log.
    """
    chosen = options(recovery)
    if family == "bodies":
        chosen.set_enable_blob_files(True)
        chosen.set_min_blob_size(_BLOB_BYTES_MIN)
        chosen.set_enable_blob_gc(True)
        # The oldest half of the blob files is rewritten when compaction meets them.
        chosen.set_blob_gc_age_cutoff(0.5)
    return chosen


def open_database(path: Path, recovery: DBRecoveryMode) -> Rdict:
    """Open (or create) the RocksDB database with all families.

    Args:
        path: The store's directory.
        recovery: What to do with a damaged log.

    Raises:
        StoreLocked: If it is open elsewhere.
        StoreDamaged: If RocksDB refuses it.
    """
    families = {name: family_options(name, recovery) for name in FAMILIES}
    try:
        return Rdict(
            str(path),
            options(recovery),
            column_families=families,
            access_type=AccessType.read_write(),
        )
    except Exception as error:
        if "lock" in str(error).lower() and "corrupt" not in str(error).lower():
            raise StoreLocked(f"store {path} is in use: {error}") from error
        raise StoreDamaged(path, str(error)) from error


def open_store(path: Path) -> Store:
    """Open the node's store, creating it where there is none.

    Args:
        path: The store's directory; its parent must exist.

    Raises:
        StoreLocked: If it is open elsewhere.
        StoreDamaged: If it does not open or ends before the last synced batch.
    """
    database = open_database(path, DBRecoveryMode.tolerate_corrupted_tail_records())
    store = Store(path, database, SyncedMark(path))
    try:
        found = store.families["meta"].get(BATCH_KEY)
        store.last_batch = _U64.unpack(found)[0] if found is not None else 0
        synced = store.mark.read()
    except Exception as error:
        store.close()
        raise StoreDamaged(path, str(error)) from error
    if store.last_batch < synced:
        store.close()
        raise StoreDamaged(
            path, f"batch {synced} was synced, but the store ends with batch {store.last_batch}"
        )
    return store


def batch_number(number: int) -> bytes:
    """A batch number as `BATCH_KEY`'s value."""
    return _U64.pack(number)
