"""Messages carried from a mirrored queue to another: none lost, in order, also after failovers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.fifo.commands import Release, SetPrefetch, Settle
from broker.management.operations.mover import TAG, Mover, OneQueue
from broker.message import Delivery, Message
from tests.model.fifo_model import message
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel


class Carried:
    """A mirrored queue "q" and a plain queue "target" on B, with a mover between them on C."""

    def __init__(self, prefetch: int = 3, at: str = C) -> None:
        self.trio = Trio()
        self.node = self.trio.nodes[at]
        self.target = self.trio.declare("target", B)
        self.trio.settle()
        self.prefetch = prefetch

    def begin(self) -> Mover:
        registry = self.node.registry
        mover = Mover(
            registry.open(self.trio.queue),
            OneQueue(registry.open(self.target)),
            self.node.channel_id("0.1"),
            defer=self.node.deferred.append,
        )
        answers: list[object] = []
        mover.begin(self.prefetch, answers.append)
        self.trio.settle()
        assert answers == [None]
        return mover

    def bodies(self) -> list[bytes]:
        channel = Channel()
        spec = self.node.spec(no_ack=True)
        self.node.registry.open(self.target).attach(spec, channel, lambda _: None)
        self.trio.settle()
        return self.trio.bodies(channel)

    def ready(self) -> int:
        found: list[object] = []
        self.node.registry.open(self.trio.queue).stat(found.append)
        self.trio.settle()
        return found[0].ready


def numbers(*found: int) -> list[bytes]:
    return [b"%d" % number for number in found]


@pytest.mark.parametrize("at", [A, C])
def test_everything_arrives_in_order_and_nothing_stays(at: str) -> None:
    carried = Carried(at=at)
    carried.trio.confirmed(B, *range(1, 11))
    mover = carried.begin()
    carried.trio.settle()
    carried.trio.confirmed(A, 11, 12)
    carried.trio.settle()
    assert (mover.moved, mover.failure, mover.is_idle) == (12, "", True)
    assert carried.bodies() == numbers(*range(1, 13))
    assert carried.trio.depth(A) == 0


def test_the_source_is_unused_once_it_has_been_left() -> None:
    carried = Carried()
    mover = carried.begin()
    left: list[object] = []
    mover.leave(left.append)
    carried.trio.settle()
    assert left == [None]
    deleted: list[object] = []
    registry = carried.node.registry
    registry.delete(carried.trio.queue, deleted.append, if_unused=True, if_empty=True)
    assert deleted == [0]


def test_nothing_is_acknowledged_before_it_has_arrived() -> None:
    carried = Carried(prefetch=4)
    carried.trio.confirmed(A, *range(1, 11))
    carried.trio.unsynced = {B}  # the target's disk: nothing is confirmed
    mover = carried.begin()
    assert mover.moved == 0
    assert carried.trio.depth(A) == 10
    mover.end()
    carried.trio.settle()
    assert carried.ready() == 10, "back at their places, to be carried again"


def test_the_source_goes_on_at_its_next_master() -> None:
    carried = Carried()
    carried.trio.confirmed(B, *range(1, 11))
    carried.trio.unsynced = {B}
    mover = carried.begin()
    carried.trio.kill(A)
    carried.trio.unsynced = set()
    carried.trio.settle()
    carried.trio.tick(2)
    assert carried.trio.master == B
    assert mover.failure == ""
    assert mover.is_idle
    found = [int(body) for body in carried.bodies()]
    assert set(found) == set(range(1, 11))
    assert len(found) <= 10 + carried.prefetch, "only what was under way came twice"


def test_a_refusal_ends_it_and_the_rest_stays() -> None:
    carried = Carried()
    carried.trio.confirmed(A, *range(1, 11))
    carried.trio.unsynced = {B}
    mover = carried.begin()
    mover.rejected([2])
    carried.trio.unsynced = set()
    carried.trio.settle()
    assert "refused" in mover.failure
    mover.end()
    carried.trio.settle()
    assert carried.ready() == 10 - mover.moved > 0


def test_a_source_that_is_deleted_is_noticed() -> None:
    carried = Carried()
    mover = carried.begin()
    mover.consumer_lost(TAG)
    assert mover.failure


def test_a_time_to_live_begins_again_in_the_target() -> None:
    """Else the target had messages that expire and did not know that it has to look."""
    published: list[Message] = []

    class Target:
        def publish(self, messages: list[Message], _seqnos: object, _port: object) -> None:
            published.extend(messages)

    due: list[Callable[[], None]] = []
    mover = Mover(Target(), OneQueue(Target()), "a/1/1/1", defer=due.append)
    timed, plain = message(ttl_ms=5, expires_ms=1_000), message()
    mover.deliver(TAG, [Delivery(1, 0, timed), Delivery(2, 0, plain)])
    due.pop()()
    assert published == [message(ttl_ms=5), plain]


class Place:
    """A queue that notes what it is told."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.submitted: list[object] = []

    def publish(self, _messages: list[Message], seqnos: list[int], _port: object) -> None:
        self.published += seqnos

    def submit(self, command: object, done: Callable[[object], None] | None = None) -> None:
        self.submitted.append(command)
        if done is not None:
            done(None)

    def settled(self) -> list[int]:
        return [n for each in self.submitted if isinstance(each, Settle) for n in each.numbers]


