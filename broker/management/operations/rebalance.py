"""Spreads masters and leaders over the nodes, one queue after another.

Runs at the leader of group 0, so there is one at a time. Should that node fail, it ends where it
is, and each move that has begun ends by itself: a master gives its queue away only once another
node holds all of it (`broker.queues.mirrored`), a Raft leader only to a voter that has caught up.

Invariants:
1. A mirrored queue moves to a node that group 0 has noted as synchronised, never to another.
2. The next queue moves only when the one before it has as many synchronised copies as it had, or
   `RESTORE_S` are over: one queue at a time is short of a copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from broker.management.control import NodeControl
from broker.management.operations.balance import Movable, Move, next_move
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.management.operations.syncing import SYNC
from broker.management.report import QUEUES, Report
from broker.management.reports import Reports
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import REPLICATED, Queue
from broker.metadata.rings import Ring
from broker.patterns import searcher
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

BEGIN: Final = "rebalance"
STATE: Final = "rebalance.state"
HAND_TO: Final = "hand_to"
TRANSFER: Final = "transfer"

IN_PROGRESS: Final = "rebalance_in_progress"
MOVE_S: Final = 10.0
FILL_S: Final = 60.0
"""How long a move may take; the second where the messages have to be sent there first."""
RESTORE_S: Final = 10.0
ASK_AGAIN_S: Final = 2.0
LOOK_S: Final = 0.05

TYPES: Final = ("all", "classic", "quorum", "stream")


class Selection(msgspec.Struct, frozen=True):
    """The queues whose masters and leaders a rebalance spreads.

    Attributes:
        type: One of TYPES; "classic" means those that are mirrored.
        vhost_pattern: Regular expression that a vhost's name must contain.
        queue_pattern: Regular expression that a queue's name must contain.
    """

    type: str = "all"
    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class Rebalance:
    """One rebalance: moves masters and leaders until nodes have about as many each.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        reports: What they know.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations, reports: Reports) -> None:
        self._control = control
        self._remote = remote
        self._reports = reports
        self._serving: Serving | None = None  # under which one runs
        self._moved = 0
        self._kept: list[str] = []
        self._nodes: list[dict[str, Any]] = []
        remote.on(BEGIN, self._begin)
        remote.on(STATE, self._state)
        remote.on(HAND_TO, self._hand_to)
        remote.on(TRANSFER, self._transfer)

    async def ask(self, selection: Selection) -> OperationResult:
        """Have the leader of group 0 begin; answered at once.

        Returns:
            Not done, with IN_PROGRESS, while one runs already.
        """
        operation = RemoteOperation(BEGIN, argument=msgspec.json.encode(selection).decode())
        return await self._remote.ask(self._leader(), operation)

    async def state(self) -> dict[str, Any]:
        """The progress or outcome of the last rebalance.

        Returns:
            Is it `running`, how many have `moved`, which were `kept`, and for each of `nodes` how
            many of the selected queues it serves in the end.
        """
        result = await self._remote.ask(self._leader(), RemoteOperation(STATE))
        if not result.is_done:
            return {"running": False, "moved": 0, "kept": [result.text], "nodes": []}
        found: dict[str, Any] = msgspec.json.decode(result.text)
        return found

    def _leader(self) -> str:
        cluster = self._control.cluster
        leader = None if cluster is None else cluster.metadata.leader
        return leader or self._control.name

    # What is asked of this node.

    @property
    def _is_running(self) -> bool:
        return self._serving is not None and self._serving is self._control.serving

    async def _begin(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        if self._is_running or serving is None:  # what ran before a stop_app has ended with it
            return OperationResult(is_done=False, text=IN_PROGRESS)
        selection = msgspec.json.decode(operation.argument, type=Selection)
        self._serving = serving
        self._moved, self._kept, self._nodes = 0, [], []
        serving.spawn(self._run(selection))
        return OperationResult(is_done=True)

    async def _state(self, _operation: RemoteOperation) -> OperationResult:
        state = {
            "running": self._is_running,
            "moved": self._moved,
            "kept": self._kept,
            "nodes": self._nodes,
        }
        return OperationResult(is_done=True, text=msgspec.json.encode(state).decode())

    async def _hand_to(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        is_done = serving is not None and serving.queues.mirrored.request_master(
            operation.uid, operation.argument
        )
        return OperationResult(is_done)

    async def _transfer(self, operation: RemoteOperation) -> OperationResult:
        cluster = self._control.cluster
        group = None if cluster is None else cluster.host.group(operation.uid)
        if group is None or not group.is_leader or operation.argument not in group.voters:
            return OperationResult(
                is_done=False, text=f"not led by {self._control.name}, or no member there"
            )
        outcome = (
            await asyncio.gather(group.transfer(operation.argument), return_exceptions=True)
        )[0]
        return OperationResult(not isinstance(outcome, BaseException), str(outcome or ""))

    # The work.

    async def _run(self, selection: Selection) -> None:
        try:
            await self._spread(selection)
        finally:
            self._serving = None
            _log.info("queues.rebalanced", extra={"moved": self._moved, "kept": len(self._kept)})

    async def _spread(self, selection: Selection) -> None:
        cluster = self._control.cluster
        if cluster is None:
            return
        reports = await self._reports.gather(QUEUES)
        drained = cluster.metadata.catalogue.drained()
        nodes = sorted(node for node in reports if node not in drained)
        queues = movable(cluster.metadata.catalogue, reports, selection)
        tried: set[int] = set()
        while (move := next_move(queues, nodes, tried)) is not None:
            tried.add(move.uid)
            queue = cluster.metadata.catalogue.queue_by_uid(move.uid)
            if queue is None:
                queues = [each for each in queues if each.uid != move.uid]
                continue
            is_moved = await self._move(queue, move)
            _log.info(
                "queue.moved" if is_moved else "queue.kept",
                extra={"queue": queue.name, "from": move.source, "to": move.target},
            )
            if is_moved:
                self._moved += 1
                queues = [
                    each._replace(node=move.target) if each.uid == move.uid else each
                    for each in queues
                ]
            else:
                self._kept.append(queue.name)
        self._nodes = served_by(cluster.metadata.catalogue, queues, nodes)

    async def _move(self, queue: Queue, move: Move) -> bool:
        if queue.type in REPLICATED:
            result = await self._remote.ask(
                move.source, RemoteOperation(TRANSFER, move.uid, move.target)
            )
            return result.is_done
        before = self._ring(move.uid)
        if before is None:
            return False
        if not await self._hand_over(move):
            return False
        await self._restored(move, before)
        return True

    async def _hand_over(self, move: Move) -> bool:
        """Ask the master again and again, for it forgets; say whether the queue has moved."""
        operation = RemoteOperation(HAND_TO, move.uid, move.target)

        def is_there() -> bool:
            ring = self._ring(move.uid)
            return ring is None or (ring.master is not None and ring.master.node == move.target)

        def is_leaving() -> bool:
            ring = self._ring(move.uid)
            return is_there() or (ring is not None and ring.master is None)

        left_s = MOVE_S if move.is_ready else FILL_S
        while left_s > 0:
            if not move.is_ready:
                await self._fill(move.uid)
            result = await self._remote.ask(move.source, operation)
            if not result.is_done and not is_leaving():
                return False
            if await _until(is_there, ASK_AGAIN_S):
                return self._ring(move.uid) is not None
            left_s -= ASK_AGAIN_S
        return False

    async def _restored(self, move: Move, before: Ring) -> None:
        """Wait until the queue has the copies again that it had, but not for ever."""
        wanted = len(before.synced)

        def is_restored() -> bool:
            ring = self._ring(move.uid)
            return ring is None or len(ring.synced) >= wanted

        for _ in range(int(RESTORE_S / ASK_AGAIN_S)):
            if await _until(is_restored, ASK_AGAIN_S):
                return
            await self._fill(move.uid)

    async def _fill(self, uid: int) -> None:
        """Have the mirrors of a queue synchronised, whatever its policy's `ha-sync-mode`."""
        ring = self._ring(uid)
        is_lacking = ring is not None and any(
            mirror in ring.joined and mirror not in ring.synced for mirror in ring.mirrors()
        )
        if ring is not None and ring.master is not None and is_lacking:
            await self._remote.ask(ring.master.node, RemoteOperation(SYNC, uid))

    def _ring(self, uid: int) -> Ring | None:
        cluster = self._control.cluster
        queue = None if cluster is None else cluster.metadata.catalogue.queue_by_uid(uid)
        return None if queue is None else queue.ring


def movable(
    catalogue: Catalogue, reports: dict[str, Report], selection: Selection
) -> list[Movable]:
    """Return what can be moved: mirrored and quorum queues and streams that are being served.

    Args:
        catalogue: What exists.
        reports: What each node serves; nodes that are missing get nothing.
        selection: Which of it.
    """
    served: dict[int, tuple[int, str, int]] = {}
    online: dict[int, list[str]] = {}
    for node, report in reports.items():
        for each in report.served:
            found = (each.term, node, each.stat.ready + each.stat.unacked)
            served[each.uid] = max(found, served.get(each.uid, found))
        for uid in report.replicas:
            online.setdefault(uid, []).append(node)
    in_vhost, is_named = searcher(selection.vhost_pattern), searcher(selection.queue_pattern)
    counts = Counter(node for _term, node, _messages in served.values())
    order = sorted(reports, key=lambda node: (counts[node], node))
    queues = []
    for queue in catalogue.all_queues():
        if not in_vhost(queue.vhost) or not is_named(queue.name) or queue.uid not in served:
            continue
        _term, node, messages = served[queue.uid]
        is_meant = selection.type in ("all", queue.type)
        if is_meant and queue.type in REPLICATED:
            members = tuple(each for each in queue.members if each in online.get(queue.uid, ()))
            queues.append(Movable(queue.uid, node, messages, members))
        elif is_meant and queue.ring is not None:
            queues.append(_mirrored(catalogue, queue, queue.ring, messages, order))
    return queues


def _mirrored(
    catalogue: Catalogue, queue: Queue, ring: Ring, messages: int, nodes: list[str]
) -> Movable:
    mirrors = [mirror for mirror in ring.mirrors() if mirror.node in nodes]
    ready = [mirror.node for mirror in mirrors if mirror in ring.synced]
    others = [mirror.node for mirror in mirrors if mirror not in ring.synced]
    policy = catalogue.ha_policy(queue)
    if policy is not None and policy.mode == "exactly":
        others += [node for node in nodes if ring.member_on(node) is None]
    elif policy is not None and policy.mode == "nodes":
        ready = [node for node in ready if node in policy.nodes]
        others = [node for node in others if node in policy.nodes]
    return Movable(queue.uid, queue.home, messages, tuple(ready), tuple(others))


def served_by(
    catalogue: Catalogue, queues: list[Movable], nodes: list[str]
) -> list[dict[str, Any]]:
    """Return the number of these queues that each node serves, by type."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in queues:
        queue = catalogue.queue_by_uid(each.uid)
        if queue is not None:
            counts[each.node, queue.type] += 1
    return [
        {"node": node, **{kind: counts[node, kind] for kind in ("quorum", "classic", "stream")}}
        for node in nodes
    ]


async def _until(claim: Callable[[], bool], limit_s: float) -> bool:
    """Wait for a claim on group 0; False when it is not true in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not claim():
        if loop.time() > end:
            return False
        await asyncio.sleep(LOOK_S)
    return True
