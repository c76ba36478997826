"""Deletes of queues, on request or for want of use, by the node that serves them (P5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal, ReplyCode
from broker.metadata.commands import DeleteQueue
from broker.metadata.records import REPLICATED, Queue
from broker.ports import Done
from broker.queues.classic import ClassicQueue
from broker.queues.gate import Delete
from broker.queues.handle import QueueDirectory
from broker.queues.node import NodeContext
from broker.queues.quorum import QuorumQueue
from broker.queues.refusals import unavailable


class Deletes:
    """Deletes queues on request, and for want of use.

    Args:
        node: This node.
        classic: The classic queues that this node serves.
        queues: The way to queues.
    """

    def __init__(
        self, node: NodeContext, classic: Mapping[int, ClassicQueue], queues: QueueDirectory
    ) -> None:
        self._node = node
        self._catalogue = node.catalogue
        self._classic = classic
        self._queues = queues
        self._propose = node.propose
        # by uid: a delete that timed out, and who wanted it (P5)
        self._undecided: dict[int, tuple[ClassicQueue | QuorumQueue, Actor]] = {}
        self._early: list[Delete] = []  # consumers may be about to attach again

    def delete(self, request: Delete) -> None:
        """Delete a queue, wherever it is served."""
        queue = self._catalogue.queue_by_uid(request.queue.uid) or request.queue
        request, done = replace(request, queue=queue), request.done
        if queue.type in REPLICATED:
            self._delete_replicated(request)
        elif not self._is_served(queue):
            # Counts come from the next master, or a refusal once it was waited for in vain.
            self._queues.open(queue).stat(
                lambda stat: done(stat) if isinstance(stat, Refusal) else self.delete(request)
            )
        elif queue.home == self._node.node:
            self.delete_here(request)
        else:
            if_unused, if_empty = request.if_unused, request.if_empty
            transport = self._node.transport
            transport.ask_delete(
                queue.home, queue, done, if_unused=if_unused, if_empty=if_empty, by=request.by
            )

    def delete_here(self, request: Delete) -> None:
        """Check, stop accepting, propose; go on if that fails (P5)."""
        queue, done = request.queue, request.done
        local = self._classic.get(queue.uid)
        if local is None and self._catalogue.queue_by_uid(queue.uid) is not None:
            done(unavailable(queue))  # a mirrored queue that has moved on
            return
        if local is None:
            done(0)  # gone already, which is what was asked for
            return
        if local.waits_for_delete(request):
            return  # until it is known what becomes of the first
        count = local.begin_delete(if_unused=request.if_unused, if_empty=request.if_empty)
        if count is None:
            self._early.append(request)
        elif isinstance(count, Refusal):
            done(count)
        else:
            self._ask(local, lambda result: done(_or(count, result)), request.by)

    def unused(self, uid: int, then: Callable[[], None]) -> None:
        """Delete a classic queue that nobody uses any more; refused: again at its next tick.

        Args:
            uid: The queue's incarnation.
            then: Called when it is gone at every node that speaks for clients, or is not going.
        """
        queue = self._classic.get(uid)
        if queue is None or not isinstance(queue.begin_delete(if_unused=True, if_empty=False), int):
            then()
            return
        self._ask(queue, lambda _result: then())

    def expired(self, queue: QuorumQueue) -> None:
        """Delete a quorum queue that nobody uses any more; it accepts nothing meanwhile."""
        self._ask(queue, _ignore)

    def stopped(self, uid: int) -> None:
        """A queue is not served here any more."""
        self._undecided.pop(uid, None)

    def tick(self) -> None:
        """Once a second: propose again what timed out, ask again what came early.

        A quorum queue that has had another leader since then may be in use: it goes on.
        """
        undecided, self._undecided = self._undecided, {}
        for queue, by in undecided.values():
            if isinstance(queue, ClassicQueue) or queue.is_still_ending:
                self._ask(queue, _ignore, by)
            else:
                queue.resume()
        early, self._early = self._early, []
        for request in early:
            self.delete(request)

    def _ask(self, queue: ClassicQueue | QuorumQueue, done: Done, by: Actor = BROKER) -> None:
        """Propose what a queue has prepared for; the queue resumes if it is refused (P5).

        A proposal that timed out is not an outcome: it may be committed yet, and would take with
        it what was accepted meanwhile. So the queue goes on only when it knows.
        """

        def outcome(result: object) -> None:
            if isinstance(result, Refusal):
                if result.code is ReplyCode.INTERNAL_ERROR:
                    self._undecided[queue.record.uid] = queue, by
                else:
                    queue.resume()
            done(result)

        self._propose(DeleteQueue(queue.record.uid), outcome, by)

    def _delete_replicated(self, request: Delete) -> None:
        queue, done = request.queue, request.done

        def counted(stat: object) -> None:
            ready = getattr(stat, "ready", 0)

            self._propose(
                DeleteQueue(queue.uid), lambda result: done(_or(ready, result)), request.by
            )

        self._queues.open(queue).stat(counted)

    def _is_served(self, queue: Queue) -> bool:
        """True if a classic queue has a home that answers."""
        node = self._catalogue.node(queue.home)
        is_led = queue.ring is None or queue.ring.is_serving
        return is_led and node is not None and node.alive


def _or(count: object, result: object) -> object:
    """A delete's answer: how many messages were ready, unless it was refused."""
    return result if isinstance(result, Refusal) else count


def _ignore(result: object) -> None:
    """Nobody waits for this outcome."""
