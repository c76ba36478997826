"""A mirrored queue's master dies: what becomes of what its channels have under way."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.metadata import commands, ring_commands
from broker.ports import GetResult, QueueStat
from tests.unit.queues.rig import A, B, C, Channel, message
from tests.unit.queues.ringed import Node, RingedWorld

TIMEOUT = "failed to perform operation on queue 'q' in vhost '/' due to timeout"


@pytest.fixture
def world() -> RingedWorld:
    return RingedWorld({})


def bodies(channel: Channel) -> list[bytes]:
    return [bytes(d.message.content[-1 - d.message.body_size : -1]) for d in channel.delivered]


def flags(channel: Channel) -> list[tuple[bytes, bool]]:
    """(body, redelivered) of everything delivered."""
    redelivered = [d.delivery_count > 0 for d in channel.delivered]
    return list(zip(bodies(channel), redelivered, strict=True))


def consuming(node: Node, tag: str = "t", **how: object) -> tuple[Channel, list[object]]:
    channel, told = Channel(), list[object]()
    node.handle.consume(node.spec(tag, **how), channel, told.append)  # type: ignore[arg-type]
    node.world.settle()
    return channel, told


def fail_over(world: RingedWorld, name: str = A, seen: int = 1 << 40) -> None:
    world.kill(name, seen=seen)
    world.settle()
    world.promote()
    world.settle()


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
    """P11, P10: it may have delivered them; what was never offered to it is new."""
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
    """The second dies between an offer and its answer."""
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


def test_publishes_wait_while_a_mirror_may_be_designated(world: RingedWorld) -> None:
    """P23: nobody is synchronised, but ha-promote-on-failure is always: it is not down yet."""
    world.kill(B)
    world.kill(C)
    node = world.boot(C)
    assert world.ring.master is not None
    me = world.ring.master
    world.step(ring_commands.RingJoin(world.uid, me, 1, C, node.boot))
    member = world.ring.member_on(C)
    assert member is not None
    world.step(ring_commands.RingJoined(world.uid, me, 1, member))
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


# Consumers


def test_a_consumer_goes_on_without_a_word(world: RingedWorld) -> None:
    """behaviour.md 1.14: same tag, and everything that was not settled comes again."""
    node = world.nodes[C]
    reader, told = consuming(node, prefetch=2)
    for body in (b"1", b"2", b"3"):
        node.handle.publish([message(body)], None, Channel())
    world.settle()
    assert bodies(reader) == [b"1", b"2"]
    node.handle.settle(node.holder(), "t", [reader.delivered[0].number])
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
    node.handle.settle(node.holder(), "t", [old], lost.append)
    world.settle()
    assert [type(each) for each in lost] == [Refusal]
    assert world.master.machine.stat().unacked == 1
    node.handle.settle(node.holder(), "t", [old, new], lost.append)
    world.settle()
    assert [type(each) for each in lost] == [Refusal, Refusal]
    assert world.master.machine.stat().unacked == 0
    assert done == []


@pytest.mark.parametrize("way", ["settle", "requeue", "discard"])
def test_a_commit_whose_settles_were_lost_hears_of_it(world: RingedWorld, way: str) -> None:
    """P18: partial tx completion, and not only once somebody is promoted."""
    node, told = world.nodes[C], list[object]()
    reader, _ = consuming(node)
    node.handle.publish([message()], None, Channel())
    world.settle()
    assert world.master is not None
    before = len(world.master.sent)
    world.cut.add((A, C))  # the answer is lost, and so is what the master did
    getattr(node.handle, way)(node.holder(), "t", [reader.delivered[0].number], told.append)
    world.settle()
    world.kill(A, seen=before)
    assert [type(each) for each in told] == [Refusal]
    world.promote()
    world.settle()
    assert len(told) == 1
    assert len(reader.delivered) == 2


def test_a_consumer_that_asked_for_it_ends_with_its_master(world: RingedWorld) -> None:
    """behaviour.md 1.8."""
    node = world.nodes[C]
    ending, _ = consuming(node, "e", cancel_on_failover=True)
    staying, _ = consuming(node, "s", cancel_on_failover=False)
    fail_over(world)
    assert (ending.lost, ending.moved) == (["e"], [])
    assert (staying.lost, staying.moved) == ([], ["s"])
    assert world.master is not None
    assert world.master.machine.consumer_keys() == [(node.holder(), "s")]


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
    node.handle.consume(node.spec(cancel_on_failover=True), reader, told.append)
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
    world.nodes[C].is_clogged = True
    world.promote()
    other, _ = consuming(world.nodes[B], exclusive=True)
    world.nodes[C].is_clogged = False
    world.nodes[C].handle.drained(B)
    world.settle()
    assert (told, reader.lost, other.lost) == ([None], ["t"], [])


def test_a_paused_consumer_stays_paused_and_keeps_its_latest_limit(world: RingedWorld) -> None:
    node = world.nodes[C]
    reader, _ = consuming(node, prefetch=1)
    node.handle.set_prefetch(node.holder(), "t", 2)
    node.handle.set_active(node.holder(), "t", active=False)
    world.settle()
    fail_over(world)
    node.handle.publish([message(b"%d" % n) for n in range(3)], None, Channel())
    world.settle()
    assert reader.delivered == []
    node.handle.set_active(node.holder(), "t", active=True)
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
    node.handle.cancel(node.holder(), "t", cancelled.append)
    node.handle.release(node.holder("2.1"))
    node.handle.consume(node.spec("new"), fresh, told.append)
    world.promote()
    world.settle()
    assert (cancelled, told) == ([None], [None])
    assert world.master is not None
    assert world.master.machine.consumer_keys() == [(node.holder(), "new")]
    assert gone.lost == reader.lost == []


def test_a_cancel_under_way_is_done_when_its_master_dies(world: RingedWorld) -> None:
    node = world.nodes[C]
    reader, _ = consuming(node, cancel_on_failover=True)
    world.cut.add((C, A))
    told: list[object] = []
    node.handle.cancel(node.holder(), "t", told.append)
    fail_over(world)
    assert (told, reader.lost, reader.moved) == ([None], [], [])
    assert world.master is not None
    assert world.master.machine.consumer_keys() == []


def test_a_queue_deleted_without_a_master_takes_its_consumers_along(world: RingedWorld) -> None:
    node, asked = world.nodes[C], list[object]()
    reader, _ = consuming(node)
    world.kill(A)
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    node.handle.purge(asked.append)
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
    node.handle.get(node.holder(), no_ack=False, done=got.append)
    node.handle.publish([message(b"2")], None, Channel())  # a later number, which mirrors know
    world.settle()
    assert got == []
    fail_over(world)
    (result,) = got
    assert isinstance(result, GetResult)
    assert result.delivery is not None
    assert (result.delivery.delivery_count, result.remaining) == (1, 1)
    fail_over(world, B)
    node.handle.get(node.holder(), no_ack=False, done=got.append)
    world.settle()
    assert world.master is not None
    node.handle.settle(node.holder(), "", [result.delivery.number])
    world.settle()
    assert world.master.machine.stat().unacked == 1
    again = got[1]
    assert isinstance(again, GetResult)
    assert again.delivery is not None
    node.handle.settle(node.holder(), "", [again.delivery.number])
    world.settle()
    assert world.master.machine.stat().unacked == 0


def test_nobodys_questions_are_not_asked_again(world: RingedWorld) -> None:
    """A channel that ended while its get was under way must hold nothing for ever."""
    node, got = world.nodes[C], list[object]()
    node.handle.publish([message()], None, Channel())
    world.settle()
    world.cut.add((C, A))
    node.handle.get(node.holder(), no_ack=False, done=got.append)
    node.handle.consume(node.spec("x"), Channel(), got.append)
    node.handle.release(node.holder())
    world.settle()
    fail_over(world)
    assert [type(each) for each in got] == [Refusal, Refusal]
    assert world.master is not None
    stat = world.master.machine.stat()
    assert (stat.ready, stat.unacked, stat.consumers) == (1, 0, 0)


def test_a_purge_is_answered_by_the_next_master(world: RingedWorld) -> None:
    node, counts = world.nodes[C], list[object]()
    node.handle.publish([message()] * 3, None, Channel())
    world.settle()
    world.cut.add((C, A))
    node.handle.purge(counts.append)
    world.settle()
    fail_over(world)
    assert counts == [3]


def test_questions_wait_a_minute_for_a_master(world: RingedWorld) -> None:
    """behaviour.md 1.14: 60 s, then 404 and the consumers that were to follow are cancelled."""
    node = world.nodes[C]
    reader, _ = consuming(node)
    told: list[object] = []
    world.kill(A)
    node.handle.get(node.holder(), no_ack=True, done=told.append)
    node.handle.consume(node.spec("x"), Channel(), told.append)
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
    node.handle.get(node.holder(), no_ack=True, done=told.append)
    channel = Channel()
    node.handle.publish([message()], [1], channel)
    assert channel.verdicts == [(1, False)]
    world.tick(61)
    (refusal,) = told
    assert isinstance(refusal, Refusal)
    assert refusal.text == "queue 'q' in vhost '/' process is stopped by supervisor"


# A master that knows nobody: it came back from disk


def stopped(world: RingedWorld) -> None:
    """A, and with it the queue, is gone; A boots again and may recover from its disk."""
    world.kill(B)
    world.kill(A)
    world.boot(A)


def test_a_master_from_disk_gets_what_no_other_was_offered_and_the_consumers() -> None:
    """P10: it does not know the session; what an earlier master may have is nacked."""
    world = RingedWorld(
        {"ha-promote-on-failure": "when-synced", "ha-mode": "exactly", "ha-params": 1}
    )
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


def test_a_queue_that_forgets_twice_has_ended_this_boot() -> None:
    world = RingedWorld(
        {"ha-promote-on-failure": "when-synced", "ha-mode": "exactly", "ha-params": 1}
    )
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
    node.handle.settle(node.holder(), "t", [delivery.number for delivery in reader.delivered])
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
    node.handle.set_active(node.holder(), "t", active=True)
    world.settle()
    (delivery,) = reader.delivered
    told: list[object] = []
    node.handle.settle(node.holder(), "t", [1], told.append)
    assert [type(each) for each in told] == [Refusal]
    node.handle.settle(node.holder(), "t", [delivery.number], told.append)
    world.settle()
    assert told[1:] == [None]
