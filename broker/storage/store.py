"""Opening the node's RocksDB store, and the refusal to open a damaged one.

Does not write records; `group_commit` does. Invariants:

1. Every column family is in raw mode: keys and values are exactly our bytes.
2. The log is recovered with `tolerate_corrupted_tail_records`. RocksDB's default silently drops
   every synced record behind one flipped bit; this mode refuses to open instead. Only a torn last
   record, which no sync had covered, is dropped.
3. A log cut off at a record's edge looks like a torn tail. The mark file beside the data holds the
   number of the last batch known to be synced; a store that ends before it is damaged
   (docs/protocol-rules.md P30). The mark may be older than the data, never younger.
4. The format of what is in it is noted in it (`FORMAT`); a store of another one is not touched.
5. What RocksDB takes of the memory is bounded, however much lies on the disk: one million messages
   of 1 KB cost some 25 MB, write buffers, cache and table indexes together.

Source:
    docs/planted-bugs.md D2 and D3 (what the recovery modes do with a damaged log).
"""

from __future__ import annotations

import os
import resource
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
)

from broker.doors.descriptors import shares

FORGOTTEN: Final = ("pages", "page_bodies")
"""Families that hold nothing after a restart: messages that were only put out of memory."""

FAMILIES: Final = (
    "queue_index",
    "bodies",
    "raft_log",
    "raft_state",
    "snapshots",
    "meta",
    *FORGOTTEN,
)
"""Column families by purpose; docs/on-disk.md says what each holds."""

BATCH_KEY: Final = b"batch"
"""Key in `meta` of the number of the last batch written, 8 bytes big-endian."""

FORMAT: Final = 2
"""Of the records in a store. 1 was never released: its messages had no fixed head."""

FORMAT_KEY: Final = b"format"
"""Key in `meta` of the store's format, 4 bytes big-endian. Without it the records speak."""

MARK_FILE: Final = "synced.mark"
CURRENT_FILE: Final = "CURRENT"
"""RocksDB's: which manifest is in force. Without it RocksDB would begin an empty store."""

_MARK: Final = struct.Struct(">QI")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_BLOB_BYTES_MIN: Final = 4096  # values of this size and more live in blob files
_WAL_BYTES_MAX: Final = 256 * 1024 * 1024  # bounds the time a start spends on replay
_MEMTABLE_BYTES: Final = 8 * 1024 * 1024  # per family
_MEMTABLES_BYTES: Final = 16 * 1024 * 1024  # all families together; 32 a family took 70 MB RSS
_CACHE_BYTES: Final = 8 * 1024 * 1024  # blocks and indexes of all families
_BLOCK_BYTES: Final = 16 * 1024  # indexes are a quarter of RocksDB's 4 KiB blocks'
_TABLE_BYTES: Final = 4 * 1024 * 1024
"""Of families that queues empty from their head: with RocksDB's 64 MiB a million messages that
compress well were one file, which each 165,000 removals wrote anew: 5 us a message."""
_EMPTIED_SHARE: Final = 0.5  # of a file's newest records removed: it is rewritten soon
_EMPTIED_WINDOW: Final = 1000

_CACHE_USAGE: Final = "rocksdb.block-cache-usage"
_FAMILY_MEMORY: Final = ("rocksdb.size-all-mem-tables", "rocksdb.estimate-table-readers-mem")

# What a failure to open means when the store itself is not at fault, and what to do.
_OUTSIDE_CAUSES: Final = (
    ("no space left", "free space on this disk and start again"),
    ("disk quota", "free space on this disk and start again"),
    ("too many open files", "raise the limit of open files (ulimit -n) and start again"),
    ("permission denied", "let the user the node runs as read and write there and start again"),
    ("operation not permitted", "let the user the node runs as write there and start again"),
    ("read-only file system", "mount the disk for writing and start again"),
    ("input/output error", "the disk fails, see the kernel's log: replace it and start again"),
)


