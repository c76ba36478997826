"""The master of a mirrored queue dies: consumers, settles and requests under way."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.fifo.commands import (
    Cancel,
    Discard,
    Get,
    Purge,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    Settle,
)
from broker.metadata import commands, ring_commands
from broker.ports import GetResult, QueueStat
from tests.unit.queues.rig import A, B, C, Channel, message
from tests.unit.queues.ringed import RingedWorld, bodies, consuming, fail_over, flags

TIMEOUT = "failed to perform operation on queue 'q' in vhost '/' due to timeout"


@pytest.fixture
def world() -> RingedWorld:
    return RingedWorld({})


# Consumers


def test_a_consumer_goes_on_without_a_word(world: RingedWorld) -> None:
    """docs/rabbitmq-behaviour.md 1.14: same tag, and what was not settled comes again."""
    node = world.nodes[C]
    reader, told = consuming(node, prefetch=2)
    for body in (b"1", b"2", b"3"):
        node.handle.publish([message(body)], None, Channel())
    world.settle()
    assert bodies(reader) == [b"1", b"2"]
    node.handle.submit(Settle(node.channel_id(), "t", [reader.delivered[0].number]))
    world.settle()
    assert bodies(reader) == [b"1", b"2", b"3"]
    fail_over(world)
    assert flags(reader)[3:] == [(b"2", True), (b"3", True)]
    assert (told, reader.lost, reader.moved) == ([None], [], ["t"])
    assert world.master is not None
    assert world.master.machine.stat().consumers == 1


def test_an_ack_of_an_old_delivery_does_not_settle_the_new_one(world: RingedWorld) -> None:
    """P18: the same message number, twice to the same consumer."""
    node = world.nodes[C]
    reader, _ = consuming(node)
    node.handle.publish([message()], None, Channel())
    world.settle()
    fail_over(world)
    old, new = [delivery.number for delivery in reader.delivered]
    assert world.master is not None
    lost, done = list[object](), list[object]()
    node.handle.submit(Settle(node.channel_id(), "t", [old]), lost.append)
    world.settle()
    assert [type(each) for each in lost] == [Refusal]
    assert world.master.machine.stat().unacked == 1
    node.handle.submit(Settle(node.channel_id(), "t", [old, new]), lost.append)
    world.settle()
    assert [type(each) for each in lost] == [Refusal, Refusal]
    assert world.master.machine.stat().unacked == 0
    assert done == []


@pytest.mark.parametrize("way", [Settle, Requeue, Discard])
def test_a_commit_whose_settles_were_lost_hears_of_it(
    world: RingedWorld, way: type[Settle | Requeue | Discard]
) -> None:
    """P18: partial tx completion, and not only once somebody is promoted."""
    node, told = world.nodes[C], list[object]()
    reader, _ = consuming(node)
    node.handle.publish([message()], None, Channel())
    world.settle()
    assert world.master is not None
    before = len(world.master.sent)
    world.cut.add((A, C))  # the answer is lost, and so is what the master did
    node.handle.submit(way(node.channel_id(), "t", [reader.delivered[0].number]), told.append)
    world.settle()
    world.kill(A, seen=before)
    assert [type(each) for each in told] == [Refusal]
    world.promote()
    world.settle()
    assert len(told) == 1
    assert len(reader.delivered) == 2


def test_a_consumer_that_asked_for_it_ends_with_its_master(world: RingedWorld) -> None:
    """docs/rabbitmq-behaviour.md 1.8."""
    node = world.nodes[C]
    ending, _ = consuming(node, "e", cancel_on_failover=True)
    staying, _ = consuming(node, "s", cancel_on_failover=False)
    fail_over(world)
    assert (ending.lost, ending.moved) == (["e"], [])
    assert (staying.lost, staying.moved) == ([], ["s"])
    assert world.master is not None
    assert world.master.machine.consumers.attached() == [(node.channel_id(), "s")]


@pytest.mark.parametrize("reply_is_lost", [True, False])
def test_a_consume_under_way_is_answered_by_the_next_master(
    world: RingedWorld, reply_is_lost: bool
) -> None:
    """Once, and also where it asks to end at a failover: it has not begun."""
    node, reader, told = world.nodes[C], Channel(), list[object]()
    if not reply_is_lost:
        world.cut.add((C, A))
    else:
        world.cut.add((A, C))
    node.handle.attach(node.spec(cancel_on_failover=True), reader, told.append)
    world.settle()
    assert told == []
    fail_over(world)
    node.handle.publish([message()], None, Channel())
    world.settle()
    assert (told, reader.lost, len(reader.delivered)) == ([None], [], 1)


def test_a_consumer_that_finds_no_place_any_more_is_lost(world: RingedWorld) -> None:
    """An exclusive consumer of another node came first."""
    reader, told = consuming(world.nodes[C])
    world.kill(A)
    world.nodes[C].has_clogged_links = True
    world.promote()
    other, _ = consuming(world.nodes[B], exclusive=True)
    world.nodes[C].has_clogged_links = False
    world.nodes[C].handle.drained(B)
    world.settle()
    assert (told, reader.lost, other.lost) == ([None], ["t"], [])


def test_a_paused_consumer_stays_paused_and_keeps_its_latest_limit(world: RingedWorld) -> None:
    node = world.nodes[C]
    reader, _ = consuming(node, prefetch=1)
    node.handle.submit(SetPrefetch(node.channel_id(), "t", 2))
    node.handle.submit(SetActive(node.channel_id(), "t", active=False))
    world.settle()
    fail_over(world)
    node.handle.publish([message(b"%d" % n) for n in range(3)], None, Channel())
    world.settle()
    assert reader.delivered == []
    node.handle.submit(SetActive(node.channel_id(), "t", active=True))
    world.settle()
    assert bodies(reader) == [b"0", b"1"]


def test_what_happens_to_a_consumer_while_nobody_serves_is_kept_in_order(
    world: RingedWorld,
) -> None:
    node = world.nodes[C]
    reader, _ = consuming(node, prefetch=1)
    gone, _ = consuming(node, channel="2.1", prefetch=1)
    world.kill(A)
    cancelled: list[object] = []
    fresh = Channel()
    told: list[object] = []
    node.handle.submit(Cancel(node.channel_id(), "t"), cancelled.append)
    node.handle.submit(Release(node.channel_id("2.1")))
    node.handle.attach(node.spec("new"), fresh, told.append)
    world.promote()
    world.settle()
    assert (cancelled, told) == ([None], [None])
    assert world.master is not None
    assert world.master.machine.consumers.attached() == [(node.channel_id(), "new")]
    assert gone.lost == reader.lost == []


def test_a_cancel_under_way_is_done_when_its_master_dies(world: RingedWorld) -> None:
    node = world.nodes[C]
    reader, _ = consuming(node, cancel_on_failover=True)
    world.cut.add((C, A))
    told: list[object] = []
    node.handle.submit(Cancel(node.channel_id(), "t"), told.append)
    fail_over(world)
    assert (told, reader.lost, reader.moved) == ([None], [], [])
    assert world.master is not None
    assert world.master.machine.consumers.attached() == []


def test_a_queue_deleted_without_a_master_takes_its_consumers_along(world: RingedWorld) -> None:
    node, asked = world.nodes[C], list[object]()
    reader, _ = consuming(node)
    world.kill(A)
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    node.handle.submit(Purge(), asked.append)
    world.apply(commands.DeleteQueue(world.uid))
    assert reader.lost == ["t"]
    assert channel.verdicts == [(1, False)]
    assert [getattr(each, "text", each) for each in asked] == ["no queue 'q' in vhost '/'"]


# Questions


def test_a_get_under_way_is_asked_of_the_next_master(world: RingedWorld) -> None:
    """And an old get's number settles nothing (GET_TAG)."""
    node, got = world.nodes[C], list[object]()
    node.handle.publish([message(b"1")], None, Channel())
    world.settle()
    world.cut.add((A, C))
    node.handle.submit(Get(node.channel_id(), False), got.append)
    node.handle.publish([message(b"2")], None, Channel())  # a later number, which mirrors know
    world.settle()
    assert got == []
    fail_over(world)
    (result,) = got
    assert isinstance(result, GetResult)
    assert result.delivery is not None
    assert (result.delivery.delivery_count, result.remaining) == (1, 1)
    fail_over(world, B)
    node.handle.submit(Get(node.channel_id(), False), got.append)
    world.settle()
    assert world.master is not None
    node.handle.submit(Settle(node.channel_id(), "", [result.delivery.number]))
    world.settle()
    assert world.master.machine.stat().unacked == 1
    again = got[1]
    assert isinstance(again, GetResult)
    assert again.delivery is not None
    node.handle.submit(Settle(node.channel_id(), "", [again.delivery.number]))
    world.settle()
    assert world.master.machine.stat().unacked == 0


