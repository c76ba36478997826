"""Dead-lettering: from queues that this node serves to the targets of their exchanges.

A queue's home, master or leader hands over what died (`take`). It is routed in the next turn of the
loop, never in the turn of its death: a queue that dead-letters to itself, or two to each other,
would else call each other without end. Each target gets what a turn has for it in one publish, as
any publisher's, and at the rate it can take. Replayed histories go the same way (`post`).

At most once: the queue has forgotten the message; it is published without a confirm, and gone where
there is no route (docs/rabbitmq-behaviour.md 1.5). At least once (1.18), and what an
x-delayed-message exchange has kept: the queue holds the message until every target has confirmed
it. What was refused, or has no route, is tried again; who leads next tries everything again.

Invariants:
1. Without the lease nothing is routed (P4): it waits here.
2. A message that is held is published to each of its targets once, unless that refused it.
3. What is held is buried only when every target has confirmed it, when all of them are dropped for
   a cycle, or when its delay is over and no queue is bound.
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
"""Messages routed in one turn of the loop: some 30 ms, for each gets new headers."""

PUBLISH_MESSAGES_MAX: Final = 1_000
PUBLISH_BYTES_MAX: Final = 1 << 20
"""One publish to a target ends there (P13)."""

UNDER_WAY_MAX: Final = 1_000
"""Held messages of one queue that wait for confirms. RabbitMQ has 32 under way."""

BEHIND_BYTES: Final = 32 << 20
"""Above this publishers to queues that dead-letter wait."""

WAITING_BYTES_MAX: Final = 512 << 20
"""Dead messages that no queue holds wait here up to this; beyond it they are dropped and told."""

RETRY_MS: Final = 5_000
"""When a refused message is tried again. RabbitMQ waits 180 s, too long after a failover."""

UNROUTED_RETRY_MS: Final = 180_000
"""When those without a route are tried again though no exchange or binding has changed."""

PROBES: Final = 100
"""So many of them are tried first: any declare may be the one that gives them a route."""

CYCLES_MAX: Final = 1_000
"""Cycles remembered so that each is told once."""

Buried = Callable[[list[int]], None]
"""Told the numbers of held messages that have reached all their targets."""


class Way(NamedTuple):
    """A queue's dead-letter destination.

    Attributes:
        queue: The queue.
        settings: Its settings when they died.
        buried: Told what it holds no longer; never called for what it does not hold.
    """

    queue: Queue
    settings: QueueSettings
    buried: Buried

    def keeps_unrouted(self, reason: Reason) -> bool:
        """True if what is held waits for a route; not when its strategy has just changed."""
        return reason != "delayed" and self.settings.is_at_least_once


class _Letter:
    """A held message on its way.

    Attributes:
        waiting: Targets that have not confirmed it, by uid.
        reached: Targets that have.
        is_refused: One of those it was published to has refused it.
    """

    __slots__ = ("is_refused", "item", "reached", "reason", "source", "waiting")

    def __init__(self, source: _Source, reason: Reason, item: Delivery) -> None:
        self.source = source
        self.reason: Reason = reason
        self.item = item
        self.waiting: set[int] = set()
        self.reached: set[int] = set()
        self.is_refused = False


class _Source:
    """The at-least-once dead letters of one queue that have not arrived.

    Attributes:
        letters: All of it, by number.
        queued: To be routed, in order of death.
        refused: To be tried again, each with when.
        unrouted: Those that had no route, those tried lately last.
        looked_ms: When the unrouted were looked at.
        is_probing: Some of them are tried, for all.
        finished: Numbers to be buried at the end of this turn.
    """

    __slots__ = (
        "finished",
        "is_probing",
        "letters",
        "looked_ms",
        "queued",
        "refused",
        "under_way",
        "unrouted",
        "way",
    )

    def __init__(self, way: Way) -> None:
        self.way = way
        self.letters: dict[int, _Letter] = {}
        self.queued: deque[_Letter] = deque()
        self.refused: deque[tuple[int, _Letter]] = deque()
        self.unrouted: deque[_Letter] = deque()
        self.looked_ms = 0
        self.is_probing = False
        self.finished: list[int] = []
        self.under_way = 0


_Waiting = tuple[Message, _Letter | None, int]
"""What waits to be published, its letter, and for how much it counts among what waits."""


class _Lane:
    """Dead letters that wait to be published to one queue, in order."""

    __slots__ = ("is_waiting", "queue", "waiting")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.waiting: deque[_Waiting] = deque()
        self.is_waiting = False


class Hop(NamedTuple):
    """The next destination of a dead message.

    Attributes:
        message: As it is to be published.
        queues: To whom; () is nobody.
        is_routed: False where no queue is bound: not even one that a cycle keeps out.
    """

    message: Message
    queues: tuple[Queue, ...]
    is_routed: bool


class DeadLetters:
    """All dead messages of one node. A `broker.ports.PublisherPort` towards their targets.

    Args:
        node: This node: routes with its lease alone (P4).
        queues: The way to queues.
    """

    def __init__(self, node: NodeContext, queues: QueueDirectory) -> None:
        self._node = node
        self._catalogue = node.catalogue
        self._clock = node.clock
        self._queues = queues
        self._dead: deque[tuple[Way, Reason, deque[Delivery]]] = deque()
        self._sources: dict[int, _Source] = {}
        self._lanes: dict[int, _Lane] = {}
        self._under_way: dict[int, tuple[_Letter, int]] = {}  # by confirm number: letter, target
        self._last_number = 0
        self._is_due = False
        self._is_running = False
        self._waiting_bytes = 0
        self._dropped = 0
        self._cycles: set[tuple[str, ...]] = set()
        self._version = -1

    @property
    def is_behind(self) -> bool:
        """True while so much waits that publishers to queues that dead-letter shall wait.

        Dead letters themselves shall not: a queue that they go to may dead-letter too.
        """
        return self._waiting_bytes > BEHIND_BYTES and not self._is_running

    def take(self, way: Way, dead: list[Dead]) -> None:
        """Take what died in a queue. Nothing is called before the next turn of the loop."""
        for reason, items, is_held in dead:
            if is_held:
                self._hold(way, reason, items)
            else:
                self._keep(way, reason, items)
        self._schedule()

    def post(self, queue: Queue, messages: list[Message]) -> None:
        """Publish a history, at most once, at the rate its queue can take; needs the lease.

        Replays are excluded from back-pressure limits; the exchange can replay them.
        """
        lane = self._lane(queue)
        lane.waiting.extend([(as_taken_by(queue, message), None, 0) for message in messages])
        if not lane.is_waiting:
            self._send(lane)

    def forget(self, uid: int) -> None:
        """Forget what a queue holds: it has let go, or another node serves it now, or nobody."""
        source = self._sources.pop(uid, None)
        if source is not None:
            source.letters.clear()

    def follow(self, uid: int, settings: QueueSettings) -> None:
        """Policies have changed: what a queue holds goes by its new settings.

        Where they hold nothing the queue will let go of it, and then says so (`forget`). It goes by
        the old ones until then: a change that is refused may be undone before it acts.
        """
        source = self._sources.get(uid)
        if source is None:
            return
        if settings.is_at_least_once or source.way.queue.delays_for is not None:
            source.way = source.way._replace(settings=settings)
            source.queued.extend(source.unrouted)
            source.unrouted.clear()
            self._schedule()

    def stop(self) -> None:
        """This node serves nobody any more."""
        self._dead.clear()
        self._lanes.clear()
        self._sources.clear()

    def lease_back(self) -> None:
        """The lease may be back: go on with what waited for it."""
        if self._dead or self._sources or self._lanes:
            self._schedule()

    def tick(self) -> None:
        """Once a second: try again what was refused or had no route."""
        if self._dropped:
            _log.warning("queue.dead_letters_dropped", extra={"count": self._dropped})
            self._dropped = 0
        if not self._sources:
            return
        now_ms, version = self._clock.monotonic_ms(), self._catalogue.version
        is_changed, self._version = version != self._version, version
        for source in self._sources.values():
            refused, unrouted, queued = source.refused, source.unrouted, source.queued
            while refused and refused[0][0] <= now_ms:
                queued.append(refused.popleft()[1])
            if unrouted and (is_changed or now_ms - source.looked_ms >= UNROUTED_RETRY_MS):
                source.looked_ms = now_ms
                source.is_probing = True
                for _ in range(min(len(unrouted), PROBES)):
                    queued.append(unrouted.popleft())
            if queued:
                self._schedule()

    # `PublisherPort` of everything published under a number.

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """A target has these."""
        self._answered(seqnos, ok=True)

    def rejected(self, seqnos: Sequence[int]) -> None:
        """A target refused these, or can't tell."""
        self._answered(seqnos, ok=False)

    def _answered(self, numbers: Sequence[int], *, ok: bool) -> None:
        for number in numbers:
            known = self._under_way.pop(number, None)
            if known is None:
                continue  # nobody waits for it
            letter, target = known
            letter.waiting.discard(target)
            if ok:
                letter.reached.add(target)
            else:
                letter.is_refused = True
            if not letter.waiting:
                self._ended(letter)

    def _ended(self, letter: _Letter) -> None:
        """Every target of a held message has answered."""
        source = letter.source
        source.under_way -= 1
        if letter.is_refused:
            source.refused.append((self._clock.monotonic_ms() + RETRY_MS, letter))
        else:
            self._finish(letter)
        if source.queued:
            self._schedule()

    def _finish(self, letter: _Letter) -> None:
        source, number = letter.source, letter.item.number
        if source.letters.pop(number, None) is not None:
            source.finished.append(number)
            self._schedule()

    # Taking.

    def _hold(self, way: Way, reason: Reason, items: list[Delivery]) -> None:
        source = self._sources.get(way.queue.uid)
        if source is None:
            source = self._sources[way.queue.uid] = _Source(way)
        source.way = way
        for item in items:
            if item.number not in source.letters:
                letter = source.letters[item.number] = _Letter(source, reason, item)
                source.queued.append(letter)

    def _keep(self, way: Way, reason: Reason, items: list[Delivery]) -> None:
        kept: deque[Delivery] = deque()
        for item in items:
            size_bytes = len(item.message.content)
            if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
                self._dropped += 1
            else:
                self._waiting_bytes += size_bytes
                kept.append(item)
        if kept:
            self._dead.append((way, reason, kept))

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._node.defer(self._run)

    # A turn of the loop.

    def _run(self) -> None:
        self._is_due = False
        if not self._node.has_lease():
            return  # `lease_back` goes on
        self._is_running = True
        try:
            self._route_and_send()
        finally:
            self._is_running = False

    def _route_and_send(self) -> None:
        budget = self._run_kept(TURN_MAX)
        for source in list(self._sources.values()):
            budget = self._run_held(source, budget)
        for lane in list(self._lanes.values()):
            if not lane.is_waiting:
                self._send(lane)
        self._bury()
        if budget <= 0:
            self._schedule()

    def _run_kept(self, budget: int) -> int:
        routes = _Routes(self)
        while self._dead and budget > 0:
            way, reason, items = self._dead[0]
            while items and budget > 0:
                budget -= 1
                item = items.popleft()
                self._waiting_bytes -= len(item.message.content)
                hop = routes.hop(way, reason, item.message)
                for queue in hop.queues:
                    self._line_up(queue, hop.message, None)
            if not items:
                self._dead.popleft()
        return budget

    def _run_held(self, source: _Source, budget: int) -> int:
        if not source.queued:
            return budget
        routes, queued = _Routes(self), source.queued
        while queued and budget > 0 and source.under_way < UNDER_WAY_MAX:
            budget -= 1
            letter = queued.popleft()
            if letter.item.number not in source.letters:
                continue  # it was let go
            letter.is_refused = False
            hop = routes.hop(source.way, letter.reason, letter.item.message)
            targets = [queue for queue in hop.queues if queue.uid not in letter.reached]
            if targets:
                source.under_way += 1
                letter.waiting = {queue.uid for queue in targets}
                for queue in targets:
                    self._line_up(queue, hop.message, letter)
            elif hop.is_routed or not source.way.keeps_unrouted(letter.reason):
                self._finish(letter)
            else:
                source.unrouted.append(letter)
                continue
            if source.is_probing:  # there is a route now: perhaps for all
                source.is_probing = False
                queued.extend(source.unrouted)
                source.unrouted.clear()
        return budget

    def _line_up(self, queue: Queue, message: Message, letter: _Letter | None) -> None:
        size_bytes = len(message.content)
        self._lane(queue).waiting.append((as_taken_by(queue, message), letter, size_bytes))
        self._waiting_bytes += size_bytes

    def _lane(self, queue: Queue) -> _Lane:
        lane = self._lanes.get(queue.uid)
        if lane is None:
            lane = self._lanes[queue.uid] = _Lane(queue)
        return lane

    def _send(self, lane: _Lane) -> None:
        """Publish what waits for a queue, as long as it keeps up and has room."""
        handle, uid = self._queues.open(lane.queue), lane.queue.uid
        while lane.waiting:
            piece = self._next_piece(lane.waiting)
            messages = [message for message, _, _ in piece]
            if handle.is_congested or not handle.has_room(messages):
                lane.waiting.extendleft(reversed(piece))
                lane.is_waiting = True
                handle.when_drained(lambda: self._drained(lane))
                return
            self._waiting_bytes -= sum(counted for _, _, counted in piece)
            numbers = [0 if each is None else self._number(each, uid) for _, each, _ in piece]
            if messages:
                handle.publish(messages, numbers if any(numbers) else None, self)
        self._lanes.pop(uid, None)

    def _next_piece(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        """Take off what one publish brings; what was let go, or is another leader's, is dropped."""
        piece: list[_Waiting] = []
        size_bytes = 0
        while waiting and len(piece) < PUBLISH_MESSAGES_MAX:
            message, letter, counted = waiting[0]
            if letter is not None and letter.item.number not in letter.source.letters:
                self._waiting_bytes -= counted
                waiting.popleft()
                continue
            size_bytes += len(message.content)
            if piece and size_bytes > PUBLISH_BYTES_MAX:
                break
            piece.append(waiting.popleft())
        return piece

    def _number(self, letter: _Letter, target: int) -> int:
        self._last_number = number = self._last_number + 1
        self._under_way[number] = (letter, target)
        return number

    def _drained(self, lane: _Lane) -> None:
        lane.is_waiting = False
        self._schedule()

    def _bury(self) -> None:
        for uid, source in list(self._sources.items()):
            if source.finished:
                finished, source.finished = source.finished, []
                source.way.buried(finished)
            if not source.letters:
                self._sources.pop(uid, None)

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
            message: What is dropped.
            targets: The queues it would have gone to again.
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


class _Routes:
    """Routes of one turn: those that depend on keys alone are looked up once."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._time_s = letters.now_s()
        self._known: dict[tuple[str, str, str, tuple[str, ...]], list[Queue]] = {}

    def hop(self, way: Way, reason: Reason, message: Message) -> Hop:
        """Return a dead message's destination and its new form."""
        queue, settings = way.queue, way.settings
        if reason == "delayed":
            message, found = due(queue, message, self._letters.route)
            return Hop(message, tuple(found), bool(found))
        exchange = settings.dead_letter_exchange
        if exchange is None:
            return Hop(message, (), False)  # the settings have changed meanwhile
        letter, keys = dead_message(
            message,
            reason=reason,
            queue=queue.name,
            time_s=self._time_s,
            exchange=exchange,
            routing_key=settings.dead_letter_routing_key,
        )
        targets = self._find(queue.vhost, exchange, letter, keys)
        if reason == "rejected" or not targets:
            return Hop(letter, tuple(targets), bool(targets))
        if not deaths_of(message) and all(each.name != queue.name for each in targets):
            return Hop(letter, tuple(targets), True)  # it died here, and only here
        free = [each for each in targets if not is_cycle(letter, each.name)]
        if len(free) < len(targets):
            again = [each.name for each in targets if each not in free]
            self._letters.tell_cycle(letter, again)
        return Hop(letter, tuple(free), True)

    def _find(self, vhost: str, exchange: str, message: Message, keys: list[str]) -> list[Queue]:
        if not self._letters.is_fixed(vhost, exchange):
            return self._letters.route(vhost, exchange, message, keys)
        known = (vhost, exchange, message.routing_key, tuple(keys))
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = self._letters.route(vhost, exchange, message, keys)
        return found
