"""The handle of a stream on a node: publishes go to the leader, consumers read a log nearby.

Publishing is as for any queue that another node may serve (`broker.queues.client.remote`). What
consumers do concerns this node alone: the group never hears of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from broker.errors import Refusal, ReplyCode, quoted
from broker.fifo import commands
from broker.fifo.commands import ChannelCommand, Checkout
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort
from broker.queues.client.remote import RemoteQueue
from broker.queues.node import NodeContext
from broker.queues.refusals import damaged, gone
from broker.queues.streams.reader import Filter, ReadableLog, StreamReader
from broker.streams.offsets import NEXT, offset_spec

FILTER_ARGUMENT: Final = "x-stream-filter"
UNFILTERED_ARGUMENT: Final = "x-stream-match-unfiltered"

TELL_TICKS: Final = 5
"""The leader hears again of consumers each so many ticks of a second; each tick if they got
something, or acknowledged it."""


def no_replica(queue: Queue) -> Refusal:
    """RabbitMQ's answer to a consume where no replica is in reach, its doubled quotes included."""
    where = quoted("queue", queue.name, queue.vhost)
    text = f"queue '{where}' does not have a running replica on the local node"
    return Refusal(ReplyCode.PRECONDITION_FAILED, text)


class ReadableStreams(Protocol):
    """The logs of streams that can be read on this node."""

    def readable(self, uid: int) -> ReadableLog | None:
        """The log of a stream; None if it can't be read here now."""
        ...

    def tell_consumers(self, queue: Queue, count: int, handled: tuple[int, int]) -> None:
        """Tell a stream's leader of this node's consumers, and what they got and acknowledged."""
        ...


