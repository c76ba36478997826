"""basic.cancel: messages in flight stay with the channel, and the tag can be used again."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from broker.fifo.commands import Cancel, CommandBatch, Settle
from broker.fifo.machine import QueueMachine
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.classic import ClassicQueue
from broker.queues.envelopes import cut_reply
from tests.unit.queues.rig import A, B, C, Channel, World, message
from tests.unit.queues.ringed import RingedWorld, bodies, consuming, fail_over, flags


@pytest.fixture
def world() -> RingedWorld:
    return RingedWorld({})


def in_one_turn(world: RingedWorld, *acts: Callable[[], None]) -> None:
    """Let the master take what comes as its shells do: all batches of a turn, then one answer."""
    master = world.master
    assert master is not None
    with patch.object(master, "receive", lambda batch: master.machine.apply_batch(batch, 0)):
        for act in acts:
            act()
            world.settle()
    master.run()
    world.settle()


def test_what_was_handed_out_before_the_cancel_comes_before_its_answer(world: RingedWorld) -> None:
    """Both are in one answer: the message is the client's to settle, as with RabbitMQ."""
    node, told = world.nodes[C], list[int]()
    reader, _ = consuming(node, prefetch=1)
    in_one_turn(
        world,
        lambda: world.nodes[B].handle.publish([message(b"1")], None, Channel()),
        lambda: node.handle.submit(
            Cancel(node.channel_id(), "t"), lambda _: told.append(len(reader.delivered))
        ),
    )
    assert told == [1]
    assert bodies(reader) == [b"1"]
    node.handle.submit(Settle(node.channel_id(), "t", [reader.delivered[0].number]))
    world.settle()
    assert world.master is not None
    assert world.master.machine.stat()[:2] == (0, 0)


def test_what_comes_for_a_consumer_after_its_end_goes_back(world: RingedWorld) -> None:
    """A cancel that nobody could take is over for the client after a minute, and asked later."""
    node = world.nodes[C]
    reader, _ = consuming(node, prefetch=1)
    told = list[object]()
    node.has_clogged_links = True
    node.handle.submit(Cancel(node.channel_id(), "t"), told.append)
    world.clock.ms += 61_000
    node.handle.tick()
    assert told == [None]
    world.nodes[B].handle.publish([message(b"1")], None, Channel())
    world.settle()
    node.has_clogged_links = False
    node.handle.drained(A)
    world.settle()
    assert reader.delivered == []
    other, _ = consuming(world.nodes[B], "other")
    assert flags(other) == [(b"1", True)]


def test_a_tag_is_free_once_its_cancel_was_asked(world: RingedWorld) -> None:
    """With nowait a client does not wait for the answer, which must not end the next consumer."""
    node = world.nodes[C]
    first, _ = consuming(node, prefetch=1)
    second, told = Channel(), list[object]()
    node.handle.submit(Cancel(node.channel_id(), "t"), lambda _: None)
    node.handle.attach(node.spec("t"), second, told.append)
    world.settle()
    world.nodes[B].handle.publish([message(b"1")], None, Channel())
    world.settle()
    assert told == [None]
    assert (bodies(first), bodies(second)) == ([], [b"1"])
    fail_over(world)
    assert flags(second) == [(b"1", False), (b"1", True)]


def test_a_cancel_given_up_twice_spares_the_next_consumer_of_its_tag(world: RingedWorld) -> None:
    node = world.nodes[C]
    consuming(node, prefetch=1)
    told, second = list[object](), Channel()
    node.has_clogged_links = True
    node.handle.submit(Cancel(node.channel_id(), "t"), told.append)
    world.tick(61)
    assert told == [None], "given up: another one follows, for the queue alone"
    world.tick(30)
    node.handle.attach(node.spec("t", prefetch=1), second, told.append)
    world.tick(32)
    node.has_clogged_links = False
    node.handle.drained(A)
    world.settle()
    assert told == [None, None], "consume-ok"
    world.nodes[B].handle.publish([message(b"1")], None, Channel())
    world.settle()
    assert bodies(second) == [b"1"]


def test_the_same_within_ten_seconds_where_most_members_are_dead() -> None:
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    node = world.nodes[C]
    handle = node.registry.open(queue)
    second, told = Channel(), list[object]()
    handle.attach(node.spec("t"), Channel(), lambda _: None)
    world.settle()
    for name in (A, B):
        world.kill(name)
    world.leaders.clear()
    handle.submit(Cancel(node.channel_id(), "t"), told.append)
    world.tick(6)
    assert told == [None], "given up after 5 s"
    handle.attach(node.spec("t"), second, told.append)
    world.tick(4)
    for name in (A, B):
        world.boot(name)
    world.lead(queue, C)
    world.settle()
    assert told == [None, None], "consume-ok"
    handle.publish([message(b"1")], None, Channel())
    world.settle()
    assert bodies(second) == [b"1"]


