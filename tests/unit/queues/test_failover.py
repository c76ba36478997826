"""The master of a mirrored queue dies: publishes under way are offered again."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.fifo.commands import CommandBatch, SetActive, Settle
from broker.metadata import commands, ring_commands
from broker.queues.envelopes import QueueReply
from tests.unit.queues.rig import A, B, C, Channel, message
from tests.unit.queues.ringed import Node, RingedWorld, bodies, consuming, fail_over, flags

DISK_ONLY = {"ha-promote-on-failure": "when-synced", "ha-mode": "exactly", "ha-params": 1}
"""The master has no mirror: only its disk can bring the queue back."""


@pytest.fixture
def world() -> RingedWorld:
    return RingedWorld({})


# Publishes


def test_what_the_mirrors_have_is_confirmed_and_not_doubled(world: RingedWorld) -> None:
    """P11: a duplicate gets the original's verdict."""
    world.is_safe = False
    channel = Channel()
    world.nodes[C].handle.publish([message(b"1"), message(b"2")], [1, 2], channel)
    world.settle()
    assert channel.verdicts == []
    fail_over(world)
    world.is_safe = True
    world.settle()
    assert channel.verdicts == [(1, True), (2, True)]
    reader, _ = consuming(world.nodes[B])
    assert flags(reader) == [(b"1", True), (b"2", True)]


def test_what_only_the_dead_master_had_is_enqueued_as_redelivered(world: RingedWorld) -> None:
    """P11, P10: it may have delivered them; what was never sent to it is new."""
    world.is_safe = False
    channel = Channel()
    handle = world.nodes[C].handle
    handle.publish([message(b"1")], [1], channel)
    world.settle()
    world.kill(A, seen=0)
    handle.publish([message(b"2")], [2], channel)
    world.settle()
    world.promote()
    world.is_safe = True
    world.settle()
    assert channel.verdicts == [(1, True), (2, True)]
    reader, _ = consuming(world.nodes[B])
    assert flags(reader) == [(b"1", True), (b"2", False)]


def test_masters_that_die_one_after_the_other_lose_nothing(world: RingedWorld) -> None:
    """The second dies between a batch and its answer."""
    world.is_safe = False
    channel = Channel()
    handle = world.nodes[C].handle
    handle.publish([message(b"1"), message(b"2")], [1, 2], channel)
    world.settle()
    fail_over(world, A, seen=0)
    handle.publish([message(b"3")], [3], channel)
    world.settle()
    assert channel.verdicts == []
    fail_over(world, B)
    world.is_safe = True
    world.settle()
    assert sorted(channel.verdicts) == [(1, True), (2, True), (3, True)]
    reader, _ = consuming(world.nodes[C])
    assert bodies(reader) == [b"1", b"2", b"3"]


def test_the_first_node_may_be_master_again(world: RingedWorld) -> None:
    """What it said in its first life, and what arrives late of that, counts for nothing."""
    world.kill(C)
    node, channel = world.boot(C), Channel()  # no member: it watches
    reader, _ = consuming(node, prefetch=10)
    world.is_safe = False
    node.handle.publish([message(b"1")], [1], channel)
    world.settle()
    assert bodies(reader) == [b"1"]
    first = world.master
    assert first is not None
    first.returned()
    first.machine.redeliver_checked_out()
    first.run()
    late = list(world.mail.pop((A, C)))
    fail_over(world)
    world.boot(A)
    world.join(A)
    world.kill(B)
    assert world.promote() == A
    for arrive in late:
        arrive()
    world.is_safe = True
    world.settle()
    assert channel.verdicts == [(1, True)]
    assert flags(reader) == [(b"1", False), (b"1", True), (b"1", True)]
    assert len({delivery.number for delivery in reader.delivered}) == 3


