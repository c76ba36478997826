"""Takes replicas of queues away, and looks at messages, at the node that leads a queue.

    delete a replica    1 another member leads, where the node to leave did
                        2 the leader removes it from the queue's Raft group; that is committed
                        3 group 0 notes the members that are left; the node erases its replica

In this order a node erases nothing that still counts for a majority: of two members the one that is
left could never commit its removal. If the work ends between 2 and 3, group 0 still names the node,
and the leader lets it in again as a member that has to catch up (`QueueGroups.tend`).

    go on alone         1 the others say how they are: damaged, or not there (`survivor.refusal`)
                        2 group 0 notes the one member: each node closes and removes its replica
                          when it has applied that, which is before it confirms anything more
                        3 the replica is closed, its configuration forced, and it is opened again

If that ends between 2 and 3, the queue has no leader until it is asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec

from broker.amqp.content import decode_properties
from broker.amqp.frames import body_of
from broker.audit import trail
from broker.audit.actor import Actor
from broker.errors import Refusal
from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.management.operations.leaders import LOOK_S, NOT_LED, Leaders
from broker.management.operations.rebalance import TRANSFER
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.message import Delivery
from broker.metadata.commands import MoveMembers
from broker.metadata.records import Queue
from broker.queues.replicas import survivor
from broker.queues.replicas.survivor import MemberState
from raft.errors import ChangeRefused, RaftError
from raft.group import Group

_log = logging.getLogger(__name__)

REMOVE: Final = "remove_member"
PEEK: Final = "peek_message"

PEEK_S: Final = 10.0
"""How long a disk may take to read one message."""

LAST_NODE: Final = "last_node"
"""RabbitMQ's word for it."""

NO_MESSAGE: Final = "Target queue does not have a message at that position"
REMOVE_S: Final = 5.0
"""How long a majority may take to commit the removal."""

TRIES_MAX: Final = 3
"""How often a leader that is to leave is asked to hand over."""

_LEADS_ITSELF: Final = "the replica leads: try again"

STATE: Final = "replica_state"
FORCE_SHRINK: Final = "queue.force_shrink"
"""Its name in the audit log."""

LEAD_S: Final = 10.0
"""How long a replica may take to be opened again and to lead: what it wrote must be durable."""

STOPPED: Final = "the broker on this node is stopped: start it with start_app"

PAYLOAD_BYTES: Final = 64
"""rabbit_quorum_queue.erl peek/2 shows so much."""


class QuorumQueues:
    """Works on single quorum queues for operators.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        leaders: The way to the nodes that lead.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations, leaders: Leaders) -> None:
        self._control = control
        self._remote = remote
        self._leaders = leaders
        remote.on(REMOVE, self._remove)
        remote.on(PEEK, self._peek)

    async def remove_member(self, queue: Queue, node: str, by: Actor) -> OperationResult:
        """Take a queue's replica away from a node; done at once if there is none.

        Args:
            queue: A quorum queue or a stream.
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
        result = await self._leaders.ask(queue, operation)
        for _ in range(TRIES_MAX):
            if result.text != _LEADS_ITSELF:
                break
            result = await self._move_leader(queue, node)
            if result.is_done:
                result = await self._leaders.ask(queue, operation)
        return result

    async def peek(self, queue: Queue, position: int) -> OperationResult:
        """Show a ready message.

        Args:
            queue: A quorum queue.
            position: 1 is the head.

        Returns:
            With JSON in its text; not done with NO_MESSAGE, or with why it is not known.
        """
        return await self._leaders.ask(queue, RemoteOperation(PEEK, queue.uid, str(position)))

    async def _move_leader(self, queue: Queue, node: str) -> OperationResult:
        """Have another member lead."""
        result = OperationResult(is_done=False, text="no other replica of the queue runs")
        for target in (
            each for each in queue.members if each != node and each in self._leaders.up()
        ):
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
            return OperationResult(is_done=False, text=NOT_LED)
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
        queue = None if serving is None else serving.queues.quorum_here(operation.uid)
        whole: asyncio.Future[list[Delivery] | None] = asyncio.get_running_loop().create_future()

        def done(found: list[Delivery] | None) -> None:
            if not whole.done():  # nobody waits any more
                whole.set_result(found)

        if queue is not None:
            queue.fill_later(queue.peek(position - 1, 1), done)
        try:
            found = None if queue is None else await asyncio.wait_for(whole, PEEK_S)
        except TimeoutError:
            text = f"the node's disk has not given the message in {PEEK_S:.0f} s: try again"
            return OperationResult(is_done=False, text=text)
        if found is None:
            return OperationResult(is_done=False, text=NOT_LED)
        if not found:
            return OperationResult(is_done=False, text=NO_MESSAGE)
        return OperationResult(is_done=True, text=msgspec.json.encode(_shown(found[0])).decode())


