"""Random schedules: masters and mirrors die and come back, links delay and break, rings lag.

What a mirrored queue's handles promise on all nodes, whatever comes in which order. As long as one
synchronised member lives, nothing that was confirmed is lost, nothing that was settled for certain
comes back, nothing is in the queue twice, and nobody who asked is left without an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from broker.errors import Refusal
from broker.fifo.commands import Cancel, Get, Release, Requeue, Settle
from broker.message import Delivery
from broker.metadata import ring_commands
from broker.ports import GetResult
from broker.queues.client.consumers import BASE_BITS
from tests.unit.queues.rig import A, B, C, Channel, message
from tests.unit.queues.ringed import Node, RingedWorld

STEPS = 500
PREFETCH = 4


def body_of(delivery: Delivery) -> int:
    return int(bytes(delivery.message.content[-1 - delivery.message.body_size : -1]))


class Client(Channel):
    """A channel: publishes numbers, consumes with a prefetch, gets, settles new and old."""

    def __init__(self, world: RandomWorld, node: Node, number: int) -> None:
        super().__init__()
        self.world = world
        self.node = node
        self.number = number
        self.published = 0
        self.held: list[Delivery] = []
        self.old: list[Delivery] = []  # of earlier masters
        self.gotten: list[Delivery] = []
        self.is_attached = self.is_told = self.is_waiting = self.is_over = False
        self.answers_due = 0
        self.last_new: dict[int, int] = {}  # publisher -> its latest message new to this consumer

    @property
    def channel_id(self) -> str:
        return self.node.channel_id(f"{self.number}.1")

    def publish(self) -> None:
        count = self.world.rng.randint(1, 4)
        seqnos = list(range(self.published + 1, self.published + 1 + count))
        self.published += count
        bodies = [self.number * 10_000 + seqno for seqno in seqnos]
        self.node.handle.publish([message(b"%d" % body) for body in bodies], seqnos, self)

    def confirmed(self, seqnos: Sequence[int]) -> None:
        super().confirmed(seqnos)
        self.world.confirmed.update(self.number * 10_000 + seqno for seqno in seqnos)

    def consume(self) -> None:
        if self.is_attached or self.is_waiting:
            return
        self.is_attached = self.is_waiting = True
        self.is_told = False
        self.answers_due += 1

        def done(result: object) -> None:
            self.answers_due -= 1
            self.is_waiting = False
            assert not self.is_told, "consume-ok twice"
            self.is_attached = self.is_told = result is None

        spec = replace(self.node.spec(prefetch=PREFETCH), channel_id=self.channel_id)
        self.node.handle.attach(spec, self, done)

    def cancel(self) -> None:
        if not self.is_told or self.is_waiting:
            return
        self.is_waiting = True
        self.answers_due += 1

        def done(result: object) -> None:
            assert result is None
            self.answers_due -= 1
            self.is_attached = self.is_told = self.is_waiting = False

        self.node.handle.submit(Cancel(self.channel_id, "t"), done)

    def get(self) -> None:
        if self.is_waiting:
            return
        self.is_waiting = True
        self.answers_due += 1

        def done(result: object) -> None:
            self.answers_due -= 1
            self.is_waiting = False
            if self.is_over:
                return  # a session knows the question no more
            if isinstance(result, GetResult) and result.delivery is not None:
                self._note(result.delivery)
                self.gotten.append(result.delivery)

        self.node.handle.submit(Get(self.channel_id, False), done)

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        assert self.is_told, "consume-ok comes first"
        epoch = deliveries[0].number >> BASE_BITS
        self.old += [each for each in self.held if each.number >> BASE_BITS < epoch]  # cancelled
        self.held = [each for each in self.held if each.number >> BASE_BITS == epoch]
        assert len(self.held) + len(deliveries) <= PREFETCH, "more than the prefetch"
        self.held += deliveries
        for each in deliveries:
            self._note(each)
            publisher, body = divmod(body_of(each), 10_000)
            if each.delivery_count == 0:
                assert body > self.last_new.get(publisher, 0), "out of a publisher's order"
                self.last_new[publisher] = body

    def _note(self, delivery: Delivery) -> None:
        body, world = body_of(delivery), self.world
        if delivery.delivery_count == 0:
            assert body not in world.delivered, "handed out twice as if new"
        assert body not in world.settled, "it was settled for certain"
        world.delivered.add(body)

    def consumer_lost(self, consumer_tag: str) -> None:
        raise AssertionError("a mirrored queue loses no consumer while a copy lives")

    def consumer_moved(self, consumer_tag: str) -> None:
        self.old += self.held
        self.held.clear()

    def settle(self) -> None:
        rng, handle = self.world.rng, self.node.handle
        tag, mine = rng.choice([("t", self.held), ("t", self.old), ("", self.gotten)])
        if not mine:
            return
        some = [mine.pop(0) for _ in range(rng.randint(1, len(mine)))]
        numbers = [each.number for each in some]
        if rng.random() < 0.2:
            handle.submit(Requeue(self.channel_id, tag, numbers))
            return
        self.answers_due += 1

        def done(result: object) -> None:
            self.answers_due -= 1
            if not isinstance(result, Refusal):
                self.world.settled.update(map(body_of, some))

        handle.submit(Settle(self.channel_id, tag, numbers), done)

    def leave(self) -> None:
        """End this channel; another one begins."""
        self.is_over = True
        self.node.handle.submit(Release(self.channel_id))


class RandomWorld(RingedWorld):
    """Links with a will of their own; the ring brings things round when it likes."""

    def __init__(self, seed: int) -> None:
        super().__init__({})
        self.rng = random.Random(seed)
        self.is_safe = False
        self.confirmed: set[int] = set()
        self.delivered: set[int] = set()
        self.settled: set[int] = set()
        self.returned = 0
        self.deaths = self.handovers = 0
        self.clients: list[Client] = []
        self.everybody: list[Client] = []
        for name in (A, B, C, C):
            self.hire(self.nodes[name])

    def hire(self, node: Node) -> None:
        client = Client(self, node, len(self.everybody) + 1)
        self.clients.append(client)
        self.everybody.append(client)

    # What may happen

    def deliver_some(self) -> None:
        ways = [way for way in sorted(self.mail) if self.mail[way]]
        if ways:
            way = self.rng.choice(ways)
            for _ in range(self.rng.randint(1, 4)):
                if self.mail.get(way):
                    self.mail[way].popleft()()

    def break_link(self) -> None:
        ways = [way for way in sorted(self.mail) if self.mail[way]]
        if not ways:
            return
        way = self.rng.choice(ways)
        for _ in range(self.rng.randint(0, len(self.mail[way]))):
            self.mail[way].pop()
        if way[0] in self.nodes:
            self.nodes[way[0]].handle.link_up(way[1])
        if self.master is not None and self.master.node == way[0]:
            self.master.machine.redeliver_checked_out(way[1])
            self.master.run()

    def turn(self) -> None:
        for node in self.nodes.values():
            for _ in range(len(node.turn)):
                node.turn.popleft()()

    def come_round(self) -> None:
        if self.master is not None:
            self.returned = self.rng.randint(self.returned, len(self.master.sent))
            self.master.returned(self.returned)

    def pass_time(self) -> None:
        self.clock.ms += 700
        for node in list(self.nodes.values()):
            node.handle.tick()

    def is_copied(self, without: str) -> bool:
        """Whether a synchronised member would be left."""
        return any(member.node != without for member in self.ring.synced)

    def die(self) -> None:
        name = self.rng.choice(sorted(self.nodes))
        if not self.is_copied(name) or len(self.nodes) < 2:
            return
        self.deaths += 1
        sent = 0 if self.master is None else len(self.master.sent)
        self.clients = [client for client in self.clients if client.node.name != name]
        for client in self.everybody:
            client.is_over |= client.node.name == name and client.node is self.nodes[name]
        self.kill(name, seen=self.rng.randint(min(self.returned, sent), sent), late_mail=True)

    def hand_over(self) -> None:
        """The master leaves in good order; its node, and all that asked there, lives on."""
        me = self.ring.master
        heirs = [member for member in self.ring.synced if member != me]
        if me is None or not heirs:
            return
        self.handovers += 1
        assert self.master is not None
        self.unserve(me.node, self.rng.randint(self.returned, len(self.master.sent)))
        heir = self.rng.choice(heirs)
        self.step(ring_commands.RingHandOver(self.uid, me, self.ring.epoch, heir))

    def succeed(self) -> None:
        if self.master is None and self.ring.successor is not None:
            self.returned = 0
            self.promote()

    def come_back(self) -> None:
        gone = [name for name in (A, B, C) if name not in self.nodes]
        if gone:
            node = self.boot(self.rng.choice(gone))
            self.hire(node)

    def be_mirror(self) -> None:
        if self.master is None:
            return
        for name in sorted(self.nodes):
            if self.ring.member_on(name) is None:
                self.join(name)  # its join state has come round, and all that was sent before it
                self.returned = len(self.master.sent)
                self.master.returned(self.returned)
                return

    def change_channel(self, client: Client) -> None:
        client.leave()
        self.clients.remove(client)
        self.hire(client.node)

    def step_once(self) -> None:
        acts: list[tuple[float, Callable[[], None]]] = [
            (30, self.deliver_some),
            (20, self.turn),
            (8, self.come_round),
            (2, self.pass_time),
            (2, self.break_link),
            (1, self.die),
            (0.5, self.hand_over),
            (3, self.succeed),
            (2, self.come_back),
            (2, self.be_mirror),
        ]
        if self.clients:
            client = self.rng.choice(self.clients)
            acts += [
                (8, client.publish),
                (4, client.consume),
                (14, client.settle),
                (2, client.get),
                (0.5, client.cancel),
                (0.3, partial(self.change_channel, client)),
            ]
        weights = [weight for weight, _ in acts]
        self.rng.choices([act for _, act in acts], weights)[0]()
        self.check()

    def check(self) -> None:
        if self.master is None:
            return
        here = [body_of(each) for each in self.master.machine.messages.contents()]
        assert len(here) == len(set(here)), "twice in the queue"
        for client in self.everybody:
            mine = [body for body in here if body // 10_000 == client.number]
            assert mine == sorted(mine), "a publisher's messages out of order"

    def finish(self) -> None:
        """No more faults: everything comes to its end."""
        self.succeed()
        for _ in range(12):
            self.pass_time()
            for _ in range(20):
                self.turn()
                for way in sorted(self.mail):
                    while self.mail.get(way):
                        self.mail[way].popleft()()
                assert self.master is not None
                self.master.returned()
                for client in self.clients:
                    client.consume()
                    client.settle()
        self.check()


@pytest.mark.parametrize("seed", range(30))
def test_nothing_confirmed_is_lost_and_nothing_settled_comes_back(seed: int) -> None:
    """P10-P12, P16-P18."""
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.step_once()
    world.finish()
    assert world.deaths + world.handovers
    assert world.master is not None
    stat = world.master.machine.stat()
    assert (stat.ready, stat.unacked) == (0, 0), "drained, and nothing is held for ever"
    assert world.confirmed <= world.delivered, sorted(world.confirmed - world.delivered)[:5]
    for client in world.everybody:
        if client.is_over and client.node not in world.nodes.values():
            continue  # it died with its node: nobody is there to hear
        seqnos = sorted(seqno for seqno, _ in client.verdicts)
        assert seqnos == list(range(1, client.published + 1)), "one verdict each"
        assert client.answers_due == 0, "everybody who asked was answered"
