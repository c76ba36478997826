"""Random clients on a real session, metadata machine and queue machine.

Whatever clients send, and in whatever order effects are carried out, nothing is raised: errors are
AMQP errors that close a channel or the connection. What clients see keeps these rules:

- Each sequence number of a confirm channel gets exactly one ack or nack, never before it was
  sent, and in the end all have one;
- Delivery tags are 1, 2, 3, ... on each channel, consumers never hold more than their prefetch,
  channels never more than theirs;
- every method that wants an answer gets one, in order;
- no message is lost or doubled: at the end queues hold what was published less what was settled.
"""

from __future__ import annotations

import re

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.amqp import spec
from broker.amqp.assembler import Command
from broker.metadata import commands
from broker.session.facts import SessionLimits
from tests.unit.session.rig import Client, World, command, publish

channels = st.integers(1, 3)
names = st.sampled_from(["a", "b", "", "amq.fanout", "nope", "amq.rabbitmq.reply-to"])
queue_names = st.sampled_from(["a", "b", "c", "", "nope", "amq.rabbitmq.reply-to"])
tags = st.sampled_from(["", "t", "u"])
flags = st.booleans()
small = st.integers(0, 6)
kinds = st.lists(st.sampled_from(["a", "b", "none", "all"]), min_size=1, max_size=10)
headers = st.sampled_from(
    [None, {}, {"CC": ["a"]}, {"BCC": ["b", 3]}, {"CC": "a"}, {"x-match": "any", "k": 1}]
)

cold = st.one_of(
    st.builds(
        spec.QueueDeclare,
        queue=queue_names,
        passive=flags,
        exclusive=flags,
        no_wait=flags,
    ),
    st.builds(spec.QueueDelete, queue=queue_names, if_unused=flags, if_empty=flags, no_wait=flags),
    st.builds(spec.QueuePurge, queue=queue_names, no_wait=flags),
    st.builds(spec.QueueBind, queue=queue_names, exchange=names, routing_key=queue_names),
    st.builds(spec.QueueUnbind, queue=queue_names, exchange=names, routing_key=queue_names),
    st.builds(
        spec.ExchangeDeclare,
        exchange=names,
        type=st.sampled_from(["fanout", "headers", "odd"]),
        passive=flags,
        internal=flags,
    ),
    st.builds(spec.ExchangeDelete, exchange=names, if_unused=flags),
    st.builds(spec.ExchangeBind, destination=names, source=names),
    st.builds(spec.ExchangeUnbind, destination=names, source=names),
    st.builds(
        spec.BasicConsume,
        queue=queue_names,
        consumer_tag=tags,
        no_ack=flags,
        exclusive=flags,
        no_wait=flags,
    ),
    st.builds(spec.BasicCancel, consumer_tag=tags, no_wait=flags),
    st.builds(spec.BasicGet, queue=queue_names, no_ack=flags),
    st.builds(spec.BasicQos, prefetch_count=small, global_=flags),
    st.builds(spec.BasicAck, delivery_tag=small, multiple=flags),
    st.builds(spec.BasicNack, delivery_tag=small, multiple=flags, requeue=flags),
    st.builds(spec.BasicReject, delivery_tag=small, requeue=flags),
    st.builds(spec.BasicRecover, requeue=st.just(True)),
    st.sampled_from(
        [
            spec.ConfirmSelect(),
            spec.TxSelect(),
            spec.TxCommit(),
            spec.TxRollback(),
            spec.ChannelOpen(),
            spec.ChannelClose(),
            spec.ChannelCloseOk(),
            spec.ChannelFlow(active=True),
            spec.AccessRequest(),
            spec.BasicCancelOk(),
            spec.BasicDeliver(),
        ]
    ),
)
published = st.builds(
    publish,
    routing_key=queue_names,
    exchange=names,
    mandatory=flags,
    immediate=st.just(False),
    headers=headers,
    expiration=st.sampled_from([None, None, "10", "x"]),
    reply_to=st.sampled_from([None, None, None, "amq.rabbitmq.reply-to"]),
    channel=channels,
)
anything = st.one_of(published, st.builds(command, cold, channels))