def test_publishes_wait_for_a_master_a_minute(world: RingedWorld) -> None:
    """P12."""
    channel = Channel()
    world.kill(A)
    world.nodes[C].handle.publish([message(b"1")], [1], channel)
    world.tick(59)
    assert channel.verdicts == []
    world.tick(2)
    assert channel.verdicts == [(1, False)]
    world.nodes[C].handle.publish([message(b"2")], [2], channel)
    world.promote()
    world.settle()
    assert channel.verdicts == [(1, False), (2, True)]
    reader, _ = consuming(world.nodes[B])
    assert flags(reader) == [(b"2", False)]


def test_sixteen_mib_wait_for_a_master_and_no_more(world: RingedWorld) -> None:
    """P12."""
    channel = Channel()
    world.kill(A)
    handle = world.nodes[C].handle
    for seqno in range(1, 18):
        handle.publish([message(bytes(1 << 20))], [seqno], channel)
    assert handle.is_congested
    assert channel.verdicts == [(16, False), (17, False)]


def test_publishes_are_nacked_at_once_where_nobody_may_succeed() -> None:
    """P12, P23: only the dead master's disk counts now."""
    world = RingedWorld({"ha-promote-on-failure": "when-synced"})
    world.kill(B)
    world.kill(C)
    world.boot(C)
    assert world.ring.master is not None
    world.is_safe = False
    channel, late = Channel(), Channel()
    handle = world.nodes[C].handle
    handle.publish([message()], [1], channel)
    world.settle()
    assert channel.verdicts == []
    world.kill(A)
    assert channel.verdicts == [(1, False)]
    handle.publish([message()], [1], late)
    assert late.verdicts == [(1, False)]
    assert not handle.is_congested


