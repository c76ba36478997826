"""One AMQP connection after connection.open: takes commands, gives bytes and effects.

The shell calls it from one task, passes what it returns to queues and group 0, and writes `out`.
Calls may nest: an effect that is carried out at once may lead to `complete` or `deliver` before
the shell has finished the list. What they return is run after that list: a channel that asked has
nothing later in it, but others may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, cast

from broker.amqp import spec
from broker.amqp.commands import Ack, Command, Fault, MethodCommand, Publish, ids_of
from broker.amqp.shape import Shape
from broker.counters import MessageCounts, NodeCounts
from broker.errors import AmqpError, ReplyCode
from broker.fifo.commands import Cancel
from broker.message import Delivery, Message
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.session import basic_ack, basic_consume, basic_publish, exchange, modes, queue
from broker.session import channel as channels
from broker.session.basic_publish import WORK_MAX, PreparedPublish
from broker.session.channel import Channel, ChannelConsumer
from broker.session.consumer_timeout import overdue
from broker.session.context import Context
from broker.session.effects import CloseConnection, Denied, Effect, QueueRequest
from broker.session.facts import ConnectionFacts, Names, Placement, Quota, SessionLimits
from broker.session.holders.acts import Given, Step
from broker.session.listing import ChannelFacts, facts_of_channel
from broker.session.traced_vhosts import TracedVhosts

_Handler = Callable[[Channel, Any], None]

_HANDLERS: dict[type[spec.Method], _Handler] = {
    spec.ChannelFlow: channels.flow,
    spec.AccessRequest: channels.access_request,
    spec.ExchangeDeclare: exchange.declare,
    spec.ExchangeDelete: exchange.delete,
    spec.ExchangeBind: exchange.bind,
    spec.ExchangeUnbind: exchange.unbind,
    spec.QueueDeclare: queue.declare,
    spec.QueueBind: queue.bind,
    spec.QueueUnbind: queue.unbind,
    spec.QueuePurge: queue.purge,
    spec.QueueDelete: queue.delete,
    spec.BasicQos: basic_consume.qos,
    spec.BasicConsume: basic_consume.consume,
    spec.BasicCancel: basic_consume.cancel,
    spec.BasicGet: basic_consume.get,
    spec.BasicReject: basic_ack.reject,
    spec.BasicNack: basic_ack.nack,
    spec.BasicRecover: basic_ack.recover,
    spec.BasicRecoverAsync: basic_ack.recover_async,
    spec.ConfirmSelect: modes.confirm_select,
    spec.TxSelect: modes.tx_select,
    spec.TxCommit: modes.tx_commit,
    spec.TxRollback: modes.tx_rollback,
}
_NUMBER_MASK = 0xFFFF
CLOSE_MS_MAX: Final = 6_000
"""How long a channel's close waits for auto-delete queues: the 5 s of a proposal, and its way."""
_IGNORED = (spec.BasicCancelOk, spec.ChannelFlowOk)
"""Answers of the client to what the server never waits for."""


