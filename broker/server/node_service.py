"""The door between nodes for queues: batches, answers, direct replies, and a few questions.

Bulk goes as payloads on the data stream (dropped when the link is down; the sender sends again).
Questions that want one answer are calls with a time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from broker.audit.actor import BROKER, Actor
from broker.cluster.calls import CallFailed
from broker.cluster.links import LinkEvent, Links
from broker.cluster.outbound import DATA
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch
from broker.fifo.effects import pack_value, unpack_value
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Done, QueueStat
from broker.queues.envelopes import (
    QueueReply,
    cut_reply,
    decode_reply,
    encode_reply,
    pack_commands,
    unpack_commands,
)
from broker.server.context import Spawner
from broker.server.throttle import Behind
from broker.streams.questions import (
    StreamAnswer,
    StreamQuestion,
    decode_answer,
    decode_question,
)
from broker.streams.questions import encode as encode_stream

_log = logging.getLogger(__name__)

COMMANDS: Final = 16
REPLY: Final = 17
DIRECT_REPLY: Final = 18
RING: Final = 19
"""Types of payload (`broker.cluster.payload_types`: 16 and above are ours)."""

STAT_METHOD: Final = "queue.stat"
DELETE_METHOD: Final = "queue.delete"
READMIT_METHOD: Final = "queue.readmit"
STREAM_METHOD: Final = "stream.read"
MAY_VOTE_METHOD: Final = "queue.may_vote"
MOVE_METHOD: Final = "queue.move"

CALL_TIMEOUT_S: Final = 6.0
"""A little longer than a proposal may take, which a delete waits for."""


LONG_REPLY_BYTES: Final = 1 << 20
"""After a reply of this size we look whether it has clogged the link; else the next one sees it."""


class DirectReply(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message for a direct reply-to consumer. See `broker.session.effects.ReplyTo`."""

    boot: str
    connection_id: int
    channel: int
    key: str
    message: Message


class _Delete(msgspec.Struct, array_like=True):
    uid: int
    if_unused: bool
    if_empty: bool
    by: Actor = BROKER


class _Stat(msgspec.Struct, array_like=True):
    uid: int
    is_declare: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_stat = msgspec.msgpack.Decoder(_Stat).decode
_decode_reply = msgspec.msgpack.Decoder(DirectReply).decode
_decode_delete = msgspec.msgpack.Decoder(_Delete).decode


