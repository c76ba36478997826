"""Known mistakes, to show that the simulator finds them. None of this is in production code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from broker.fifo.fresh import fresh_among
from broker.fifo.message_state import MessageState
from broker.storage.commit_batch import CommitBatch, Segment
from broker.storage.commit_writer import CommitFailed
from broker.storage.group_commit import GroupCommit
from tests.sim.crashes.disk import Disk, Writer

_write, _hold, _absorb = Writer.write, GroupCommit._hold, CommitBatch._absorb


def _without_sync(self: Any, batches: list[CommitBatch], *, is_last: bool) -> None:
    """Confirms what was only written."""
    for batch in batches:
        self._disk.write(batch)


def _confirming(self: Any, batches: list[CommitBatch], look: Any) -> None:
    """Tells who waits for what is held."""
    for done in [done for batch in batches for done in batch.waiting]:
        done()
    _hold(self, batches, look)


def _going_on(self: Any, batches: list[CommitBatch], *, is_last: bool) -> None:
    """Takes a failed sync for done: what it was to cover is not on disk, and nobody will know."""
    fails = self._disk.fails
    try:
        _write(self, batches, is_last=is_last)
    except CommitFailed:
        self._disk.fails = ""
        if fails == "sync":
            self._disk.unsynced.clear()


def _half(self: Any, batch: CommitBatch) -> None:
    """Writes a batch in two steps, and a crash may come between them."""
    first, second = CommitBatch(), CommitBatch()
    for name, segments in batch.families.items():
        target = first if name == "queue_index" else second
        target.families[name] = segments
    _disk_write(self, first)
    _disk_write(self, second)


_disk_write = Disk.write


def _losing_removals(self: Any, family: str, later: Segment) -> None:
    """Removals of what is on disk get lost where held batches become one."""
    puts = self.families[family][-1].puts
    later.deletes = {key: None for key in later.deletes if key in puts}
    _absorb(self, family, later)


def _forgetting_what_is_held(self: Any) -> Any:
    """Writes down as new what consumers hold."""
    below, taken = self.ready.taken()
    return fresh_among(below, self.next_number, taken)


def _patched(owner: Any, name: str, new: Callable[..., Any]) -> Any:
    return lambda: patch.object(owner, name, new)


BUGS: Final = {
    "confirm before sync": _patched(Writer, "write", _without_sync),
    "confirm what is held": _patched(GroupCommit, "_hold", _confirming),
    "go on after a failed sync": _patched(Writer, "write", _going_on),
    "torn batch": _patched(Disk, "write", _half),
    "removals lost": _patched(CommitBatch, "_absorb", _losing_removals),
    "held is new": _patched(MessageState, "fresh", _forgetting_what_is_held),
}


def planted(bug: str | None) -> AbstractContextManager[Any]:
    """Have a bug for the time of a run; None has none."""
    return nullcontext() if bug is None else BUGS[bug]()
