"""Publishers and consumers: connections to any node, made anew when that node dies.

What a connection publishes is sent once. A publisher with a name sends what was not confirmed again
by its next connection, under the same ids; of the others it is not known any more. One of units
sends all of a unit again, in another order, as a task that is tried again does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from broker.amqp import fields
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import body_of
from broker.fifo.commands import (
    Cancel,
    Checkout,
    Discard,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    Settle,
)
from broker.message import Delivery, Message
from broker.queues.handle import QueueHandle
from broker.queues.streams.client import StreamClient
from broker.queues.streams.replica import StreamReplica
from broker.streams.publishers import ID_HEADER, PUBLISHER_HEADER

if TYPE_CHECKING:
    from tests.sim.streams.process import Process
    from tests.sim.streams.world import World

SIZES: Final = (0, 0, 10, 40, 300, 300, 900)
LARGE: Final = (2_500, 7_000)
LARGE_P: Final = 0.04
BATCH_MAX: Final = 8
WINDOW: Final = 60
MOVE_P: Final = 0.02
NAMED_MOVE_P: Final = 0.06
"""It sends again what it has not heard of, which may be stored."""

UNIT_MAX: Final = 12
"""Messages of a unit; its bytes take several batches of a session, and several entries."""

REST_S: Final = 0.2


class Publisher:
    """A publisher; `broker.ports.PublisherPort` of its connection.

    Args:
        world: Where it publishes.
        name: Its name.
        named: Its messages carry name and id.
    """

    def __init__(self, world: World, name: str, *, named: bool) -> None:
        self.world = world
        self.name = name
        self.named = named
        self.waiting: dict[int, bytes] = {}  # by id, of a named one by publishing id
        self._connections = 0
        self._number = 0
        self._process: Process | None = None
        self._handle: QueueHandle | None = None
        self._port: _Verdicts | None = None
        self.is_stopping = False

    @property
    def is_done(self) -> bool:
        return not self.waiting

    def connect(self, process: Process) -> None:
        """Open a connection to a node; what waits is sent again by a named one."""
        self._connections += 1
        self._process = process
        self._handle = process.registry.open(self.world.queue)
        again = self.waiting
        self.waiting = {}
        if self._port is not None:
            self._port.is_open = False
        self._port = _Verdicts(self, self._connections)
        self.world.record.counts["connections"] += 1
        if self.named:
            self._send(again)
        elif again:
            self.world.record.counts["unknown"] += len(again)

    def step(self) -> None:
        """Publish something, or look for another node."""
        rng, nodes = self.world.rng, self.world.nodes
        process = self._process
        is_moving = rng.random() < (NAMED_MOVE_P if self.named else MOVE_P)
        is_moving = is_moving and not self.is_stopping
        if process is None or process.is_dead or is_moving:
            if nodes:
                self.connect(nodes[rng.choice(sorted(nodes))])
            return
        if not self.is_stopping and len(self.waiting) < WINDOW:
            count = rng.randint(1, BATCH_MAX)
            self._send({self._next(): self._pad() for _ in range(count)})

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _pad(self) -> bytes:
        rng = self.world.rng
        size = rng.choice(LARGE if rng.random() < LARGE_P else SIZES)
        return bytes([rng.randrange(256)]) * size

    def _send(self, pads: dict[int, bytes]) -> None:
        if not pads:
            return
        assert self._handle is not None
        assert self._port is not None
        messages = [self._message(number, pad) for number, pad in pads.items()]
        if self._handle.has_room(messages):
            self.waiting.update(pads)
            self.world.record.counts["published"] += len(pads)
            self._handle.publish(messages, list(pads), self._port)
        elif self.named:
            self.waiting.update(pads)  # its next connection sends it

    def key(self, number: int, connection: int) -> str:
        """What a message is known by."""
        return f"{self.name}|{number}" if self.named else f"{self.name}.{connection}|{number}"

    def _message(self, number: int, pad: bytes) -> Message:
        body = self.key(number, self._connections).encode() + b"|" + pad
        headers: dict[str, object] = {}
        if self.named:
            headers = {PUBLISHER_HEADER: self.name, ID_HEADER: number}
        return build_message("", "s", Properties(delivery_mode=2, headers=headers or None), body)

    def answered(self, seqnos: Sequence[int], connection: int, *, ok: bool) -> None:
        """A connection heard of some of its messages."""
        for number in seqnos:
            if ok:
                self.world.record.confirmed(self.name, self.key(number, connection))
            else:
                self.world.record.counts["rejected"] += 1
        if connection == self._connections:
            for number in seqnos:
                if ok or not self.named:
                    self.waiting.pop(number, None)
            if not ok and self.named:
                self._process = None  # it connects anew, and sends what is not confirmed again


class _Verdicts:
    """`PublisherPort` of one connection."""

    def __init__(self, publisher: Publisher, connection: int) -> None:
        self._publisher = publisher
        self._connection = connection
        self.is_open = True

    def confirmed(self, seqnos: Sequence[int]) -> None:
        if self.is_open:
            self._publisher.answered(seqnos, self._connection, ok=True)

    def rejected(self, seqnos: Sequence[int]) -> None:
        if self.is_open:
            self._publisher.answered(seqnos, self._connection, ok=False)


class UnitPublisher(Publisher):
    """A publisher of units, one after the other. Its messages say how many the unit has."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, named=True)
        self._unit: dict[int, bytes] = {}  # the one under way, by row
        self._id = 0

    @override
    def step(self) -> None:
        is_free = not self.waiting and self._process is not None and not self._process.is_dead
        if is_free and not self.is_stopping:
            self._id += 1
            count = self.world.rng.randint(1, UNIT_MAX)
            self._unit = {row: self._pad() for row in range(count)}
            self._send(self._unit)
        elif self._process is None or self._process.is_dead or not is_free:
            self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        world, process = self.world, self._process
        is_lost = process is None or process.is_dead or world.rng.random() < NAMED_MOVE_P
        if is_lost and world.nodes:
            self.connect(world.nodes[world.rng.choice(sorted(world.nodes))])

    @override
    def _send(self, pads: dict[int, bytes]) -> None:
        if not pads:
            return
        assert isinstance(self._handle, StreamClient)
        assert self._port is not None
        rows = list(self._unit)
        self.world.rng.shuffle(rows)
        messages = [self._message(row, self._unit[row]) for row in rows]
        self.waiting = dict(self._unit)
        if self._handle.has_room(messages):
            self.world.record.counts["units sent"] += 1
            self._handle.publish_unit(messages, rows, self._port)
        else:
            self._process = None  # its next connection sends it

    @override
    def key(self, number: int, connection: int) -> str:
        return f"{self.name}|{self._id}.{number}/{len(self._unit)}"

    @override
    def _message(self, number: int, pad: bytes) -> Message:
        headers: dict[str, object] = {PUBLISHER_HEADER: self.name, ID_HEADER: self._id}
        body = self.key(number, 0).encode() + b"|" + pad
        return build_message("", "s", Properties(delivery_mode=2, headers=headers), body)

    @override
    def answered(self, seqnos: Sequence[int], connection: int, *, ok: bool) -> None:
        if connection == self._connections:
            super().answered(seqnos, connection, ok=ok)