class Survivors:
    """Has a replica of this node go on alone where the others are damaged or lost.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        leaders: Knows which nodes can be reached.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations, leaders: Leaders) -> None:
        self._control = control
        self._remote = remote
        self._leaders = leaders
        self._under_way: set[int] = set()
        remote.on(STATE, self._state)

    async def go_on_alone(self, queue: Queue, by: Actor, *, is_forced: bool) -> OperationResult:
        """Make this node's replica the only member of its queue.

        Args:
            queue: A quorum queue or a stream.
            by: Who asks for it.
            is_forced: Members of which nothing is known are given up, too.

        Returns:
            What was given up and may be lost; not done with why not, and what to do next.
        """
        if queue.uid in self._under_way:
            return OperationResult(
                is_done=False, text="it is being done: another request came first"
            )
        self._under_way.add(queue.uid)
        try:
            states = await self._states(queue)
            why = survivor.refusal(queue, self._control.name, states, is_forced=is_forced)
            lost = survivor.given_up(queue, self._control.name, states)
            why = why or await self._force(queue, by)
        finally:
            self._under_way.discard(queue.uid)
        self._tell(queue, by, lost, why)
        if why:
            return OperationResult(is_done=False, text=why)
        here = states[self._control.name]
        assert here is not None, "the replica here is whole"
        return OperationResult(
            is_done=True, text=survivor.outcome(self._control.name, here.last_entry, lost)
        )

    async def _states(self, queue: Queue) -> dict[str, MemberState | None]:
        up, operation = self._leaders.up(), RemoteOperation(STATE, queue.uid)
        asked = [node for node in queue.members if node in up]
        answers = await asyncio.gather(*(self._remote.ask(node, operation) for node in asked))
        found: dict[str, MemberState | None] = dict.fromkeys(queue.members)
        for node, answer in zip(asked, answers, strict=True):
            if answer.is_done:
                found[node] = msgspec.json.decode(answer.text, type=MemberState)
        return found

    async def _force(self, queue: Queue, by: Actor) -> str:
        """Do it; why it was not done, or ""."""
        cluster, serving, node = self._control.cluster, self._control.serving, self._control.name
        if cluster is None or serving is None:
            return STOPPED
        if queue.members != (node,):
            command = MoveMembers(queue.uid, (node,), home=node, expected=queue.members)
            done = await cluster.propose(command, by=by)
            if isinstance(done, Refusal):
                return done.text
            if done is not True:
                return "the queue's members were changed meanwhile: try again"
        serving.lead_alone(queue.uid)
        for _ in range(int(LEAD_S / LOOK_S)):
            group = cluster.host.group(queue.uid)
            if group is not None and group.is_leader:
                return ""
            await asyncio.sleep(LOOK_S)
        return f"it is the only member now, but leads nothing yet: see the log of {node}"

    def _tell(self, queue: Queue, by: Actor, lost: dict[str, str], why: str) -> None:
        """Write it to the log and to the audit log."""
        subject = {"vhost": queue.vhost, "name": queue.name, "node": self._control.name}
        outcome = "refused" if why else "done"
        trail.note(
            self._control.name, by, FORCE_SHRINK, {**subject, "given_up": lost}, outcome, why
        )
        if not why:
            named = ", ".join(f"{node} ({how})" for node, how in lost.items())
            _log.critical(
                "queue.goes_on_alone",
                extra={"queue": queue.name, "vhost": queue.vhost, "given_up": named},
            )

    async def _state(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        if serving is None:
            return OperationResult(is_done=False, text=STOPPED)
        state = serving.replica_state(operation.uid)
        return OperationResult(is_done=True, text=msgspec.json.encode(state).decode())


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
