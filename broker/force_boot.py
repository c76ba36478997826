"""Forcing a stopped node to go on without nodes that are lost for good (docs/protocol-rules.md P8).

Under the store's lock: the identity file first (new cluster id, who is lost), then the groups of
quorum queues and streams, group 0 last. Interrupted at any point, the node either still waits for
its majority or has all it needs; saying it again completes it. What remains is ordinary: at its
next start the node ends the boots of the lost nodes and forgets them (`membership`).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from broker.cluster.identity import FILE_NAME, Identity, IdentityDamaged, IdentityFile
from broker.cluster.recovery import forcing
from broker.cluster.recovery.forcing import Conclusion, ForcingRefused, Losses
from broker.metadata.catalogue import Catalogue
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.storage.offline import OfflineStore
from raft.core.membership import History
from raft.core.messages import Configuration
from raft.errors import LogCorrupt
from raft.log_store import GroupLog, LogStore
from raft.parts import ProposalAssembler
from raft.segments.entries import SEGMENT_BYTES

GROUP = 0
_READ_BYTES = 4 << 20


class ForcedStart(NamedTuple):
    """The outcome of a forced start, done or planned.

    Attributes:
        node: This node.
        cluster_id: The new cluster id; "" in a dry run.
        conclusion: Who is left.
        losses: What goes.
        emptied: Quorum queues whose replica here holds nothing: they begin empty.
        behind: Quorum queues whose replica here had no vote: it may lack confirmed messages.
        missing: Quorum queues without a replica here although one should be: others must lead.
        damaged: Quorum queues of which this node has the only replica left, with a damaged log:
            nothing of it is erased, and they wait for an operator.
    """

    node: str
    cluster_id: str
    conclusion: Conclusion
    losses: Losses
    emptied: tuple[Queue, ...]
    behind: tuple[Queue, ...]
    missing: tuple[Queue, ...]
    damaged: tuple[Queue, ...]


def force(data_dir: Path, lost: Collection[str] | None, *, dry_run: bool = False) -> ForcedStart:
    """Let a stopped node go on without others.

    Args:
        data_dir: The node's data folder.
        lost: Nodes that never come back, besides those said before; None: all others.
        dry_run: Change nothing.

    Raises:
        ForcingRefused: It can't be done; nothing was changed.
        IdentityDamaged: The identity file is missing or can't be understood.
        StoreMissing: There is no store.
        StoreLocked: The node runs.
        StoreDamaged: The store does not open.
        LogCorrupt: Group 0's data is damaged.
        OSError: The folder can't be read or written.
    """
    name = node_of(data_dir)
    store = OfflineStore(data_dir / "store")
    try:
        file = IdentityFile(data_dir, name)
        machine = metadata(LogStore(store, store))
        catalogue = machine.catalogue
        identity = file.identity
        if lost is None:
            lost = {record.name for record in catalogue.nodes()} - {name}
        again = identity.lost.items()
        lost = {*lost, *(n for n, mark in again if forcing.is_marked(catalogue.node(n), mark))}
        conclusion = forcing.conclude(name, catalogue, lost)
        old = identity.forced_from or identity.cluster_id
        cluster_id = forcing.new_cluster_id(old, conclusion, lambda: secrets.token_hex(8))
        if not dry_run:
            file.save(_forced_identity(identity, old, cluster_id, conclusion, catalogue))
        work = _Groups(store, name, conclusion, is_dry=dry_run)
        queues = {uid: catalogue.queue_by_uid(uid) for uid in sorted(conclusion.replicas)}
        for queue in queues.values():
            assert queue is not None, "the conclusion is of this catalogue"
            if name in queue.members:
                work.force_queue(queue)
        work.force_metadata()
        return ForcedStart(
            name,
            "" if dry_run else cluster_id,
            conclusion,
            forcing.losses(catalogue, lost),
            tuple(work.emptied),
            tuple(work.behind),
            tuple(work.missing),
            tuple(work.damaged),
        )
    finally:
        store.close()


def node_of(data_dir: Path) -> str:
    """The name of the node that owns a data folder.

    Raises:
        IdentityDamaged: Its identity file is missing or can't be understood.
    """
    path = data_dir / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity).node
    except FileNotFoundError:
        raise IdentityDamaged(f"{data_dir} is no node's data folder: no {FILE_NAME}") from None
    except ValueError as why:
        raise IdentityDamaged(f"{path} cannot be understood: {why}") from why


def _forced_identity(
    identity: Identity, old: str, cluster_id: str, conclusion: Conclusion, catalogue: Catalogue
) -> Identity:
    members = {n: a for n, a in identity.members.items() if n in conclusion.survivors}
    return msgspec.structs.replace(
        identity,
        cluster_id=cluster_id,
        is_founding=False,
        members=members,
        lost={n: forcing.mark(r) for n in conclusion.lost if (r := catalogue.node(n)) is not None},
        forced_from=old,
    )


def metadata(store: LogStore) -> MetadataMachine:
    """Group 0's state with all entries here: alone, this node will commit them all.

    Raises:
        ForcingRefused: There is none here.
        LogCorrupt: It is damaged.
    """
    if GROUP not in store.groups():
        raise ForcingRefused(
            "this node holds no copy of the cluster's metadata; force_boot a node that does"
        )
    log = store.open(GROUP, Configuration())
    machine = MetadataMachine()
    if log.saved.snapshot_index:
        machine.restore(log.saved.snapshot_index, log.snapshots.read())
    assembler = ProposalAssembler()
    at, end = max(log.saved.snapshot_index + 1, log.first_index()), log.last_index() + 1
    while at < end:
        entries = log.entries(at, end, _READ_BYTES)
        for entry in entries:
            data = assembler.join(entry)
            if data is not None:
                machine.apply(entry.index, data)
        at = entries[-1].index + 1
    return machine


def newest_configuration(log: GroupLog) -> Configuration:
    """The newest configuration that a replica knows of."""
    saved = log.saved
    history = History(max(saved.snapshot_index, saved.configuration_index), saved.configuration)
    at, end = max(history.last_index + 1, log.first_index()), log.last_index() + 1
    while at < end:
        entries = log.entries(at, end, _READ_BYTES)
        history.appended(entries)
        at = entries[-1].index + 1
    return history.current


class _Groups:
    """Forces one group after the other, each durable before the next."""

    def __init__(
        self, journal: OfflineStore, node: str, conclusion: Conclusion, *, is_dry: bool
    ) -> None:
        self._journal = journal
        self._store = LogStore(journal, journal)
        self._on_disk = set(self._store.groups())
        self._node = node
        self._conclusion = conclusion
        self._is_dry = is_dry
        self.emptied: list[Queue] = []
        self.behind: list[Queue] = []
        self.missing: list[Queue] = []
        self.damaged: list[Queue] = []

    def force_metadata(self) -> None:
        """Group 0: its voters are those that are left."""
        if not self._is_dry:
            log = self._store.open(GROUP, Configuration())
            log.force(Configuration(self._conclusion.survivors))
            self._journal.flush()

    def force_queue(self, queue: Queue) -> None:
        """A queue's replica here. An empty one may only vote where it is alone.

        A damaged one is left as it is; a stream's that is alone is read around the damage.
        """
        voters = self._conclusion.replicas[queue.uid]
        is_alone = voters == (self._node,)
        try:
            self._force_log(queue, voters, self._opened(queue, is_alone=is_alone))
        except LogCorrupt:
            (self.damaged if is_alone else self.missing).append(queue)

    def _opened(self, queue: Queue, *, is_alone: bool) -> GroupLog | None:
        if queue.uid not in self._on_disk:
            return None
        reads_around = is_alone and queue.type == "stream"
        return self._store.open(queue.uid, Configuration(), is_alone=reads_around)

    def _force_log(self, queue: Queue, voters: tuple[str, ...], log: GroupLog | None) -> None:
        if log is None or not log.last_index():
            if voters != (self._node,):
                self.missing.append(queue)
                return
            self.emptied.append(queue)
        elif self._node not in newest_configuration(log).voters:
            self.behind.append(queue)
        if not self._is_dry:
            log = log or self._begun(queue)
            log.force(Configuration(voters))
            self._journal.flush()

    def _begun(self, queue: Queue) -> GroupLog:
        is_stream = queue.type == "stream"
        return self._store.open(
            queue.uid,
            Configuration(),
            segment_bytes=SEGMENT_BYTES if is_stream else 0,
            keeps_log=is_stream,
        )
