"""What a queue elsewhere hands to a consumer that is being cancelled gets lost to nobody."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from tests.unit.queues.rig import A, B, C, Channel, message
from tests.unit.queues.ringed import RingedWorld, bodies, consuming, fail_over, flags


@pytest.fixture
def world() -> RingedWorld:
    return RingedWorld({})


def in_one_turn(world: RingedWorld, *acts: Callable[[], None]) -> None:
    """Let the master take what comes as its shells do: all offers of a turn, then one answer."""
    master = world.master
    assert master is not None
    with patch.object(master, "receive", lambda offer: master.machine.apply_offer(offer, 0)):
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
        lambda: node.handle.cancel(
            node.holder(), "t", lambda _: told.append(len(reader.delivered))
        ),
    )
    assert told == [1]
    assert bodies(reader) == [b"1"]
    node.handle.settle(node.holder(), "t", [reader.delivered[0].number])
    world.settle()
    assert world.master is not None
    assert world.master.machine.stat()[:2] == (0, 0)


def test_what_comes_for_a_consumer_after_its_end_goes_back(world: RingedWorld) -> None:
    """A cancel that nobody could take is over for the client after a minute, and asked later."""
    node = world.nodes[C]
    reader, _ = consuming(node, prefetch=1)
    told = list[object]()
    node.is_clogged = True
    node.handle.cancel(node.holder(), "t", told.append)
    world.clock.ms += 61_000
    node.handle.tick()
    assert told == [None]
    world.nodes[B].handle.publish([message(b"1")], None, Channel())
    world.settle()
    node.is_clogged = False
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
    node.handle.cancel(node.holder(), "t", lambda _: None)
    node.handle.consume(node.spec("t"), second, told.append)
    world.settle()
    world.nodes[B].handle.publish([message(b"1")], None, Channel())
    world.settle()
    assert told == [None]
    assert (bodies(first), bodies(second)) == ([], [b"1"])
    fail_over(world)
    assert flags(second) == [(b"1", False), (b"1", True)]
