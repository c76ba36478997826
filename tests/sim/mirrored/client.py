"""A client of one node: publishes with confirms, consumes with a prefetch, settles as it likes.

It lives outside of the nodes: it goes on while its node stands still, and connects again when its
connection ends. What it had published and not heard of is then unknown to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.amqp.content import Properties, build_message
from broker.errors import Refusal
from broker.fifo.commands import Checkout, Get, Requeue, Settle
from broker.message import Delivery, Message
from broker.ports import GetResult
from tests.sim.mirrored.connection import Connection

if TYPE_CHECKING:
    from tests.sim.mirrored.serving import Serving
    from tests.sim.mirrored.world import World

GET_TAG: Final = ""
RECONNECT_MS: Final = 300
CONSUME_AGAIN_MS: Final = 700
SETTLE_MS: Final = 100
"""Mean time to a settle once the faults are over."""

GET_P: Final = 0.15
ASK_P: Final = 0.4
CHURN_MS: Final = 1_000
_properties = {True: Properties(delivery_mode=2), False: Properties()}


class _Held(NamedTuple):
    """A delivery that the client has not settled."""

    ident: int
    number: int
    tag: str
    epoch: int


def body(ident: int, *, persistent: bool) -> Message:
    """The message of an id."""
    return build_message("", "q", _properties[persistent], b"%d" % ident)


def ident_of(message: Message) -> int:
    """The id in a message that `body` made."""
    content = bytes(message.content)
    return int(content[-1 - message.body_size : -1])


class Client:
    """A publisher and consumer.

    Attributes:
        name: Its name in the history.
        node: The node it connects to.
        connection: Open now; None while it has none.
        pending: Confirm number -> id of what has no answer yet.
        held: Deliveries not settled.
    """

    def __init__(self, world: World, name: str, node: str) -> None:
        self.world, self.name, self.node = world, name, node
        self.connection: Connection | None = None
        self.pending: dict[int, int] = {}
        self.held: list[_Held] = []
        self._mine: list[int] = []
        self._seqno = 0
        self._given_up = 0  # confirm numbers up to here were of closed channels
        self._session = 0
        self._tag: str | None = None
        self._tag_count = 0
        self._open_tags: set[str] = set()  # consumers of this channel, cancelled ones too
        self._is_consuming = False
        world.clock.after(1, self._connect)
        world.clock.after(self._random(world.options.publish_ms), self._publish)
        world.clock.after(CHURN_MS, self._churn)

    def _random(self, mean_ms: int) -> int:
        return 1 + int(self.world.rng.random() * 2 * mean_ms)

    # The connection

    def _connect(self) -> None:
        if self.connection is not None:
            return
        serving = self.world.serving(self.node)
        if serving is not None:
            self.connection = serving.connect(self._make)
        if self.connection is None:
            self.world.clock.after(self._random(RECONNECT_MS), self._connect)
            return
        self._session += 1
        if self.world.is_consuming:
            self.consume()

    def _make(self, serving: Serving, number: int) -> Connection:
        return Connection(serving, number, self)

    def hears(self, connection: Connection, what: Callable[[], None]) -> None:
        """Something is on its way from the node to here."""
        self.world.clock.after(1, self._hear, connection, what)

    def _hear(self, connection: Connection, what: Callable[[], None]) -> None:
        if connection is self.connection:
            what()

    def disconnected(self) -> None:
        """The connection is gone."""
        self.connection = None
        self._forget()
        self.world.clock.after(self._random(RECONNECT_MS), self._connect)

    def _forget(self) -> None:
        """The channel is gone, with all that was under way on it."""
        now_ms = self.world.clock.now_ms
        for ident in self.pending.values():
            self.world.history.answered(ident, "unknown", 0, now_ms)
        self.pending.clear()
        self._given_up = self._seqno
        for each in self.held:
            self.world.history.let_go(each.ident, self._consumer(each.tag))
        self.held.clear()
        self._open_tags.clear()
        self._tag = None
        self._is_consuming = False

    def _consumer(self, tag: str) -> str:
        return f"{self.name}.{self._session}/{tag}"

    # Publishing

    def _publish(self) -> None:
        world = self.world
        world.clock.after(self._random(world.options.publish_ms), self._publish)
        connection = self.connection
        if connection is None or not world.is_publishing:
            return
        self._mine = [ident for ident in self._mine if world.is_waiting(ident)]
        room = world.options.waiting_max - len(self._mine)
        if room <= 0:
            return
        count = min(room, world.rng.choice((1, 1, 1, 2, 4)))
        self.publish(count)

    def publish(self, count: int) -> None:
        """Publish some messages in one go."""
        world, connection = self.world, self.connection
        assert connection is not None, "only while connected"
        messages, seqnos = [], []
        for _ in range(count):
            ident = world.next_ident()
            persistent = world.rng.random() >= world.options.transient
            publisher = f"{self.name}.{self._session}"
            world.history.published(ident, publisher, world.clock.now_ms, persistent=persistent)
            self._seqno += 1
            self.pending[self._seqno] = ident
            self._mine.append(ident)
            messages.append(body(ident, persistent=persistent))
            seqnos.append(self._seqno)

        def act() -> None:
            queue = connection.queue()
            if queue is None:
                connection.confirmed(seqnos)  # unroutable, which is acknowledged
            else:
                queue.publish(messages, seqnos, connection)

        connection.perform(act)

    def answered(self, seqnos: list[int], verdict: str, epoch: int) -> None:
        """The node confirmed or rejected."""
        for seqno in seqnos:
            ident = self.pending.pop(seqno, None)
            if ident is not None:
                self.world.history.answered(ident, verdict, epoch, self.world.clock.now_ms)
            elif seqno > self._given_up:
                text = f"confirm number {seqno} of {self.name}: {verdict}"
                self.world.history.fail("answered-twice", self.world.clock.now_ms, text)

    # Consuming

    def consume(self) -> None:
        """Attach a consumer."""
        connection = self.connection
        if connection is None or self._is_consuming:
            return
        self._is_consuming = True
        self._tag_count += 1
        tag = self._tag = f"c{self._tag_count}"
        self._open_tags.add(tag)
        prefetch = self.world.options.prefetch

        def act() -> None:
            spec = Checkout(connection.channel_id, tag, False, False, prefetch, 0, {})
            connection.consume(spec, partial(self._consumes, tag))

        connection.perform(act)

    def _consumes(self, tag: str, result: object) -> None:
        if result is None or tag != self._tag:
            return
        self._tag = None
        self._is_consuming = False
        self.world.counts["consume refused"] += 1
        self.world.clock.after(CONSUME_AGAIN_MS, self._consume_again)

    def _consume_again(self) -> None:
        if self.world.is_consuming:
            self.consume()

    def cancel(self) -> None:
        """Detach the consumer; what it holds stays."""
        connection, tag = self.connection, self._tag
        if connection is None or tag is None:
            return
        self._tag = None
        self._is_consuming = False
        connection.perform(lambda: connection.cancel(tag, _ignore))

    def consumer_lost(self, tag: str) -> None:
        """The node cancelled a consumer."""
        self.world.counts["consumer lost"] += 1
        if tag == self._tag:
            self._tag = None
            self._is_consuming = False
            self.world.clock.after(self._random(CONSUME_AGAIN_MS), self._consume_again)

    def got(self, tag: str, deliveries: list[Delivery], epoch: int) -> None:
        """Deliveries came; what comes for a closed channel finds nobody."""
        if tag != GET_TAG and tag not in self._open_tags:
            return
        for delivery in deliveries:
            self._take(tag, delivery, epoch)
        count = sum(1 for each in self.held if each.tag == tag and each.epoch == epoch)
        if tag != GET_TAG:
            history, prefetch = self.world.history, self.world.options.prefetch
            history.over_prefetch(self._consumer(tag), count, prefetch, self.world.clock.now_ms)

    def _take(self, tag: str, delivery: Delivery, epoch: int) -> None:
        world = self.world
        held = _Held(ident_of(delivery.message), delivery.number, tag, epoch)
        world.history.delivered(
            held.ident,
            self._consumer(tag),
            held.number,
            epoch,
            world.clock.now_ms,
            redelivered=delivery.delivery_count > 0,
            living=self._is_living(),
        )
        world.note(f"{self.name} gets {held.ident} as {held.number}.{epoch}")
        self.held.append(held)
        mean_ms = world.options.settle_ms if world.is_faulty else SETTLE_MS
        world.clock.after(self._random(mean_ms), self._settle, held)

    def _is_living(self) -> bool:
        """Whether group 0 holds the boot this client is connected to as living."""
        connection, catalogue = self.connection, self.world.group0.machine.catalogue
        return connection is not None and catalogue.is_living(self.node, connection.boot)

    def boot_ended(self, boot: str) -> None:
        """Group 0 has ended a boot of the node: to the queue, nobody there holds anything."""
        if self.connection is not None and self.connection.boot == boot:
            for each in self.held:
                self.world.history.let_go(each.ident, self._consumer(each.tag))

    def get(self) -> None:
        """basic.get."""
        connection = self.connection
        if connection is None:
            return
        session = self._session

        def done(result: object) -> None:
            epoch = connection.epoch
            if isinstance(result, GetResult) and result.delivery is not None:
                delivery = result.delivery
                connection.say(lambda: heard(delivery, epoch))

        def heard(delivery: Delivery, epoch: int) -> None:
            if session == self._session:
                self.got(GET_TAG, [delivery], epoch)

        def act() -> None:
            queue = connection.queue()
            if queue is not None:
                queue.submit(Get(connection.channel_id, False), done)

        connection.perform(act)

    def _settle(self, held: _Held) -> None:
        connection = self.connection
        if connection is None or held not in self.held:
            return
        self.held.remove(held)
        world = self.world
        world.history.let_go(held.ident, self._consumer(held.tag))
        is_requeue = world.is_faulty and world.rng.random() < world.options.requeue_p
        if not is_requeue:
            world.history.acknowledged(held.ident)
        is_asked = world.rng.random() < ASK_P

        def done(result: object) -> None:
            if connection.is_promise and not isinstance(result, Refusal) and not is_requeue:
                connection.say(lambda: world.history.settled(held.ident, world.clock.now_ms))

        def act() -> None:
            queue = connection.queue()
            if queue is None:
                return
            kind = Requeue if is_requeue else Settle
            settle = kind(connection.channel_id, held.tag, [held.number])
            queue.submit(settle, done if is_asked else None)

        connection.perform(act)

    # Churn

    def _churn(self) -> None:
        world = self.world
        world.clock.after(CHURN_MS, self._churn)
        connection = self.connection
        if connection is None or not world.is_faulty:
            return
        if world.rng.random() < GET_P:
            self.get()
        if world.rng.random() >= world.options.churn_p:
            return
        if world.rng.random() < 0.5:
            self.cancel()
        else:
            self._forget()
            self._session += 1
            connection.perform(connection.reopen_channel)
        self.consume()


def _ignore(result: object) -> None:
    """Cancelled or not: the tag is never used again."""