def test_nobodys_questions_are_not_asked_again(world: RingedWorld) -> None:
    """A channel that ended while its get was under way must hold nothing for ever."""
    node, got = world.nodes[C], list[object]()
    node.handle.publish([message()], None, Channel())
    world.settle()
    world.cut.add((C, A))
    node.handle.submit(Get(node.channel_id(), False), got.append)
    node.handle.attach(node.spec("x"), Channel(), got.append)
    node.handle.submit(Release(node.channel_id()))
    world.settle()
    fail_over(world)
    assert [type(each) for each in got] == [Refusal, Refusal]
    assert world.master is not None
    stat = world.master.machine.stat()
    assert (stat.ready, stat.unacked, stat.consumers) == (1, 0, 0)


@pytest.mark.parametrize("count", [1, 3])
def test_gets_whose_channel_has_ended_are_not_asked_again(world: RingedWorld, count: int) -> None:
    """Their answers were lost with the link; the end of their channel was not, and is done with.

    Of several only the latest was once left out: found by the simulator.
    """
    node, got = world.nodes[C], list[object]()
    node.handle.publish([message()] * count, None, Channel())
    world.settle()
    world.cut.add((A, C))
    for _ in range(count):
        node.handle.submit(Get(node.channel_id(), False), got.append)
    world.settle()
    world.cut.clear()
    node.handle.submit(Release(node.channel_id()))
    world.settle()
    fail_over(world)
    assert len(got) == count
    assert world.master is not None
    stat = world.master.machine.stat()
    assert (stat.ready, stat.unacked) == (count, 0)


