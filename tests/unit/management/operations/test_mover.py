"""Messages carried from a mirrored queue to another: none lost, in order, also after failovers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.management.operations.mover import TAG, Mover
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
            registry.open(self.target),
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
    mover = Mover(Target(), Target(), "a/1/1/1", defer=due.append)
    timed, plain = message(ttl_ms=5, expires_ms=1_000), message()
    mover.deliver(TAG, [Delivery(1, 0, timed), Delivery(2, 0, plain)])
    due.pop()()
    assert published == [message(ttl_ms=5), plain]