class LocalQueues(Protocol):
    """This node's registry, as far as other nodes may ask it."""

    def receive_commands(self, uid: int, batch: CommandBatch) -> None:
        """Bring a batch to the queue it is for."""
        ...

    def receive_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Bring a reply to the channels that wait for it."""
        ...

    def receive_ring(self, node: str, payload: bytes | memoryview) -> None:
        """Bring a node's bytes to the ring of the mirrored queue they are for."""
        ...

    def ring_link_up(self, node: str) -> None:
        """A new data stream to or from a node: what was on the way on the old one may be lost."""
        ...

    def link_up(self, node: str) -> None:
        """Payloads reach a node again; some before may have been lost."""
        ...

    def drained(self, node: str) -> None:
        """The way to a node was clogged and has room again."""
        ...

    def stat_here(self, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Return the counts of a queue that is served here."""
        ...

    def move_here(self, uid: int, index: int) -> None:
        """Move messages of a quorum queue that is led here."""
        ...

    def delete_here(
        self, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool, by: Actor = BROKER
    ) -> None:
        """Delete a queue whose home this is."""
        ...

    @property
    def reading(self) -> LocalStreams:
        """The streams with a replica here."""
        ...


class LocalStreams(Protocol):
    """The streams with a replica here, as nodes without one read them."""

    async def answer(self, question: StreamQuestion) -> StreamAnswer:
        """Answer a question about the log of a replica here.

        Raises:
            LookupError: There is no replica here, or not what was asked for.
        """
        ...


class LocalConnections(Protocol):
    """This node's connections, as far as other nodes may reach them."""

    def deliver_reply(self, connection_id: int, channel: int, key: str, message: Message) -> None:
        """Hand a direct reply over; dropped if its connection is gone."""
        ...


class LocalGroups(Protocol):
    """The Raft groups of quorum queues here (`broker.server.groups.QueueGroups`)."""

    async def readmit(self, uid: int, node: str) -> bool:
        """Let a member that has nothing in again; False where this node does not lead the queue."""
        ...

    def may_vote(self, uid: int) -> bool:
        """True if this node's replica of a queue may vote: it is here, and was let in."""
        ...


class NodeService:
    """`broker.queues.registry.Mail`, and what answers it on the other side.

    Args:
        links: To the other nodes.
        catalogue: What exists.
        spawn: Runs calls in the node's task group.
    """

    def __init__(self, links: Links, catalogue: Catalogue, spawn: Spawner) -> None:
        self._links = links
        self._catalogue = catalogue
        self._spawn = spawn
        self._queues: LocalQueues | None = None
        self._connections: LocalConnections | None = None
        self._groups: LocalGroups | None = None
        self._replies: dict[str, deque[QueueReply]] = {}  # put off, by node
        self._repliers: dict[str, list[Callable[[], None]]] = {}  # held, by node
        links.on(COMMANDS, self._received_commands)
        links.on(REPLY, self._received_queue_reply)
        links.on(DIRECT_REPLY, self._received_direct_reply)
        links.on(RING, self._received_ring)
        links.on_event(self._link_event)
        links.on_drained(self._drained)
        links.serve(STAT_METHOD, self._serve_stat)
        links.serve(STREAM_METHOD, self._serve_stream)
        links.serve(DELETE_METHOD, self._serve_delete)
        links.serve(READMIT_METHOD, self._serve_readmit)
        links.serve(MAY_VOTE_METHOD, self._serve_may_vote)
        links.serve(MOVE_METHOD, self._serve_move)

    def attach(
        self, queues: LocalQueues, connections: LocalConnections, groups: LocalGroups
    ) -> None:
        """Say who answers here from now on."""
        self._queues = queues
        self._connections = connections
        self._groups = groups

    def detach(self) -> None:
        """This node serves nobody for now."""
        self._queues = None
        self._connections = None
        self._groups = None

    # Asking others (`Mail`)

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        """Carry a batch."""
        self._links.send(node, DATA, COMMANDS, *pack_commands(uid, batch))

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Carry a reply; one that finds the link clogged waits here, not yet encoded."""
        links = self._links
        waiting = self._replies.get(node)
        for part in cut_reply(reply):
            if waiting is None and links.is_clogged(node):
                waiting = self._replies[node] = deque()
            if waiting is None:
                links.send(node, DATA, REPLY, encode_reply(part))
            else:
                waiting.append(part)

    def send_ring(self, node: str, payload: bytes) -> None:
        """Carry bytes of mirrored queues' rings; their limits sit at the masters (P14)."""
        self._links.send(node, DATA, RING, payload)

    def is_clogged(self, node: str) -> bool:
        """True while more for a node shall wait at its origin."""
        return node in self._replies or self._links.is_clogged(node)

    def ask_delete(
        self,
        node: str,
        queue: Queue,
        done: Done,
        *,
        if_unused: bool,
        if_empty: bool,
        by: Actor = BROKER,
    ) -> None:
        """Have a queue's home delete it."""
        payload = _encode(_Delete(queue.uid, if_unused, if_empty, by))
        self._spawn(self._ask(node, DELETE_METHOD, payload, done))

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Have a node say how a queue it serves is."""
        payload = _encode(_Stat(uid, is_declare))
        self._spawn(self._ask(node, STAT_METHOD, payload, done))

    def ask_stream(self, node: str, question: StreamQuestion, done: Done) -> None:
        """Ask a node that has a replica of a stream."""
        self._spawn(self._ask_stream(node, encode_stream(question), done))

    def ask_move(self, node: str, uid: int, index: int) -> None:
        """Ask a quorum queue's leader to move messages."""
        self._spawn(self._ask(node, MOVE_METHOD, _encode((uid, index)), _ignore))

    async def _ask_stream(self, node: str, payload: bytes, done: Done) -> None:
        try:
            reply = await self._links.call(node, STREAM_METHOD, payload, CALL_TIMEOUT_S)
            result: object = decode_answer(reply)
        except (CallFailed, msgspec.DecodeError) as why:
            result = Refusal(ReplyCode.INTERNAL_ERROR, f"node '{node}' did not answer: {why}")
        done(result)

    def send_direct_reply(
        self, node: str, boot: str, connection_id: int, channel: int, key: str, message: Message
    ) -> Behind | None:
        """Carry a direct reply (`broker.server.context.ReplyRoute`).

        While the link is clogged its publisher is held back; what was read already still goes, up
        to a bound.
        """
        if node == self._links.node:
            if boot == self._links.boot and self._connections is not None:
                self._connections.deliver_reply(connection_id, channel, key, message)
            return None
        payload = _encode(DirectReply(boot, connection_id, channel, key, message))
        is_clogged = node in self._replies or self._links.is_clogged(node)
        if is_clogged and not self._has_room(node, len(payload)):
            _log.debug("reply.dropped", extra={"node": node, "bytes": len(payload)})
        else:
            self._links.send(node, DATA, DIRECT_REPLY, payload)
        if is_clogged or (len(payload) >= LONG_REPLY_BYTES and self.is_clogged(node)):
            return _CloggedWay(self, node)
        return None

    def _has_room(self, node: str, size: int) -> bool:
        """True if a clogged stream takes a reply.

        Half of it is for queues and rings: a full stream breaks, and they lose what is on it.
        """
        data = [each for each in self._links.status() if (each.node, each.stream) == (node, DATA)]
        waiting_bytes = sum([each.waiting_bytes for each in data])
        return waiting_bytes + size <= self._links.limits.data_bytes // 2

    def when_drained(self, node: str, resume: Callable[[], None]) -> None:
        """Call `resume` once, when a node's link is not clogged any more, or broken."""
        if self.is_clogged(node):
            self._repliers.setdefault(node, []).append(resume)
        else:
            resume()

    def _let_replies_on(self, node: str) -> None:
        for resume in self._repliers.pop(node, ()):
            resume()

    async def ask_readmit(self, node: str, uid: int) -> bool:
        """Tell a queue's leader that this node's replica has nothing; it may be asked again.

        Returns:
            True when the leader has made the replica a learner.
        """
        try:
            reply = await self._links.call(node, READMIT_METHOD, _encode(uid), CALL_TIMEOUT_S)
        except CallFailed as why:
            _log.info("queue.not_readmitted", extra={"leader": node, "why": str(why)})
            return False
        return msgspec.msgpack.decode(reply, type=bool)

    async def ask_may_vote(self, node: str, uid: int) -> bool:
        """Ask a node whether its replica of a queue may vote; False without an answer."""
        try:
            reply = await self._links.call(node, MAY_VOTE_METHOD, _encode(uid), CALL_TIMEOUT_S)
        except CallFailed as why:
            _log.info("queue.not_promoted", extra={"node": node, "why": str(why)})
            return False
        return msgspec.msgpack.decode(reply, type=bool)

    async def _ask(self, node: str, method: str, payload: bytes, done: Done) -> None:
        try:
            result = _unpack(await self._links.call(node, method, payload, CALL_TIMEOUT_S))
        except (CallFailed, ValueError, TypeError, IndexError) as why:
            _log.info("node.call_failed", extra={"node": node, "method": method, "why": str(why)})
            result = Refusal(ReplyCode.INTERNAL_ERROR, f"node '{node}' did not answer: {why}")
        try:
            done(result)
        except Exception:  # noqa: BLE001 - the outermost frame of a task in the node's group
            _log.exception("node.answer_failed", extra={"node": node, "method": method})

    # Answering others

    def _link_event(self, event: LinkEvent) -> None:
        if event.stream != DATA:
            return
        if event.is_up and self._queues is not None:
            self._queues.ring_link_up(event.node)
        if not event.outgoing:
            return
        self._replies.pop(event.node, None)  # lost with the link, like what was on its way
        self._let_replies_on(event.node)
        if event.is_up and self._queues is not None:
            self._queues.drained(event.node)
            self._queues.link_up(event.node)

    def _drained(self, node: str) -> None:
        waiting = self._replies.pop(node, None)
        while waiting and not self._links.is_clogged(node):
            self._links.send(node, DATA, REPLY, encode_reply(waiting.popleft()))
        if waiting:
            self._replies[node] = waiting
            return
        if self._queues is not None:
            self._queues.drained(node)
        self._let_replies_on(node)

    def _received_commands(self, node: str, _boot: str, payload: bytes | memoryview) -> None:
        if self._queues is None:
            return
        try:
            self._queues.receive_commands(*unpack_commands(payload))
        except Exception:  # noqa: BLE001 - one queue's bug must not break the link for all
            _log.exception("queue.commands_failed", extra={"node": node})

    def _received_queue_reply(self, node: str, _boot: str, payload: bytes | memoryview) -> None:
        if self._queues is None:
            return
        try:
            self._queues.receive_queue_reply(node, decode_reply(payload))
        except Exception:  # noqa: BLE001 - one queue's bug must not break the link for all
            _log.exception("queue.reply_failed", extra={"node": node})

    def _received_ring(self, node: str, _boot: str, payload: bytes | memoryview) -> None:
        if self._queues is not None:
            self._queues.receive_ring(node, payload)

    def _received_direct_reply(self, _node: str, _boot: str, payload: bytes | memoryview) -> None:
        reply = _decode_reply(payload)
        if reply.boot == self._links.boot and self._connections is not None:
            self._connections.deliver_reply(
                reply.connection_id, reply.channel, reply.key, reply.message
            )

    async def _serve_stat(self, _node: str, _boot: str, payload: bytes) -> bytes:
        queues = self._serving()
        answer = _waiting()
        request = _decode_stat(payload)
        queues.stat_here(request.uid, _settling(answer), is_declare=request.is_declare)
        stat = await answer
        if isinstance(stat, QueueStat):
            return _encode(["stat", stat])
        return _encode(pack_value(stat))

    async def _serve_stream(self, _node: str, _boot: str, payload: bytes) -> bytes:
        question = decode_question(payload)
        try:
            return encode_stream(await self._serving().reading.answer(question))
        except LookupError as why:
            raise CallFailed(str(why)) from why

    async def _serve_delete(self, _node: str, _boot: str, payload: bytes) -> bytes:
        queues = self._serving()
        request = _decode_delete(payload)
        queue = self._catalogue.queue_by_uid(request.uid)
        if queue is None:
            return _encode(pack_value(0))
        answer = _waiting()
        queues.delete_here(
            queue,
            _settling(answer),
            if_unused=request.if_unused,
            if_empty=request.if_empty,
            by=request.by,
        )
        return _encode(pack_value(await answer))

    async def _serve_readmit(self, node: str, _boot: str, payload: bytes) -> bytes:
        if self._groups is None:
            raise CallFailed("the broker on this node is stopped")
        uid = msgspec.msgpack.decode(payload, type=int)
        return _encode(await self._groups.readmit(uid, node))

    async def _serve_may_vote(self, _node: str, _boot: str, payload: bytes) -> bytes:
        if self._groups is None:
            raise CallFailed("the broker on this node is stopped")
        return _encode(self._groups.may_vote(msgspec.msgpack.decode(payload, type=int)))

    async def _serve_move(self, _node: str, _boot: str, payload: bytes) -> bytes:
        uid, index = msgspec.msgpack.decode(payload, type=tuple[int, int])
        self._serving().move_here(uid, index)
        return _encode(pack_value(0))

    def _serving(self) -> LocalQueues:
        if self._queues is None:
            raise CallFailed("the broker on this node is stopped")
        return self._queues


def _ignore(_result: object) -> None:
    """No-op: it is asked again."""


class _CloggedWay:
    """The way to a node, for who publishes replies to it."""

    __slots__ = ("_node", "_service")

    def __init__(self, service: NodeService, node: str) -> None:
        self._service = service
        self._node = node

    @property
    def is_congested(self) -> bool:
        return self._service.is_clogged(self._node)

    def when_drained(self, resume: Callable[[], None]) -> None:
        self._service.when_drained(self._node, resume)


def _unpack(reply: bytes) -> object:
    packed = msgspec.msgpack.decode(reply)
    return QueueStat(*packed[1]) if isinstance(packed[0], str) else unpack_value(packed)


def _waiting() -> asyncio.Future[object]:
    return asyncio.get_running_loop().create_future()


def _settling(answer: asyncio.Future[object]) -> Done:
    """A callback that answers, unless the call was given up meanwhile."""

    def done(value: object) -> None:
        if not answer.done():
            answer.set_result(value)

    return done
