"""Reading a store that does not open. Nothing of it is changed.

Where RocksDB needs to write to read (its first file or its manifest is gone or damaged), it works
on a folder of links to the files (`links_of`), which the caller removes.

Source:
    Blob files: RocksDB, db/blob/blob_log_format.h: a header of 30 bytes, then records
    | key size 8 | value size 8 | expiry 8 | crc 4 | crc 4 | key | value |, all little-endian.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import AccessType, DBRecoveryMode, Rdict, ReadOptions

from broker.storage.recovery_scan import walk
from broker.storage.store import (
    CURRENT_FILE,
    FORMAT_KEY,
    StoreDamaged,
    StoreUnusable,
    check_format,
    failure,
    family_options,
    format_of,
    options,
)

_BLOB_HEAD_BYTES: Final = 30
_BLOB_RECORD: Final = struct.Struct("<QQQII")
_BLOB_KEY_BYTES: Final = 12
_MANIFEST: Final = re.compile(r"MANIFEST-(\d+)$")

_log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """The place of a content: a file and the bytes in it."""

    file: Path
    start: int
    size_bytes: int


class DamagedStore:
    """A damaged store, open for reading, with what is readable of it. Made by `open_damaged`."""

    def __init__(self, path: Path, database: Rdict) -> None:
        self._path = path
        self._database = database
        self._blobs: dict[bytes, _Place] | None = None

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Records with keys in [start, end), in key order.

        Raises:
            StoreDamaged: Where a record can't be read.
        """
        try:
            bounds = ReadOptions()
            bounds.set_iterate_upper_bound(end)
            rows = self._database.get_column_family(family).iter(bounds)
        except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
            _log.warning("salvage.family_missing", extra={"family": family, "error": str(error)})
            return
        rows.seek(start)
        while rows.valid():
            yield rows.key(), rows.value()
            rows.next()
        try:
            rows.status()
        except Exception as error:
            raise StoreDamaged(self._path, f"reading {family}: {error}") from error

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """All readable records of a family; one that can't be read ends it."""
        try:
            yield from self.scan(family, b"", b"\xff" * 32)
        except StoreDamaged as error:
            _log.warning("salvage.family_cut", extra={"family": family, "error": error.reason})

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, None when it is absent or unreadable."""
        found: bytes | None = None
        try:
            found = self._database.get_column_family(family).get(key)
        except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
            _log.warning("salvage.record_unreadable", extra={"key": key.hex(), "error": str(error)})
        return self._from_blobs(key) if found is None and family == "bodies" else found

    def close(self) -> None:
        """Close it, unchanged."""
        self._database.close()

    def _from_blobs(self, key: bytes) -> bytes | None:
        """A content that no table leads to; its checksum is its reader's business."""
        if self._blobs is None:
            self._blobs = {
                found: place
                for file in sorted(self._path.glob("*.blob"))
                for found, place in _places(file)
            }
        place = self._blobs.get(key)
        if place is None:
            return None
        with place.file.open("rb") as file:
            file.seek(place.start)
            return file.read(place.size_bytes)


def _places(file: Path) -> Iterator[tuple[bytes, _Place]]:
    """Yield the records of a blob file up to the first one that can't be read."""
    end = file.stat().st_size
    with file.open("rb") as data:
        at = _BLOB_HEAD_BYTES
        while at + _BLOB_RECORD.size < end:
            data.seek(at)
            key_size, size, *_ = _BLOB_RECORD.unpack(data.read(_BLOB_RECORD.size))
            start = at + _BLOB_RECORD.size + key_size
            if key_size != _BLOB_KEY_BYTES or start + size > end:
                return
            yield data.read(key_size), _Place(file, start, size)
            at = start + size


def links_of(path: Path) -> Path:
    """Return the folder of links of `open_damaged`, to remove after the store is closed."""
    return path.with_name(path.name + ".reading")


def open_damaged(path: Path, reason: str) -> DamagedStore:
    """Open a store for reading, whatever is wrong with it.

    Args:
        path: The store's directory.
        reason: Why it did not open.

    Raises:
        StoreUnusable: If it is of another version, or something outside it is in the way.
        StoreDamaged: If nothing can be read of it.
    """
    try:
        damaged = DamagedStore(path, _read_only(path))
    except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
        damaged = DamagedStore(path, _through_links(path, reason, error))
    else:
        if _is_blocked(damaged):
            with suppress(StoreDamaged):  # else what was in that table is all that there was
                repaired = DamagedStore(path, _through_links(path, reason, None))
                damaged.close()
                damaged = repaired
    messages = damaged.scan("queue_index", b"", b"\xff" * 17)
    try:
        check_format(path, format_of(damaged.get("meta", FORMAT_KEY), messages))
    except StoreUnusable:
        damaged.close()
        raise
    return damaged


def _is_blocked(damaged: DamagedStore) -> bool:
    """True when one missing table keeps all messages from being read."""

    def scan(start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return damaged.scan("queue_index", start, end)

    try:
        next(scan(b"", b"\xff" * 17), None)
    except StoreDamaged:
        return next(walk(scan, lambda *_lost: None), None) is None
    return False


def _read_only(path: Path) -> Rdict:
    recovery = DBRecoveryMode.skip_any_corrupted_record()
    chosen = options(recovery)
    chosen.create_if_missing(False)
    chosen.set_paranoid_checks(False)
    families = {name: family_options(name, recovery) for name in Rdict.list_cf(str(path))}
    return Rdict(
        str(path), chosen, column_families=families, access_type=AccessType.read_only(False)
    )


def _through_links(path: Path, reason: str, before: Exception | None) -> Rdict:
    """Open a copy made of links.

    Args:
        path: The store's directory.
        reason: Why it did not open.
        before: Why it can't be read as it is; None: its manifest leads nowhere.
    """
    if before is not None and isinstance(failure(path, before), StoreUnusable):
        raise failure(path, before)
    links = links_of(path)
    try:
        _link(path, links)
        manifests = [file.name for file in links.glob("MANIFEST-*") if _MANIFEST.match(file.name)]
        if manifests and before is not None:
            newest = max(manifests, key=lambda name: int(name.partition("-")[2]))
            (links / CURRENT_FILE).unlink(missing_ok=True)
            (links / CURRENT_FILE).write_text(f"{newest}\n")
            try:
                return _read_only(links)
            except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
                _log.warning("salvage.manifest_unreadable", extra={"error": str(error)})
                _link(path, links)
        Rdict.repair(str(links), options(DBRecoveryMode.skip_any_corrupted_record()))
        _require_messages(links)
        return _read_only(links)
    except Exception as error:
        shutil.rmtree(links, ignore_errors=True)
        found = failure(path, error)
        if isinstance(found, StoreUnusable):
            raise found from error
        raise StoreDamaged(
            path,
            f"{reason}; nothing can be read: {error}: put back a copy of it, or move it away and "
            "start again, then the node begins empty and its cluster fills it; nothing was changed",
        ) from error


def _require_messages(links: Path) -> None:
    """Raise if no table names the family of messages: then nothing is known of the store."""
    if "queue_index" not in Rdict.list_cf(str(links)):
        raise FileNotFoundError("no table names its family of messages")


def _link(path: Path, links: Path) -> None:
    """Make the folder of links anew; RocksDB replaces or renames files there, and writes none."""
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir()
    for file in path.iterdir():
        if file.is_file() and file.name != "LOCK":
            os.link(file, links / file.name)
