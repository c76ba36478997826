"""A node's store from start to stop: opened or salvaged, counted, and closed with a summary."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, NamedTuple

from broker.storage import summary
from broker.storage.group_commit import GroupCommit
from broker.storage.message_store import MessageStore
from broker.storage.offline import lock_owner
from broker.storage.salvage import SalvageReport, open_or_salvage
from broker.storage.store import Store, StoreLocked, last_synced

SETTLE_S: Final = 5.0
"""How long a stop waits for the disk before it does without a summary."""

_log = logging.getLogger(__name__)


class OpenedStore(NamedTuple):
    """A store that was just opened.

    Attributes:
        store: It.
        report: What was salvaged, if it was damaged.
        summary: What the last life has counted, if it ended cleanly.
    """

    store: Store
    report: SalvageReport | None
    summary: list[bytes] | None


def open_for_node(path: Path) -> OpenedStore:
    """Open the store of a starting node. Blocks; changes nothing if it fails.

    Args:
        path: The store's directory.

    Raises:
        StoreLocked: A process has it open; the text names it where it can be known.
        StoreUnusable: It is of another version, or something outside it is in the way.
        StoreDamaged: Nothing can be read of it at all.
        OSError: Files beside RocksDB's can't be written.
    """
    try:
        store, report = open_or_salvage(path)
    except StoreLocked as error:
        if "current process" in str(error):
            raise
        owner = lock_owner(path) or "another process"
        raise StoreLocked(
            f"store {path} is in use by {owner}: stop that node first, or give this one another "
            "data directory"
        ) from error
    if report is not None:
        for lost in report.lost:
            _log.error("message.lost", extra={"queue": lost.uid, "number": lost.number})
    try:
        return OpenedStore(store, report, summary.take(path, store.last_batch))
    except BaseException:
        store.close()
        raise


def count_messages(journal: GroupCommit, opened: OpenedStore) -> MessageStore:
    """Count what is stored, telling the log how far it is. Blocks; reads only.

    Args:
        journal: Of the opened store; not used by others meanwhile.
        opened: The store.
    """

    def tell(count: int) -> None:
        _log.info("store.counted", extra={"messages": count})

    return MessageStore(journal, tell, opened.summary)


async def close(journal: GroupCommit, messages: MessageStore, path: Path) -> None:
    """Close the store of a node that stops, with a summary if all of it is on disk.

    Args:
        journal: The store's.
        messages: What is in it.
        path: The store's directory.
    """
    frames: list[bytes] | None = None
    changes = -1
    if not journal.is_failed:
        synced = asyncio.get_running_loop().create_future()

        def note() -> None:
            if not synced.done():
                synced.set_result(None)

        journal.when_synced(note)
        changes = messages.changes
        await asyncio.wait([synced], timeout=SETTLE_S)
        # What comes after this, whoever it is from, makes the summary void.
        if synced.done() and changes == messages.changes:
            frames = list(messages.dump())
        synced.cancel()
    await asyncio.to_thread(journal.close)
    if frames is None or messages.changes != changes or journal.is_failed:
        return
    try:
        await asyncio.to_thread(_write_summary, path, frames)
    except OSError as error:
        _log.warning("store.summary_not_written", extra={"reason": str(error)})


def _write_summary(path: Path, frames: list[bytes]) -> None:
    summary.write(path, last_synced(path), frames)
