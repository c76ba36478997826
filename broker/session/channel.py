"""One channel: its state, how it asks questions and how it ends; channel.open, close and flow.

States. A channel is open until an error closes it or the client does. After the server's
channel.close it is *closing*: everything but close and close-ok is ignored, and its number may be
used again after close-ok. An open channel that waits for an answer holds its later commands back.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from broker.amqp import spec
from broker.amqp.assembler import Command, Publish
from broker.amqp.frames import encode_ack
from broker.counters import MessageCounts
from broker.errors import AmqpError, ReplyCode
from broker.fifo.commands import Discard, Release, Requeue, SetActive, Settle
from broker.message import Message
from broker.metadata.records import Queue
from broker.session.confirms import Confirms
from broker.session.context import Answer, Context, Permissions, Question
from broker.session.effects import ChannelEnded, Effect, QueueRequest
from broker.session.prefetch import PrefetchWindow
from broker.session.unacked import DeliverySource, Entry, Outcome, Taken, Unacked

Give: TypeAlias = type[Settle] | type[Requeue] | type[Discard]

_OUTCOMES: Final[dict[Give, Outcome]] = {Settle: "ack", Requeue: "requeue", Discard: "reject"}


class ChannelConsumer(DeliverySource):
    """One consumer of a channel.

    Attributes:
        queue: The queue's record as it was when the consumer came.
        no_ack: Deliveries are settled when they are written.
        prefetch: The per-consumer limit; 0 is without limit.
        is_attached: The queue has said yes.
        tag_bytes: The consumer tag as it stands in frames.
        exclusive: No other consumer beside it; for listings.
        arguments: As the client gave them; for listings.
        is_in_order: Messages that come back to its queue are delivered before new ones.
        uncounted: Messages that it was delivered and that are in no counter yet (`Channel.count`).
    """

    __slots__ = (
        "arguments",
        "exclusive",
        "is_attached",
        "is_in_order",
        "no_ack",
        "prefetch",
        "queue",
        "tag_bytes",
        "uncounted",
    )

    def __init__(
        self,
        queue: Queue,
        tag: str,
        counts: MessageCounts | None = None,
        of_queue: MessageCounts | None = None,
        *,
        no_ack: bool,
        prefetch: int,
    ) -> None:
        super().__init__(queue.uid, tag, counts, of_queue)
        self.queue = queue
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.is_attached = False
        self.tag_bytes = tag.encode("utf-8", "surrogateescape")
        self.exclusive = False
        self.arguments: dict[str, object] = {}
        self.uncounted = 0
        self.is_in_order = queue.type == "classic" and "x-max-priority" not in queue.arguments

    def again(self) -> ChannelConsumer:
        """The same consumer at its queue's next master: another source of deliveries."""
        other = ChannelConsumer(
            self.queue,
            self.tag,
            self.counts,
            self.of_queue,
            no_ack=self.no_ack,
            prefetch=self.prefetch,
        )
        other.is_attached = self.is_attached
        other.exclusive, other.arguments = self.exclusive, self.arguments
        return other


class HeldPublishes(NamedTuple):
    """Publishes of an open transaction that follow each other and go to the same queues.

    Attributes:
        originals: The messages as they were sent.
        copies: What goes to which queues, as it was routed when it was published; several where
            queues get different copies.
        is_mandatory: The publisher gets them back where none of these queues exists at commit.
    """

    originals: list[Message]
    copies: list[tuple[list[Message], tuple[Queue, ...]]]
    is_mandatory: bool


class Transaction:
    """The content of an open transaction.

    Attributes:
        publishes: In publish order.
        taken: Acknowledgements: what happens to them, and the entries, for rollback.
        size: Content bytes held.
    """

    __slots__ = ("publishes", "size", "taken")

    def __init__(self) -> None:
        self.publishes: list[HeldPublishes] = []
        self.taken: list[tuple[Give, list[Entry]]] = []
        self.size = 0

    @property
    def message_count(self) -> int:
        """Messages published in it."""
        return sum([len(each.originals) for each in self.publishes])


class Commit:
    """A commit that waits for its queues.

    Attributes:
        missing: Verdicts on publishes and outcomes of settles that have not come.
        failed: True once a queue refused, or a settle was lost (P18).
    """

    __slots__ = ("failed", "missing")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.failed = False