class Consumer:
    """A consumer; `broker.ports.ConsumerPort` of its channel.

    Args:
        world: Where it reads.
        process: The node it is connected to.
        tag: Its tag.
        spec: Its x-stream-offset.
        prefetch: Most that it may hold.

    Attributes:
        offset: Of the message that must come next; None before the first.
        is_lost: The broker has cancelled it.
    """

    def __init__(
        self, world: World, process: Process, tag: str, spec: object, prefetch: int
    ) -> None:
        self.world = world
        self.process = process
        self.tag = tag
        self.spec = spec
        self.prefetch = prefetch
        self.offset: int | None = None
        self.got = 0
        self.is_lost = False
        self.is_over = False
        self._held: list[int] = []
        self._is_settling = False
        self._channel = f"{process.name}/{process.boot}/1/{tag}"
        handle = process.registry.open(world.queue)
        assert isinstance(handle, StreamClient)
        self._handle = handle
        self._own_end: int | None = None
        self._newest_ms: int | None = None
        if process.is_readable and process.replica is not None:
            self._own_end = process.replica.machine.next_offset
            self._newest_ms = process.replica.machine.timestamp_ms
        world.note(f"{tag} begins at {process.name}, {spec}")
        checkout = Checkout(
            self._channel, tag, False, False, prefetch, 0, {"x-stream-offset": spec}
        )
        self._handle.attach(checkout, self, self._attached)

    def _attached(self, value: object) -> None:
        if value is not None:
            self.is_lost = self.is_over = True
            self.world.record.counts["consumes refused"] += 1

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Look at every message."""
        assert consumer_tag == self.tag
        record = self.world.record
        if self.is_over:
            record.fail("nothing after the end", f"{self.tag} was cancelled")
        for delivery in deliveries:
            offset = delivery.number - 1
            record.delivered(self.tag, offset, body_of(delivery.message))
            replica = self._replica_read()
            if replica is not None and offset >= replica.machine.next_offset:
                text = f"{self.tag} got {offset}, {self.process.name} has not applied it"
                record.fail("nothing beyond applied", text)
            self._look_at(offset)
            self.offset = offset + 1
            self.got += 1
            self._held.append(delivery.number)
        if len(self._held) > self.prefetch:
            text = f"{self.tag} holds {len(self._held)} of {self.prefetch}"
            record.fail("unsettled <= prefetch", text)
        if not self._is_settling:
            self._is_settling = True
            self._later(self._settle)

    def _replica_read(self) -> StreamReplica | None:
        """The node's own replica, if the consumer reads that one."""
        replica, found = self.process.replica, self._handle._readers.get((self._channel, self.tag))
        return replica if found is not None and replica and found.log is replica.log else None

    def _look_at(self, offset: int) -> None:
        """Whether a message may come now: what was skipped must have been cut."""
        record = self.world.record
        if self.offset is None:
            self._look_at_first(offset)
        elif offset < self.offset:
            record.fail("each once, in order", f"{self.tag} got {offset}, not {self.offset}")
        elif offset > self.offset:
            if offset > record.first_offset:
                text = f"{self.tag} got {offset}, not {self.offset}, cut at {record.first_offset}"
                record.fail("no hole", text)
            record.counts["overtaken by a cut"] += 1

    def _look_at_first(self, offset: int) -> None:
        record, spec = self.world.record, self.spec
        is_cut = offset <= record.first_offset
        if type(spec) is int:
            is_right = offset == spec or (offset > spec and is_cut)
        elif spec == "first":
            is_right = is_cut
        elif spec == "last":
            is_right = record.messages[offset].is_first
        elif spec == "next":
            is_right = self._is_next(offset)
        else:
            assert isinstance(spec, fields.Timestamp)
            asked_ms = spec * 1_000
            if self._newest_ms is None or asked_ms > self._newest_ms:
                is_right = self._is_next(offset)
            else:
                before = record.messages[offset - 1] if offset else None
                is_right = is_cut or before is None or before.timestamp_ms < asked_ms
                is_right = is_right and record.messages[offset].timestamp_ms >= asked_ms
        if not is_right:
            text = f"{self.tag} asked for {spec!r} and got {offset}, cut at {record.first_offset}"
            record.fail("from where it asked", text)

    def _is_next(self, offset: int) -> bool:
        """Whether it is what came next at the node's own replica; of others it is not known."""
        is_cut = offset <= self.world.record.first_offset
        return self._own_end in (None, offset) or (offset > self._own_end and is_cut)

    def _later(self, call: object) -> None:
        delay = self.world.rng.random() * 2 * self.world.options.settle_s
        self.world.loop.call_later(delay, call)  # type: ignore[arg-type]

    def _settle(self) -> None:
        self._is_settling = False
        if self.is_over or self.process.is_dead or not self._held:
            return
        rng = self.world.rng
        count = rng.randint(1, len(self._held))
        numbers, self._held = self._held[:count], self._held[count:]
        kind = rng.choice((Settle, Settle, Settle, Requeue, Discard))
        self._handle.submit(kind(self._channel, self.tag, numbers))
        if self._held:
            self._is_settling = True
            self._later(self._settle)

    def disturb(self) -> None:
        """Pause and go on, or get another prefetch."""
        if self.is_over or self.process.is_dead:
            return
        rng = self.world.rng
        if rng.random() < 0.5:
            self._handle.submit(SetActive(self._channel, self.tag, False))
            self._later(self._go_on)
        else:
            self.prefetch += rng.randint(0, 3)
            self._handle.submit(SetPrefetch(self._channel, self.tag, self.prefetch))

    def _go_on(self) -> None:
        if not self.is_over and not self.process.is_dead:
            self._handle.submit(SetActive(self._channel, self.tag, True))

    def cancel(self) -> None:
        """End it."""
        if not self.is_over and not self.process.is_dead:
            channel = self._channel
            self._handle.submit(
                Release(channel) if self.world.rng.random() < 0.5 else Cancel(channel, self.tag)
            )
        self.is_over = True

    def consumer_lost(self, consumer_tag: str) -> None:
        """The broker has cancelled it."""
        self.world.note(f"{consumer_tag} is cancelled")
        self.world.record.counts["consumers lost"] += 1
        if not self.world.may_lose(self):
            self.world.record.fail("a consumer stays", f"{consumer_tag} at {self.process.name}")
        self.is_lost = self.is_over = True

    def consumer_moved(self, consumer_tag: str) -> None:
        """A stream has no master."""
        self.world.record.fail("a consumer stays", f"{consumer_tag} has moved")