class Rude(RuleBasedStateMachine):
    """Clients that send anything at all."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        limits = SessionLimits(consumers_per_channel=3, held_commands=50)
        self.clients = [Client(self.world, number, limits=limits) for number in (1, 2)]
        for client in self.clients:
            for channel in (1, 2):
                client.open(channel)

    @rule(which=st.integers(0, 1), chunk=st.lists(anything, max_size=8))
    def send(self, which: int, chunk: list[Command]) -> None:
        client = self.clients[which]
        if client.error is not None:
            client.session.close_channels()
            self.clients[which] = client = Client(self.world, which + 1)
            client.open(1)
        client.feed(*chunk)

    @rule()
    def hold(self) -> None:
        self.world.is_held = True

    @rule(count=st.integers(1, 4))
    def some(self, count: int) -> None:
        self.world.let_go(count)

    @rule()
    def let_go(self) -> None:
        self.world.is_held = False
        self.world.let_go()

    @rule(which=st.integers(0, 1), active=flags)
    def pause(self, which: int, active: bool) -> None:
        client = self.clients[which]
        self.world.run(client, client.session.set_active(active=active))

    @rule(which=st.integers(0, 1))
    def wait_half_an_hour(self, which: int) -> None:
        client = self.clients[which]
        client.now_ms += 1_800_001
        self.world.run(client, client.session.tick(client.now_ms))

    @rule(pattern=st.sampled_from([".*", "^a$", "^$"]))
    def permissions(self, pattern: str) -> None:
        command_ = commands.SetPermissions("guest", "/", pattern, pattern, ".*")
        self.world.apply(command_)

    @invariant()
    def output_is_well_formed(self) -> None:
        for client in self.clients:
            client.take()

    def teardown(self) -> None:
        self.let_go()
        for client in self.clients:
            client.session.close_channels()
            assert client.session.channel_count == 0
            assert not client.session._context.questions


class Polite(RuleBasedStateMachine):
    """A client that keeps to its tags: what it hears must keep the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.client = Client(self.world).open()
        self.client.call(
            *[spec.QueueDeclare(queue=name) for name in "ab"],
            *[spec.QueueBind(queue=name, exchange="amq.fanout") for name in "ab"],
        )
        self.is_confirming = False
        self.sent = 0
        self.verdicts: dict[int, str] = {}
        self.heard = 0
        self.limit = 0
        self.holding: dict[int, str] = {}
        self.prefetch: dict[str, int] = {}
        self.gone = self.copies = 0

    def hear(self, lines: list[str]) -> None:
        for line in lines:
            number = int((re.search(r"delivery_tag=(\d+)", line) or [0, 0])[1])
            if " basic.ack " in line or " basic.nack " in line:
                numbers = range(1, number + 1) if "multiple" in line else [number]
                fresh = [n for n in numbers if n not in self.verdicts]
                assert fresh
                assert fresh[-1] == number <= self.sent
                self.verdicts.update(dict.fromkeys(fresh, line))
            elif " basic.deliver " in line:
                self.heard += 1
                assert number == self.heard
                tag = (re.search(r"consumer_tag=(\S+)", line) or ["", ""])[1]
                if tag == "free":
                    self.gone += 1
                    continue
                self.holding[number] = tag
                limit = self.prefetch[tag]
                assert not limit or list(self.holding.values()).count(tag) <= limit
                assert not self.limit or len(self.holding) <= self.limit
            else:
                assert "close" not in line
        assert self.client.error is None

    @rule(kinds=kinds)
    def publish(self, kinds: list[str]) -> None:
        self.hear(self.client.feed(*self.published(kinds)))

    @precondition(lambda self: not self.is_confirming)
    @rule(before=kinds, after=kinds)
    def confirm(self, before: list[str], after: list[str]) -> None:
        """What is published from confirm.select on counts, though one chunk holds it all."""
        chunk = [*self.published(before), command(spec.ConfirmSelect(no_wait=True), 1)]
        self.is_confirming = True
        self.hear(self.client.feed(*chunk, *self.published(after)))

    def published(self, kinds: list[str]) -> list[Command]:
        self.sent += len(kinds) if self.is_confirming else 0
        self.copies += sum({"a": 1, "b": 1, "none": 0, "all": 2}[key] for key in kinds)
        return [publish(key, "amq.fanout" if key == "all" else "") for key in kinds]

    @precondition(lambda self: not self.world.is_held)
    @rule(tag=st.sampled_from(["t", "u", "free"]), queue=st.sampled_from("ab"), limit=small)
    def consume(self, tag: str, queue: str, limit: int) -> None:
        if tag in self.prefetch:
            self.hear(self.client.call(spec.BasicCancel(consumer_tag=tag)))
            del self.prefetch[tag]
            return
        if any(held == tag for held in self.holding.values()):
            return  # of an earlier consumer of this name; the queue counts them apart
        self.prefetch[tag] = limit
        wanted, self.limit = self.limit, 0  # basic.qos without global takes it away
        self.hear(
            self.client.call(
                spec.BasicQos(prefetch_count=limit),
                spec.BasicConsume(queue=queue, consumer_tag=tag, no_ack=tag == "free"),
            )
        )
        self.limit_channel(wanted)

    @precondition(lambda self: not self.world.is_held)
    @rule(limit=small)
    def narrow(self, limit: int) -> None:
        self.limit_channel(limit)

    def limit_channel(self, limit: int) -> None:
        if limit and len(self.holding) > limit:
            return
        self.limit = limit
        self.hear(self.client.call(spec.BasicQos(prefetch_count=limit, global_=True)))

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), multiple=flags)
    def ack(self, data: st.DataObject, multiple: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.holding)))
        acked = [n for n in self.holding if n == tag or (multiple and n <= tag)]
        for number in acked:
            del self.holding[number]
        self.gone += len(acked)
        self.hear(self.client.call(spec.BasicAck(tag, multiple)))

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), multiple=flags, requeue=flags)
    def nack(self, data: st.DataObject, multiple: bool, requeue: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.holding)))
        some = [n for n in self.holding if n == tag or (multiple and n <= tag)]
        for number in some:
            del self.holding[number]
        self.gone += 0 if requeue else len(some)
        self.hear(self.client.call(spec.BasicNack(tag, multiple, requeue)))

    @rule()
    def hold(self) -> None:
        self.world.is_held = True

    @rule(count=st.integers(1, 4))
    def some(self, count: int) -> None:
        self.world.let_go(count)
        self.hear(self.client.take())

    @rule()
    def let_go(self) -> None:
        self.world.is_held = False
        self.world.let_go()
        self.hear(self.client.take())

    def teardown(self) -> None:
        self.let_go()
        assert sorted(self.verdicts) == list(range(1, self.sent + 1))
        self.client.call(spec.ChannelClose())
        ready = sum(fifo.stat().ready for fifo in self.world.fifos.values())
        assert ready == self.copies - self.gone


_SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
TestRude = Rude.TestCase
TestRude.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=_SLOW
)
TestPolite = Polite.TestCase
TestPolite.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=_SLOW
)