class Session:
    """The channels of one connection.

    Attributes:
        out: Bytes for the socket, in order; the shell joins, writes and clears it.
        owner: The connection as owner of exclusive queues, for `EndConnection(owner)`.
        user: Who is logged in.
        name: The connection's, as listings have it.
        vhost: The one that is open.
        is_closed: A hard error has come, or `close_channels` was called: input is ignored.
        rest: Commands that the last `handle` has put off: the next one's, before any others.
        work: Steps of routing of the last `handle`: those that the commands before `rest` took.
        unfinished: Keys of channels that wait no more and still hold commands back: call `go_on`
            soon if there are any.
        is_due: There are some, or `flush` has something to do. Most sessions that are written have
            neither, and one flag is read sooner than two lists.
    """

    __slots__ = (
        "_channels",
        "_context",
        "_news",
        "_publisher",
        "_quota",
        "_timeouts",
        "_timeouts_at",
        "is_closed",
        "is_due",
        "name",
        "out",
        "owner",
        "rest",
        "unfinished",
        "user",
        "vhost",
        "work",
    )

    def __init__(
        self,
        facts: ConnectionFacts,
        catalogue: Catalogue,
        access: Access,
        names: Names,
        placement: Placement,
        limits: SessionLimits | None = None,
        quota: Quota | None = None,
        consumer_count: Callable[[int], int] | None = None,
        counts: NodeCounts | None = None,
        traced: TracedVhosts | None = None,
        are_events_read: Callable[[], bool] | None = None,
    ) -> None:
        self._quota = quota
        self._context = Context(
            facts,
            catalogue,
            access,
            limits or SessionLimits(),
            names,
            placement,
            node_counts=counts or NodeCounts(),
        )
        if traced is not None:
            self._context.traced, self._context.tracing = traced.names, traced
        if are_events_read is not None:
            self._context.are_events_read = are_events_read
        if consumer_count is not None:
            self._context.consumer_count = consumer_count
        self.out = self._context.out
        self.owner = facts.owner
        self.user = facts.user
        self.name = facts.name
        self.vhost = facts.vhost
        self.is_closed = False
        self.rest: Sequence[Command] = ()
        self.work = 0
        self.unfinished: list[int] = []
        self.is_due = False
        self._news: dict[int, Channel] = {}  # with confirms to be written, by number
        self._channels: dict[int, Channel] = {}
        self._publisher = basic_publish.Publisher(self._context)
        self._timeouts: dict[int, int] = {}  # of queues' consumers, in milliseconds
        self._timeouts_at = 0  # the entry of group 0 they were looked up at

    @property
    def channel_count(self) -> int:
        """Open channels, those that wait for close-ok included."""
        return len(self._channels)

    @property
    def has_held(self) -> bool:
        """True while a waiting channel holds commands back."""
        return self._context.held_commands > 0

    @property
    def is_congested(self) -> bool:
        """True while waiting channels hold back more than the limits: stop reading the socket."""
        context = self._context
        return context.held_commands > 0 and (
            context.held_commands > context.limits.held_commands
            or context.held_bytes > context.limits.held_bytes
        )

    def handle(self, commands: Sequence[Command], now_ms: int) -> list[Effect]:
        """Carry out what one socket read brought, or what of it `WORK_MAX` steps of routing reach.

        Args:
            commands: The assembler's list; channel 0 is not in it.
            now_ms: Monotonic milliseconds.

        Returns:
            Effects, to be run in order.
        """
        context = self._context
        context.now_ms = now_ms
        context.work = 0
        self.rest = ()
        publisher = self._publisher
        run: list[Message] = []  # the open run
        number = -1  # its channel, with the names of its first publish
        routing_key = exchange_name = is_mandatory = None
        remaining = iter(commands)
        for command in remaining:
            if type(command) is Publish:
                message = command.message
                if (
                    message.routing_key is routing_key
                    and message.exchange is exchange_name
                    and command.properties.is_plain
                    and command.channel == number
                    and command.mandatory is is_mandatory
                    and not command.immediate
                ):
                    run.append(message)
                    continue
                if number >= 0:
                    if command.channel == number and publisher.goes_on(command):
                        continue
                    self._end_run()
                begun = self._begin(command)
                if begun is not None:
                    run, number = begun, command.channel
                    routing_key = message.routing_key
                    exchange_name = message.exchange
                    is_mandatory = command.mandatory
                else:
                    number = -1
                    if context.work >= WORK_MAX:
                        self.rest = list(remaining)
                        break
            elif type(command) is Ack:
                if not self._ack(command):
                    number = -1
            else:
                self._end_run()
                number = -1
                self._cold(cast("MethodCommand | Fault", command))
        self._end_run()
        self.work = context.work
        return context.take_effects()

    def prepare(self, shape: Shape, before: PreparedPublish | None) -> PreparedPublish | None:
        """Get ready for publishes like the last one, each alone in a socket read.

        Args:
            shape: Of the next publish; `NO_SHAPE` where nothing is known.
            before: What was returned last.

        Returns:
            What carries out such a publish in place of `handle`; None: `handle` does.
        """
        version = self._context.catalogue.version
        if before is not None and before.shape is shape and before.version == version:
            return before
        channel = self._channels.get(shape.channel)
        return None if channel is None else self._publisher.prepare(channel, shape)

    def go_on(self, now_ms: int) -> list[Effect]:
        """Run more of what `complete` had to leave: held commands were expensive to route.

        Args:
            now_ms: Monotonic milliseconds.

        Returns:
            Effects, to be run in order.
        """
        self._context.now_ms = now_ms
        self._context.work = 0
        keys, self.unfinished = self.unfinished, []
        for key in keys:
            channel = self._by_key(key)
            if channel is not None and not channel.is_closing:
                channel.resume()
                self._run_held(channel)
        return self._context.take_effects()

    def complete(self, token: int, result: object, now_ms: int) -> list[Effect]:
        """Answer a question, and run what its channel held back.

        Args:
            token: Of the effect that asked. One that is not known (any more) is ignored.
            result: What the effect promises, or a Refusal.
            now_ms: Monotonic milliseconds.

        Returns:
            Effects, to be run in order, after those that are being run.
        """
        self._context.now_ms = now_ms
        self._context.work = 0
        question = self._context.questions.pop(token, None)
        if question is None:
            return []
        channel = self._channels.get(question.channel)
        if channel is None or channel.generation != question.generation or channel.is_closing:
            return self._context.take_effects()
        if question.is_aside:
            question.answered(result)
            return self._context.take_effects()
        channel.class_id, channel.method_id = question.class_id, question.method_id
        channel.resume()
        self._guarded(channel, lambda: question.answered(result))
        self._run_held(channel)
        if self._context.is_paused:
            self._pause_new(channel)
        return self._context.take_effects()

    def deliver(self, channel: int, tag: str, deliveries: Sequence[Delivery]) -> list[Effect]:
        """Write deliveries for a consumer. Unknown consumers' are dropped: release requeues them.

        Args:
            channel: The channel's key, as its Consume had it.
            tag: Consumer tag.
            deliveries: In order.

        Returns:
            Effects, to be run at once: consumers to pause, where the channel's limit is reached.
        """
        found = self._channels.get(channel & _NUMBER_MASK)
        if found is not None and found.key == channel:
            consumer = found.consumers.get(tag)
            if consumer is not None:
                basic_consume.deliver(found, consumer, deliveries)
        return self._context.take_effects() if self._context.effects else []

    def resume_no_ack(self, channel: int) -> list[QueueRequest]:
        """What a HasRoom asks for: consumers to resume, if there is still room.

        Args:
            channel: The channel's key.
        """
        found = self._by_key(channel)
        return [] if found is None else basic_consume.resume_no_ack(found)

    def confirmed(self, channel: int, seqnos: Sequence[int]) -> list[Effect]:
        """A queue has these publishes safely. Told to the client at `flush`.

        Args:
            channel: The channel's key, as its PublishTo had it.
            seqnos: Of that PublishTo.
        """
        return self._verdict(channel, seqnos, ok=True)

    def rejected(self, channel: int, seqnos: Sequence[int]) -> list[Effect]:
        """A queue refused these publishes, or nobody knows. Told to the client at `flush`."""
        return self._verdict(channel, seqnos, ok=False)

    def consumer_lost(self, channel: int, tag: str) -> list[Effect]:
        """A consumer's queue is gone: the client gets basic.cancel if it understands it.

        The channel that has the queue deleted hears queue.delete-ok first.
        """
        found = self._by_key(channel)
        consumer = found.consumers.pop(tag, None) if found is not None else None
        if found is None or consumer is None:
            return []
        found.window.remove(consumer)
        found.unacked.lose(consumer)
        basic_consume.unpark(found)
        found.consumer_ended(consumer)
        if consumer.queue_uid == found.deleting:
            found.lost_tags.append(tag)
        else:
            found.notify_lost(tag)
        return self._context.take_effects()

    def consumer_moved(self, channel: int, tag: str) -> list[Effect]:
        """A consumer's queue has another master: what it was delivered counts no more (P18)."""
        found = self._by_key(channel)
        consumer = found.consumers.get(tag) if found is not None else None
        if found is None or consumer is None:
            return []
        found.consumers[tag] = consumer.again()
        found.window.remove(consumer)
        found.unacked.lose(consumer)
        basic_consume.drop_unwritten(found, consumer)
        basic_consume.unpark(found)
        return self._context.take_effects()

    def deliver_reply(self, channel: int, key: str, message: Message) -> None:
        """Write a direct reply, if the consumer it was meant for is still there."""
        found = self._channels.get(channel)
        if found is not None and found.reply_key and found.reply_key == key:
            basic_consume.deliver_reply(found, message)

    def flush(self) -> None:
        """Write gathered confirms. Call once a tick, before writing `out`."""
        for channel in self._news.values():
            channel.flush_confirms()
        self._news.clear()
        self.is_due = len(self.unfinished) > 0

    def tick(self, now_ms: int) -> list[Effect]:
        """Check the consumer timeout; call about once a second."""
        self._context.now_ms = now_ms
        index = self._context.catalogue.index
        if index != self._timeouts_at:
            self._timeouts.clear()
            self._timeouts_at = index
        for channel in list(self._channels.values()):
            if 0 < channel.close_by_ms <= now_ms:
                self._finish_close(channel)
                continue
            error = overdue(channel, now_ms, self._timeouts)
            if error is not None:
                self._fail(channel, error)
        return self._context.take_effects()

    def check_rights(self) -> list[Effect]:
        """Look at the user's rights again (update-secret): who may not read any more is refused."""
        for channel in list(self._channels.values()):
            channel.permissions.forget()
            try:
                for consumer in channel.consumers.values():
                    channel.permissions.check("read", "queue", consumer.queue.name)
            except AmqpError as error:
                self._fail(channel, error.named(60, 20))
        return self._context.take_effects()

    def set_active(self, *, active: bool) -> list[Effect]:
        """Pause or resume all consumers, because the socket is full or has drained."""
        self._context.is_paused = not active
        for channel in self._channels.values():
            for consumer in channel.consumers.values():
                is_held = consumer.no_ack and channel.window.is_holding
                if consumer.is_attached and not is_held:
                    channel.set_active(consumer, active=active)
        return self._context.take_effects()

    def act(self, channel: Channel, step: Step, now_ms: int) -> tuple[Given, list[Effect]]:
        """Carry out an operator's step on a channel that is open."""
        self._context.now_ms = now_ms
        return step.run(channel), self._context.take_effects()

    def consumers_to_end(self) -> list[QueueRequest]:
        """What ends the connection's consumers whose queues may go with them, exclusive ones not.

        For a connection whose client waits for close-ok; call it before `close_channels`.
        """
        return [
            QueueRequest(consumer.queue_uid, Cancel(channel.channel_id, consumer.tag))
            for channel in self._channels.values()
            for consumer in _consumers_to_end(channel)
            if consumer.queue.exclusive_owner is None
        ]

    def close_channels(self) -> list[Effect]:
        """The connection ends: release what every channel holds. Nothing is written any more."""
        self.is_closed = True
        self._end_channels()
        return self._context.take_effects()

    def listing(self) -> Iterator[ChannelFacts]:
        """Yield each channel as listings show it; channels that close meanwhile are left out."""
        for channel in sorted(self.channels(), key=attrgetter("number")):
            if self._channels.get(channel.number) is channel:
                yield facts_of_channel(channel)

    def channels(self) -> list[Channel]:
        """Return the open channels, for listings: they read them and change nothing."""
        self._publisher.count()
        for channel in self._channels.values():
            channel.count()
        return list(self._channels.values())

    def channel_counts(self) -> list[tuple[int, MessageCounts]]:
        """Return the key and the counters of each channel."""
        return [(each.key, each.counts) for each in self.channels()]

    # What follows is not for the shell.

    def _begin(self, command: Publish) -> list[Message] | None:
        """Publish the first of a run, and return the run if it may go on."""
        channel = self._channels.get(command.channel)
        if channel is None or not channel.is_plain:
            channel = self._ready(command)
            if channel is None:
                return None
        try:
            run = self._publisher.begin(channel, command)
        except AmqpError as error:
            self._fail(channel, error.named(60, 40))
            return None
        if run is None and channel.confirms is not None:
            self._news[channel.number] = channel
            self.is_due = True
        return run

    def _ack(self, command: Ack) -> bool:
        """Run a basic.ack; False if it did not, then an open run of publishes must end."""
        channel = self._ready(command)
        if channel is None:
            self._end_run()
            return False
        try:
            basic_ack.ack(channel, command.delivery_tag, multiple=command.multiple)
        except AmqpError as error:
            self._end_run()
            if not channel.is_closing:
                self._fail(channel, error.named(60, 80))
            return False
        return True

    def _end_run(self) -> None:
        """Close the open run of publishes, if there is one."""
        publisher = self._publisher
        channel = publisher.channel
        if channel is None:
            return
        try:
            publisher.end()
        except AmqpError as error:
            self._fail(channel, error.named(60, 40))

    def _ready(self, command: Publish | Ack) -> Channel | None:
        """The channel of a command if it can run now; else the command is held or dropped."""
        if self.is_closed:
            return None
        channel = self._channels.get(command.channel)
        if channel is None:
            self._end_run()
            self._close_connection(self._not_open(*ids_of(command)))
            return None
        if channel.is_waiting:
            self._hold(channel, command)
            return None
        return None if channel.is_closing else channel

    def _hold(self, channel: Channel, command: Command) -> None:
        if channel.commit is not None:
            self._end_run()
            if type(command) is MethodCommand and type(command.method) is spec.ChannelClose:
                self._close(channel)  # the one thing a client may do meanwhile
                return
            text = "unexpected command while processing 'tx.commit'"
            self._close_connection(AmqpError(ReplyCode.CHANNEL_ERROR, text, *ids_of(command)))
            return
        channel.hold_back(command)

    def _cold(self, command: MethodCommand | Fault) -> None:
        """Everything but publishes and acks."""
        if self.is_closed:
            return
        if type(command) is Fault and not command.error.is_soft:
            self._close_connection(self._hard_error(command))
            return
        channel = self._channels.get(command.channel)
        if channel is not None and channel.is_waiting:
            self._hold(channel, command)
        elif type(command) is Fault:
            if channel is None:
                self._close_connection(self._not_open())
            elif not channel.is_closing:
                self._fail(channel, command.error)
        elif type(command) is MethodCommand:
            self._method(channel, command)

    def _method(self, channel: Channel | None, command: MethodCommand) -> None:
        method = command.method
        kind = type(method)
        if kind is spec.ChannelOpen:
            self._open(channel, command.channel)
        elif channel is None:
            if kind is not spec.ChannelCloseOk and kind is not spec.ChannelClose:
                self._close_connection(self._not_open(*ids_of(command)))
            elif kind is spec.ChannelClose:
                self._context.send(command.channel, spec.ChannelCloseOk())
        elif kind is spec.ChannelClose:
            self._close(channel)
        elif channel.is_closing:
            if kind is spec.ChannelCloseOk:
                self._forget(channel)
        elif kind is spec.BasicAck:
            acked = cast("spec.BasicAck", method)
            self._ack(Ack(channel.number, acked.delivery_tag, acked.multiple))
        else:
            self._run(channel, method)

    def _run(self, channel: Channel, method: spec.Method) -> None:
        handler = _HANDLERS.get(type(method))
        if handler is None:
            if not isinstance(method, _IGNORED):
                name = type(method).__name__
                text = f"unexpected method {name} on channel {channel.number}"
                ids = (method.class_id, method.method_id)
                self._close_connection(AmqpError(ReplyCode.COMMAND_INVALID, text, *ids))
            return
        channel.class_id, channel.method_id = method.class_id, method.method_id
        try:
            handler(channel, method)
        except AmqpError as error:
            if error.code is ReplyCode.ACCESS_REFUSED:
                text = error.text
                self._context.emit(Denied(method.class_id, method.method_id, text))
            self._fail(channel, error.named(channel.class_id, channel.method_id))

    def _guarded(self, channel: Channel, step: Callable[[], None]) -> None:
        """Run a step of a channel's method; an AMQP error closes the channel or the connection."""
        try:
            step()
        except AmqpError as error:
            self._fail(channel, error.named(channel.class_id, channel.method_id))

    def _run_held(self, channel: Channel) -> None:
        """Run held commands until the channel waits again; a commit suffers none behind it.

        What takes more than `WORK_MAX` steps of routing waits for `go_on`.
        """
        while channel.held and (channel.commit is not None or not channel.is_waiting):
            if self._context.work >= WORK_MAX and channel.commit is None:
                channel.wait()
                self.unfinished.append(channel.key)
                self.is_due = True
                return
            self._dispatch(channel.next_held())

    def _dispatch(self, command: Command) -> None:
        """Run one command outside a chunk."""
        if type(command) is Publish:
            if self._begin(command) is not None:
                self._end_run()
        elif type(command) is Ack:
            self._ack(command)
        else:
            self._cold(cast("MethodCommand | Fault", command))

    def _open(self, channel: Channel | None, number: int) -> None:
        if channel is not None and channel.is_closing:
            return  # we have closed it: everything but close and close-ok is ignored
        if channel is not None:
            text = "second 'channel.open' seen"
            self._close_connection(AmqpError(ReplyCode.CHANNEL_ERROR, text, 20, 10))
            return
        error = self._too_many() or self._over_quota()
        if error is not None:
            self._close_connection(error)
            return
        opened = Channel(self._context, number)
        self._context.node_counts.churn.channel_created += 1
        self._channels[number] = opened
        if self._quota is not None:
            self._quota.channel_opened(self._context.facts.user)
        opened.send(spec.ChannelOpenOk())
        if self._context.is_watched:
            self._tell_opened(opened)

    def _tell_opened(self, channel: Channel) -> None:
        """Publish the event of a new channel."""
        facts = self._context.facts
        self._context.happened(
            "channel.created",
            {
                "pid": channel.process,
                "name": f"{facts.name} ({channel.number})",
                "connection": facts.process,
                "number": channel.number,
                "user": facts.user,
                "vhost": facts.vhost,
            },
        )

    def _too_many(self) -> AmqpError | None:
        """Why a further channel is refused, whatever its number, when channel_max are open.

        Source: rabbit_reader.erl, create_channel/2, which the first frame on a number comes to.
        """
        most = self._context.facts.channel_max
        if len(self._channels) < most:
            return None
        text = f"number of channels opened ({most}) has reached the negotiated channel_max ({most})"
        return AmqpError(ReplyCode.NOT_ALLOWED, text)

    def _not_open(self, class_id: int = 0, method_id: int = 0) -> AmqpError:
        """Return the error of a method on a channel that is not open."""
        text = "expected 'channel.open'"
        return self._too_many() or AmqpError(ReplyCode.CHANNEL_ERROR, text, class_id, method_id)

    def _hard_error(self, fault: Fault) -> AmqpError:
        """Return the error that ends the connection for a frame, as on a channel too many."""
        is_new = fault.channel and fault.channel not in self._channels
        if is_new and fault.error.code is ReplyCode.UNEXPECTED_FRAME:
            return self._too_many() or fault.error
        return fault.error

    def _over_quota(self) -> AmqpError | None:
        """Why the user, or the node, gets no further channel."""
        quota = self._quota
        refusal = None if quota is None else quota.channel_refusal(self._context.facts.user)
        return None if refusal is None else AmqpError(refusal.code, refusal.text, 20, 10)

    def _close(self, channel: Channel) -> None:
        """channel.close from the client, perhaps crossing ours."""
        if channel.is_closing:
            channel.send(spec.ChannelCloseOk())
            return
        if not self._ends_consumers(channel):
            self._finish_close(channel)

    def _ends_consumers(self, channel: Channel) -> bool:
        """Cancel a channel's consumers of auto-delete queues; True if `_finish_close` follows.

        close-ok comes when the queues are gone that nobody else uses (as RabbitMQ's channel tells
        its queues before it ends), or after `CLOSE_MS_MAX`.
        """
        ending = _consumers_to_end(channel)
        if not ending or channel.commit is not None:
            return False
        channel.close_by_ms = self._context.now_ms + CLOSE_MS_MAX
        missing = len(ending)

        def ended(_result: object) -> None:
            nonlocal missing
            missing -= 1
            if missing:
                channel.wait()
            else:
                self._finish_close(channel)

        for consumer in ending:
            token = channel.ask(ended, ended)
            command = Cancel(channel.channel_id, consumer.tag)
            channel.emit(QueueRequest(consumer.queue_uid, command, token))
        return True

    def _finish_close(self, channel: Channel) -> None:
        later = list(channel.held)  # held behind the close: an eager client opens again
        channel.flush_confirms()
        channel.end()
        self._forget(channel)
        channel.send(spec.ChannelCloseOk())
        for command in later:
            self._dispatch(command)

    def _forget(self, channel: Channel) -> None:
        del self._channels[channel.number]
        self._context.node_counts.churn.channel_closed += 1
        self._news.pop(channel.number, None)
        if self._quota is not None:
            self._quota.channels_closed(self._context.facts.user, 1)

    def _fail(self, channel: Channel, error: AmqpError) -> None:
        """Close the channel or the connection because of an error."""
        if not error.is_soft:
            self._close_connection(error)
            return
        is_crossed = any(
            type(held) is MethodCommand and type(held.method) is spec.ChannelClose
            for held in channel.held
        )
        channel.flush_confirms()
        channel.end()
        self._news.pop(channel.number, None)
        channel.send(
            spec.ChannelClose(error.code, error.reply_text, error.class_id, error.method_id)
        )
        if is_crossed:  # the client has closed too, and waits for its close-ok
            channel.send(spec.ChannelCloseOk())

    def _close_connection(self, error: AmqpError) -> None:
        for channel in self._channels.values():
            channel.flush_confirms()
        self._end_channels()
        self.is_closed = True
        self._context.emit(CloseConnection(error))

    def _end_channels(self) -> None:
        self._publisher.count()
        for channel in self._channels.values():
            channel.end()
        self._context.node_counts.churn.channel_closed += len(self._channels)
        if self._quota is not None:
            self._quota.channels_closed(self._context.facts.user, len(self._channels))
        self._channels.clear()
        self._news.clear()
        self._context.questions.clear()

    def _by_key(self, key: int) -> Channel | None:
        """The channel of a key; None if it is gone, even if its number is in use again."""
        channel = self._channels.get(key & _NUMBER_MASK)
        return channel if channel is not None and channel.key == key else None

    def _verdict(self, key: int, seqnos: Sequence[int], *, ok: bool) -> list[Effect]:
        channel = self._by_key(key)
        if channel is None or channel.is_closing:
            return []
        if channel.commit is not None:
            self._commit_verdict(channel, len(seqnos), ok=ok)
            return self._context.take_effects()
        if channel.confirms is not None:
            if ok:
                channel.confirms.confirm(seqnos)
            else:
                channel.confirms.reject(seqnos)
            self._news[channel.number] = channel
            self.is_due = True
        return []

    def _commit_verdict(self, channel: Channel, count: int, *, ok: bool) -> None:
        try:
            modes.commit_verdict(channel, count, ok=ok)
        except AmqpError as error:
            self._fail(channel, error)

    def _pause_new(self, channel: Channel) -> None:
        for consumer in channel.consumers.values():
            if consumer.is_attached:
                channel.set_active(consumer, active=False)


def _consumers_to_end(channel: Channel) -> list[ChannelConsumer]:
    return [each for each in channel.consumers.values() if each.queue.auto_delete]
