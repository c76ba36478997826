"""Looks at single streams, stores offsets in them, and has another replica lead.

What a stream knows of its consumers and publishers is read at its leader behind a barrier of Raft:
a leader that was replaced and has not heard of it answers nobody.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from broker.errors import Refusal
from broker.management import memory
from broker.management.control import NodeControl
from broker.management.operations.leaders import NOT_LED, Leaders
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.metadata.records import Queue
from broker.queues.streams.replica import StreamReplica
from raft.errors import RaftError
from raft.group import Group

STORE: Final = "store_stream_offset"
TRACKING: Final = "stream_tracking"
STATUS: Final = "stream_status"
RESTART: Final = "restart_stream"

STORE_S: Final = 6.0
READ_S: Final = 4.0
"""How long a majority may take to commit an offset, and to prove that the leader still leads."""

PAGE_MAX: Final = 1_000
"""Names of one answer: with 255 bytes each it stays below 1 MiB (docs/protocol-rules.md P13)."""

NO_REPLICA: Final = "no replica that can lead"

_UNKNOWN: Final = "not stored within {:g} s: it may be later"
_COLUMNS: Final = (
    "role",
    "node",
    "epoch",
    "offset",
    "committed_offset",
    "first_offset",
    "readers",
    "segments",
    "disk_bytes",
    "memory",
)


class Tracked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a stream knows under a name.

    Attributes:
        name: Of the consumer or publisher.
        offset: As the consumer stored it; of the publisher's last message.
        publishing_id: Of that message; None for consumers.
    """

    name: str
    offset: int
    publishing_id: int | None = None


class _Question(msgspec.Struct, frozen=True):
    """Which names are asked for.

    Attributes:
        of_publishers: Those of publishers, else of consumers.
        name: This one alone.
        after: In their order, those behind this one.
    """

    of_publishers: bool
    name: str | None = None
    after: str = ""


