"""Dead-lettering: from queues that this node serves to the targets of their exchanges.

A queue's home, master or leader hands its dead messages over (`take`). They are routed in the next
turn of the loop, never in the turn of their death: two queues that dead-letter to each other would
otherwise call each other without end. All messages that one turn has for a target leave in one
publish, at the rate that the target can take. Replayed histories take the same path (`replay`).

At most once: the queue has forgotten the message. It is published without a confirm, and is lost if
there is no route (docs/rabbitmq-behaviour.md 1.5). At least once (1.18), and for messages that an
x-delayed-message exchange has kept: the queue holds the message until every target has confirmed
it. A message that a target rejects, or that has no route, is tried again; the queue's next leader
or master tries all of them again.

Invariants:
1. A node without the lease routes nothing (P4): the messages wait here.
2. A held message is published to each target once, and again only if the target rejects it.
3. A held message is dropped only when every target has confirmed it, when all of its targets are
   left out because of a cycle, or when its delay is over and no queue is bound.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.amqp.content import decode_properties
from broker.fifo.dead_letter import dead_message, deaths_of, is_cycle
from broker.fifo.effects import Dead
from broker.fifo.limits import Reason
from broker.message import Delivery, Message
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.queues.delay_store import as_taken_by, due
from broker.queues.handle import QueueDirectory
from broker.queues.node import NodeContext

_log = logging.getLogger(__name__)

TURN_MAX: Final = 1_000
"""Most messages routed in one turn of the loop: some 30 ms, as each gets new headers."""

PUBLISH_MESSAGES_MAX: Final = 1_000
PUBLISH_BYTES_MAX: Final = 1 << 20
"""Most messages and bytes of one publish to a target (P13)."""

IN_FLIGHT_MAX: Final = 1_000
"""Most held messages of one queue that wait for confirms. RabbitMQ has 32 in flight."""

BEHIND_BYTES: Final = 32 << 20
"""Bytes of waiting dead letters above which publishers to queues that dead-letter wait."""

WAITING_BYTES_MAX: Final = 512 << 20
"""Most bytes of dead messages that wait here and no queue holds; more are dropped and logged."""

RETRY_MS: Final = 5_000
"""When a rejected message is tried again. RabbitMQ waits 180 s, too long after a failover."""

UNROUTED_RETRY_MS: Final = 180_000
"""When unrouted messages are tried again though no exchange or binding has changed."""

PROBES: Final = 100
"""Unrouted messages that are tried first after a change, which may have nothing to do with them."""

CYCLES_MAX: Final = 1_000
"""Cycles remembered so that each is logged once."""

DropHeld = Callable[[list[int]], None]
"""Makes a queue drop held messages, by number: they have reached all their targets."""


class DeadLetterSource(NamedTuple):
    """A queue whose messages died.

    Attributes:
        queue: The queue.
        settings: Its settings when they died; they name the dead-letter exchange.
        drop: Makes the queue drop messages that it holds for at-least-once dead-lettering.
    """

    queue: Queue
    settings: QueueSettings
    drop: DropHeld

    def keeps_unrouted(self, reason: Reason) -> bool:
        """True if a held message without a route waits for one, as at-least-once demands."""
        return reason != "delayed" and self.settings.is_at_least_once


class _HeldMessage:
    """A dead message that its queue holds until all targets have confirmed it.

    Attributes:
        waiting: Targets that have not answered, by uid.
        reached: Targets that have confirmed it, by uid.
        is_refused: True if a target has rejected it.
    """

    __slots__ = ("is_refused", "item", "pending", "reached", "reason", "waiting")

    def __init__(self, pending: _PendingDeadLetters, reason: Reason, item: Delivery) -> None:
        self.pending = pending
        self.reason: Reason = reason
        self.item = item
        self.waiting: set[int] = set()
        self.reached: set[int] = set()
        self.is_refused = False


class _PendingDeadLetters:
    """The at-least-once dead letters of one queue that have not arrived.

    Attributes:
        messages: All of them, by number.
        queued: Messages to route, in order of death.
        refused: Rejected messages, each with the time of the next attempt in monotonic ms.
        unrouted: Messages without a route, the longest untried first.
        looked_ms: When the unrouted ones were last tried, monotonic ms.
        is_probing: True while a few of the unrouted ones are tried on behalf of all.
        finished: Numbers to drop at the end of this turn.
        in_flight: How many messages wait for confirms.
    """

    __slots__ = (
        "finished",
        "in_flight",
        "is_probing",
        "looked_ms",
        "messages",
        "queued",
        "refused",
        "source",
        "unrouted",
    )

    def __init__(self, source: DeadLetterSource) -> None:
        self.source = source
        self.messages: dict[int, _HeldMessage] = {}
        self.queued: deque[_HeldMessage] = deque()
        self.refused: deque[tuple[int, _HeldMessage]] = deque()
        self.unrouted: deque[_HeldMessage] = deque()
        self.looked_ms = 0
        self.is_probing = False
        self.finished: list[int] = []
        self.in_flight = 0


_Waiting = tuple[Message, _HeldMessage | None, int]
"""A message to publish, the held message that it is a copy of, and the bytes it counts as."""


class _PublishQueue:
    """Dead letters that wait to be published to one queue, in order."""

    __slots__ = ("is_waiting", "queue", "waiting")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.waiting: deque[_Waiting] = deque()
        self.is_waiting = False


class _Routed(NamedTuple):
    """A dead message as it is published next, and where.

    Attributes:
        message: The message, with its new headers.
        queues: Its targets.
        is_routed: True if a queue is bound, even one that a cycle keeps out of `queues`.
    """

    message: Message
    queues: tuple[Queue, ...]
    is_routed: bool


class DeadLetters:
    """All dead messages of one node. A `broker.ports.PublisherPort` towards their targets.

    Args:
        node: This node; it routes only while it has the lease (P4).
        queues: Opens the handles of targets.
    """

    def __init__(self, node: NodeContext, queues: QueueDirectory) -> None:
        self._node = node
        self._catalogue = node.catalogue
        self._clock = node.clock
        self._queues = queues
        self._dead: deque[tuple[DeadLetterSource, Reason, deque[Delivery]]] = deque()
        self._pending: dict[int, _PendingDeadLetters] = {}
        self._outgoing: dict[int, _PublishQueue] = {}
        self._in_flight: dict[int, tuple[_HeldMessage, int]] = {}  # by confirm number: held, target
        self._last_number = 0
        self._is_due = False
        self._is_running = False
        self._waiting_bytes = 0
        self._dropped = 0
        self._cycles: set[tuple[str, ...]] = set()
        self._version = -1

    @property
    def is_behind(self) -> bool:
        """True while publishers to queues that dead-letter must wait.

        False while dead letters themselves are published: their target may dead-letter, too.
        """
        return self._waiting_bytes > BEHIND_BYTES and not self._is_running

    @property
    def waiting_bytes(self) -> int:
        """Bytes of dead messages that wait to be routed or published."""
        return self._waiting_bytes

    def take(self, source: DeadLetterSource, dead: list[Dead]) -> None:
        """Take a queue's dead messages. They are routed in the next turn of the loop."""
        for reason, items, is_held in dead:
            if is_held:
                self._hold(source, reason, items)
            else:
                self._keep(source, reason, items)
        self._schedule()

    def replay(self, queue: Queue, messages: list[Message]) -> None:
        """Publish a history at most once, at the rate that the queue can take; needs the lease.

        Replays are excluded from back-pressure limits; the exchange can replay them.
        """
        outgoing = self._outgoing_to(queue)
        outgoing.waiting.extend([(as_taken_by(queue, message), None, 0) for message in messages])
        if not outgoing.is_waiting:
            self._send(outgoing)

    def forget(self, uid: int) -> None:
        """Forget the messages that a queue holds: it dropped them, or is no longer served here."""
        pending = self._pending.pop(uid, None)
        if pending is not None:
            pending.messages.clear()

    def follow(self, uid: int, settings: QueueSettings) -> None:
        """Policies have changed: apply a queue's new settings to the messages that it holds.

        If the new settings end at-least-once dead-lettering, the queue drops these messages itself
        and calls `forget`. The old settings apply until then, for the change may be undone.
        """
        pending = self._pending.get(uid)
        if pending is None:
            return
        if settings.is_at_least_once or pending.source.queue.delays_for is not None:
            pending.source = pending.source._replace(settings=settings)
            pending.queued.extend(pending.unrouted)
            pending.unrouted.clear()
            self._schedule()

    def stop(self) -> None:
        """Drop everything: the node stops."""
        self._dead.clear()
        self._outgoing.clear()
        self._pending.clear()

    def lease_back(self) -> None:
        """The lease may be back: route the messages that waited for it."""
        if self._dead or self._pending or self._outgoing:
            self._schedule()

    def tick(self) -> None:
        """Once a second: try messages again that were rejected or had no route."""
        if self._dropped:
            _log.warning("queue.dead_letters_dropped", extra={"count": self._dropped})
            self._dropped = 0
        if not self._pending:
            return
        now_ms, version = self._clock.monotonic_ms(), self._catalogue.version
        is_changed, self._version = version != self._version, version
        for pending in self._pending.values():
            refused, unrouted, queued = pending.refused, pending.unrouted, pending.queued
            while refused and refused[0][0] <= now_ms:
                queued.append(refused.popleft()[1])
            if unrouted and (is_changed or now_ms - pending.looked_ms >= UNROUTED_RETRY_MS):
                pending.looked_ms = now_ms
                pending.is_probing = True
                for _ in range(min(len(unrouted), PROBES)):
                    queued.append(unrouted.popleft())
            if queued:
                self._schedule()

    # `PublisherPort` for the held messages, which are published with confirm numbers.

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """A target has confirmed these."""
        self._answered(seqnos, ok=True)

    def rejected(self, seqnos: Sequence[int]) -> None:
        """A target has rejected these, or its outcome is unknown."""
        self._answered(seqnos, ok=False)

    def _answered(self, numbers: Sequence[int], *, ok: bool) -> None:
        for number in numbers:
            known = self._in_flight.pop(number, None)
            if known is None:
                continue  # its queue has dropped it
            held, target = known
            held.waiting.discard(target)
            if ok:
                held.reached.add(target)
            else:
                held.is_refused = True
            if not held.waiting:
                self._ended(held)

    def _ended(self, held: _HeldMessage) -> None:
        """Every target of a held message has answered."""
        pending = held.pending
        pending.in_flight -= 1
        if held.is_refused:
            pending.refused.append((self._clock.monotonic_ms() + RETRY_MS, held))
        else:
            self._node.counts.dead_confirmed += held.reason != "delayed"
            self._finish(held)
        if pending.queued:
            self._schedule()

    def _finish(self, held: _HeldMessage) -> None:
        pending, number = held.pending, held.item.number
        if pending.messages.pop(number, None) is not None:
            pending.finished.append(number)
            self._schedule()

    # Taking.

    def _hold(self, source: DeadLetterSource, reason: Reason, items: list[Delivery]) -> None:
        pending = self._pending.get(source.queue.uid)
        if pending is None:
            pending = self._pending[source.queue.uid] = _PendingDeadLetters(source)
        pending.source = source
        for item in items:
            if item.number not in pending.messages:
                held = pending.messages[item.number] = _HeldMessage(pending, reason, item)
                pending.queued.append(held)

    def _keep(self, source: DeadLetterSource, reason: Reason, items: list[Delivery]) -> None:
        kept: deque[Delivery] = deque()
        for item in items:
            size_bytes = len(item.message.content)
            if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
                self._dropped += 1
            else:
                self._waiting_bytes += size_bytes
                kept.append(item)
        if kept:
            self._dead.append((source, reason, kept))

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._node.defer(self._run)

    # A turn of the loop.

    def _run(self) -> None:
        self._is_due = False
        if not self._node.has_lease():
            return  # until `lease_back`
        self._is_running = True
        try:
            self._route_and_send()
        finally:
            self._is_running = False

    def _route_and_send(self) -> None:
        budget = self._run_kept(TURN_MAX)
        for pending in list(self._pending.values()):
            budget = self._run_held(pending, budget)
        for outgoing in list(self._outgoing.values()):
            if not outgoing.is_waiting:
                self._send(outgoing)
        self._drop_finished()
        if budget <= 0:
            self._schedule()

    def _run_kept(self, budget: int) -> int:
        routes = _TurnRoutes(self)
        while self._dead and budget > 0:
            source, reason, items = self._dead[0]
            while items and budget > 0:
                budget -= 1
                item = items.popleft()
                self._waiting_bytes -= len(item.message.content)
                routed = routes.destination(source, reason, item.message)
                for queue in routed.queues:
                    self._append(queue, routed.message, None)
            if not items:
                self._dead.popleft()
        return budget

    def _run_held(self, pending: _PendingDeadLetters, budget: int) -> int:
        if not pending.queued:
            return budget
        routes, queued = _TurnRoutes(self), pending.queued
        while queued and budget > 0 and pending.in_flight < IN_FLIGHT_MAX:
            budget -= 1
            held = queued.popleft()
            if held.item.number not in pending.messages:
                continue  # dropped meanwhile
            held.is_refused = False
            routed = routes.destination(pending.source, held.reason, held.item.message)
            targets = [queue for queue in routed.queues if queue.uid not in held.reached]
            if targets:
                pending.in_flight += 1
                held.waiting = {queue.uid for queue in targets}
                for queue in targets:
                    self._append(queue, routed.message, held)
            elif routed.is_routed or not pending.source.keeps_unrouted(held.reason):
                self._finish(held)
            else:
                pending.unrouted.append(held)
                continue
            if pending.is_probing:  # one has a route now: try all
                pending.is_probing = False
                queued.extend(pending.unrouted)
                pending.unrouted.clear()
        return budget

    def _append(self, queue: Queue, message: Message, held: _HeldMessage | None) -> None:
        size_bytes = len(message.content)
        self._outgoing_to(queue).waiting.append((as_taken_by(queue, message), held, size_bytes))
        self._waiting_bytes += size_bytes

    def _outgoing_to(self, queue: Queue) -> _PublishQueue:
        outgoing = self._outgoing.get(queue.uid)
        if outgoing is None:
            outgoing = self._outgoing[queue.uid] = _PublishQueue(queue)
        return outgoing

    def _send(self, outgoing: _PublishQueue) -> None:
        """Publish the dead letters that wait for a queue, while it keeps up and has room."""
        handle, uid = self._queues.open(outgoing.queue), outgoing.queue.uid
        while outgoing.waiting:
            piece = self._next_piece(outgoing.waiting)
            messages = [message for message, _, _ in piece]
            if handle.is_congested or not handle.has_room(messages):
                outgoing.waiting.extendleft(reversed(piece))
                outgoing.is_waiting = True
                handle.when_drained(lambda: self._drained(outgoing))
                return
            self._waiting_bytes -= sum(counted for _, _, counted in piece)
            numbers = [0 if each is None else self._number(each, uid) for _, each, _ in piece]
            if messages:
                handle.publish(messages, numbers if any(numbers) else None, self)
        self._outgoing.pop(uid, None)

    def _next_piece(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        """Remove the messages of one publish; skip held ones that were dropped meanwhile."""
        piece: list[_Waiting] = []
        size_bytes = 0
        while waiting and len(piece) < PUBLISH_MESSAGES_MAX:
            message, held, counted = waiting[0]
            if held is not None and held.item.number not in held.pending.messages:
                self._waiting_bytes -= counted
                waiting.popleft()
                continue
            size_bytes += len(message.content)
            if piece and size_bytes > PUBLISH_BYTES_MAX:
                break
            piece.append(waiting.popleft())
        return piece

    def _number(self, held: _HeldMessage, target: int) -> int:
        self._last_number = number = self._last_number + 1
        self._in_flight[number] = (held, target)
        return number

    def _drained(self, outgoing: _PublishQueue) -> None:
        outgoing.is_waiting = False
        self._schedule()

    def _drop_finished(self) -> None:
        for uid, pending in list(self._pending.items()):
            if pending.finished:
                finished, pending.finished = pending.finished, []
                pending.source.drop(finished)
            if not pending.messages:
                self._pending.pop(uid, None)

    # Routing.

    def route(self, vhost: str, exchange: str, message: Message, keys: list[str]) -> list[Queue]:
        """Find the queues a message goes to, stores included; none where the exchange is missing.

        Args:
            vhost: Its virtual host.
            exchange: The exchange it goes to.
            message: The message, its routing key in it.
            keys: Routing keys beside that.
        """
        catalogue, key = self._catalogue, message.routing_key
        if catalogue.looks_inside(vhost, exchange):
            known = decode_properties(message)
            found = catalogue.route(
                vhost,
                exchange,
                key,
                known.headers or {},
                keys,
                properties=known,
                draw=self._node.draw(),
            )
        else:
            found = catalogue.route(vhost, exchange, key, None, keys)
        return [] if found is None else [*found.queues, *found.stores]

    def is_fixed(self, vhost: str, exchange: str) -> bool:
        """True if routes from an exchange depend on routing keys alone."""
        return not self._catalogue.looks_inside(vhost, exchange)

    def now_s(self) -> int:
        """Seconds since the epoch, for the time stamp of a death."""
        return self._clock.now_ms() // 1000

    def tell_cycle(self, message: Message, targets: list[str]) -> None:
        """Log cycles, each once.

        Args:
            message: The message that is dropped.
            targets: The queues to which it would have gone again.
        """
        names = [queue for queue, _ in deaths_of(message)]
        for target in targets:
            queues = (target, *names)
            if queues not in self._cycles and len(self._cycles) < CYCLES_MAX:
                self._cycles.add(queues)
                _log.warning(
                    "Message dropped because the following list of queues (ordered by death "
                    "recency) contains a dead letter cycle without reason 'rejected'. "
                    "This list will not be logged again: %s",
                    list(queues),
                )


class _TurnRoutes:
    """One turn's routes; those that depend on keys alone are looked up once."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        self._time_s = dead_letters.now_s()
        self._known: dict[tuple[str, str, str, tuple[str, ...]], list[Queue]] = {}

    def destination(self, source: DeadLetterSource, reason: Reason, message: Message) -> _Routed:
        """Return a dead message's destination and its new form."""
        queue, settings = source.queue, source.settings
        if reason == "delayed":
            message, found = due(queue, message, self._dead_letters.route)
            return _Routed(message, tuple(found), bool(found))
        exchange = settings.dead_letter_exchange
        if exchange is None:
            return _Routed(message, (), False)  # the settings have changed meanwhile
        dead, keys = dead_message(
            message,
            reason=reason,
            queue=queue.name,
            time_s=self._time_s,
            exchange=exchange,
            routing_key=settings.dead_letter_routing_key,
        )
        targets = self._find(queue.vhost, exchange, dead, keys)
        if reason == "rejected" or not targets:
            return _Routed(dead, tuple(targets), bool(targets))
        if not deaths_of(message) and all(each.name != queue.name for each in targets):
            return _Routed(dead, tuple(targets), True)  # it died here, and only here
        free = [each for each in targets if not is_cycle(dead, each.name)]
        if len(free) < len(targets):
            again = [each.name for each in targets if each not in free]
            self._dead_letters.tell_cycle(dead, again)
        return _Routed(dead, tuple(free), True)

    def _find(self, vhost: str, exchange: str, message: Message, keys: list[str]) -> list[Queue]:
        if not self._dead_letters.is_fixed(vhost, exchange):
            return self._dead_letters.route(vhost, exchange, message, keys)
        known = (vhost, exchange, message.routing_key, tuple(keys))
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = self._dead_letters.route(vhost, exchange, message, keys)
        return found
