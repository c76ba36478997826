"""Where the consumers of streams on this node read: a replica here, or one of another node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from broker.errors import Refusal, ReplyCode
from broker.metadata.records import Queue
from broker.ports import Done
from broker.queues.node import NodeContext
from broker.queues.replicas.replica import Replica, leader_of
from broker.queues.streams.neighbour import NeighbourLog
from broker.queues.streams.reader import ReadableLog
from broker.queues.streams.replica import StreamReplica
from broker.queues.streams.service import answer
from broker.streams.questions import StreamAnswer, StreamQuestion


class StreamReading:
    """The logs that can be read on this node (`ReadableStreams`, `Neighbours` of `queues.streams`).

    Args:
        context: This node.
        replicas: The registry's replicas on this node, by the queue's incarnation.
    """

    def __init__(self, context: NodeContext, replicas: Mapping[int, Replica]) -> None:
        self._context = context
        self._replicas = replicas
        self._neighbours: dict[int, NeighbourLog] = {}
        self._asked = 0  # by which the members of a stream are asked in turn

    def readable(self, uid: int) -> ReadableLog | None:
        """The log of a stream, as consumers of this node read it; None if it is deleted."""
        replica = self._replicas.get(uid)
        if isinstance(replica, StreamReplica) and replica.is_readable:
            return replica.log
        queue = self._context.catalogue.queue_by_uid(uid)
        if queue is None or not any(self._members_alive(queue)):
            return None
        found = self._neighbours.get(uid)
        if found is None:
            found = self._neighbours[uid] = NeighbourLog(uid, self)
        return found

    def forget(self, uid: int) -> None:
        """A stream has a replica here from now on, or is deleted: no neighbour is read."""
        self._neighbours.pop(uid, None)

    def rest(self) -> None:
        """Once a second: let go of what no consumer has read for a while."""
        for log in self._neighbours.values():
            log.rest()

    @property
    def kept_bytes(self) -> int:
        """What is kept in memory for consumers here of streams without a replica here."""
        return sum([log.kept_bytes for log in self._neighbours.values()])

    def _members_alive(self, queue: Queue) -> Iterator[str]:
        here = self._context.node
        for node in self._context.catalogue.nodes():
            if node.alive and node.name != here and node.name in queue.members:
                yield node.name

    def ask(self, question: StreamQuestion, done: Done, *, is_again: bool) -> None:
        """Ask a node that has a replica of a stream; at first not the leader, which has most to do.

        Args:
            question: The question.
            done: Called once, with a `StreamAnswer` or a `Refusal`.
            is_again: Another member could not answer: each has its turn, in case the others lag.
        """
        queue = self._context.catalogue.queue_by_uid(question.uid)
        alive = [] if queue is None else list(self._members_alive(queue))
        if queue is None or not alive:
            done(Refusal(ReplyCode.NOT_FOUND, f"no replica of stream {question.uid} is alive"))
            return
        leader = leader_of(queue, self._replicas.get(queue.uid))
        self._asked += 1
        others = [node for node in alive if is_again or node != leader] or alive
        self._context.transport.ask_stream(others[self._asked % len(others)], question, done)

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        """Call something after so many seconds."""
        return self._context.after(seconds, call)

    def tell_consumers(self, queue: Queue, count: int, handled: tuple[int, int]) -> None:
        """Tell a stream's leader of this node's consumers.

        Args:
            queue: The stream.
            count: How many there are.
            handled: How many messages they got and acknowledged since the last time.
        """
        here = self._context.node
        replica = self._replicas.get(queue.uid)
        leader = leader_of(queue, replica)
        if leader != here:
            question = StreamQuestion(queue.uid, consumers=(here, count), handled=handled)
            # Lost answers do no harm: it is said again.
            self._context.transport.ask_stream(leader, question, lambda _: None)
        elif isinstance(replica, StreamReplica):
            replica.told(here, count, handled)

    async def answer(self, question: StreamQuestion) -> StreamAnswer:
        """Answer a node that has no replica of a stream.

        Args:
            question: What it asks, or tells of its consumers.

        Raises:
            LookupError: There is no replica here, or not what was asked for.
        """
        replica = self._replicas.get(question.uid)
        if isinstance(replica, StreamReplica) and question.consumers is not None:
            replica.told(*question.consumers, question.handled)
            return StreamAnswer(0, 0)
        if isinstance(replica, StreamReplica) and replica.is_readable:
            return await answer(replica.log, question)
        raise LookupError(f"no replica of stream {question.uid} can be read here")