class Clients:
    """All publishers and consumers of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        options = world.options
        self.publishers = [
            Publisher(world, f"p{n}", named=False) for n in range(options.publishers)
        ]
        self.publishers += [Publisher(world, f"n{n}", named=True) for n in range(options.named)]
        self.publishers += [UnitPublisher(world, f"u{n}") for n in range(options.units)]
        self.consumers: list[Consumer | None] = [None] * options.consumers
        self._tags = 0
        self._asked: dict[str, int] = {}
        self.is_stopping = False

    async def publish(self, publisher: Publisher) -> None:
        """A publisher's life."""
        rng, gap_s = self.world.rng, self.world.options.publish_s
        while not (self.is_stopping and publisher.is_done):
            publisher.is_stopping = self.is_stopping
            publisher.step()
            await asyncio.sleep(rng.random() * 2 * gap_s)

    async def consume(self, place: int) -> None:
        """The consumers that follow each other at one place."""
        rng = self.world.rng
        while not self.is_stopping:
            consumer = self.consumers[place]
            is_gone = consumer is None or consumer.is_over or consumer.process.is_dead
            if is_gone and self.world.nodes:
                self.consumers[place] = self.begin(consumer)
            elif consumer is not None and rng.random() < 0.06:
                consumer.cancel()
            elif consumer is not None and rng.random() < 0.2:
                consumer.disturb()
            elif consumer is not None and rng.random() < 0.2:
                self._store_offset(place, consumer.offset or 0)
            await asyncio.sleep(REST_S + rng.random())
        for each in self.consumers:
            if each is not None:
                each.cancel()

    def _store_offset(self, place: int, offset: int) -> None:
        """Have the stream keep where a consumer is."""
        leader, record = self.world.leader(), self.world.record
        if leader is None or leader.replica is None:
            return
        name = f"reader {place}"
        self._asked[name] = offset

        def done(result: object) -> None:
            record.counts["offsets stored" if result is None else "offsets refused"] += 1
            is_newest = self._asked[name] == offset  # else another one may stand in its place
            if result is None and is_newest and (name, offset) not in record.offsets:
                record.fail("stored is applied", f"offset {offset} of {name}")

        leader.replica.store_offset(name, offset, done)

    def begin(self, before: Consumer | None) -> Consumer:
        """A consumer at any node: it goes on behind another one, or begins anywhere."""
        world, rng = self.world, self.world.rng
        self._tags += 1
        process = world.nodes[rng.choice(sorted(world.nodes))]
        end = len(world.record.messages)
        now_s = process.host._clock.now_ms() // 1_000  # type: ignore[attr-defined]
        specs: list[object] = ["first", "last", "next", rng.randint(0, end + 5)]
        specs.append(fields.Timestamp(max(0, now_s - rng.randint(0, 30))))
        if before is not None and before.offset is not None:
            specs += [before.offset] * 4
        spec = rng.choice(specs)
        return Consumer(world, process, f"c{self._tags}", spec, world.options.prefetch)

    def reader(self, process: Process) -> Consumer:
        """A consumer that reads everything."""
        self._tags += 1
        return Consumer(self.world, process, f"c{self._tags}", "first", 100)
