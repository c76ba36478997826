"""P14: limits apply at the origin; nothing is dropped because a link is slow.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from broker.fifo.command_sizes import HELD_BYTES_MAX
from broker.fifo.commands import SetActive, Settle
from broker.fifo.effects import pack_value
from broker.message import Delivery
from broker.queues.client.remote import RemoteQueue
from broker.queues.envelopes import REPLY_BYTES_MAX, QueueReply, cut_reply
from broker.queues.flow import (
    FLOW_SHOWN_MS,
    LAG_PER_US,
    PACE_LAG,
    PACE_SPAN_MS,
    PACE_US_MAX,
    SLOW_ANSWER_MS,
    SLOWDOWN_US_MAX,
    UNANSWERED_LEAST,
    FlowMark,
    Pace,
    Waiters,
    has_room,
    lag_slowdown_us,
    unanswered_max,
)
from tests.unit.queues.rig import A, B, C, Channel, World, message

MIB = 1 << 20


def test_a_clogged_link_pauses_the_consumers_behind_it() -> None:
    """P14: else a backlog overflows the link, which breaks, and what was on it is lost."""
    world = World()
    queue = world.declare()
    channel, here = Channel(), Channel()
    world.nodes[B].registry.open(queue).attach(world.nodes[B].spec(no_ack=True), channel, _ignore)
    world.settle()
    home = world.nodes[A]
    handle = home.registry.open(queue)
    home.clogged.add(B)
    handle.publish([message(b"1")], None, here)  # this one finds out
    handle.publish([message(b"2")], None, here)
    world.settle()
    assert [item.number for item in channel.delivered] == [1]
    home.clogged.discard(B)
    home.registry.drained(B)
    world.settle()
    assert [item.number for item in channel.delivered] == [1, 2]


@pytest.mark.parametrize("is_consumed", [True, False])
@pytest.mark.parametrize("is_durable", [True, False])
def test_a_publisher_is_ahead_where_a_message_or_the_disk_waits(
    *, is_consumed: bool, is_durable: bool
) -> None:
    """Else nobody asks the queue whether the publisher shall wait."""
    world = World()
    home, here = world.nodes[A], Channel()
    handle = home.registry.open(world.declare(durable=is_durable))
    if is_consumed:
        handle.attach(home.spec(no_ack=True), here, _ignore)
    is_ahead = handle.publish([message(b"1")], None, here)
    assert is_ahead is (is_durable or not is_consumed)
    assert len(here.delivered) == is_consumed


def test_a_publisher_may_be_ahead_of_a_queue_elsewhere() -> None:
    world = World()
    queue = world.declare(durable=False)
    assert world.nodes[B].registry.open(queue).publish([message(b"1")], None, Channel())


def filled_quorum_queue() -> tuple[World, RemoteQueue]:
    """Forty messages of a quarter MiB, led by A; what B's channels see of it."""
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    handle = world.nodes[B].registry.open(queue)
    assert isinstance(handle, RemoteQueue)
    for _ in range(2):  # what a node holds for a queue is bounded
        handle.publish([message(bytes(MIB // 4)) for _ in range(20)], None, Channel())
        world.settle()
    return world, handle


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_quorum_queue_hands_out_a_mebibyte_an_entry(no_ack: bool) -> None:
    """Else a consumer that reads nothing would be given all of it, whatever it says meanwhile."""
    world, handle = filled_quorum_queue()
    channel = Channel()
    handle.attach(world.nodes[B].spec(no_ack=no_ack), channel, _ignore)
    counts = [0]
    while counts[-1] < 40:
        step(world)
        counts.append(len(channel.delivered))
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 5


def test_a_full_consumer_of_a_quorum_queue_stops_it_between_two_entries() -> None:
    world, handle = filled_quorum_queue()
    channel, spec = Channel(), world.nodes[B].spec(no_ack=True)
    handle.attach(spec, channel, _ignore)
    while not channel.delivered:
        step(world)
    handle.submit(SetActive(spec.channel_id, spec.tag, active=False))
    for _ in range(100):  # no more is to come
        step(world)
    assert len(channel.delivered) < 20
    handle.submit(SetActive(spec.channel_id, spec.tag, active=True))
    while len(channel.delivered) < 25:
        step(world)
    world.lead(handle.record, C)  # it finds work half done
    world.settle()
    assert len(channel.delivered) >= 40


def step(world: World) -> None:
    """One turn of every node's loop, and the mail that comes of it."""
    for node in list(world.nodes.values()):
        for _ in range(len(node.deferred)):
            node.deferred.popleft()()
    for _ in range(len(world.mail)):
        sender, to, act = world.mail.popleft()
        if to in world.nodes and (sender, to) not in world.cut:
            act(world.nodes[to])


def test_batches_wait_where_they_come_from_while_the_link_is_clogged() -> None:
    """P14: a publisher's node holds them anyway (P12)."""
    world = World()
    queue = world.declare()
    node, channel = world.nodes[B], Channel()
    node.clogged.add(A)
    node.registry.open(queue).publish([message()], [1], channel)
    world.settle()
    assert channel.verdicts == []
    node.clogged.discard(A)
    node.registry.drained(A)
    world.settle()
    assert channel.verdicts == [(1, True)]


def test_a_small_answer_stays_whole() -> None:
    reply = QueueReply(7, 3, deliveries=[("a/1/1/1", "t", [Delivery(1, 0, message())])])
    assert list(cut_reply(reply)) == [reply]


def test_an_answer_is_cut_at_one_mib() -> None:
    """P13: a consumer may hold more than one payload can carry."""
    body = b"x" * (REPLY_BYTES_MAX // 4)
    some = [Delivery(number, 0, message(body)) for number in range(1, 11)]
    reply = QueueReply(
        7,
        3,
        verdicts=[("a/1/7/0", 1, 2, True)],
        replies=[("a/1/7/0", 3, pack_value(None))],
        deliveries=[("a/1/1/1", "t", some), ("a/1/1/1", "u", some[:1])],
        lost_consumers=[("a/1/1/1", "v")],
        lag=5,
        pace_us=90,
    )
    parts = list(cut_reply(reply))
    assert parts[0].verdicts == reply.verdicts
    assert parts[-1].replies == reply.replies
    assert parts[-1].lost_consumers == reply.lost_consumers
    assert all((part.uid, part.epoch, part.lag, part.pace_us) == (7, 3, 5, 90) for part in parts)
    cut = [(tag, item) for part in parts for _, tag, items in part.deliveries for item in items]
    assert cut == [("t", item) for item in some] + [("u", some[0])]
    sizes = [
        sum(len(d.message.content) for _, _, ds in part.deliveries for d in ds) for part in parts
    ]
    assert max(sizes) <= REPLY_BYTES_MAX


def test_a_pace_is_that_of_messages_handed_out_while_others_wait() -> None:
    pace = committing(10)
    assert pace.handed_out(700, 10, 0, 10_000) == 0
    assert pace.handed_out(100, 10, 1, 10_000 + PACE_SPAN_MS // 2) == 0, "too little is known"
    assert pace.handed_out(100, 10, 1, 10_000 + PACE_SPAN_MS) == PACE_SPAN_MS * 1_000 // 200
    assert pace.handed_out(900, 10, 0, 10_001 + PACE_SPAN_MS) == 0, "nothing waits"


@pytest.mark.parametrize(
    ("handed_out", "held"), [(1_000, 900), (0, 10), (1_000, 0)], ids=["slow", "stalled", "no_ack"]
)
def test_consumers_that_keep_what_they_get_have_no_pace(handed_out: int, held: int) -> None:
    """100 us a message: 900 held messages come back after nine commits."""
    pace = committing(10)
    pace.handed_out(0, held, 0, 0)
    assert pace.handed_out(handed_out, held, 1, PACE_SPAN_MS) == 0


def committing(took_ms: int) -> Pace:
    """A pace of a queue whose entries take so long."""
    pace = Pace()
    for _ in range(100):
        pace.committed(took_ms)
    return pace


def test_publishers_wait_as_long_as_consumers_need() -> None:
    assert lag_slowdown_us(PACE_LAG, 120) == 120
    assert lag_slowdown_us(PACE_LAG // 2, 120) == 60
    assert lag_slowdown_us(10**6, 120) == PACE_US_MAX
    assert lag_slowdown_us(10**6) == SLOWDOWN_US_MAX


def test_the_farther_consumers_lag_the_fewer_publishes_are_under_way() -> None:
    limits = [unanswered_max(256, ready) for ready in (0, 100, 10**6)]
    assert limits == [256, 206, UNANSWERED_LEAST]


def test_a_leader_tells_publishers_how_far_its_consumers_lag_and_their_pace() -> None:
    world = World(A, B, C)
    queue = world.declare_quorum()
    world.lead(queue, A)
    world.commit_ms = 20
    handle, channel = world.nodes[B].registry.open(queue), Channel()
    spec = world.nodes[B].spec(prefetch=100)
    handle.attach(spec, channel, _ignore)
    world.settle()
    handle.publish([message()] * 3_000, None, Channel())
    world.settle()
    slowdowns = [handle.slowdown_us]
    while len(channel.delivered) < 3_000:
        numbers = [item.number for item in channel.delivered[-100:]]
        handle.submit(Settle(spec.channel_id, spec.tag, numbers))
        world.settle()
        slowdowns.append(handle.slowdown_us)
    assert slowdowns[0] == 2_900 // LAG_PER_US, "their pace is not known yet"
    assert PACE_US_MAX in slowdowns, "they settle at once, and much waits"
    assert slowdowns[-1] == 0


def test_a_mark_is_shown_while_something_waits_and_five_seconds_more() -> None:
    mark = FlowMark()
    assert not mark.is_on(0)
    mark.begin(1_000)
    mark.begin(2_000)
    mark.end(3_000)
    assert mark.is_on(10**6)
    mark.end(20_000)
    assert mark.is_on(20_000 + FLOW_SHOWN_MS - 1)
    assert not mark.is_on(20_000 + FLOW_SHOWN_MS)
    mark.note(30_000)
    assert mark.is_on(30_000)


def test_a_queue_that_answers_late_is_in_flow_itself_and_one_that_is_busy_is_not() -> None:
    """Recipe 16: it waits for its store or its peers, not for its turn."""
    world = World()
    queue = world.declare()
    handle = world.nodes[B].registry.open(queue)
    assert isinstance(handle, RemoteQueue)
    resumed: list[bool] = []

    def fill() -> None:
        handle.publish([message(b"x")] * 300, None, Channel())
        assert handle.is_congested
        handle.when_drained(lambda: resumed.append(True))

    fill()
    world.settle()
    assert (resumed, handle.is_in_flow) == ([True], False)
    world.cut |= {(A, B), (B, A)}
    fill()
    assert not handle.is_in_flow
    world.clock.ms += SLOW_ANSWER_MS
    assert handle.is_in_flow
    world.cut.clear()
    world.tick(3)
    assert (resumed, handle.is_in_flow) == ([True, True], True)
    world.clock.ms += FLOW_SHOWN_MS
    assert not handle.is_in_flow


def test_who_waited_first_goes_on_first_and_only_as_far_as_there_is_room() -> None:
    world = World()
    waiters, room = Waiters(world.clock), 2
    order: list[str] = []

    def wait(name: str) -> None:
        def resume() -> None:
            nonlocal room
            room -= 1
            order.append(name)

        waiters.add(resume)

    for name in "abc":
        wait(name)
    waiters.release(lambda: room == 0)
    wait("d")
    assert order == ["a", "b"]
    room = 9
    waiters.release(lambda: room == 0)
    assert order == ["a", "b", "c", "d"]
    assert not waiters


def test_who_finds_no_room_after_all_waits_again() -> None:
    """One message larger than the room that is left: it must not spin."""
    waiters, tries = Waiters(World().clock), []

    def again() -> None:
        tries.append(1)
        waiters.add(again)

    waiters.add(again)
    waiters.release(lambda: False)
    assert (len(tries), bool(waiters)) == (1, True)


def test_room_is_what_would_not_be_refused() -> None:
    small, large = message(bytes(1_000)), message(bytes(12 << 20))
    half = HELD_BYTES_MAX // 2
    assert has_room(half)
    assert not has_room(half + 1)
    assert has_room(half + 1, [small])
    assert not has_room(HELD_BYTES_MAX - 1_000, [small])
    assert has_room(0, [message(bytes(HELD_BYTES_MAX + 1))])  # alone, it is taken
    assert not has_room(half, [large])
    assert has_room(1_000, [large])
    assert not has_room(half, [large, small]), "all of them count"
    assert not has_room(1_000, [small] * 17_000)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_who_needs_all_the_room_gets_it_beside_publishers_that_never_end(kind: str) -> None:
    """One message of 16 MiB or more goes when nothing else is held (P12)."""
    world = World(A, B)
    queue = world.declare("t", B) if kind == "classic" else world.declare_quorum("t", B)
    if kind == "quorum":
        world.lead(queue, B)
    handle, ended = world.nodes[A].registry.open(queue), []
    large = [message(bytes(HELD_BYTES_MAX))]

    class Steady(Channel):
        count = 0

        def confirmed(self, seqnos: Sequence[int]) -> None:
            self.go_on()

        def go_on(self) -> None:
            if handle.is_congested:
                handle.when_drained(self.go_on)
            elif self.count < 500 and not ended:
                self.count += 1
                handle.publish([message()], [self.count], self)

    class Rare(Channel):
        def confirmed(self, seqnos: Sequence[int]) -> None:
            ended.append([each.count for each in steady])

        def go_on(self) -> None:
            if handle.has_room(large):
                handle.publish(large, [1], self)
            else:
                handle.when_drained(self.go_on)

    steady = [Steady(), Steady()]
    for each in (*steady, Rare()):
        each.go_on()
    world.settle()
    assert ended == [[1, 1]]
    assert not handle.is_congested


def test_who_found_no_room_and_never_comes_back_holds_nobody_up() -> None:
    world = World(A, B)
    handle = world.nodes[A].registry.open(world.declare("t", B))
    handle.publish([message()], None, Channel())
    assert not handle.has_room([message(bytes(HELD_BYTES_MAX))])
    assert handle.is_congested
    world.settle()
    handle.publish([message()], None, Channel())
    assert not handle.is_congested


def _ignore(result: object) -> None:
    assert result is None
