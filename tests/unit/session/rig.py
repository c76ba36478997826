"""A broker in miniature around sessions: the real metadata machine and the real queue machine.

`World` carries out effects the moment they come, unless a test holds them (`world.is_held`).
`Client` turns methods into commands and what the session writes into readable lines.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from broker.amqp import methods, spec
from broker.amqp.assembler import Ack, Command, MethodCommand, Publish
from broker.amqp.content import Properties, build_message, facts_of, raw_properties
from broker.counters import NodeCounts
from broker.errors import AmqpError, Refusal, ReplyCode, quoted
from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine as Fifo
from broker.message import Delivery, Message
from broker.metadata import commands
from broker.metadata.access import Access
from broker.metadata.machine import MetadataMachine
from broker.session import effects as asked
from broker.session.effects import Effect
from broker.session.facts import ConnectionFacts, Quota, SessionLimits
from broker.session.session import Session
from broker.session.traced_vhosts import TracedVhosts

NODE, BOOT = "rabbit@a", "0123456789abcdef"


def connection_and_key(channel_id: str) -> tuple[int, int]:
    """Connection id and channel key of a channel id."""
    _, _, connection, channel = channel_id.rsplit("/", 3)
    number, generation = channel.split(".")
    return int(connection), int(generation) << 16 | int(number)


class VirtualClock:
    """A `broker.ports.Clock` that a test sets; the epoch began a day before."""

    def __init__(self) -> None:
        self.us = 0

    def monotonic_ms(self) -> int:
        return self.us // 1000

    def now_us(self) -> int:
        return 86_400_000_000 + self.us

    def now_ms(self) -> int:
        return self.now_us() // 1000

    def busy_ms(self) -> int:
        return self.monotonic_ms()


class World:
    """Group 0, queues, and the connections of one node."""

    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.catalogue = self.machine.catalogue
        self.access = Access(self.catalogue)
        self.fifos: dict[int, Fifo] = {}
        self.clients: dict[int, Client] = {}
        self.index = 0
        self.requests = 0
        self.is_held = False
        self.held: list[tuple[Client, Effect]] = []
        self.refusing: set[int] = set()  # queues that reject what is published to them
        self.log: list[Effect] = []
        self.counts = NodeCounts()
        self.clock = VirtualClock()
        self.traced = TracedVhosts(self.clock)
        founder = commands.Bootstrap("c", "c", ((NODE, "a:1"), ("rabbit@b", "b:1")))
        self.apply(founder)
        self.apply(commands.BootNode(NODE, BOOT, "a:1"))
        self.apply(commands.BootNode("rabbit@b", "f" * 16, "b:1"))

    def apply(self, command: commands.AnyCommand) -> object:
        self.index += 1
        self.requests += 1
        request = commands.encode_request(BOOT, self.requests, self.requests, command)
        result = self.machine.apply(self.index, request)
        changes = self.machine.take_changes()
        for queue in changes.queues_added:
            requeue = "original" if queue.type == "classic" else "tail"
            self.fifos[queue.uid] = Fifo(QueueConfig(name=queue.name, requeue=requeue))
        for queue in changes.queues_removed:
            fifo = self.fifos.pop(queue.uid)
            for consumer in list(fifo.consumers):
                number, channel = connection_and_key(consumer.channel_id)
                client = self.clients.get(number)
                if client is not None:
                    self.run(client, client.session.consumer_lost(channel, consumer.tag))
        return result

    def consumer_count(self, uid: int) -> int:
        return self.fifos[uid].stat().consumers

    def run(self, client: Client, effects: list[Effect]) -> None:
        """As `EffectRunner`: what comes of an effect waits until the list it stands in is done."""
        client.later += effects
        if client.is_running:
            return
        client.is_running = True
        while client.later:
            effect = client.later.pop(0)
            self.log.append(effect)
            if self.is_held or any(waiting is client for waiting, _ in self.held):
                self.held.append((client, effect))
            else:
                self.carry_out(client, effect)
        client.is_running = False
        if not self.is_held:
            self.pump()

    def let_go(self, count: int = -1) -> None:
        """Carry out held effects, the oldest `count` (all); none overtakes another."""
        if count < 0 and self.is_held:
            count = len(self.held)
        while self.held and count:
            client, effect = self.held.pop(0)
            count -= 1
            self.carry_out(client, effect)
        self.pump()

    def pump(self) -> None:
        for fifo in list(self.fifos.values()):
            fifo.pump()
            for (channel_id, tag), deliveries in fifo.take_effects().deliveries.items():
                number, channel = connection_and_key(channel_id)
                client = self.clients.get(number)
                if client is not None:
                    self.run(client, client.session.deliver(channel, tag, deliveries))

    def carry_out(self, client: Client, effect: Effect) -> None:
        getattr(self, "_" + type(effect).__name__.lower())(client, effect)

    def _done(self, client: Client, token: int, result: object) -> None:
        self.run(client, client.session.complete(token, result, client.now_ms))

    def _denied(self, _client: Client, _effect: asked.Denied) -> None:
        """It is for the audit log."""

    def _publishto(self, client: Client, effect: asked.PublishTo) -> None:
        fifo = self.fifos.get(effect.queue.uid)
        session = client.session
        is_refused = effect.queue.uid in self.refusing
        if fifo is not None and not is_refused:  # one that is gone went in good order
            fifo.enqueue(effect.messages)
        if effect.seqnos is not None:
            assert len(effect.seqnos) == len(effect.messages)
            told = session.rejected if is_refused else session.confirmed
            self.run(client, told(effect.channel, effect.seqnos))

    def _queuerequest(self, client: Client, effect: asked.QueueRequest) -> None:
        fifo = self.fifos.get(effect.queue_uid)
        if fifo is not None:
            result = fifo.apply_command(effect.command)
            if result is False:
                result = Refusal(ReplyCode.PRECONDITION_FAILED, "lost")
            elif result is True:
                result = None
        else:
            result = None if effect.queue is None else self.gone(effect.queue.name)
        if effect.token:
            self._done(client, effect.token, result)

    def _hasroom(self, client: Client, effect: asked.HasRoom) -> None:
        for each in client.session.resume_no_ack(effect.channel):
            self._queuerequest(client, each)

    def _channelended(self, client: Client, effect: asked.ChannelEnded) -> None:
        """Nothing is kept for a channel here."""

    def _attach(self, client: Client, effect: asked.Attach) -> None:
        fifo = self.fifos.get(effect.queue.uid)
        result = (
            self.gone(effect.queue.name) if fifo is None else fifo.apply_command(effect.checkout)
        )
        self._done(client, effect.token, result)

    def gone(self, name: str) -> Refusal:
        return Refusal(ReplyCode.NOT_FOUND, f"no {quoted('queue', name, '/')}")

    def _stat(self, client: Client, effect: asked.Stat) -> None:
        fifo = self.fifos.get(effect.queue.uid)
        self._done(client, effect.token, fifo.stat() if fifo else self.gone(effect.queue.name))

    def _deletequeue(self, client: Client, effect: asked.DeleteQueue) -> None:
        fifo = self.fifos.get(effect.queue.uid)
        result: object = 0
        if fifo is not None:
            stat = fifo.stat()
            where = quoted("queue", effect.queue.name, "/")
            result = stat.ready
            if effect.if_unused and stat.consumers:
                result = Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} in use")
            elif effect.if_empty and stat.ready:
                result = Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} not empty")
            else:
                self.apply(commands.DeleteQueue(effect.queue.uid))
        self._done(client, effect.token, result)

    def _propose(self, client: Client, effect: asked.Propose) -> None:
        self._done(client, effect.token, self.apply(effect.command))

    def _replyto(self, client: Client, effect: asked.ReplyTo) -> None:
        other = self.clients.get(effect.connection_id)
        if other is not None and (effect.node, effect.boot) == (NODE, BOOT):
            other.session.deliver_reply(effect.channel, effect.key, effect.message)

    def _closeconnection(self, client: Client, effect: asked.CloseConnection) -> None:
        client.error = effect.error


class Client:
    """One connection of user guest (or another) to vhost "/"."""

    def __init__(
        self,
        world: World,
        connection_id: int = 1,
        *,
        user: str = "guest",
        impersonator: bool = False,
        limits: SessionLimits | None = None,
        cancel_notify: bool = True,
        quota: Quota | None = None,
    ) -> None:
        self.world = world
        self.now_ms = 0
        self.error: AmqpError | None = None
        self.later: list[Effect] = []
        self.is_running = False
        names = (f"name{connection_id}-{n}" for n in itertools.count(1))
        facts = ConnectionFacts(
            node=NODE,
            boot=BOOT,
            connection_id=connection_id,
            vhost="/",
            user=user,
            frame_max=131_072,
            channel_max=2047,
            consumer_cancel_notify=cancel_notify,
            is_impersonator=impersonator,
            reply_secret=b"secret",
            name=f"client {connection_id}",
        )
        self.session = Session(
            facts,
            world.catalogue,
            world.access,
            lambda: next(names),
            lambda *_: (NODE, (NODE,)),
            limits,
            quota,
            world.consumer_count,
            world.counts,
            world.traced,
        )
        world.clients[connection_id] = self

    def feed(self, *items: Command) -> list[str]:
        """Handle one chunk and return what was written."""
        self.world.run(self, self.session.handle(list(items), self.now_ms))
        return self.take()

    def call(self, *methods_: spec.Method, channel: int = 1) -> list[str]:
        """Send methods in one chunk."""
        return self.feed(*(command(method, channel) for method in methods_))

    def open(self, channel: int = 1) -> Client:
        assert self.call(spec.ChannelOpen(), channel=channel) == [f"{channel} channel.open-ok"]
        return self

    def take(self) -> list[str]:
        self.session.flush()
        data = b"".join(self.session.out)
        self.session.out.clear()
        return transcript(data)


def command(method: spec.Method, channel: int = 1) -> Command:
    if isinstance(method, spec.BasicAck):
        return Ack(channel, method.delivery_tag, method.multiple)
    return MethodCommand(channel, method)


def publish(
    routing_key: str = "q",
    exchange: str = "",
    body: bytes = b"x",
    *,
    channel: int = 1,
    mandatory: bool = False,
    immediate: bool = False,
    **properties: object,
) -> Publish:
    message = build_message(exchange, routing_key, Properties(**properties), body, channel=channel)
    return Publish(channel, mandatory, immediate, message, facts_of(raw_properties(message)))


def transcript(data: bytes) -> list[str]:
    """What was written, one line a method; contents as their body in quotes."""
    lines: list[str] = []
    position = 0
    while position < len(data):
        kind, channel, size = struct.unpack_from(">BHI", data, position)
        payload = data[position + 7 : position + 7 + size]
        assert data[position + 7 + size] == 0xCE
        position += size + 8
        if kind == 1:
            lines.append(f"{channel} {show(methods.decode(payload))}")
        elif kind == 3:
            lines[-1] += f" {payload.decode(errors='replace')!r}"
    return lines


_NAMES = {
    kind: "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__)[1:].replace(
        "-", ".", 1
    )
    for kind in spec.METHODS.values()
}


def show(method: spec.Method) -> str:
    words = [_NAMES[type(method)]]
    for name in method.__struct_fields__:
        value = getattr(method, name)
        if value not in ("", 0, False, b"", {}):
            words.append(f"{name}={value}" if value is not True else name)
    return " ".join(words)


def deliveries(*numbers: int, body: bytes = b"x", count: int = 0) -> list[Delivery]:
    message: Message = build_message("", "q", Properties(), body)
    return [Delivery(number, count, message) for number in numbers]


def commands_of(effects: list[Effect], *kinds: type) -> list[Any]:
    """The commands of some kinds that queues were asked for."""
    found = [each.command for each in effects if isinstance(each, asked.QueueRequest)]
    return [each for each in found if isinstance(each, kinds)]


def kinds_of(effects: list[Effect]) -> list[type]:
    """What was asked, by type: of queues the commands' types."""
    return [
        type(each.command) if isinstance(each, asked.QueueRequest) else type(each)
        for each in effects
    ]
