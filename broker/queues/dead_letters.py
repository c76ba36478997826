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
4. Nothing here waits for a disk: bodies are read in another thread, 1 MiB of a queue at a time, and
   a queue's messages of one kind, held or not, are routed in the order of their deaths.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from broker.amqp.content import decode_properties
from broker.fifo.dead_letter import dead_message, deaths_of, is_cycle
from broker.fifo.effects import Dead
from broker.fifo.limits import Reason
from broker.fifo.logged.blocks import Blocks
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

FILLED_AT_ONCE: Final = 500
READ_BYTES: Final = 1 << 20
"""Dead messages of a queue whose bodies are read at a time, or the bytes of their bodies."""

WAITING_BYTES_MAX: Final = 512 << 20
"""Most bytes of dead messages in memory that no queue holds; more are dropped and logged. Those
that are on disk wait there while there are more than `BEHIND_BYTES`."""

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


class DeadBodies(Protocol):
    """A queue that has the bodies of its dead messages on disk (`QuorumQueue`)."""

    def fill_later(
        self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]
    ) -> None:
        """Read bodies away from the loop, and tell once: the same deliveries with their bodies.

        None: they can't be read any more. `done` may be told before this returns.
        """
        ...

    def keep(self, unread: Blocks) -> None:
        """Keep the bodies of messages that the queue has no more, until they are taken out."""
        ...


class DeadLetterSource(NamedTuple):
    """A queue whose messages died.

    Attributes:
        queue: The queue.
        settings: Its settings when they died; they name the dead-letter exchange.
        drop: Makes the queue drop messages that it holds for at-least-once dead-lettering.
        bodies: Reads those of stubs among its messages; None: there are none.
    """

    queue: Queue
    settings: QueueSettings
    drop: DropHeld
    bodies: DeadBodies | None = None

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
        queued: Messages to read and route, in order of death.
        read: Those whose bodies were read, before `queued`.
        is_reading: True while some are read, behind `read`.
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
        "is_reading",
        "looked_ms",
        "messages",
        "queued",
        "read",
        "refused",
        "source",
        "unrouted",
    )

    def __init__(self, source: DeadLetterSource) -> None:
        self.source = source
        self.messages: dict[int, _HeldMessage] = {}
        self.queued: deque[_HeldMessage] = deque()
        self.read: deque[tuple[_HeldMessage, Message]] = deque()
        self.is_reading = False
        self.refused: deque[tuple[int, _HeldMessage]] = deque()
        self.unrouted: deque[_HeldMessage] = deque()
        self.looked_ms = 0
        self.is_probing = False
        self.finished: list[int] = []
        self.in_flight = 0


