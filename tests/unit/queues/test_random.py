"""Random schedules: links that delay and break, leaders and homes that fall, clocks that run on.

The links keep what `broker.cluster.links` promises: in order, nothing missing while a stream lives;
a break loses a tail of what was on its way, and both ends hear when the stream is up again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from broker.fifo.commands import Cancel, Requeue, Settle
from broker.message import Delivery
from broker.metadata.records import Queue
from broker.ports import QueueStat
from broker.queues.handle import QueueHandle
from raft.errors import ProposalDropped
from tests.unit.queues.rig import A, B, C, Channel, Node, World, message

STEPS = 600
PREFETCH = 5


class LaggingGroup:
    """A Raft group without Raft: the leader commits or loses, the others apply when they may."""

    def __init__(self, world: RandomWorld, node: str) -> None:
        self._world = world
        self._node = node

    @property
    def leader(self) -> str | None:
        return self._world.leading

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        if self._world.leading != self._node:
            done(ProposalDropped("no leader"))
        else:
            self._world.proposed.append(data)


class Client(Channel):
    """A channel on a node: publishes numbers, consumes with a prefetch, settles what it likes."""

    def __init__(self, world: RandomWorld, node: str, number: int) -> None:
        super().__init__()
        self.world = world
        self.node = node
        self.number = number
        self.published: list[int] = []
        self.held: list[tuple[str, Delivery]] = []
        self.seen: list[tuple[int, int]] = []
        self.tags = 0
        self.is_consuming = False  # or about to, or about to end
        self.is_ending = False
        self.told: str | None = None  # the consumer, from its consume-ok to its cancel-ok
        self.acked: set[int] = set()

    @property
    def here(self) -> Node | None:
        return self.world.nodes.get(self.node)

    def channel_id(self) -> str:
        assert self.here is not None
        return self.here.channel_id(f"{self.number}.1")

    def publish(self, count: int) -> None:
        if self.here is None:
            return
        first = len(self.published) + 1
        bodies = [self.number * 1_000_000 + first + i for i in range(count)]
        self.published += bodies
        seqnos = list(range(first, first + count))
        messages = [message(b"%d" % body) for body in bodies]
        self.here.registry.open(self.world.queue).publish(messages, seqnos, self)

    def consume(self) -> None:
        if self.here is None or self.is_consuming:
            return
        self.tags += 1
        tag = f"t{self.tags}"
        self.is_consuming = True

        def done(result: object) -> None:
            self.is_consuming = result is None
            self.told = tag if result is None else None

        spec = replace(self.here.spec(tag, prefetch=PREFETCH), channel_id=self.channel_id())
        self.here.registry.open(self.world.queue).attach(spec, self, done)

    def cancel(self) -> None:
        """It keeps what it holds."""
        if self.here is None or self.told is None or self.is_ending:
            return
        self.is_ending = True

        def done(_: object) -> None:
            self.is_consuming = self.is_ending = False
            self.told = None

        self.here.registry.open(self.world.queue).submit(Cancel(self.channel_id(), self.told), done)

    def deliver(self, consumer_tag: str, deliveries: list[Delivery]) -> None:  # type: ignore[override]
        assert consumer_tag == self.told, "after consume-ok, before cancel-ok"
        mine = sum(1 for tag, _ in self.held if tag == consumer_tag)
        assert mine + len(deliveries) <= PREFETCH, "more than the prefetch"
        self.held += [(consumer_tag, each) for each in deliveries]
        for each in deliveries:
            body = int(bytes(each.message.content[-1 - each.message.body_size : -1]))
            self.seen.append((body, each.delivery_count))

    def consumer_lost(self, consumer_tag: str) -> None:
        super().consumer_lost(consumer_tag)
        self.end()

    def end(self) -> None:
        """Its queue, or its node, has ended what it had."""
        self.is_consuming = self.is_ending = False
        self.told = None
        self.held.clear()

    def settle(self, rng: random.Random, *, all_of_it: bool = False) -> None:
        if self.here is None or not self.held:
            return
        queue = self.here.registry.open(self.world.queue)
        count = len(self.held) if all_of_it else rng.randint(1, len(self.held))
        some, self.held = self.held[:count], self.held[count:]
        if not all_of_it and rng.random() < 0.2:
            self.for_each_tag(some, Requeue, queue)
            return
        for _, each in some:
            body = int(bytes(each.message.content[-1 - each.message.body_size : -1]))
            assert body not in self.acked or self.world.has_crashed, "acked twice"
            self.acked.add(body)
        self.for_each_tag(some, Settle, queue)

    def for_each_tag(
        self, some: list[tuple[str, Delivery]], kind: type[Settle | Requeue], queue: QueueHandle
    ) -> None:
        for tag in dict.fromkeys(tag for tag, _ in some):
            queue.submit(
                kind(self.channel_id(), tag, [each.number for of, each in some if of == tag])
            )


class RandomWorld(World):
    """Three nodes, one queue, links with a will of their own."""

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__(A, B, C)
        self.rng = random.Random(seed)
        self.ways: dict[tuple[str, str], deque[Callable[[Node], None]]] = {
            (x, y): deque() for x in (A, B, C) for y in (A, B, C) if x != y
        }
        self.has_crashed = False
        self.proposed: list[bytes] = []
        self.log: list[bytes] = []
        self.applied = dict.fromkeys((A, B, C), 0)
        self.leading: str | None = None
        self.queue: Queue = self.declare_quorum() if kind == "quorum" else self.declare()
        if kind == "quorum":
            for node, replica in self.replicas[self.queue.uid].items():
                replica.group = LaggingGroup(self, node)
            self.elect(A)
        self.clients = [Client(self, node, i) for i, node in enumerate((A, B, C, B), 1)]

    def send(self, sender: str, to: str, act: Callable[[Node], None]) -> None:
        self.ways[sender, to].append(act)

    # Raft, as far as replicas can tell

    def commit(self) -> None:
        self.log += self.proposed
        self.proposed.clear()
        if self.leading is not None:
            self.catch_up(self.leading)

    def catch_up(self, node: str) -> None:
        replica = self.replicas[self.queue.uid][node]
        while self.applied[node] < len(self.log):
            self.applied[node] += 1
            replica.apply(self.applied[node], self.log[self.applied[node] - 1])

    def elect(self, node: str) -> None:
        """Of what was proposed some is committed, the rest is lost with its leader."""
        keep = self.rng.randint(0, len(self.proposed))
        self.log += self.proposed[:keep]
        self.proposed.clear()
        before, self.leading = self.leading, None
        self.term += 1
        replicas = self.replicas[self.queue.uid]
        if before is not None:
            replicas[before].role_changed(leader=False, term=self.term)
        self.catch_up(node)
        self.leading = node
        replicas[node].role_changed(leader=True, term=self.term)

    # What may happen

    def deliver_some(self) -> None:
        way = self.rng.choice(list(self.ways))
        for _ in range(self.rng.randint(1, 4)):
            if self.ways[way] and way[1] in self.nodes:
                act = self.ways[way].popleft()
                act(self.nodes[way[1]])
                if self.rng.random() < 0.05:
                    act(self.nodes[way[1]])  # twice: a batch or answer that was sent again

    def break_link(self) -> None:
        way = self.rng.choice(list(self.ways))
        for _ in range(self.rng.randint(0, len(self.ways[way]))):
            self.ways[way].pop()
        if way[0] in self.nodes:
            self.nodes[way[0]].registry.link_up(way[1])

    def run_deferred(self) -> None:
        for node in self.nodes.values():
            for _ in range(len(node.deferred)):
                node.deferred.popleft()()

    def sync(self) -> None:
        self.rng.choice(list(self.nodes.values())).journal.sync()

    def pass_time(self) -> None:
        self.clock.ms += 700
        for node in list(self.nodes.values()):
            list(node.registry.tick())

    def change_leader(self) -> None:
        if self.leading is not None:
            self.elect(self.rng.choice((A, B, C)))

    def crash_home(self) -> None:
        """The home dies with what it had not synced, and starts again."""
        self.has_crashed = True
        for way in self.ways.values():
            way.clear()
        disk = self.kill(A)
        for client in self.clients:
            if client.node == A:
                client.end()
        self.boot(A, disk)

    def step(self, crashes: bool) -> None:
        client = self.rng.choice(self.clients)
        acts: list[tuple[int, Callable[[], None]]] = [
            (30, self.deliver_some),
            (20, self.run_deferred),
            (10, self.sync),
            (10, self.commit),
            (2, self.pass_time),
            (2, self.break_link),
            (1, self.change_leader),
            (8, lambda: client.publish(self.rng.randint(1, 4))),
            (3, client.consume),
            (3, client.cancel),
            (14, lambda: client.settle(self.rng)),
        ]
        if crashes:
            acts.append((1, self.crash_home))
        weights = [weight for weight, _ in acts]
        self.rng.choices([act for _, act in acts], weights)[0]()

    def finish(self) -> None:
        """Let everything come to its end: no more faults."""
        for _ in range(60):
            self.pass_time()
            for _ in range(20):
                self.run_deferred()
                for node in self.nodes.values():
                    node.journal.sync()
                self.commit()
                for way, acts in self.ways.items():
                    while acts and way[1] in self.nodes:
                        acts.popleft()(self.nodes[way[1]])
                for client in self.clients:
                    client.consume()
                    client.settle(self.rng, all_of_it=True)

    def stat(self) -> QueueStat:
        found: list[object] = []
        serving = self.leading or A
        self.nodes[serving].registry.stat_here(self.queue.uid, found.append)
        assert isinstance(found[0], QueueStat)
        return found[0]


def run(seed: int, kind: str, *, crashes: bool = False) -> RandomWorld:
    world = RandomWorld(seed, kind)
    for _ in range(STEPS):
        world.step(crashes)
    world.finish()
    for client in world.clients:
        if client.node == A and world.has_crashed:
            continue  # a client of the dead node: nobody is there to hear
        numbers = [seqno for seqno, _ in client.verdicts]
        assert sorted(numbers) == list(range(1, len(client.published) + 1)), "one verdict each"
    return world


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("seed", [*range(12), 38])  # 38: a delivery and a cancel in one answer
def test_nothing_lost_nothing_doubled(kind: str, seed: int) -> None:
    """P10, P11, P12, P17: each publish is confirmed and handed out first exactly once, in order."""
    world = run(seed, kind)
    published = {body for client in world.clients for body in client.published}
    assert all(ok for client in world.clients for _, ok in client.verdicts)
    firsts = [body for client in world.clients for body, count in client.seen if not count]
    assert len(firsts) == len(set(firsts)), "handed out twice as if new"
    assert set(firsts) <= published
    acked = [body for client in world.clients for body in client.acked]
    assert sorted(acked) == sorted(published), "each settled once, by one consumer"
    for client in world.clients:
        for source in world.clients:
            mine = [b for b, n in client.seen if not n and b // 1_000_000 == source.number]
            assert mine == sorted(mine), "in the order of its publisher"
    stat = world.stat()
    assert (stat.ready, stat.unacked) == (0, 0)


@pytest.mark.parametrize("seed", [*range(12), 98])  # 98: a second death, a settle of before it
def test_home_dies(seed: int) -> None:
    """What was confirmed arrives, whenever the home died; what was not is nacked, or arrives."""
    world = run(seed, "classic", crashes=True)
    seen = {body for client in world.clients for body, _ in client.seen}
    for client in world.clients:
        confirmed = {client.published[seqno - 1] for seqno, ok in client.verdicts if ok}
        assert confirmed <= seen, sorted(confirmed - seen)[:5]
    assert seen <= {body for client in world.clients for body in client.published}
    stat = world.stat()
    assert (stat.ready, stat.unacked) == (0, 0)