def test_publishes_without_confirms_that_are_given_up_are_counted_in_the_log(
    world: RingedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """P12: nobody else would ever hear of them."""
    handle = world.nodes[C].handle
    world.kill(A)
    handle.publish([message()] * 3, None, Channel())
    handle.publish([message(bytes(17 << 20))], None, Channel())
    world.tick(62)
    counts = [(r.message, r.__dict__["count"], r.__dict__["queue"]) for r in caplog.records]
    assert counts == [("queue.publishes_dropped", n, "q") for n in (1, 3)]


def with_unsynchronised_mirror(world: RingedWorld) -> Node:
    """B is gone, C is back as a joined member that does not hold everything."""
    world.kill(B)
    world.kill(C)
    node = world.boot(C)
    me = world.ring.master
    assert me is not None
    world.step(ring_commands.RingJoin(world.uid, me, 1, C, node.boot))
    member = world.ring.member_on(C)
    assert member is not None
    world.step(ring_commands.RingJoined(world.uid, me, 1, member))
    return node


def test_publishes_wait_while_a_mirror_may_be_designated(world: RingedWorld) -> None:
    """P23: nobody is synchronised, but ha-promote-on-failure is always: it is not down yet."""
    node = with_unsynchronised_mirror(world)
    world.kill(A)
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    assert channel.verdicts == []


def test_a_transient_queues_last_copy_takes_its_publishes_along() -> None:
    """Never a confirm for what nobody has any more."""
    world = RingedWorld({}, durable=False)
    world.kill(B)
    world.kill(C)
    node, channel = world.boot(C), Channel()
    world.is_safe = False
    reader, _ = consuming(node)
    node.handle.publish([message()], [1], channel)
    world.settle()
    world.kill(A)
    assert channel.verdicts == [(1, False)]
    assert reader.lost == ["t"]


def test_an_orderly_hand_over_costs_no_publish(world: RingedWorld) -> None:
    """The home moves although its boot goes on: nothing is nacked, nobody is lost."""
    channel = Channel()
    node = world.nodes[C]
    reader, told = consuming(node)
    world.is_safe = False
    node.handle.publish([message(b"1")], [1], channel)
    world.settle()
    assert world.ring.master is not None
    successor = world.ring.member_on(B)
    assert successor is not None
    world.unserve(A)
    world.step(ring_commands.RingHandOver(world.uid, world.ring.master, 1, successor))
    node.handle.publish([message(b"2")], [2], channel)
    world.settle()
    assert world.promote() == B
    world.is_safe = True
    world.settle()
    assert channel.verdicts == [(1, True), (2, True)]
    assert (told, reader.lost, reader.moved) == ([None], [], ["t"])


def test_what_was_sent_before_the_master_was_ready_is_sent_when_it_says_so(
    world: RingedWorld,
) -> None:
    """A node may apply the promotion before the promoted one does: no second is lost for that."""
    channel = Channel()
    world.kill(A)
    world.nodes[C].handle.publish([message()], [1], channel)
    world.promote()
    master, world.master = world.master, None
    world.settle()  # the batch comes too early
    world.master = master
    world.settle()
    assert channel.verdicts == []
    world.send_queue_reply(B, C, QueueReply(world.uid, 2))
    world.settle()
    assert channel.verdicts == [(1, True)]


def test_a_silent_master_is_asked_ever_less_often(world: RingedWorld) -> None:
    """It may stand still for long (P26), and has what it was sent."""
    world.is_safe = False
    asked: list[CommandBatch] = []
    master = world.master
    assert master is not None
    master.receive = asked.append  # type: ignore[method-assign]
    world.nodes[C].handle.publish([message()], [1], Channel())
    world.tick(40)
    assert 5 <= len(asked) <= 8
    world.kill(A, seen=0)
    world.promote()
    channel = Channel()
    world.cut.add((C, B))
    world.nodes[C].handle.publish([message()], [1], channel)
    world.settle()
    world.cut.clear()
    world.is_safe = True
    world.tick(3)  # the next master is given its own patience
    assert channel.verdicts == [(1, True)]


def test_a_ring_that_changes_around_its_master_sends_nothing_twice(world: RingedWorld) -> None:
    """Rings change often; what waits for its answer may be 16 MiB."""
    world.is_safe = False
    world.nodes[C].handle.publish([message()], [1], Channel())
    world.settle()
    assert world.ring.master is not None
    mirror = world.ring.member_on(B)
    assert mirror is not None
    world.step(ring_commands.RingDrop(world.uid, world.ring.master, 1, mirror))
    assert not world.nodes[C].turn


# A master that knows nobody: it came back from disk


def stopped(world: RingedWorld) -> None:
    """A, and with it the queue, is gone; A boots again and may recover from its disk."""
    world.kill(B)
    world.kill(A)
    world.boot(A)


def test_a_master_from_disk_gets_what_no_other_was_sent_and_the_consumers() -> None:
    """P10: it does not know the session; what an earlier master may have is nacked."""
    world = RingedWorld(DISK_ONLY)
    node = world.nodes[C]
    copy = world.ring.master
    assert copy is not None
    reader, told = consuming(node)
    first, later = Channel(), Channel()
    node.handle.publish([message(b"1")], [1], first)
    world.settle()
    stopped(world)
    world.cut.add((C, A))
    world.recover(A, copy, [(1, message(b"1"))])
    node.handle.publish([message(b"2"), message(b"3")], [1, 2], later)
    world.settle()
    world.cut.clear()
    world.tick(3)
    assert later.verdicts == [(1, True), (2, True)]
    assert (told, reader.lost) == ([None], [])
    assert flags(reader)[1:] == [(b"1", True), (b"2", False), (b"3", False)]


def test_what_the_disk_may_hold_is_nacked_not_doubled(world: RingedWorld) -> None:
    """P11: the first publish of a session, written but not confirmed when its master died.

    An unsynchronised mirror lives, so the publish is held; the master's node is back before that
    mirror is designated.
    """
    node = with_unsynchronised_mirror(world)
    copy = world.ring.master
    assert copy is not None
    world.is_safe = False
    channel = Channel()
    node.handle.publish([message(b"1")], [1], channel)
    world.settle()
    world.kill(A)
    assert channel.verdicts == []
    node.handle.publish([message(b"2")], [2], channel)
    world.is_safe = True
    world.boot(A)
    world.recover(A, copy, [(1, message(b"1"))])
    world.settle()
    assert channel.verdicts == [(1, False), (2, True)]
    reader, _ = consuming(node)
    assert flags(reader) == [(b"1", True), (b"2", False)]


def test_a_queue_that_forgets_twice_has_ended_this_boot() -> None:
    world = RingedWorld(DISK_ONLY)
    node = world.nodes[C]
    copy = world.ring.master
    assert copy is not None
    reader, _ = consuming(node)
    stopped(world)
    world.recover(A, copy, [])
    assert world.master is not None
    world.master.machine.end_boot(C, node.boot)
    world.settle()
    assert reader.lost == ["t"]
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    world.settle()
    assert channel.verdicts == [(1, False)]


# Becoming mirrored, and plain again


@pytest.mark.parametrize("record_first", [True, False])
def test_nothing_happens_to_channels_when_a_policy_comes_and_goes(record_first: bool) -> None:
    """The machine goes on; its answers and the record may tell of the ring in either order."""
    world = RingedWorld(None)
    node, channel = world.nodes[C], Channel()
    master = world.master
    assert master is not None
    reader, told = consuming(node)

    def exchange(seqno: int) -> None:
        node.handle.publish([message(b"%d" % seqno)], [seqno], channel)
        world.settle()

    exchange(1)
    found = ring_commands.RingFound(world.uid, A, world.nodes[A].boot)
    if record_first:
        world.set_policy({})
        world.step(found)
        exchange(2)
        master.machine.set_ledger("all")
        master.epoch = 1
    else:
        master.machine.set_ledger("all")
        master.epoch = 1
        exchange(2)
        world.set_policy({})
        world.step(found)
    exchange(3)
    node.handle.submit(
        Settle(node.channel_id(), "t", [delivery.number for delivery in reader.delivered])
    )
    world.settle()
    assert master.machine.stat().unacked == 0
    assert world.ring.master is not None
    dissolve = ring_commands.RingDissolve(world.uid, world.ring.master, 1)
    world.apply(commands.ClearPolicy("/", "ha"))
    if record_first:
        world.step(dissolve)
        exchange(4)
        master.epoch = 0
    else:
        master.epoch = 0
        world.step(dissolve)
        exchange(4)
    exchange(5)
    assert channel.verdicts == [(seqno, True) for seqno in range(1, 6)]
    assert (told, reader.lost, reader.moved) == ([None], [], [])
    assert flags(reader) == [(b"%d" % seqno, False) for seqno in range(1, 6)]


def test_a_consumer_taken_over_from_a_direct_handle_has_new_numbers(world: RingedWorld) -> None:
    """What it was given beside the session, under the same numbers, can't be settled through it."""
    world.nodes[C].handle.publish([message()], None, Channel())
    world.settle()
    fail_over(world)
    node = Node(world, C, world.nodes[C].boot)  # opened after the failover, as on a former master
    world.nodes[C] = node
    reader, ending = Channel(), Channel()
    node.handle.adopt(node.spec("e", channel="2.1", cancel_on_failover=True), ending)
    node.handle.adopt(node.spec(), reader, is_active=False)
    world.settle()
    assert (ending.lost, reader.moved, reader.delivered) == (["e"], ["t"], [])
    node.handle.submit(SetActive(node.channel_id(), "t", active=True))
    world.settle()
    (delivery,) = reader.delivered
    told: list[object] = []
    node.handle.submit(Settle(node.channel_id(), "t", [1]), told.append)
    assert [type(each) for each in told] == [Refusal]
    node.handle.submit(Settle(node.channel_id(), "t", [delivery.number]), told.append)
    world.settle()
    assert told[1:] == [None]