def test_a_purge_is_answered_by_the_next_master(world: RingedWorld) -> None:
    node, counts = world.nodes[C], list[object]()
    node.handle.publish([message()] * 3, None, Channel())
    world.settle()
    world.cut.add((C, A))
    node.handle.submit(Purge(), counts.append)
    world.settle()
    fail_over(world)
    assert counts == [3]


def test_questions_wait_a_minute_for_a_master(world: RingedWorld) -> None:
    """docs/rabbitmq-behaviour.md 1.14: after 60 s 404, and waiting consumers are cancelled."""
    node = world.nodes[C]
    reader, _ = consuming(node)
    told: list[object] = []
    world.kill(A)
    node.handle.submit(Get(node.channel_id(), True), told.append)
    node.handle.attach(node.spec("x"), Channel(), told.append)
    node.handle.stat(told.append)
    world.tick(59)
    assert (told, reader.lost) == ([], [])
    world.tick(2)
    assert [getattr(each, "text", each) for each in told] == [TIMEOUT] * 3
    assert [int(getattr(each, "code", 0)) for each in told] == [404] * 3
    assert reader.lost == ["t"]
    world.promote()
    world.settle()
    assert world.master is not None
    assert world.master.machine.stat().consumers == 0


def test_counts_come_from_the_next_master(world: RingedWorld) -> None:
    node, told = world.nodes[C], list[object]()
    world.kill(A)
    node.handle.stat(told.append)
    world.tick(5)
    world.promote()
    world.tick()
    (stat,) = told
    assert isinstance(stat, QueueStat)


def test_a_queue_whose_master_stopped_in_good_order_says_so(world: RingedWorld) -> None:
    node, told = world.nodes[C], list[object]()
    assert world.ring.master is not None
    world.unserve(A)
    world.step(ring_commands.RingStopped(world.uid, world.ring.master, 1))
    node.handle.submit(Get(node.channel_id(), True), told.append)
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    assert channel.verdicts == [(1, False)]
    world.tick(61)
    (refusal,) = told
    assert isinstance(refusal, Refusal)
    assert refusal.text == "queue 'q' in vhost '/' process is stopped by supervisor"