class Sorted:
    """Even numbers go to one queue, those of four to two; odd ones stay."""

    def __init__(self) -> None:
        self.first, self.second = Place(), Place()
        self.forgotten = 0

    def way(self, delivery: Delivery) -> list[tuple[Message, Place]]:
        message, number = delivery.message, delivery.number
        ways = [] if number % 2 else [(message, self.first)]
        return ways if number % 4 else [*ways, (message, self.second)]

    def forget(self) -> None:
        self.forgotten += 1


class Chosen:
    """A mover that asks `Sorted`, on a loop of its own."""

    def __init__(self, **limits: int) -> None:
        self.due: list[Callable[[], None]] = []
        self.ways, self.source = Sorted(), Place()
        self.mover = Mover(self.source, self.ways, "a/1/1/1", defer=self.due.append, **limits)

    def deliver(self, *found: int) -> None:
        self.mover.deliver(TAG, [Delivery(number, 0, message()) for number in found])
        self.run()

    def run(self) -> None:
        while self.due:
            self.due.pop()()


def test_what_has_no_way_is_held_and_makes_room_for_more() -> None:
    chosen = Chosen()
    chosen.deliver(1, 2, 3)
    assert chosen.source.submitted == [SetPrefetch("a/1/1/1", TAG, 2)]
    assert (chosen.mover.kept, chosen.mover.under_way) == (2, 1)
    chosen.mover.end()
    assert chosen.source.submitted[-1] == Release("a/1/1/1")


def test_what_a_source_delivers_at_once_is_looked_at() -> None:
    """A queue of this node delivers while it is told that there is room."""
    chosen = Chosen()
    submit, left = chosen.source.submit, [[5, 7], [9]]

    def delivers(command: object, done: Callable[[object], None] | None = None) -> None:
        submit(command, done)
        if isinstance(command, SetPrefetch) and left:
            found = left.pop(0)
            chosen.mover.deliver(TAG, [Delivery(number, 0, message()) for number in found])

    chosen.source.submit = delivers
    chosen.deliver(1, 3)
    assert (chosen.mover.kept, chosen.mover.held) == (5, 5)


def test_a_message_for_two_queues_is_let_go_when_both_have_it() -> None:
    chosen = Chosen()
    chosen.deliver(4)
    chosen.mover.confirmed([1])
    chosen.run()
    assert (chosen.source.settled(), chosen.mover.moved) == ([], 0)
    chosen.mover.confirmed([2])
    chosen.run()
    assert (chosen.source.settled(), chosen.mover.moved) == ([4], 1)


