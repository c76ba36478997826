"""Setting the damaged log of a queue's only replica aside, on a stopped node (docs/operations.md).

The queue goes on with what stands before the damage, or empty. All that there was is kept beside
the data first: the log's files, and its records as one msgpack array of (family, key, value).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from broker.durable_files import sync_folder, write_synced
from broker.force_boot import metadata, newest_configuration, node_of
from broker.metadata.records import Queue
from broker.queues.paging.kept_log import LOG_BYTES
from broker.storage.offline import OfflineStore
from broker.storage.replaced_logs import FILES, RECORDS_FILE
from raft import log_keys
from raft.core.messages import Configuration, HardState
from raft.errors import LogCorrupt
from raft.log_store import GroupLog, LogStore
from raft.segments import records

_FAMILIES: Final = ("raft_state", "raft_log", "snapshots")


class AsideRefused(Exception):
    """It makes no sense for this queue; nothing was changed."""


class LogAside(NamedTuple):
    """What was done, or would be.

    Attributes:
        queue: Whose log it is.
        why: What is wrong with it.
        kept: Entries that the queue goes on with, those that its snapshot has included; 0: none.
        path: Where all of it is kept; "" in a dry run.
    """

    queue: Queue
    why: str
    kept: int
    path: str


def set_aside(data_dir: Path, vhost: str, name: str, *, dry_run: bool = False) -> LogAside:
    """Set a damaged log aside.

    Args:
        data_dir: The data folder of the stopped node.
        vhost: The queue's.
        name: The queue.
        dry_run: Change nothing.

    Raises:
        AsideRefused: Its log is whole, or other nodes have replicas of the queue.
        IdentityDamaged: The identity file is missing or can't be understood.
        StoreMissing: There is no store.
        StoreLocked: The node runs.
        StoreDamaged: The store does not open.
        LogCorrupt: Group 0's data is damaged.
        OSError: The folder can't be read or written.
    """
    node = node_of(data_dir)
    store = OfflineStore(data_dir / "store")
    try:
        queue = metadata(LogStore(store, store)).catalogue.queue(vhost, name)
        if queue is None or queue.type != "quorum":
            raise AsideRefused(f"there is no quorum queue '{name}' in vhost '{vhost}'")
        if queue.members != (node,):
            others = ", ".join(each for each in queue.members if each != node)
            raise AsideRefused(
                f"other nodes have replicas of it: {others}; start them: a leader among them "
                "replaces this one"
            )
        try:
            LogStore(store, store).open(queue.uid, Configuration())
        except LogCorrupt as why:
            kept = _sound_end(store, queue)
            path = "" if dry_run else str(_set_aside(data_dir, store, queue, kept))
            return LogAside(queue, str(why), kept, path)
        raise AsideRefused("nothing is wrong with its log, as far as a start would notice")
    finally:
        store.close()


def _sound_end(store: OfflineStore, queue: Queue) -> int:
    """Return the last entry before the damage; 0 if nothing can be kept."""
    group = queue.uid
    if queue.is_logged:
        return 0  # its messages are in the files
    try:
        key = log_keys.state_key(group, log_keys.SnapshotRecord)
        found = store.get("raft_state", key)
        snapshot = (
            None if found is None else log_keys.parse_state(key, found, log_keys.SnapshotRecord)
        )
        last = 0 if snapshot is None else snapshot.meta.index
    except log_keys.RecordDamaged:
        return 0
    for key, value in store.scan("raft_log", *log_keys.log_range(group, last + 1)):
        try:
            entry = log_keys.parse_entry(key, value)
        except log_keys.RecordDamaged:
            break
        if entry.index != last + 1:
            break
        last = entry.index
    return last


def _set_aside(data_dir: Path, store: OfflineStore, queue: Queue, kept: int) -> Path:
    group, aside = queue.uid, _free_folder(data_dir)
    place = aside / str(group)
    place.mkdir(parents=True, mode=0o700)
    rows = [
        (family, key, value)
        for family in _FAMILIES
        for key, value in store.scan(family, *_all_of(group))
    ]
    write_synced(place / RECORDS_FILE, msgspec.msgpack.encode(rows))
    folder = data_dir / records.folder_of(group)
    if folder.is_dir():
        folder.rename(place / FILES)
        sync_folder(folder.parent)
    sync_folder(place)
    sync_folder(aside)
    sync_folder(data_dir)
    if kept:
        _cut(store, group, kept)
        try:
            _lead_alone(LogStore(store, store).open(group, Configuration()), queue)
        except LogCorrupt:
            kept = 0
    if not kept:
        groups = LogStore(store, store)
        groups.erase(group)
        store.flush()
        size = LOG_BYTES if queue.is_logged else 0
        only = Configuration(queue.members)
        groups.open(group, only, segment_bytes=size, keeps_log=queue.is_logged)
    store.flush()
    return aside


def _lead_alone(log: GroupLog, queue: Queue) -> None:
    """What is kept may name members that an operator gave up (`broker.force_boot`)."""
    only = Configuration(queue.members)
    if newest_configuration(log) != only:
        log.force(only)


def _cut(store: OfflineStore, group: int, last: int) -> None:
    """Remove the entries behind one, and what says that there were some."""
    store.delete_range("raft_log", *log_keys.log_range(group, last + 1))
    key = log_keys.state_key(group, HardState)
    found = store.get("raft_state", key)
    if found is not None:
        state = log_keys.parse_state(key, found, HardState)
        cut = HardState(state.term, state.vote, min(state.commit, last))
        store.put("raft_state", key, log_keys.state_record(key, cut))
    store.flush()


def _all_of(group: int) -> tuple[bytes, bytes]:
    return group.to_bytes(8, "big"), (group + 1).to_bytes(8, "big")


def _free_folder(data_dir: Path) -> Path:
    number = 1
    while (found := data_dir / f"log.damaged-{number}").exists():
        number += 1
    return found