class StreamClient(RemoteQueue):
    """`QueueHandle` of a stream.

    Args:
        record: The stream.
        node: This node.
        logs: What can be read here.
    """

    def __init__(self, record: Queue, node: NodeContext, logs: ReadableStreams) -> None:
        super().__init__(record, node)
        self._logs = logs
        self._readers: dict[tuple[str, str], StreamReader] = {}
        self._ticks = 0
        self._is_telling = False
        self._past = 0  # delivered to consumers that have ended
        self._acked = 0
        self._told = 0, 0  # of both

    @property
    def consumer_count(self) -> int:
        """Consumers of this node."""
        return len(self._living())

    def publish_unit(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        """Store all messages of a named publisher, or none.

        Args:
            messages: In publish order; those under one id are stored once.
            seqnos: The publisher's confirm numbers, one a message; None without confirms.
            publisher: Hears one verdict for each of `seqnos`, for all of them the same.

        Returns:
            As `publish`.
        """
        return self._publish(commands.EnqueueUnit(messages), seqnos, publisher)

    def attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer."""
        if self._is_deleted:
            done(gone(self.record))
            return
        log = self._logs.readable(self.record.uid)
        if log is None:
            done(damaged(self.record) if self.is_damaged else no_replica(self.record))
            return
        arguments = checkout.arguments
        reader = StreamReader(
            checkout.tag, port, checkout.prefetch, _filter_of(arguments), self._defer
        )
        self._readers[checkout.channel_id, checkout.tag] = reader
        self._tell()
        done(None)
        reader.begin(log, offset_spec(arguments, self._clock.now_ms()) or NEXT)

    def submit(self, command: ChannelCommand, done: Done | None = None) -> None:
        """Do what a channel asks of its consumers; the outcome is known at once."""
        self._ASKED[type(command)](self, command)
        if done is not None:
            done(self._refusal(command))

    def _refusal(self, command: ChannelCommand) -> Refusal | None:
        if not isinstance(command, commands.Get | commands.Purge | commands.Drop):
            return None
        name = "basic.get" if isinstance(command, commands.Get) else "queue.purge"
        where = quoted("queue", self.record.name, self.record.vhost)
        text = f"{name} not supported by stream queues {where}"
        return Refusal(ReplyCode.NOT_IMPLEMENTED, text)

    def deleted(self) -> None:
        """Group 0 has deleted the stream."""
        super().deleted()
        self._end_all()

    def tick(self) -> bool:
        """Once a second: as of any queue; and the leader, perhaps a new one, hears of consumers.

        Returns:
            As of any queue.
        """
        is_busy = super().tick() or bool(self._readers)
        self._ticks += 1
        is_due = self._readers and self._ticks % TELL_TICKS == 0
        if is_due or self._handled() != self._told:
            self._tell_now()
        return is_busy

    def _tell(self) -> None:
        """Tell the leader of a change, once for all changes of this turn."""
        if not self._is_telling:
            self._is_telling = True
            self._stirred.add(self._uid)
            self._defer(self._tell_now)

    def _tell_now(self) -> None:
        self._is_telling = False
        handled, told = self._handled(), self._told
        self._told = handled
        new = handled[0] - told[0], handled[1] - told[1]
        self._logs.tell_consumers(self.record, self.consumer_count, new)

    def _handled(self) -> tuple[int, int]:
        """How many messages consumers got and acknowledged, all in all."""
        return self._past + sum([each.delivered for each in self._readers.values()]), self._acked

    def members_changed(self) -> None:
        """A replica came to this node or left it: consumers go on at the nearest log."""
        log = self._logs.readable(self.record.uid)
        if log is None:
            self._end_all()
            return
        for reader in self._living():
            if reader.log is not log:
                reader.go_on(log)

    def _end_all(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            self._past += reader.delivered
            if not reader.is_over:
                reader.end()
                reader.port.consumer_lost(reader.tag)

    def _living(self) -> list[StreamReader]:
        """Consumers that were not lost."""
        return [reader for reader in self._readers.values() if not reader.is_over]

    def _give_credit(self, command: commands.Settle | commands.Requeue | commands.Discard) -> None:
        """Any settle gives credit back; nothing is stored, and nothing comes again."""
        reader = self._readers.get((command.channel_id, command.tag))
        if reader is not None:
            reader.settle(len(command.numbers))
            if not isinstance(command, commands.Requeue):
                self._acked += len(command.numbers)

    def _end_reader(self, command: commands.Cancel) -> None:
        reader = self._readers.pop((command.channel_id, command.tag), None)
        if reader is not None:
            self._end_one(reader)
            self._tell()

    def _end_channel(self, command: commands.Release) -> None:
        ended = [key for key in self._readers if key[0] == command.channel_id]
        for key in ended:
            self._end_one(self._readers.pop(key))
        if ended:
            self._tell()

    def _end_one(self, reader: StreamReader) -> None:
        reader.end()
        self._past += reader.delivered

    def _pause(self, command: commands.SetActive) -> None:
        reader = self._readers.get((command.channel_id, command.tag))
        if reader is not None:
            reader.set_active(active=command.active)

    def _limit(self, command: commands.SetPrefetch) -> None:
        reader = self._readers.get((command.channel_id, command.tag))
        if reader is not None:
            reader.prefetch = command.prefetch
            reader.wake()

    def _leave(self, command: ChannelCommand) -> None:
        """No-op: it is refused."""

    # Any: the key is the type of the command that a method takes; typing can't say so of a dict.
    _ASKED: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        commands.Settle: _give_credit,
        commands.Requeue: _give_credit,
        commands.Discard: _give_credit,
        commands.Cancel: _end_reader,
        commands.Release: _end_channel,
        commands.SetActive: _pause,
        commands.SetPrefetch: _limit,
        commands.Get: _leave,
        commands.Purge: _leave,
        commands.Drop: _leave,
    }


def _filter_of(arguments: dict[str, object]) -> Filter | None:
    """Which messages a consumer's arguments ask for; None: all."""
    wanted = arguments.get(FILTER_ARGUMENT)
    if isinstance(wanted, str):
        wanted = [wanted]
    if not isinstance(wanted, list):
        return None
    values = frozenset(each for each in wanted if isinstance(each, str))
    return Filter(values, match_unfiltered=arguments.get(UNFILTERED_ARGUMENT) is True)
