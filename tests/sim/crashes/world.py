"""One node with durable queues, its clients, and what they know of every message.

Every message is known by a number of its own, rising with time, so that order can be judged. What
must be there after a crash follows from what clients were told before it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from broker.amqp.content import Properties, build_message
from broker.errors import Refusal
from broker.fifo.commands import Checkout, Discard, Purge, Release, Requeue, Settle
from broker.message import Delivery, Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.node import NodeContext
from broker.queues.registry import QueueRegistry
from broker.storage.message_store import MessageStore
from tests.sim.clock import Clock, Wall
from tests.sim.crashes.disk import AMPLE, Disk, Journal, Life
from tests.unit.queues import rig

NODE: Final = rig.A
SIZES: Final = (10, 300, 3_000, 6_000, 40_000)
QUIET_MS: Final = 3_000
SETTLE_MS: Final = 5_000
QUEUES: Final[dict[str, dict[str, object]]] = {
    "plain": {},
    "lazy": {"x-queue-mode": "lazy"},
    "limited": {"x-max-length": 40},
}


class Violation(Exception):
    """Something forbidden happened."""


class Node(rig.Node):
    """A life of the node: the real registry, store and journal on the simulated disk."""

    def __init__(self, world: World, disk: Disk, summary: list[bytes] | None) -> None:
        self.world: Any = world.group0
        self.name, self.boot = NODE, world.group0.next_boot()
        self.life = Life(world.clock)
        self.journal: Any = Journal(disk, self.life, world.rng, world.counts, world.failed)
        self.clogged: set[str] = set()
        self.neighbours = rig.Links(world.group0)
        self.store = MessageStore(self.journal, summary=summary)
        context = NodeContext(
            node=NODE,
            boot=self.boot,
            catalogue=world.group0.catalogue,
            clock=Wall(world.clock),
            journal=self.journal,
            store=self.store,
            transport=self,
            defer=self.life.call_soon,
            later=self.life.call_later,
            propose=world.group0.propose,
            has_lease=lambda: True,
            leader=lambda: NODE,
            has_alarm=lambda: self.journal.is_short,
        )
        self.registry = QueueRegistry(context, self, self.neighbours)


class Group0(rig.World):
    """The catalogue, which is never lost here."""

    def __init__(self) -> None:
        super().__init__(NODE)
        self.nodes.clear()

    def next_boot(self) -> str:
        self._boots += 1
        return f"{self._boots:016x}"

    def send(self, sender: str, to: str, act: Any) -> None:
        node: Any = self.nodes[to]
        node.life.call_soon(act, node)


class Known:
    """What clients know of one message in one queue.

    Attributes:
        is_persistent: Delivery mode 2.
        is_confirmed: They were told that it is safe.
        is_ended: It was acked, rejected, purged or dropped by a limit, or may have been.
        is_over: They were told that it has been settled.
        is_taken: It was delivered to one of them.
    """

    __slots__ = ("is_confirmed", "is_ended", "is_over", "is_persistent", "is_taken")

    def __init__(self, *, is_persistent: bool) -> None:
        self.is_persistent = is_persistent
        self.is_confirmed = self.is_ended = self.is_over = self.is_taken = False


class Consumer:
    """Takes deliveries; holds them until it settles.

    Args:
        channel_id: Its channel.
        known: Whose messages are taken by what it is delivered; the judge notes that itself.
    """

    def __init__(self, channel_id: str, known: dict[int, Known]) -> None:
        self.channel_id = channel_id
        self.held: list[Delivery] = []
        self.is_new: dict[int, bool] = {}  # by message, as its first delivery here said
        self._known = known

    def deliver(self, _tag: str, deliveries: Sequence[Delivery]) -> None:
        self.held += deliveries
        for item in deliveries:
            ident = ident_of(item.message)
            self.is_new.setdefault(ident, item.delivery_count == 0)
            if ident in self._known:
                self._known[ident].is_taken = True

    def consumer_lost(self, _tag: str) -> None:
        self.held.clear()

    consumer_moved = consumer_lost


class Publisher:
    """Hears confirms of one queue."""

    def __init__(self, known: dict[int, Known], counts: Counter[str]) -> None:
        self._known = known
        self._counts = counts

    def confirmed(self, idents: Sequence[int]) -> None:
        self._counts["confirms"] += len(idents)
        for ident in idents:
            self._known[ident].is_confirmed = True

    def rejected(self, idents: Sequence[int]) -> None:
        for ident in idents:
            self._known[ident].is_ended = True


def make(ident: int, size: int, *, persistent: bool) -> Message:
    properties = Properties(delivery_mode=2) if persistent else Properties()
    return build_message("", "q", properties, b"%010d" % ident + b"x" * size)


def ident_of(message: Message) -> int:
    if message.is_stub:
        raise Violation("a stub was handed out")
    start = len(message.content) - 1 - message.body_size
    return int(bytes(message.content[start : start + 10]))


class World:
    """Everything of a run.

    Attributes:
        counts: What happened how often.
        failure: What the journal said when it failed; the process must end then.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        self.group0 = Group0()
        self.disk = Disk()
        self.failure: BaseException | None = None
        self.summary: list[bytes] | None = None
        self.is_clean = False
        self.known: dict[str, dict[int, Known]] = {name: {} for name in QUEUES}
        self.consumers: dict[str, list[Consumer]] = {}
        self._ident = self._channel_id = 0
        self.start()
        self.queues: dict[str, Queue] = {
            name: self.group0.declare(name, NODE, arguments=arguments)
            for name, arguments in QUEUES.items()
        }

    def failed(self, error: BaseException) -> None:
        self.failure = error

    def start(self) -> None:
        """The process begins, with the summary of a clean stop if the last one ended so."""
        self.is_clean, summary = self.summary is not None, self.summary
        self.summary = None
        self.node = Node(self, self.disk, summary)
        nodes: Any = self.group0.nodes
        nodes[NODE] = self.node
        self.group0.apply(commands.BootNode(NODE, self.node.boot, NODE))
        for _ in self.node.registry.opening():
            pass
        self.node.registry.reconcile_all()
        self.consumers = {name: [] for name in QUEUES}

    def run(self, ms: int) -> None:
        self.clock.run_until(self.clock.now_ms + ms)

    def crash(self, *, is_power_cut: bool) -> None:
        """The process dies here and now."""
        self.counts["power cuts" if is_power_cut else "kills"] += 1
        self._judge_store()
        self.node.journal.die()
        unsynced = len(self.disk.unsynced)
        kept = self.rng.randint(0, unsynced) if is_power_cut else unsynced
        self.counts["torn tails"] += kept < unsynced
        self._end(kept)

    def stop(self) -> None:
        """The process ends in good order, as `storage.opening.close` has it; else it is killed."""
        self.node.registry.stop()
        synced: list[bool] = []
        self.node.journal.when_synced(partial(synced.append, True))
        self.run(SETTLE_MS)
        if not synced or self.failure is not None:
            self.crash(is_power_cut=False)
            return
        self.counts["clean stops"] += 1
        self.summary = list(self.node.store.dump())
        self._end(len(self.disk.unsynced))

    def _end(self, kept: int) -> None:
        self.node.life.is_over = True
        self.group0.nodes.clear()
        self.group0.apply(commands.EndBoot(NODE, self.node.boot))
        self.disk.crash(kept)
        self.disk.free_bytes = AMPLE
        self.failure = None

    # Clients

    def handle(self, name: str) -> Any:
        return self.node.registry.open(self.queues[name])

    def publish(self) -> None:
        """Some messages to one queue, or one content to several."""
        rng, names = self.rng, list(QUEUES)
        targets = rng.sample(names, rng.choice((1, 1, 1, 2, 3)))
        messages, idents = [], []
        is_awaited = rng.random() < 0.7
        for _ in range(rng.choice((1, 3, 3, 10, 10, 30, 30, 400))):
            self._ident += 1
            is_persistent = rng.random() < 0.8
            size = rng.choice(SIZES[: 3 if len(messages) > 30 else None])
            messages.append(make(self._ident, size, persistent=is_persistent))
            idents.append(self._ident)
            for name in targets:
                self.known[name][self._ident] = Known(is_persistent=is_persistent)
        for name in targets:
            publisher = Publisher(self.known[name], self.counts)
            seqnos = list(idents) if is_awaited else None
            self.handle(name).publish(list(messages), seqnos, publisher)
        self._drop_over_limits()

    def _drop_over_limits(self) -> None:
        """What a limit may have dropped is ended: the oldest, whoever holds what."""
        for name, arguments in QUEUES.items():
            if "x-max-length" in arguments:
                for known in self.known[name].values():
                    known.is_ended = True

    def consume(self) -> None:
        name = self.rng.choice(list(QUEUES))
        if len(self.consumers[name]) < 2:
            self.consumers[name].append(self._attach(name, self.rng.choice((1, 20, 300))))

    def _attach(self, name: str, prefetch: int, *, judges: bool = False) -> Consumer:
        self._channel_id += 1
        consumer = Consumer(
            self.node.channel_id(f"1.{self._channel_id}"), {} if judges else self.known[name]
        )
        spec = Checkout(consumer.channel_id, "t", False, False, prefetch, 0, {})
        self.handle(name).attach(spec, consumer, _told)
        return consumer

    def settle(self) -> None:
        """A consumer acks, rejects or requeues some of what it holds."""
        name = self.rng.choice(list(QUEUES))
        for consumer in self.consumers[name]:
            share = self.rng.choice((0.3, 1.0))
            chosen = [item for item in consumer.held if self.rng.random() < share]
            consumer.held = [item for item in consumer.held if item not in chosen]
            if not chosen:
                continue
            numbers = [item.number for item in chosen]
            handle, channel_id = self.handle(name), consumer.channel_id
            if self.rng.random() < 0.4:
                handle.submit(Requeue(channel_id, "t", numbers), _told)
                continue
            ended = [self.known[name][ident_of(item.message)] for item in chosen]
            for known in ended:
                known.is_ended = True
            end = Settle if self.rng.random() < 0.8 else Discard
            handle.submit(end(channel_id, "t", numbers), partial(self._over, ended))

    def _over(self, ended: list[Known], refusal: object) -> None:
        if refusal is None:
            self.counts["settles done"] += len(ended)
            for known in ended:
                known.is_over = True

    def purge(self) -> None:
        name = self.rng.choice(list(QUEUES))
        for known in self.known[name].values():
            known.is_ended = True
        self.handle(name).submit(Purge(), _told)

    def release(self) -> None:
        """A channel closes."""
        name = self.rng.choice(list(QUEUES))
        if self.consumers[name]:
            self.handle(name).submit(Release(self.consumers[name].pop().channel_id))

    def page(self) -> None:
        """The node is short of memory for a moment."""
        for queue in self.node.registry.in_memory():
            queue.set_memory_limit(self.rng.choice((0, 0, 20_000, None)))

    # Judgement

    def judge(self, *, is_restarted: bool) -> None:
        """Look at everything that is there, and put it back.

        Raises:
            Violation: Something is missing, is there again, or is out of order.
        """
        for name in QUEUES:
            for consumer in self.consumers[name]:
                self.handle(name).submit(Release(consumer.channel_id))
            self.consumers[name].clear()
        for name, known in self.known.items():
            consumer = self._attach(name, 0, judges=True)
            self.run(QUIET_MS)
            found = [ident_of(item.message) for item in consumer.held]
            self.handle(name).submit(Release(consumer.channel_id))
            self._judge(name, known, found, is_restarted=is_restarted)
            self._judge_flags(name, known, consumer, is_restarted=is_restarted)
            self.counts["judged"] += len(found)
        self._judge_store()

    def _judge_store(self) -> None:
        """Nothing here damages a store: whatever it can't read is its own fault."""
        lost = self.node.store.take_lost()
        if lost:
            raise Violation(f"the store lost {lost[:3]}")

    def _judge(
        self, name: str, known: dict[int, Known], found: list[int], *, is_restarted: bool
    ) -> None:
        there = set(found)
        if found != sorted(there):
            raise Violation(f"{name}: out of order, or twice: {found[:20]}")
        for ident, message in known.items():
            is_safe = message.is_confirmed and message.is_persistent if is_restarted else True
            if is_safe and not message.is_ended and ident not in there:
                raise Violation(f"{name}: {ident} is lost")
            if message.is_over and ident in there:
                raise Violation(f"{name}: {ident} was settled and is back")
            if is_restarted and not message.is_persistent and ident in there:
                raise Violation(f"{name}: {ident} was transient")
        if not there <= known.keys():
            raise Violation(f"{name}: invented: {sorted(there - known.keys())[:5]}")
        if is_restarted:
            self._know(known, there)

    def _judge_flags(
        self, name: str, known: dict[int, Known], consumer: Consumer, *, is_restarted: bool
    ) -> None:
        """P16: new is what nobody was handed, as far as that can be known."""
        for ident, is_new in consumer.is_new.items():
            may_be_new = not known[ident].is_taken and (self.is_clean or not is_restarted)
            if is_new and not may_be_new:
                raise Violation(f"{name}: {ident} is new again")
            if may_be_new and not is_new:
                raise Violation(f"{name}: {ident} counts as delivered, and nobody was handed it")
            known[ident].is_taken = True

    def _know(self, known: dict[int, Known], there: set[int]) -> None:
        """From now on what is there must stay, and what is not must stay away."""
        for ident, message in known.items():
            is_there = ident in there
            message.is_confirmed = is_there
            message.is_ended = message.is_over = not is_there


def _told(result: object) -> None:
    if isinstance(result, Refusal):
        raise Violation(f"refused: {result}")