def test_a_consume_behind_a_cancel_outlives_a_restart_of_the_home() -> None:
    """The session carries it out within the cancel's answer."""
    world = World(A, B)
    queue = world.declare(home=A)
    node = world.nodes[B]
    handle = node.registry.open(queue)
    second, told = Channel(), list[object]()
    handle.attach(node.spec("t1"), Channel(), lambda _: None)
    world.settle()
    handle.submit(
        Cancel(node.channel_id(), "t1"),
        lambda _: handle.attach(node.spec("t2"), second, told.append),
    )
    world.nodes[A].journal.sync()
    world.boot(A, world.nodes[A].disk)  # back before anybody saw it dead
    world.settle()
    assert told == [None]
    handle.publish([message(b"1")], [1], Channel())
    world.settle()
    assert bodies(second) == [b"1"]


def test_what_a_cancelled_consumer_holds_comes_to_no_other_of_its_tag() -> None:
    """A new leader sends everything again that is checked out (P17)."""
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    node = world.nodes[C]
    handle = node.registry.open(queue)
    first, second = Channel(), Channel()
    handle.attach(node.spec("t", prefetch=1), first, lambda _: None)
    handle.publish([message(b"1")], None, Channel())
    world.settle()
    handle.submit(Cancel(node.channel_id(), "t"), lambda _: None)
    world.settle()
    handle.attach(node.spec("t", no_ack=True), second, lambda _: None)
    world.settle()
    world.lead(queue, B)
    world.settle()
    assert (bodies(first), bodies(second)) == ([b"1"], [])


# The lease ends between a delivery and the cancel


def mirrored(world: World) -> Queue:
    """A queue whose master's channels call it directly."""
    queue = world.declare(home=A)
    world.nodes[A].registry.open(queue)
    world.apply(commands.SetPolicy("/", "ha", "^q$", {"ha-mode": "all"}))
    world.settle()
    world.tick(5)
    return queue


def published_as_the_lease_ends(world: World, queue: Queue, body: bytes) -> Channel:
    """It ends by the clock, in the turn in which the master hands the message out."""
    apply_batch, ear = QueueMachine.apply_batch, Channel()

    def applied(self: QueueMachine, batch: CommandBatch, now_ms: int) -> None:
        apply_batch(self, batch, now_ms)
        world.leaseless.add(A)

    with patch.object(QueueMachine, "apply_batch", applied):
        world.nodes[C].registry.open(queue).publish([message(body)], [1], ear)
        world.settle()
    return ear


def lease_back(world: World) -> None:
    world.leaseless.clear()
    world.nodes[A].registry.lease_back()
    world.settle()
    world.tick(3)


def master(world: World, queue: Queue) -> QueueMachine:
    served = world.nodes[A].registry.served(queue.uid)
    assert isinstance(served, ClassicQueue)
    return served.machine


def test_what_is_due_to_a_consumer_at_the_master_comes_before_its_cancel() -> None:
    world = World(A, B, C)
    queue = mirrored(world)
    node, handle = world.nodes[A], world.nodes[A].registry.open(queue)
    reader, told = Channel(), list[int]()
    handle.attach(node.spec("t", prefetch=1), reader, lambda _: None)
    ear = published_as_the_lease_ends(world, queue, b"1")
    handle.submit(Cancel(node.channel_id(), "t"), lambda _: told.append(len(reader.delivered)))
    world.settle()
    lease_back(world)
    assert (told, ear.verdicts) == ([1], [(1, True)])
    assert master(world, queue).stat().unacked == 1


def test_an_answer_in_parts_brings_a_cancel_last() -> None:
    world = World(A, B, C)
    queue = mirrored(world)
    home, node = world.nodes[A], world.nodes[B]
    handle = node.registry.open(queue)
    reader, told = Channel(), list[int]()
    plain = home.send_queue_reply
    with patch.object(
        home, "send_queue_reply", lambda to, reply: [plain(to, part) for part in cut_reply(reply)]
    ):
        handle.attach(node.spec("t", no_ack=True), reader, lambda _: None)
        world.settle()
        ear = published_as_the_lease_ends(world, queue, b"x" * 1_200_000)
        handle.submit(Cancel(node.channel_id(), "t"), lambda _: told.append(len(reader.delivered)))
        world.settle()
        lease_back(world)
    assert (told, ear.verdicts) == ([1], [(1, True)])
    assert master(world, queue).stat().ready == 0
