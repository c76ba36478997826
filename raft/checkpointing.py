"""When a group that keeps its log takes checkpoints, which of them stay, and where its log is cut.

One is taken after so many bytes of log, so that a restart applies no more than that, and exactly at
each segment's end, so that the log can be cut there: the log goes in whole segments, and what is
cut must lie behind a checkpoint. Of those within segments the newest stays. Large ones are taken
less often, so that all together are a part of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raft.checkpoints import CheckpointStore
from raft.core.messages import Entry, SnapshotMeta
from raft.core.node import RaftNode
from raft.core.unstable import size_bytes
from raft.log_store import GroupLog
from raft.parts import ProposalAssembler
from raft.ports import Machine

SMALL_BYTES: Final = 256 * 1024
"""A checkpoint up to this size is taken wherever one is due."""

LOG_TIMES: Final = 4
"""The log behind a larger one grows by so many times its size before the next."""


class Checkpointing:
    """The checkpoints of one open group.

    Args:
        node: The core.
        log: Its log.
        store: Its checkpoints on disk.
        machine: Whose states they are.
        assembler: Says whether a proposal is open: that is part of no state.
        log_bytes_max: One is taken after so much log.
    """

    def __init__(
        self,
        node: RaftNode,
        log: GroupLog,
        store: CheckpointStore,
        machine: Machine,
        assembler: ProposalAssembler,
        log_bytes_max: int,
    ) -> None:
        self._node = node
        self._log = log
        self._store = store
        self._machine = machine
        self._assembler = assembler
        self._log_bytes_max = log_bytes_max
        self._log_bytes = 0  # applied since the last one
        self._segment_end: int | None = None
        self._released = 0
        self._is_cut_due = False  # what is released was not applied yet
        self._is_thin = False  # but for the newest; not so after a start
        self._held: tuple[SnapshotMeta, Sequence[bytes]] | None = None
        self._is_stopped = False

    @property
    def last_index(self) -> int:
        """Where the newest stands, durable or on its way; 0 if there is none."""
        return self._store.last_index

    def saved(self, applied: int) -> None:
        """Entries were written, which may have sealed a segment; now some will be applied."""
        self._look_for_end(applied)
        if self._segment_end == applied and self._log_bytes >= self._least_bytes():
            self._take(applied)

    def applied(self, entry: Entry) -> None:
        """The machine has one more entry."""
        self._log_bytes += size_bytes(entry)
        is_end = entry.index == self._segment_end
        if is_end or self._log_bytes >= self._log_bytes_max:
            if self._log_bytes >= self._least_bytes():
                self._take(entry.index)
            if is_end:
                self._look_for_end(entry.index + 1)

    def finished(self) -> None:
        """The core knows what was applied."""
        if self._is_cut_due:
            self._cut()

    def release(self, index: int) -> None:
        """Entries up to `index` are not needed any more."""
        self._released = max(self._released, index)
        self._cut()

    def hold(self, index: int, parts: Sequence[bytes]) -> None:
        """Keep a state in memory, taken behind the entry that the machine has got last."""
        self._held = self._node.snapshot_meta(index), parts

    def put_held(self) -> None:
        """Write the state that is held; the log is released up to there, so older ones go."""
        held, self._held = self._held, None
        if held is None or self._is_stopped:
            return
        meta, parts = held
        kept = [each.meta.index for each in self._store.kept]
        is_there = meta.index in (*kept, self._store.last_index)
        if kept and kept[0] < meta.index and not is_there:
            self._store.insert(meta, parts, self._cut)

    def restored(self) -> None:
        """Another replica's state took the place of all that was here."""
        self._held = None

    def stop(self) -> None:
        """Take and remove none any more."""
        self._is_stopped = True

    def _look_for_end(self, index: int) -> None:
        self._segment_end = self._log.entry_log.sealed_end(index)

    def _least_bytes(self) -> int:
        size = self._store.last_size_bytes
        return LOG_TIMES * size if size > SMALL_BYTES else 0

    def _take(self, index: int) -> None:
        if self._assembler.is_open or index <= self._store.last_index or self._store.is_in_parts:
            return
        self._log_bytes = 0
        self._store.write(
            self._node.snapshot_meta(index), self._machine.snapshot(), self._is_durable
        )

    def _is_durable(self) -> None:
        if not self._is_stopped:
            self._thin_out()
            self._cut()

    def _thin_out(self) -> None:
        """Remove those within segments, but the newest, and the one that the log begins behind.

        The one before the newest alone can have become one of them since the last time.
        """
        sealed_end = self._log.entry_log.sealed_end
        first = 1 if self._node.first_index > 1 else 0
        if self._is_thin:
            first = max(first, self._store.count - 2)
        self._is_thin = True
        indexes = {each.meta.index for each in self._store.kept_from(first)[:-1]}
        self._store.remove({index for index in indexes if sealed_end(index) != index})

    def _cut(self) -> None:
        """Cut the log behind the newest durable checkpoint that the release allows.

        The core must know that it is applied; while entries are applied it does not yet.
        """
        applied = self._node.applied_index
        self._is_cut_due = self._released > applied
        found = self._store.newest_until(min(self._released, applied))
        if found and found >= self._node.first_index and not self._is_stopped:
            self._store.remove_before(found)
            self._node.compact(found)
            self._log.compact(found)