@pytest.mark.parametrize("refused_first", [True, False])
def test_a_message_that_one_of_two_queues_refuses_stays(refused_first: bool) -> None:
    chosen = Chosen(refusals_max=5)
    chosen.deliver(4)
    verdicts = [lambda: chosen.mover.rejected([1]), lambda: chosen.mover.confirmed([2])]
    for speak in verdicts if refused_first else reversed(verdicts):
        speak()
    chosen.run()
    assert (chosen.source.settled(), chosen.mover.refused, chosen.mover.kept) == ([], 1, 1)
    assert chosen.mover.failure == ""


def test_refusals_beyond_what_is_borne_end_it() -> None:
    chosen = Chosen(refusals_max=1)
    chosen.deliver(2, 6, 10)
    chosen.mover.rejected([1])
    assert chosen.mover.failure == ""
    chosen.mover.rejected([2])
    assert "refused" in chosen.mover.failure
    chosen.mover.confirmed([3])
    chosen.run()
    assert chosen.source.settled() == [10], "what was under way arrives"


def test_no_more_is_published_than_is_allowed() -> None:
    chosen = Chosen()
    chosen.mover.allow(1)
    chosen.deliver(1, 2, 3, 6, 10)
    assert len(chosen.ways.first.published) == 1
    assert not chosen.mover.is_idle
    chosen.mover.allow(1)
    chosen.run()
    assert (len(chosen.ways.first.published), chosen.mover.kept) == (2, 2)


def test_no_turn_of_the_loop_looks_at_more_than_it_may() -> None:
    chosen = Chosen(turn_max=2)
    chosen.mover.deliver(TAG, [Delivery(number, 0, message()) for number in (2, 6, 10)])
    chosen.due.pop()()
    assert (len(chosen.ways.first.published), chosen.mover.is_idle) == (2, False)
    chosen.run()
    assert len(chosen.ways.first.published) == 3


def test_no_more_is_looked_at_or_sent_than_was_asked_for() -> None:
    looks = Chosen(look_max=2)
    looks.deliver(1, 2, 6)
    assert (looks.mover.kept, len(looks.ways.first.published), looks.mover.is_over) == (1, 1, True)
    sends = Chosen(send_max=1)
    sends.deliver(1, 2, 3, 6)
    assert (sends.mover.kept, len(sends.ways.first.published), sends.mover.is_over) == (1, 1, True)


def test_after_a_failover_of_the_source_as_many_are_looked_at_as_before() -> None:
    """All that was delivered comes again; what was published and not confirmed is sent again."""
    chosen = Chosen(look_max=4, send_max=2)
    chosen.deliver(1, 2, 3)
    chosen.mover.consumer_moved(TAG)
    assert (chosen.mover.kept, chosen.ways.forgotten, chosen.mover.doubted) == (0, 1, 1)
    chosen.mover.confirmed([1])
    chosen.deliver(1, 2, 3, 6)
    assert (chosen.mover.kept, len(chosen.ways.first.published)) == (2, 3)
    chosen.mover.confirmed([2, 3])
    chosen.run()
    assert (chosen.source.settled(), chosen.mover.is_over) == ([2, 6], True)


def test_an_acknowledgement_that_is_not_confirmed_is_told_and_makes_room_to_look_again() -> None:
    chosen = Chosen(look_max=1)
    answers: list[Callable[[object], None]] = []
    chosen.source.submit = lambda _command, done=None: answers.append(done)
    chosen.deliver(2)
    chosen.mover.confirmed([1])
    chosen.run()
    assert (chosen.mover.is_over, chosen.mover.is_idle) == (True, False), "nobody knows yet"
    answers.pop()("a refusal")
    assert (chosen.mover.moved, chosen.mover.doubted, chosen.mover.is_over) == (1, 1, False)
    chosen.deliver(2)
    assert len(chosen.ways.first.published) == 2
