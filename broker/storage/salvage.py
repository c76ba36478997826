"""Saving what can be saved from a store that does not open.

The damaged store is only read, and kept whole as evidence; a new one is built beside it and takes
its place when it is complete and synced (docs/protocol-rules.md P30):

- messages of classic queues come over if their record and their content pass their checksums; the
  others are reported as lost, by queue and number;
- a missing or damaged table costs what was in it, a missing manifest is made anew from the tables,
  and large contents are found in their files where the tables can't say where they are;
- nothing of a Raft group comes over: a replica that lost synced entries may have voted for what
  it no longer holds. The groups are listed; their replicas must join again as learners. Their log
  files, without the records that say what counts of them, are set aside, too.

What a damaged log no longer shows at all can't be listed: the report says that there may be more.
A crash at any point leaves either the damaged store or the complete new one in place.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import WriteBatch

from broker.durable_files import sync_folder, write_synced
from broker.storage import log_files
from broker.storage import message_keys as keys
from broker.storage.damaged import DamagedStore, links_of, open_damaged
from broker.storage.message_store import Lost
from broker.storage.recovery_scan import walk
from broker.storage.store import (
    BATCH_KEY,
    Store,
    StoreDamaged,
    StoreUnusable,
    batch_number,
    failure,
    open_store,
)
from raft.segments import damage

REPORT_FILE: Final = "salvage.json"
"""Written last: a new store without it is not complete."""

NUMBERS_SKIPPED: Final = 1 << 32
"""Added to every number mark: newer marks may be among what was lost."""

_BATCH_RECORDS: Final = 1000
_GROUP_BYTES: Final = 8

_log = logging.getLogger(__name__)


class SalvageReport(msgspec.Struct):
    """The records that a salvage has saved and lost.

    Attributes:
        reason: Why the store did not open.
        aside: Where the damaged store is kept.
        kept_count: Messages that came over.
        lost: Messages that are known to be lost; there may be more.
        groups: Raft groups that had data; their replicas start again as learners.
        log_files: Where the groups' log files are kept, which no longer count; "" if there were
            none.
        logs: First and last of the whole entries that follow each other in them, by group.
        tail: Why the tail could not be repeated, so that files may lack what it has; "" if they
            have all of it.
    """

    reason: str
    aside: str
    kept_count: int = 0
    lost: list[Lost] = []
    groups: list[int] = []
    log_files: str = ""
    logs: dict[int, list[tuple[int, int]]] = {}
    tail: str = ""


def open_or_salvage(path: Path) -> tuple[Store, SalvageReport | None]:
    """Open the node's store; a damaged one is set aside and salvaged first.

    Args:
        path: The store's directory.

    Returns:
        The open store, and the report if it was salvaged just now.

    Raises:
        StoreLocked: If it is open elsewhere.
        StoreUnusable: If it is of another version, or something outside it is in the way.
        StoreDamaged: If nothing can be read of it at all; it stays where it is.
    """
    _finish(path)
    try:
        return open_store(path), None
    except StoreDamaged as error:
        _log.critical("store.damaged", extra={"path": str(path), "reason": error.reason})
        reason = error.reason
    try:
        report = _rebuild(path, reason)
    except (StoreDamaged, StoreUnusable):
        raise
    except Exception as error:
        found = failure(path, error)
        if isinstance(found, StoreUnusable):  # no room for a new store: the old one stays
            raise found from error
        raise
    _log.error(
        "store.salvaged",
        extra={
            "aside": report.aside,
            "kept": report.kept_count,
            "lost": len(report.lost),
            "groups": len(report.groups),
            "log_files": report.log_files,
        },
    )
    return open_store(path), report


def _building(path: Path) -> Path:
    return path.with_name(path.name + ".salvaging")


def _finish(path: Path) -> None:
    """Complete, or forget, a salvage that a crash interrupted."""
    shutil.rmtree(links_of(path), ignore_errors=True)
    building = _building(path)
    if not building.exists():
        return
    if not (building / REPORT_FILE).exists():
        shutil.rmtree(building)
        return
    report = msgspec.json.decode((building / REPORT_FILE).read_bytes(), type=SalvageReport)
    _swap(path, building, report)


def _rebuild(path: Path, reason: str) -> SalvageReport:
    building = _building(path)
    damaged = open_damaged(path, reason)
    fresh = open_store(building)
    aside = _free_name(path)
    report = SalvageReport(reason, str(aside))
    if log_files.own_entries(path.parent):
        report.log_files = str(_log_files_aside(path, aside))
        _look_at_logs(path.parent, report)
    try:
        _copy_messages(damaged, fresh, report)
        _copy_marks(damaged, fresh)
        report.groups = _groups(damaged)
        fresh.database.flush_wal(True)
    finally:
        damaged.close()
        fresh.close()
        shutil.rmtree(links_of(path), ignore_errors=True)
    write_synced(building / REPORT_FILE, msgspec.json.encode(report))
    _swap(path, building, report)
    return report


class _PlainFiles:
    """`raft.segments.damage.ReadableFiles`, without a tail."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read a part of a file."""
        with (self._folder / name).open("rb") as file:
            file.seek(position)
            return file.read(size_bytes)

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if there is none."""
        path = self._folder / name
        return path.stat().st_size if path.is_file() else None

    def names(self, folder: str) -> list[str]:
        """The files of a folder, sorted."""
        found = (self._folder / folder).iterdir()
        return sorted(f"{folder}/{each.name}" for each in found if each.is_file())


def _look_at_logs(data: Path, report: SalvageReport) -> None:
    """Complete the log files by the tail, which alone was synced, and note what they hold."""
    try:
        log_files.LogFolder(data).close()
    except (StoreDamaged, OSError) as error:
        report.tail = str(error)
        _log.warning("salvage.tail_not_repeated", extra={"error": str(error)})
    files = _PlainFiles(data)
    for entry in log_files.own_entries(data):
        if entry.is_dir():
            report.logs[int(entry.name)] = damage.held(files, int(entry.name))


def _swap(path: Path, building: Path, report: SalvageReport) -> None:
    """Put the new store in place; after an interruption again, from any point on."""
    if path.exists():
        path.rename(report.aside)
    if report.log_files:
        Path(report.log_files).mkdir(mode=0o700, exist_ok=True)
        for entry in log_files.own_entries(path.parent):
            entry.rename(Path(report.log_files, entry.name))
    building.rename(path)
    sync_folder(path.parent)


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.damaged-{number}")
        if not aside.exists() and not _log_files_aside(path, aside).exists():
            return aside
        number += 1


def _log_files_aside(path: Path, aside: Path) -> Path:
    return path.with_name(f"log{aside.name.removeprefix(path.name)}")


class _Copier:
    """Writes into the new store in batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch = WriteBatch(raw_mode=True)
        self._batches = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write one record."""
        self._batch.put(key, value, self._store.handles[family])
        if self._batch.len() >= _BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Hand the batch over."""
        self._batches += 1
        self._batch.put(BATCH_KEY, batch_number(self._batches), self._store.handles["meta"])
        self._store.database.write(self._batch)
        self._batch = WriteBatch(raw_mode=True)