class Streams:
    """Works on single streams for operators, and keeps the offsets of their consumers.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        leaders: The way to the nodes that lead.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations, leaders: Leaders) -> None:
        self._control = control
        self._remote = remote
        self._leaders = leaders
        remote.on(STORE, self._store)
        remote.on(TRACKING, self._tracking)
        remote.on(STATUS, self._status)
        remote.on(RESTART, self._restart)

    async def store_offset(self, queue: Queue, name: str, offset: int) -> OperationResult:
        """Store how far a consumer is, at a majority of the replicas.

        Args:
            queue: A stream.
            name: The consumer's, 1 to 255 bytes of UTF-8.
            offset: From 0 to 2^63 - 1.

        Returns:
            Not done with a text that says whether it may have been stored all the same.
        """
        argument = msgspec.json.encode((name, offset)).decode()
        return await self._leaders.ask(queue, RemoteOperation(STORE, queue.uid, argument))

    async def tracked(
        self, queue: Queue, *, of_publishers: bool, name: str | None = None
    ) -> list[Tracked] | str:
        """What is known of consumers or publishers, by name.

        Args:
            queue: A stream.
            of_publishers: Of publishers, else of consumers.
            name: Of this one alone; None for all.

        Returns:
            A text says why it is not known.
        """
        found: list[Tracked] = []
        while True:
            after = found[-1].name if found else ""
            question = msgspec.json.encode(_Question(of_publishers, name, after)).decode()
            result = await self._leaders.ask(queue, RemoteOperation(TRACKING, queue.uid, question))
            if not result.is_done:
                return result.text
            more = msgspec.json.decode(result.text, type=list[Tracked])
            found += more
            if len(more) < PAGE_MAX or name is not None:
                return found

    async def status(self, queue: Queue) -> list[dict[str, Any]]:
        """What each member says, in the order of their names.

        Returns:
            Rows with RabbitMQ's keys, and what the replica takes of its node's disk and memory; of
            a member that does not answer only the role and the node are known.

        Source:
            rabbit_stream_queue.erl, status/2: "epoch" is the term.
        """
        serving = self._control.serving
        leader = "" if serving is None else serving.queues.leader_of(queue)
        rows = []
        for member in sorted(queue.members):
            answer = await self._remote.ask(member, RemoteOperation(STATUS, queue.uid))
            role = "writer" if member == leader else "replica"
            row: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"role": role, "node": member}
            rows.append(row | (msgspec.json.decode(answer.text) if answer.is_done else {}))
        return rows

    async def restart(self, queue: Queue, preferred: str) -> OperationResult:
        """Have another replica lead; publishers send again what was under way.

        Args:
            queue: A stream.
            preferred: The node that should lead; "" for the one that has most of the log.

        Returns:
            With the leader in its text; the present one where there is no other replica. Not done
            with NO_REPLICA, or with why it did not work.
        """
        return await self._leaders.ask(queue, RemoteOperation(RESTART, queue.uid, preferred))

    # What is asked of this node.

    def _replica(self, uid: int) -> StreamReplica | None:
        serving = self._control.serving
        found = [] if serving is None else serving.queues.replica(uid)
        return next((each for each in found if isinstance(each, StreamReplica)), None)

    def _group(self, uid: int) -> Group | None:
        cluster = self._control.cluster
        return None if cluster is None else cluster.host.group(uid)

    async def _store(self, operation: RemoteOperation) -> OperationResult:
        replica = self._replica(operation.uid)
        if replica is None or not replica.is_leading:
            return OperationResult(is_done=False, text=NOT_LED)
        name, offset = msgspec.json.decode(operation.argument, type=tuple[str, int])
        stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(result: object) -> None:
            if not stored.done():
                stored.set_result(result)

        replica.store_offset(name, offset, done)
        try:
            async with asyncio.timeout(STORE_S):
                result = await stored
        except TimeoutError:
            return OperationResult(is_done=False, text=_UNKNOWN.format(STORE_S))
        if isinstance(result, Refusal):
            return OperationResult(is_done=False, text=result.text)
        return OperationResult(is_done=True)

    async def _tracking(self, operation: RemoteOperation) -> OperationResult:
        replica, group = self._replica(operation.uid), self._group(operation.uid)
        if replica is None or group is None or not replica.is_leading:
            return OperationResult(is_done=False, text=NOT_LED)
        try:
            async with asyncio.timeout(READ_S):
                await group.read_barrier()
        except (RaftError, TimeoutError):
            return OperationResult(is_done=False, text=NOT_LED)
        question = msgspec.json.decode(operation.argument, type=_Question)
        machine = replica.machine
        found = [
            Tracked(name, machine.publishers[name][1], machine.publishers[name][0])
            if question.of_publishers
            else Tracked(name, machine.offsets[name])
            for name in _names(
                machine.publishers if question.of_publishers else machine.offsets, question
            )
        ]
        return OperationResult(is_done=True, text=msgspec.json.encode(found).decode())

    async def _status(self, operation: RemoteOperation) -> OperationResult:
        replica, group = self._replica(operation.uid), self._group(operation.uid)
        serving = self._control.serving
        if replica is None or group is None or serving is None:
            return OperationResult(is_done=False, text="no replica runs here")
        machine = replica.machine
        row = {
            "role": "writer" if replica.is_leading else "replica",
            "epoch": group.term,
            "offset": replica.end_offset - 1,
            "committed_offset": machine.next_offset - 1,
            "first_offset": machine.first_offset,
            "readers": serving.queues.consumer_count(operation.uid),
            "segments": len(machine.segments),
            "disk_bytes": replica.disk_bytes,
            "memory": memory.of_stream(replica.ram_bytes),
        }
        return OperationResult(is_done=True, text=msgspec.json.encode(row).decode())

    async def _restart(self, operation: RemoteOperation) -> OperationResult:
        group, here, to = self._group(operation.uid), self._control.name, operation.argument
        if group is None or not group.is_leader:
            return OperationResult(is_done=False, text=NOT_LED)
        if to and to not in group.voters:
            return OperationResult(is_done=False, text=NO_REPLICA)
        up = self._leaders.up()
        matches = group.status().matches
        others = [node for node in group.voters if node != here and node in up]
        to = to or max(others, key=lambda node: (matches.get(node, 0), node), default=here)
        if to == here:
            return OperationResult(is_done=True, text=here)
        try:
            await group.transfer(to)
        except RaftError as why:
            text = f"node {to} did not take over: {why or 'it is behind, or does not answer'}"
            return OperationResult(is_done=False, text=text)
        return OperationResult(is_done=True, text=to)


def _names(known: Iterable[str], question: _Question) -> list[str]:
    """The names that are asked for, of those that are known."""
    if question.name is not None:
        return [question.name] if question.name in known else []
    return heapq.nsmallest(PAGE_MAX, (name for name in known if name > question.after))
