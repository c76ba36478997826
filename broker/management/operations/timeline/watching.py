"""Looks at the cluster every second and notes what has changed; puts all nodes' notes together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from broker.cluster.detector import PeerState
from broker.cluster.membership import ClusterMembership
from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.management.operations.timeline import happenings
from broker.management.operations.timeline.happenings import (
    ClusterView,
    Happening,
    QueueChange,
    Shown,
)
from broker.management.operations.timeline.notes import Notes
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.server.events.queue_news import QueueSeen, master_of, members_of
from broker.server.serving import Serving

LOOK_S: Final = 1.0

DELETED_MAX: Final = 1_000
"""Deleted queues that are remembered for a while."""

_READ: Final = "timeline.read"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Happening]).decode


class Timeline:
    """The notes of this node, and the way to the others'.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        self._notes = Notes(Path(control.settings.data_dir))
        self._view: ClusterView | None = None
        self._serving: Serving | None = None
        self._leaders: dict[int, str] = {}
        self._members: dict[int, tuple[str, ...]] = {}
        remote.on(_READ, self._read)

    async def shown(self) -> tuple[list[Shown], list[str]]:
        """The timeline of the cluster, the newest first, and the nodes whose notes are missing."""
        results = await self._remote.ask_all(RemoteOperation(_READ))
        notes = {node: _decode(each.text) for node, each in results.items() if each.is_done}
        cluster = self._control.cluster
        members = [] if cluster is None else cluster.metadata.catalogue.nodes()
        missing = {each.name for each in members} - notes.keys()
        return happenings.put_together(notes), sorted(missing)

    async def _read(self, _operation: RemoteOperation) -> OperationResult:
        return OperationResult(is_done=True, text=_encode(self._notes.all()).decode())

    async def look(self) -> None:
        """Note what has changed since the last look."""
        serving, cluster = self._control.serving, self._control.cluster
        if serving is None or cluster is None:
            self._view = self._serving = None
            return
        now_ms = self._control.clock.now_ms()
        view = self._seen(serving, cluster)
        found: list[Happening] = []
        if self._view is None or self._serving is not serving:
            found += happenings.began(view, now_ms)
            self._begin(serving.catalogue)
        else:
            found += happenings.differences(self._view, view, now_ms)
        self._view, self._serving = view, serving
        found += self._queues_changed(serving.queue_news.take(), serving.catalogue)
        if found:
            self._notes.add(found)

    def _seen(self, serving: Serving, cluster: ClusterMembership) -> ClusterView:
        nodes = serving.catalogue.nodes()
        peers = cluster.peers
        suspected = {node.name for node in nodes if peers.verdict(node.name) is PeerState.SUSPECTED}
        return ClusterView(
            here=self._control.name,
            boots={node.name: (node.boot or "") if node.alive else "" for node in nodes},
            drained=serving.catalogue.drained(),
            silent=frozenset(suspected),
            metadata_leader=cluster.metadata.leader or "",
            alarms=serving.context.alarms.here,
        )

    def _begin(self, catalogue: Catalogue) -> None:
        """What queues are like now is no news."""
        queues = catalogue.rings()
        self._leaders = {each.uid: master_of(each) for each in queues if master_of(each)}
        self._members = {each.uid: members_of(each) for each in queues}

    def _queues_changed(self, seen: list[QueueSeen], catalogue: Catalogue) -> list[Happening]:
        found: list[QueueChange] = []
        for each in seen:
            queue = catalogue.queue_by_uid(each.uid)
            if queue is None:
                self._leaders.pop(each.uid, None)
                self._members.pop(each.uid, None)
            else:
                found += self._changes_of(queue, each)
        self._forget_deleted(catalogue)
        return list(happenings.of_queues(found))

    def _changes_of(self, queue: Queue, seen: QueueSeen) -> Iterator[QueueChange]:
        at = seen.at_ms
        if seen.leader:
            before = self._leaders.get(seen.uid)
            self._leaders[seen.uid] = seen.leader
            if before is not None and before != seen.leader:
                yield QueueChange(at, "queue.leader", queue.vhost, queue.name, seen.leader, before)
        if seen.members is not None:
            past = self._members.get(seen.uid)
            self._members[seen.uid] = seen.members
            for node in () if past is None else sorted({*past} ^ {*seen.members}):
                kind = "copy.added" if node in seen.members else "copy.removed"
                yield QueueChange(at, kind, queue.vhost, queue.name, node)

    def _forget_deleted(self, catalogue: Catalogue) -> None:
        known = catalogue.queue_uids()
        if max(len(self._leaders), len(self._members)) > 2 * len(known) + DELETED_MAX:
            self._leaders = {uid: node for uid, node in self._leaders.items() if uid in known}
            self._members = {uid: nodes for uid, nodes in self._members.items() if uid in known}