def _copy_messages(damaged: DamagedStore, fresh: Store, report: SalvageReport) -> None:
    copier = _Copier(fresh)
    copied: set[int] = set()
    highest: dict[int, int] = {}

    def scan(start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        return damaged.scan("queue_index", start, end)

    def lose(uid: int, number: int, reason: str) -> None:
        report.lost.append(Lost(uid, number, reason))

    for key, value in walk(scan, lose):
        uid, number = keys.parse_index_key(key)
        highest[uid] = number
        try:
            _, body = keys.parse_record(key, value)
            if body is not None and body.body_id not in copied:
                for part_key, part in _body(damaged, body):
                    copier.put("bodies", part_key, part)
                copied.add(body.body_id)
        except keys.RecordDamaged as error:
            lose(uid, number, str(error))
            continue
        copier.put("queue_index", key, value)
        report.kept_count += 1
    for uid, number in highest.items():  # where the mark itself is lost
        copier.put("meta", keys.number_key(uid), keys.number_mark(number + NUMBERS_SKIPPED))
    copier.flush()


def _body(damaged: DamagedStore, body: keys.BodyAddress) -> list[tuple[bytes, bytes]]:
    parts = []
    for part in range(body.parts):
        key = keys.body_key(body.body_id, part)
        value = damaged.get("bodies", key)
        if value is None:
            raise keys.RecordDamaged(f"part {part} of body {body.body_id} is missing")
        parts.append((key, value))
    keys.join_body(body, [value for _, value in parts])
    return parts


def _copy_marks(damaged: DamagedStore, fresh: Store) -> None:
    start, end = keys.number_range()
    copies_start, copies_end = keys.copy_range()
    batch = WriteBatch(raw_mode=True)
    handle = fresh.handles["meta"]
    body_mark = 0
    for key, value in damaged.rows("meta"):
        if copies_start <= key < copies_end:
            batch.put(key, value, handle)
        elif start <= key < end or key == keys.BODY_MARK_KEY:
            try:
                mark = keys.parse_number_mark(value)
            except keys.RecordDamaged:
                continue
            if key == keys.BODY_MARK_KEY:
                body_mark = mark
            else:
                batch.put(key, keys.number_mark(mark + NUMBERS_SKIPPED), handle)
    batch.put(keys.BODY_MARK_KEY, keys.number_mark(body_mark + NUMBERS_SKIPPED), handle)
    fresh.database.write(batch)


def _groups(damaged: DamagedStore) -> list[int]:
    found = {key[:_GROUP_BYTES] for key, _ in damaged.rows("raft_state")}
    return sorted(int.from_bytes(group, "big") for group in found)