class _Batch:
    """Dead letters of one queue that no queue holds, of one reason, in order of death.

    Attributes:
        whole: With their bodies.
        unread: Behind those: on disk.
        unread_bytes: What these count as.
        is_reading: True while some are read, between both.
    """

    __slots__ = ("is_reading", "reason", "source", "unread", "unread_bytes", "whole")

    def __init__(self, source: DeadLetterSource, reason: Reason) -> None:
        self.source = source
        self.reason: Reason = reason
        self.whole: deque[Delivery] = deque()
        self.unread = Blocks()
        self.unread_bytes = 0
        self.is_reading = False

    def takes(self, source: DeadLetterSource, reason: Reason, *, is_stub: bool) -> bool:
        """True if messages that died now can be put behind these."""
        own = self.source
        is_same = own.settings is source.settings and own.queue is source.queue
        is_open = bool(self.unread) if is_stub else not self.unread and not self.is_reading
        return is_same and is_open and self.reason == reason

    def next_unread(self) -> list[Delivery]:
        """Take out what is read next."""
        count = size_bytes = 0
        for item in self.unread.peek(0, FILLED_AT_ONCE):
            if count and size_bytes >= READ_BYTES:
                break
            count += 1
            size_bytes += item.message.body_size
        return self.unread.take(count)[0]


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
        self._dead: dict[int, deque[_Batch]] = {}  # by queue
        self._unread_bytes = 0  # of them, on disk
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
        return self.waiting_bytes > BEHIND_BYTES and not self._is_running

    @property
    def waiting_bytes(self) -> int:
        """Bytes of dead messages that wait to be read, routed or published."""
        return self._waiting_bytes + self._unread_bytes

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
        if pending.queued or pending.read:
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
        """Keep messages in memory, but for stubs: their bodies stay on disk until they are next."""
        for is_stub, group in groupby(items, _is_stub):
            some = list(group)
            batches = self._dead.setdefault(source.queue.uid, deque())
            if not batches or not batches[-1].takes(source, reason, is_stub=is_stub):
                batches.append(_Batch(source, reason))
            batch = batches[-1]
            if not is_stub:
                self._take_whole(batch, some)
                continue
            assert source.bodies is not None, "the queue has bodies on disk"
            if not batch.unread:
                source.bodies.keep(batch.unread)
            batch.unread.append(some, sum([item.message.body_size for item in some]))
            self._count_unread(batch)

    def _count_unread(self, batch: _Batch) -> None:
        """Count what a batch has on disk now; it has nothing if its replica got another state."""
        self._unread_bytes += batch.unread.size_bytes - batch.unread_bytes
        batch.unread_bytes = batch.unread.size_bytes

    def _take_whole(self, batch: _Batch, items: list[Delivery]) -> None:
        for item in items:
            size_bytes = len(item.message.content)
            if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
                self._dropped += 1
            else:
                self._waiting_bytes += size_bytes
                batch.whole.append(item)

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
        if budget <= 0 or self._can_read():
            self._schedule()

    def _can_read(self) -> bool:
        """True if there was no room for a reading before this turn's messages were published."""
        return self._waiting_bytes <= BEHIND_BYTES and any(
            not batches[0].is_reading for batches in self._dead.values()
        )

    def _run_kept(self, budget: int) -> int:
        routes = _TurnRoutes(self)
        for uid, batches in list(self._dead.items()):
            if budget <= 0:
                break
            budget = self._run_batches(batches, budget, routes)
            del self._dead[uid]
            if batches:
                self._dead[uid] = batches  # behind the other queues
        return budget

    def _run_batches(self, batches: deque[_Batch], budget: int, routes: _TurnRoutes) -> int:
        """Route a queue's dead letters in order, as far as they were read; read on."""
        while batches and budget > 0:
            batch = batches[0]
            if batch.whole:
                budget -= 1
                item = batch.whole.popleft()
                self._waiting_bytes -= len(item.message.content)
                routed = routes.destination(batch.source, batch.reason, item.message)
                self._tell(batch.source.queue, batch.reason, routed, is_held=False)
                for queue in routed.queues:
                    self._append(queue, routed.message, None)
            elif batch.is_reading:
                break
            elif not batch.unread:
                self._count_unread(batches.popleft())
            elif self._waiting_bytes > BEHIND_BYTES:
                break  # until the targets have taken some
            else:
                self._read_kept(batch)
        return budget

    def _read_kept(self, batch: _Batch) -> None:
        """Read the next messages of a batch."""
        items = batch.next_unread()
        self._count_unread(batch)
        batch.is_reading = True

        def arrived(found: list[Delivery] | None) -> None:
            batch.is_reading = False
            if found is None:  # the replica is gone, and so are they: at most once
                self._dropped += len(items)
            else:
                self._take_whole(batch, found)
            self._schedule()

        assert batch.source.bodies is not None
        batch.source.bodies.fill_later(items, arrived)

    def _run_held(self, pending: _PendingDeadLetters, budget: int) -> int:
        routes = _TurnRoutes(self)
        while budget > 0 and pending.in_flight < IN_FLIGHT_MAX:
            if pending.read:
                budget -= 1
                held, message = pending.read.popleft()
                if held.item.number in pending.messages:  # not dropped meanwhile
                    self._route_held(held, message, routes)
            elif pending.is_reading or not self._read_held(pending):
                break
        return budget

    def _read_held(self, pending: _PendingDeadLetters) -> bool:
        """Read the messages that are routed next; False if there are none."""
        some: list[_HeldMessage] = []
        size_bytes = 0
        while pending.queued and len(some) < FILLED_AT_ONCE and size_bytes < READ_BYTES:
            held = pending.queued.popleft()
            if held.item.number in pending.messages:
                some.append(held)
                size_bytes += held.item.message.body_size
        if not some:
            return False
        items, bodies = [held.item for held in some], pending.source.bodies
        if bodies is None:
            pending.read.extend([(held, held.item.message) for held in some])
            return True
        pending.is_reading = True

        def arrived(found: list[Delivery] | None) -> None:
            pending.is_reading = False
            if found is None:  # the replica is over, or another one leads: then they are forgotten
                at_ms = self._clock.monotonic_ms() + RETRY_MS
                pending.refused.extend([(at_ms, held) for held in some])
                return
            messages = [item.message for item in found]
            pending.read.extend(zip(some, messages, strict=True))
            self._schedule()

        bodies.fill_later(items, arrived)
        return True

    def _route_held(self, held: _HeldMessage, message: Message, routes: _TurnRoutes) -> None:
        pending = held.pending
        held.is_refused = False
        routed = routes.destination(pending.source, held.reason, message)
        is_kept = pending.source.keeps_unrouted(held.reason)
        self._tell(pending.source.queue, held.reason, routed, is_held=is_kept)
        targets = [queue for queue in routed.queues if queue.uid not in held.reached]
        if targets:
            pending.in_flight += 1
            held.waiting = {queue.uid for queue in targets}
            for queue in targets:
                self._append(queue, routed.message, held)
        elif routed.is_routed or not is_kept:
            self._finish(held)
        else:
            pending.unrouted.append(held)
            return
        if pending.is_probing:  # one has a route now: try all
            pending.is_probing = False
            pending.queued.extend(pending.unrouted)
            pending.unrouted.clear()

    def _tell(self, queue: Queue, reason: Reason, routed: _Routed, *, is_held: bool) -> None:
        """Tell who follows messages of the vhost, if somebody does."""
        watch = self._node.watch
        if watch is None or queue.vhost not in watch.names:
            return
        lost = ""
        if not routed.queues and (routed.is_routed or not is_held):
            lost = "cycle" if routed.is_routed else "unroutable"
        watch.died(queue, reason, routed.message, routed.queues, lost)

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


def _is_stub(item: Delivery) -> bool:
    return item.message.is_stub


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


class SafeDeaths(NamedTuple):
    """Messages that died. A `Waiter` for the mirrors, else the next master might repeat this.

    Attributes:
        dead_letters: Publishes them.
        source: The queue that they died in.
        dead: The messages.
    """

    dead_letters: DeadLetters
    source: DeadLetterSource
    dead: list[Dead]

    def safe(self) -> None:
        """Publish them to their dead-letter targets."""
        self.dead_letters.take(self.source, self.dead)

    def lost(self) -> None:
        """No-op: the next master repeats the dead-lettering."""