def files_max() -> int:
    """Return the number of file descriptors that this process may have now."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if most != resource.RLIM_INFINITY else 1 << 30


class StoreUnusable(Exception):
    """The store can't be opened for a reason outside it, or is of another version; untouched.

    Args:
        path: The store's directory.
        reason: What was found.
        advice: What to do next.
    """

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"store {path} can't be used: {reason}: {advice}; nothing was changed")
        self.path = path
        self.reason = reason


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
            StoreUnusable: If something outside the store is in the way of reading it.
        """
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self.families[family].iter(options)
        rows.seek(start)
        is_valid, key, value, advance = rows.valid, rows.key, rows.value, rows.next
        while is_valid():
            yield key(), value()
            advance()
        try:
            rows.status()
        except Exception as error:
            raise self._unreadable(family, error) from error

    def values(self, family: str, start: bytes, end: bytes) -> Iterator[bytes]:
        """Values of the records with keys in [start, end), in key order.

        RocksDB's own iterator: one call a record in place of the four of `scan`. It ends without
        a word where something can't be read.
        """
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        found: Iterator[bytes] = self.families[family].values(from_key=start, read_opt=options)
        return found

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record.

        Raises:
            StoreDamaged: If its block fails its checksum, or its file is missing.
            StoreUnusable: If something outside the store is in the way of reading it.
        """
        try:
            found: bytes | None = self.families[family].get(key)
        except Exception as error:
            raise self._unreadable(family, error) from error
        return found

    def _unreadable(self, family: str, error: Exception) -> StoreDamaged | StoreUnusable:
        """Return the error of a failed read: damage, unless the cause is outside the store."""
        text = f"reading {family}: {error}"
        return _outside_cause(self.path, text) or StoreDamaged(self.path, text)

    def memory_bytes(self) -> int:
        """Bytes that RocksDB holds in memory: its cache, memtables and indexes of tables."""
        cache = self.database.property_int_value(_CACHE_USAGE) or 0  # one for all families
        return cache + sum(
            [
                family.property_int_value(name) or 0
                for family in self.families.values()
                for name in _FAMILY_MEMORY
            ]
        )

    def close(self) -> None:
        """Close the database and release its lock."""
        # A live family handle keeps RocksDB's lock after close().
        self.handles.clear()
        for family in self.families.values():
            family.close()
        self.families.clear()
        self.database.close()
        self.mark.close()


def options(recovery: DBRecoveryMode, cache: Cache | None = None) -> Options:
    """RocksDB options of every family.

    Args:
        recovery: What to do with a damaged log.
        cache: The block cache that all families share; one of its own without it.
    """
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.create_missing_column_families(True)
    chosen.set_wal_recovery_mode(recovery)
    chosen.set_paranoid_checks(True)
    chosen.set_max_total_wal_size(_WAL_BYTES_MAX)
    chosen.set_write_buffer_size(_MEMTABLE_BYTES)
    chosen.set_db_write_buffer_size(_MEMTABLES_BYTES)
    chosen.set_max_open_files(shares(files_max()).tables)
    chosen.set_keep_log_file_num(3)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache if cache is not None else Cache(_CACHE_BYTES))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_block_size(_BLOCK_BYTES)
    chosen.set_block_based_table_factory(blocks)
    return chosen


def family_options(family: str, recovery: DBRecoveryMode, cache: Cache | None = None) -> Options:
    """RocksDB options of one family; bodies are kept as blobs, beside the tree.

    Args:
        family: Its name.
        recovery: What to do with a damaged log.
        cache: As for `options`.
    """
    chosen = options(recovery, cache)
    if family in {"bodies", "page_bodies"}:
        chosen.set_enable_blob_files(True)
        chosen.set_min_blob_size(_BLOB_BYTES_MIN)
        chosen.set_enable_blob_gc(True)
        # Blobs of the older half of the files move on when compaction meets them; once half of
        # what those hold is garbage, it is made to.
        chosen.set_blob_gc_age_cutoff(_EMPTIED_SHARE)
        chosen.set_blob_gc_force_threshold(_EMPTIED_SHARE)
    if family in {"bodies", "page_bodies", "queue_index", "pages"}:
        # Queues empty from their head: without this, what they leave stays on disk for ever.
        chosen.set_target_file_size_base(_TABLE_BYTES)
        chosen.add_compact_on_deletion_collector_factory(
            _EMPTIED_WINDOW, int(_EMPTIED_WINDOW * _EMPTIED_SHARE), _EMPTIED_SHARE
        )
    return chosen


def open_database(path: Path, recovery: DBRecoveryMode) -> Rdict:
    """Open (or create) the RocksDB database with all families, those to forget empty.

    Args:
        path: The store's directory.
        recovery: What to do with a damaged log.

    Raises:
        StoreLocked: If it is open elsewhere.
        StoreUnusable: If something outside the store is in the way.
        StoreDamaged: If RocksDB refuses it.
    """
    cache = Cache(_CACHE_BYTES)
    try:
        database = Rdict(
            str(path),
            options(recovery, cache),
            column_families={name: family_options(name, recovery, cache) for name in FAMILIES},
            access_type=AccessType.read_write(),
        )
        for name in FORGOTTEN:
            _empty(database, name, family_options(name, recovery, cache))
    except Exception as error:
        raise failure(path, error) from error
    return database


def failure(path: Path, error: Exception) -> StoreDamaged | StoreUnusable | StoreLocked:
    """Return the error that explains a failure to open a store.

    Args:
        path: The store's directory.
        error: RocksDB's.
    """
    text = str(error)
    outside = _outside_cause(path, text)
    if outside is not None:
        return outside
    lowered = text.lower()
    if "lock" in lowered and "corrupt" not in lowered:
        return StoreLocked(f"store {path} is in use: {text}")
    return StoreDamaged(path, text)


def _outside_cause(path: Path, text: str) -> StoreUnusable | None:
    lowered = text.lower()
    for sign, advice in _OUTSIDE_CAUSES:
        if sign in lowered:
            return StoreUnusable(path, text, advice)
    return None


def open_store(path: Path) -> Store:
    """Open the node's store, creating it where there is none.

    Args:
        path: The store's directory; its parent must exist.

    Raises:
        StoreLocked: If it is open elsewhere.
        StoreUnusable: If it is of another version, or something outside it is in the way.
        StoreDamaged: If it does not open or ends before the last synced batch.
    """
    is_there = (path / CURRENT_FILE).exists()
    if not is_there and path.is_dir() and any(path.glob("*.sst")) | any(path.glob("MANIFEST-*")):
        raise StoreDamaged(path, f"the file {CURRENT_FILE} is missing")
    database = open_database(path, DBRecoveryMode.tolerate_corrupted_tail_records())
    try:
        store = Store(path, database, SyncedMark(path))
    except OSError as error:
        database.close()
        raise failure(path, error) from error
    try:
        _check(store, is_new=not is_there)
    except BaseException:
        store.close()
        raise
    return store


def _check(store: Store, *, is_new: bool) -> None:
    found = store.get("meta", BATCH_KEY)
    store.last_batch = _U64.unpack(found)[0] if found is not None else 0
    synced = store.mark.read()
    if store.last_batch < synced:
        raise StoreDamaged(
            store.path,
            f"batch {synced} was synced, but the store ends with batch {store.last_batch}",
        )
    known = store.get("meta", FORMAT_KEY)
    number = FORMAT if is_new else format_of(known, store.scan("queue_index", b"", b"\xff" * 17))
    check_format(store.path, number)
    if known is None:
        store.families["meta"][FORMAT_KEY] = _U32.pack(FORMAT)
        store.database.flush_wal(True)


def format_of(known: bytes | None, messages: Iterable[tuple[bytes, bytes]]) -> int:
    """The format of a store, even one that has lost the record of it.

    Args:
        known: The value of `FORMAT_KEY`, if there is one.
        messages: Records of `queue_index`; at most one is read.
    """
    if known is not None and len(known) == _U32.size:
        return int(_U32.unpack(known)[0])
    with suppress(StoreDamaged):
        for _, value in messages:
            return 1 if value[:1] == b"\x01" else FORMAT
    return FORMAT


def check_format(path: Path, number: int) -> None:
    """Refuse a store of another format.

    Args:
        path: Its directory.
        number: Its format.

    Raises:
        StoreUnusable: If it is not ours.
    """
    if number > FORMAT:
        raise StoreUnusable(
            path,
            f"it has format {number}, this version of WarrenMQ reads format {FORMAT}",
            "start the newer version that wrote it, or move it away to begin empty",
        )
    if number < FORMAT:
        raise StoreUnusable(
            path,
            f"it has format {number} of before the first release, this version reads {FORMAT}",
            "drain it with the version that wrote it, or move it away to begin empty",
        )


def _empty(database: Rdict, name: str, chosen: Options) -> None:
    """Drop what an earlier life put out of memory: whole files at once, nothing is read."""
    family = database.get_column_family(name)
    rows = family.iter()
    rows.seek_to_first()
    is_empty = not rows.valid()
    try:
        rows.status()
    except Exception:  # noqa: BLE001 - rocksdict raises plain Exception
        is_empty = False  # what can't be read is dropped like the rest
    del rows
    family.close()
    if not is_empty:
        database.drop_column_family(name)
        database.create_column_family(name, chosen).close()


def last_synced(path: Path) -> int:
    """Number of the last batch known to be synced in a store that is closed."""
    mark = SyncedMark(path)
    try:
        return mark.read()
    finally:
        mark.close()


def batch_number(number: int) -> bytes:
    """A batch number as `BATCH_KEY`'s value."""
    return _U64.pack(number)