class Channel:
    """The state of one channel. Owner: the session.

    Attributes:
        is_plain: Open and not waiting: the fast path may publish on it.
        key: What tells this channel from an earlier one of its number, to shells and queues: late
            verdicts and deliveries must not reach a channel that was opened since.
        channel_id: Its id for queues, under which they keep its unsettled messages; as unique as
            the key.
        last_queue: The queue declared last here, what an empty queue name means.
        touched: Queues where this channel consumed or got, to release them at the end.
        close_by_ms: When close-ok goes out though queues that end with the channel's consumers are
            not gone; 0 while the client has not closed it.
        deleting: uid of the queue whose queue.delete has no answer yet; 0 without one.
        lost_tags: Tags of consumers that ended with that queue: basic.cancel follows delete-ok.
        reply_key: Tells this channel's direct reply-to consumer; "" without one.
        counts: What happened to its messages.
        by_exchange: How many of them it published to each exchange.
        unroutable: Of those, how many were returned and how many were dropped.
        by_queue: What happened to those from one queue, by its uid.
    """

    __slots__ = (
        "_uncounted",
        "by_exchange",
        "by_queue",
        "channel_id",
        "class_id",
        "close_by_ms",
        "commit",
        "confirms",
        "consumers",
        "context",
        "counts",
        "deleting",
        "generation",
        "get_sources",
        "held",
        "is_closing",
        "is_plain",
        "is_waiting",
        "key",
        "last_queue",
        "lost_tags",
        "method_id",
        "next_tag",
        "number",
        "permissions",
        "prefetch",
        "reply_key",
        "reply_tag",
        "touched",
        "transaction",
        "unacked",
        "unroutable",
        "window",
    )

    def __init__(self, context: Context, number: int) -> None:
        context.generations += 1
        self.context = context
        self.number = number
        self.generation = context.generations
        self.key = context.generations << 16 | number
        self.channel_id = f"{context.facts.owner}/{number}.{context.generations}"
        self.is_closing = False
        self.is_waiting = False
        self.is_plain = True
        self.class_id = 0
        self.method_id = 0
        self.held: deque[Command] = deque()
        self.permissions = Permissions(context)
        self.last_queue: str | None = None
        self.consumers: dict[str, ChannelConsumer] = {}
        self.get_sources: dict[int, DeliverySource] = {}
        self.touched: dict[int, None] = {}
        self.close_by_ms = 0
        self.deleting = 0
        self.lost_tags: list[str] = []
        self.next_tag = 1
        self.unacked = Unacked()
        self.prefetch = context.limits.default_prefetch
        self.window: PrefetchWindow[ChannelConsumer] = PrefetchWindow()
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.commit: Commit | None = None
        self.reply_key = ""
        self.reply_tag = ""
        self.counts = MessageCounts()
        self.by_exchange: dict[str, int] = {}
        self.unroutable: dict[str, tuple[int, int]] = {}
        self.by_queue: dict[int, MessageCounts] = {}
        self._uncounted: list[ChannelConsumer] = []

    def of_queue(self, uid: int) -> MessageCounts:
        """Return its counters with one queue, made at first use."""
        return self.by_queue.setdefault(uid, MessageCounts())

    def note_uncounted(self, consumer: ChannelConsumer) -> None:
        """Remember a consumer that is delivered messages which nobody counts yet."""
        self._uncounted.append(consumer)
        self.context.node_counts.uncounted.add(self)

    def count(self) -> None:
        """Count what was delivered since the last call: before somebody reads, and at the end."""
        self.context.node_counts.uncounted.discard(self)
        for consumer in self._uncounted:
            count, consumer.uncounted = consumer.uncounted, 0
            for place in (self.counts, consumer.of_queue, self.context.counts):
                if consumer.no_ack:
                    place.deliver_no_ack += count
                else:
                    place.deliver += count
        self._uncounted.clear()

    @property
    def in_use(self) -> int:
        """What counts for the channel-wide limit: what a transaction has taken does, too."""
        count = self.unacked.counted
        if self.transaction is not None:
            for _, entries in self.transaction.taken:
                count += sum(source.is_counted and not source.is_lost for _, source, _ in entries)
        return count

    def send(self, method: spec.Method) -> None:
        """Write a method on this channel."""
        self.context.send(self.number, method)

    def notify_lost(self, tag: str) -> None:
        """Write basic.cancel for a consumer whose queue is gone, if the client understands it."""
        if self.context.facts.consumer_cancel_notify:
            self.send(spec.BasicCancel(tag, no_wait=True))

    def emit(self, effect: Effect) -> None:
        """Ask the shell for something that needs no answer."""
        self.context.emit(effect)

    def ask(self, answer: Answer, on_refusal: Answer | None = None) -> int:
        """Hold later commands back until an answer comes; returns the token to ask with.

        Args:
            answer: Gets the result. May raise AmqpError, and may ask again.
            on_refusal: Gets a Refusal; without it the channel closes with the Refusal's code.
        """
        context = self.context
        context.last_token += 1
        context.questions[context.last_token] = Question(
            self.number, self.generation, answer, on_refusal, self.class_id, self.method_id
        )
        self.wait()
        return context.last_token

    def ask_aside(self, answer: Answer) -> int:
        """As `ask`, but no command of the client waits for the answer.

        Args:
            answer: Gets the result, or the Refusal. Raises nothing.
        """
        context = self.context
        context.last_token += 1
        context.questions[context.last_token] = Question(
            self.number, self.generation, answer, answer, 0, 0, is_aside=True
        )
        return context.last_token

    def wait(self) -> None:
        """Hold later commands back."""
        self.is_waiting = True
        self.is_plain = False

    def resume(self) -> None:
        """Stop holding commands back; the session then runs what was held."""
        self.is_waiting = False
        self.is_plain = not self.is_closing

    def hold_back(self, command: Command) -> None:
        """Keep a command until the channel waits no more."""
        self.held.append(command)
        self.context.held_commands += 1
        if type(command) is Publish:
            self.context.held_bytes += len(command.message.content)

    def next_held(self) -> Command:
        """Take the oldest command that was held back."""
        command = self.held.popleft()
        self.context.held_commands -= 1
        if type(command) is Publish:
            self.context.held_bytes -= len(command.message.content)
        return command

    def give(
        self,
        kind: Give,
        taken: Taken,
        settled: Answer | None = None,
        *,
        is_aside: bool = False,
    ) -> int:
        """Tell queues what became of deliveries: one request per consumer.

        Args:
            kind: What became of them.
            taken: Message numbers by source.
            settled: Told the outcome of each where somebody waits for it: None, or a Refusal.
            is_aside: It is no command of the client that waits.

        Returns:
            How many requests.
        """
        by_source: dict[DeliverySource, list[int]] = {}
        for source, numbers in taken:
            by_source.setdefault(source, []).extend(numbers)
        for source, numbers in by_source.items():
            if kind is not Requeue:
                self.counts.ack += len(numbers)
                self.context.counts.ack += len(numbers)
                source.of_queue.ack += len(numbers)
            token = 0
            if settled is not None:
                token = self.ask_aside(settled) if is_aside else self.ask(settled, settled)
            command = kind(self.channel_id, source.tag, numbers)
            self.emit(QueueRequest(source.queue_uid, command, token))
            if source.traced is not None:
                source.traced.settled(_OUTCOMES[kind], numbers)
        return len(by_source)

    def set_active(self, consumer: ChannelConsumer, *, active: bool) -> None:
        """Pause or resume a consumer."""
        command = SetActive(self.channel_id, consumer.tag, active)
        self.emit(QueueRequest(consumer.queue_uid, command))

    @property
    def process(self) -> str:
        """The channel as events name it, where RabbitMQ has a process."""
        facts = self.context.facts
        return f"<{facts.node}.{facts.connection_id}.{self.number}>"

    def consumer_facts(self, consumer: ChannelConsumer) -> dict[str, object]:
        """A consumer as its events name it."""
        return {
            "consumer_tag": consumer.tag,
            "channel": self.process,
            "queue": consumer.queue.name,
            "vhost": consumer.queue.vhost,
        }

    def consumer_ended(self, consumer: ChannelConsumer) -> None:
        """Publish the event, if anybody watches."""
        if consumer.is_attached and self.context.is_watched:
            self.context.happened("consumer.deleted", self.consumer_facts(consumer))

    def end(self) -> None:
        """Release everything; nothing more is written on this channel but close and close-ok."""
        if self.context.is_watched:
            for consumer in self.consumers.values():
                self.consumer_ended(consumer)
            self.context.happened("channel.closed", {"pid": self.process})
        self.count()
        self.is_closing = True
        self.is_waiting = False
        self.is_plain = False
        while self.held:
            self.next_held()
        self.consumers.clear()
        held = self.unacked.take_all() if self.context.traced else ()
        self.unacked = Unacked()
        self.window = PrefetchWindow()
        self.transaction = None
        self.commit = None
        self.confirms = None
        self.reply_key = ""
        for uid in self.touched:
            self.emit(QueueRequest(uid, Release(self.channel_id)))
        for source, numbers in held:
            if source.traced is not None:
                source.traced.released(numbers)
        self.emit(ChannelEnded(self.key, self.channel_id))
        self.touched = {}

    def flush_confirms(self) -> None:
        """Write the verdicts that have come."""
        confirms = self.confirms
        if confirms is None or not confirms.has_news:
            return
        verdicts = confirms.flush()
        told = confirms.confirmed - self.counts.confirm
        self.counts.confirm += told
        self.context.counts.confirm += told
        for verdict in verdicts:
            if verdict.ok:
                frame = encode_ack(self.number, verdict.seqno, multiple=verdict.multiple)
                self.context.out.append(frame)
            else:
                self.send(spec.BasicNack(verdict.seqno, verdict.multiple, requeue=False))


def flow(channel: Channel, method: spec.ChannelFlow) -> None:
    """channel.flow: RabbitMQ knows only `active`.

    Raises:
        AmqpError: 540 when the client asks for a pause.

    Source:
        rabbit_channel.erl, handle_method channel.flow.
    """
    if not method.active:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "active=false")
    channel.send(spec.ChannelFlowOk(active=True))


def access_request(channel: Channel, method: spec.AccessRequest) -> None:
    """access.request, which 0-8 clients send: always granted."""
    del method
    channel.send(spec.AccessRequestOk(ticket=1))
