"""The context that all channels of a connection share: facts, output, effects, questions, batches.

Batches. Publishes and settles of a chunk are gathered here, one record per channel and queue or
per consumer, and become effects at `flush_batches()`: at the end of the chunk, and before any
other effect, so that effects keep the order of the commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.amqp.frames import method_frame
from broker.amqp.spec import Method
from broker.counters import MessageCounts, NodeCounts
from broker.errors import AmqpError, Refusal, ReplyCode, quoted
from broker.fifo.commands import Settle
from broker.metadata.access import Access, Action, refused
from broker.metadata.applying.exchanges import EVENT_EXCHANGE
from broker.metadata.catalogue import Catalogue
from broker.session.effects import Effect, Happened, PublishTo, QueueRequest
from broker.session.facts import (
    ConnectionFacts,
    Names,
    Placement,
    SessionLimits,
)
from broker.session.traced_vhosts import TracedVhosts
from broker.session.unacked import DeliverySource

if TYPE_CHECKING:
    from broker.metadata.records import Exchange, Queue

_NO_FRAME_LIMIT = 1 << 31
_MASK_64 = (1 << 64) - 1
_PERMISSIONS_MAX = 12  # as RabbitMQ's ?MAX_PERMISSION_CACHE_SIZE

Answer = Callable[[object], None]
"""What to do with the answer to a question; may raise AmqpError, never gets a Refusal."""


def _none_known(_uid: int) -> int:
    return 0


def _never() -> bool:
    return False


@dataclass(slots=True)
class Question:
    """A question that was sent out.

    Attributes:
        channel: The asking channel's number.
        generation: Which channel of that number asked.
        answer: What to do with the result.
        on_refusal: What to do instead with a Refusal; None raises it at the channel.
        class_id: Of the method that waits.
        method_id: Of the method that waits.
        is_aside: No method waits: the channel goes on meanwhile.
    """

    channel: int
    generation: int
    answer: Answer
    on_refusal: Answer | None
    class_id: int
    method_id: int
    is_aside: bool = False

    def answered(self, result: object) -> None:
        """Hand a result to the method that waits for it.

        Raises:
            AmqpError: The method's, or the Refusal's if the method has no use for it.
        """
        if not isinstance(result, Refusal):
            self.answer(result)
        elif self.on_refusal is None:
            raise AmqpError(result.code, result.text)
        else:
            self.on_refusal(result)


@dataclass(slots=True)
class Context:
    """The shared state of a session.

    Attributes:
        out: Bytes for the socket, in order. The shell takes and clears it.
        effects: What the shell shall do, in order.
        now_ms: Time of the last call, monotonic milliseconds.
        questions: Unanswered questions by token.
        publishes: Publishes gathered, by (channel, queue uid).
        settles: Settles gathered, by consumer.
        frame_max: Largest frame in bytes.
        held_commands: Commands that waiting channels hold back, all together.
        held_bytes: Content bytes of those.
        work: Steps of routing since the last call, the queues that messages go to included.
        drawn: State of `draw`; 0 before its first use.
        consumer_count: How many consumers of a queue this node knows of, by its uid.
        are_events_read: Whether somebody reads events of the broker without being bound.
        node_counts: The node's counters.
        counts: Those of the connection's vhost.
        traced: The vhosts that are traced (`broker.session.tracing`).
        tracing: The same with the times of copies; None where nothing ever is traced.
    """

    facts: ConnectionFacts
    catalogue: Catalogue
    access: Access
    limits: SessionLimits
    names: Names
    placement: Placement
    out: list[bytes] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    now_ms: int = 0
    last_token: int = 0
    generations: int = 0
    is_paused: bool = False  # the socket is full: no consumer is served
    questions: dict[int, Question] = field(default_factory=dict)
    publishes: dict[tuple[int, int], PublishTo] = field(default_factory=dict)
    settles: dict[DeliverySource, Settle] = field(default_factory=dict)
    frame_max: int = 0
    held_commands: int = 0
    held_bytes: int = 0
    work: int = 0
    drawn: int = 0
    consumer_count: Callable[[int], int] = _none_known
    are_events_read: Callable[[], bool] = _never
    node_counts: NodeCounts = field(default_factory=NodeCounts)
    counts: MessageCounts = field(default_factory=MessageCounts)
    traced: set[str] = field(default_factory=set)
    tracing: TracedVhosts | None = None

    def __post_init__(self) -> None:
        self.counts = self.node_counts.of_vhost(self.facts.vhost)
        self.frame_max = self.facts.frame_max or _NO_FRAME_LIMIT

    @property
    def is_watched(self) -> bool:
        """True if somebody wants events of the broker: emit `Happened`."""
        is_bound = self.catalogue.has_bindings_from(self.limits.events_vhost, EVENT_EXCHANGE)
        return is_bound or self.are_events_read()

    def happened(self, key: str, headers: dict[str, object]) -> None:
        """Publish an event of this session's user; ask `is_watched` before."""
        self.emit(Happened(key, headers))

    @property
    def is_traced(self) -> bool:
        """True if copies of the vhost's messages are published; ask where `traced` is not empty."""
        return self.facts.vhost in self.traced

    def send(self, channel: int, method: Method) -> None:
        """Write a method without content."""
        self.out.append(method_frame(channel, method))

    def draw(self) -> int:
        """64 bits for exchanges that choose at random: splitmix64 from an unguessable seed."""
        if not self.drawn:
            self.drawn = int.from_bytes(self.names().encode(), "big")
        self.drawn = (self.drawn + 0x9E3779B97F4A7C15) & _MASK_64
        mixed = ((self.drawn ^ self.drawn >> 30) * 0xBF58476D1CE4E5B9) & _MASK_64
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK_64
        return mixed ^ mixed >> 31

    def emit(self, effect: Effect) -> None:
        """Ask the shell for something, after everything gathered before."""
        if self.publishes or self.settles:
            self.flush_batches()
        self.effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return all effects, those of gathered publishes and settles last, and forget them."""
        if self.publishes or self.settles:
            self.flush_batches()
        effects = self.effects.copy()  # a list that stays is in the processor's caches more often
        self.effects.clear()
        return effects

    def flush_batches(self) -> None:
        """Turn gathered publishes and settles into effects."""
        if self.publishes:
            self.effects += self.publishes.values()
            self.publishes.clear()
        if self.settles:
            for source, settle in self.settles.items():
                self.effects.append(QueueRequest(source.queue_uid, settle))
                count = len(settle.numbers)
                source.counts.ack += count
                source.of_queue.ack += count
                self.counts.ack += count
                if source.traced is not None:
                    source.traced.settled("ack", settle.numbers)
            self.settles.clear()

    def exchange(self, name: str) -> Exchange:
        """Look an exchange up.

        Raises:
            AmqpError: 404 when it does not exist.
        """
        found = self.catalogue.exchange(self.facts.vhost, name)
        if found is None:
            where = quoted("exchange", name, self.facts.vhost)
            raise AmqpError(ReplyCode.NOT_FOUND, f"no {where}")
        return found

    def queue(self, name: str) -> Queue:
        """Look a queue up that this connection may use.

        Raises:
            AmqpError: 404 when it does not exist or its home is down, 405 when another connection
                owns it.
        """
        found = self.catalogue.queue(self.facts.vhost, name)
        where = quoted("queue", name, self.facts.vhost)
        if found is None:
            raise AmqpError(ReplyCode.NOT_FOUND, f"no {where}")
        self.check_exclusive(found)
        if found.durable and not self.catalogue.is_reachable(found):
            text = f"home node '{found.home}' of durable {where} is down or inaccessible"
            raise AmqpError(ReplyCode.NOT_FOUND, text)
        return found

    def check_exclusive(self, queue: Queue) -> None:
        """Refuse a queue that belongs to another connection.

        Raises:
            AmqpError: 405.
        """
        if queue.exclusive_owner is not None and queue.exclusive_owner != self.facts.owner:
            where = quoted("queue", queue.name, queue.vhost)
            raise AmqpError(
                ReplyCode.RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked {where}. It could be originally "
                "declared on another connection or the exclusive property value does not match "
                "that of the original declaration.",
            )


class Permissions:
    """A channel's cache of permissions that were granted; empties when the catalogue moves."""

    __slots__ = ("_context", "_granted", "_version")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._granted: dict[tuple[Action, str, str], None] = {}
        self._version = -1

    def forget(self) -> None:
        """Ask anew what was granted."""
        self._version = -1

    def check(self, action: Action, kind: str, name: str) -> None:
        """Require a permission on a queue or an exchange.

        Args:
            action: "configure", "write" or "read".
            kind: "queue" or "exchange".
            name: The resource; the default exchange is "".

        Raises:
            AmqpError: 403.
        """
        if not self.has(action, kind, name):
            facts = self._context.facts
            shown = "amq.default" if kind == "exchange" and not name else name
            refusal = refused(action, kind, shown, facts.vhost, facts.user)
            raise AmqpError(refusal.code, refusal.text)

    def has(self, action: Action, kind: str, name: str) -> bool:
        """True if the permission is there."""
        context = self._context
        if self._version != context.catalogue.version:
            self._granted.clear()
            self._version = context.catalogue.version
        key = (action, kind, name)
        if key in self._granted:
            return True
        resource = "amq.default" if kind == "exchange" and not name else name
        if not context.access.may(context.facts.user, context.facts.vhost, action, resource):
            return False
        if len(self._granted) >= _PERMISSIONS_MAX:
            del self._granted[next(iter(self._granted))]
        self._granted[key] = None
        return True
