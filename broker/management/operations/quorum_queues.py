"""Takes replicas of quorum queues away, and looks at their messages, at the node that leads them.

    delete a replica    1 another member leads, where the node to leave did
                        2 the leader removes it from the queue's Raft group; that is committed
                        3 group 0 notes the members that are left; the node erases its replica

In this order a node erases nothing that still counts for a majority: of two members the one that is
left could never commit its removal. If the work ends between 2 and 3, group 0 still names the node,
and the leader lets it in again as a member that has to catch up (`QueueGroups.tend`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from broker.amqp.content import decode_properties
from broker.amqp.frames import body_of
from broker.audit.actor import Actor
from broker.errors import Refusal
from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.management.operations.rebalance import TRANSFER
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.message import Delivery
from broker.metadata.commands import MoveMembers
from broker.metadata.records import Queue
from raft.errors import ChangeRefused, RaftError
from raft.group import Group

REMOVE: Final = "remove_member"
PEEK: Final = "peek_message"

LAST_NODE: Final = "last_node"
"""RabbitMQ's word for it."""

NO_MESSAGE: Final = "Target queue does not have a message at that position"
REMOVE_S: Final = 5.0
"""How long a majority may take to commit the removal."""

LOOK_S: Final = 0.05
LEADER_S: Final = 4.0
"""How often the members are asked, and for how long: an election takes less."""

TRIES_MAX: Final = 3
"""How often a leader that is to leave is asked to hand over."""

_NOT_LED: Final = "no replica of the queue leads: try again"
_LEADS_ITSELF: Final = "the replica leads: try again"

PAYLOAD_BYTES: Final = 64
"""rabbit_quorum_queue.erl peek/2 shows so much."""


class QuorumQueues:
    """Works on single quorum queues for operators.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(REMOVE, self._remove)
        remote.on(PEEK, self._peek)

    async def remove_member(self, queue: Queue, node: str, by: Actor) -> OperationResult:
        """Take a queue's replica away from a node; done at once if there is none.

        Args:
            queue: A quorum queue.
            node: Any node, also one that does not run.
            by: Who asks for it.

        Returns:
            Not done with LAST_NODE, or with why the others could not do it.
        """
        if node not in queue.members:
            return OperationResult(is_done=True)
        if len(queue.members) == 1:
            return OperationResult(is_done=False, text=LAST_NODE)
        operation = RemoteOperation(REMOVE, queue.uid, node, by)
        result = await self._ask_leader(queue, operation)
        for _ in range(TRIES_MAX):
            if result.text != _LEADS_ITSELF:
                break
            result = await self._move_leader(queue, node)
            if result.is_done:
                result = await self._ask_leader(queue, operation)
        return result

    async def peek(self, queue: Queue, position: int) -> OperationResult:
        """Show a ready message.

        Args:
            queue: A quorum queue.
            position: 1 is the head.

        Returns:
            With JSON in its text; not done with NO_MESSAGE, or with why it is not known.
        """
        return await self._ask_leader(queue, RemoteOperation(PEEK, queue.uid, str(position)))

    def _up(self) -> list[str]:
        cluster = self._control.cluster
        return [self._control.name, *(cluster.peers.up() if cluster is not None else [])]

    async def _ask_leader(self, queue: Queue, operation: RemoteOperation) -> OperationResult:
        """Ask the members until the one that leads has answered; a leader may just be elected."""
        serving = self._control.serving
        known = queue.home if serving is None else serving.queues.leader_of(queue)
        others = (node for node in queue.members if node != known)
        nodes = [node for node in (known, *others) if node in self._up()]
        result = OperationResult(is_done=False, text="no replica of the queue answers")
        for _ in range(int(LEADER_S / LOOK_S)):
            for node in nodes:
                result = await self._remote.ask(node, operation)
                if result.is_done or result.text not in {_NOT_LED, ""}:
                    return result
            await asyncio.sleep(LOOK_S)
        return result

    async def _move_leader(self, queue: Queue, node: str) -> OperationResult:
        """Have another member lead."""
        result = OperationResult(is_done=False, text="no other replica of the queue runs")
        for target in (each for each in queue.members if each != node and each in self._up()):
            result = await self._remote.ask(node, RemoteOperation(TRANSFER, queue.uid, target))
            if result.is_done:
                break
        return result

    # What is asked of this node.

    async def _remove(self, operation: RemoteOperation) -> OperationResult:
        cluster, node = self._control.cluster, operation.argument
        queue = None if cluster is None else cluster.metadata.catalogue.queue_by_uid(operation.uid)
        group = None if cluster is None else cluster.host.group(operation.uid)
        if cluster is None or queue is None or group is None or not group.is_leader:
            return OperationResult(is_done=False, text=_NOT_LED)
        if node == self._control.name:
            return OperationResult(is_done=False, text=_LEADS_ITSELF)
        left = tuple(each for each in queue.members if each != node)
        try:
            async with asyncio.timeout(REMOVE_S):
                await _remove_from(group, node)
        except (RaftError, TimeoutError) as why:
            text = f"the queue's members could not agree: {why or 'no majority in time'}"
            return OperationResult(is_done=False, text=text)
        command = MoveMembers(queue.uid, left, expected=queue.members)
        done = await cluster.propose(command, by=operation.by)
        if isinstance(done, Refusal):
            return OperationResult(is_done=False, text=done.text)
        is_done = done is True
        text = "" if is_done else "the queue's members were changed meanwhile: try again"
        return OperationResult(is_done, text)

    async def _peek(self, operation: RemoteOperation) -> OperationResult:
        serving, position = self._control.serving, int(operation.argument)
        found = (
            None if serving is None else serving.queues.peek_here(operation.uid, position - 1, 1)
        )
        if found is None:
            return OperationResult(is_done=False, text=_NOT_LED)
        if not found:
            return OperationResult(is_done=False, text=NO_MESSAGE)
        return OperationResult(is_done=True, text=msgspec.json.encode(_shown(found[0])).decode())


async def _remove_from(group: Group, node: str) -> None:
    """Remove a member, again while the leader may not change the members yet.

    It may have led for a moment only, or another change is under way.

    Raises:
        RaftError: It can't.
    """
    while node in (*group.voters, *group.learners):
        try:
            await group.remove(node)
        except ChangeRefused:
            if not group.is_leader:
                raise
            await asyncio.sleep(LOOK_S)


def _shown(delivery: Delivery) -> dict[str, Any]:
    """A message under the keys that rabbitmq-queues peek prints."""
    message = delivery.message
    properties = decode_properties(message)
    found: dict[str, Any] = {
        name: plain(value)
        for name, value in msgspec.structs.asdict(properties).items()
        if value is not None and name != "headers"
    }
    found |= {
        "routing_keys": [plain(message.routing_key)],
        "exchange": plain(message.exchange),
        f"payload (max {PAYLOAD_BYTES} bytes)": body_of(message)[:PAYLOAD_BYTES].decode(
            "utf-8", "replace"
        ),
    }
    headers = {f"header.{name}": plain(value) for name, value in (properties.headers or {}).items()}
    return found | headers | {"header.x-delivery-count": delivery.delivery_count}
