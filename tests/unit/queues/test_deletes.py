"""P5: a home accepts nothing from the proposal of a conditional delete until its outcome."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import Cancel, Release
from broker.ports import Done
from tests.unit.queues.rig import A, B, Channel, World, message


def test_while_the_outcome_is_unknown_nothing_is_accepted() -> None:
    """P5: a proposal that timed out may still be committed, and take new messages with it."""
    world = World()
    queue = world.declare()
    registry, channel, answers = world.nodes[A].registry, Channel(), list[object]()
    world.agrees = False
    registry.delete(queue, answers.append, if_unused=False, if_empty=True)
    (refusal,) = answers
    assert isinstance(refusal, Refusal)
    assert refusal.code is ReplyCode.INTERNAL_ERROR
    handle = registry.open(queue)
    handle.publish([message()], [1], channel)
    world.nodes[B].registry.open(queue).publish([message()], [7], channel)
    world.settle()
    assert channel.verdicts == []
    world.agrees = True
    world.apply(world.in_doubt[0])  # it was committed after all
    world.settle()
    assert sorted(channel.verdicts) == [(1, True), (7, True)]
    assert world.catalogue.queue_by_uid(queue.uid) is None


def test_a_delete_in_doubt_is_proposed_again_until_it_is_decided() -> None:
    """P5, P6."""
    world = World()
    queue = world.declare()
    world.agrees = False
    world.nodes[A].registry.delete(queue, _ignore, if_unused=False, if_empty=True)
    world.tick()
    assert len(world.in_doubt) == 2
    world.agrees = True
    world.tick()
    assert world.catalogue.queue_by_uid(queue.uid) is None
    world.tick()
    assert world.nodes[A].registry.served_here() == []


def test_publishers_wait_while_a_delete_is_proposed() -> None:
    """What is held back must not grow with a client's patience."""
    world = World()
    queue = world.declare()
    handle = world.nodes[A].registry.open(queue)
    world.agrees = False
    world.nodes[A].registry.delete(queue, _ignore, if_unused=False, if_empty=False)
    assert handle.is_congested
    resumed: list[int] = []
    handle.when_drained(lambda: resumed.append(1))
    world.settle()
    assert resumed == []
    world.agrees = True
    world.tick()
    assert resumed == [1]


@pytest.mark.parametrize("node", [A, B])
def test_a_cancel_is_answered_when_the_auto_delete_queue_is_gone(node: str) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete; 1.8 basic.cancel"""
    world = World()
    queue = world.declare(auto_delete=True)
    here, channel = world.nodes[node], Channel()
    handle = here.registry.open(queue)
    handle.attach(here.spec(), channel, _ignore)
    handle.attach(here.spec("u"), channel, _ignore)
    world.settle()
    found: list[object] = []
    for tag in ("t", "u"):
        exists = partial(world.catalogue.queue_by_uid, queue.uid)
        handle.submit(Cancel(here.channel_id(), tag), lambda _result: found.append(exists()))  # noqa: B023
        world.settle()
    assert found == [queue, None]
    assert channel.lost == []


@pytest.mark.parametrize("node", [A, B])
def test_a_cancel_is_answered_also_where_the_cluster_does_not_agree(node: str) -> None:
    """P5: the queue accepts nothing until it is known, but nobody waits for ever."""
    world = World()
    queue = world.declare(auto_delete=True)
    here, answers = world.nodes[node], list[object]()
    handle = here.registry.open(queue)
    handle.attach(here.spec(), Channel(), _ignore)
    world.settle()
    world.agrees = False
    handle.submit(Cancel(here.channel_id(), "t"), answers.append)
    world.settle()
    assert answers == [None]
    assert world.catalogue.queue_by_uid(queue.uid) is not None
    world.agrees = True
    world.tick()
    assert world.catalogue.queue_by_uid(queue.uid) is None


def test_a_channel_that_ends_while_its_consume_is_held_back_leaves_nothing() -> None:
    world = World()
    queue = world.declare()
    node, channel = world.nodes[A], Channel()
    local = node.registry.open(queue)
    local.begin_delete(if_unused=False, if_empty=False)  # type: ignore[attr-defined]
    local.attach(node.spec(), channel, _ignore)
    local.submit(Release(node.channel_id()))
    local.resume()  # type: ignore[attr-defined]
    found: list[object] = []
    local.stat(found.append)
    assert found[0].consumers == 0  # type: ignore[attr-defined]


def _ignore(result: object) -> None:
    pass


class Later(World):
    """Group 0 agrees when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Done]] = []
        super().__init__()

    def propose(self, command: Any, done: Done, _by: Actor = BROKER) -> None:
        self.waiting.append((command, done))

    def agree(self, answer: object = None) -> None:
        waiting, self.waiting = self.waiting, []
        for command, done in waiting:
            done(self.apply(command) if answer is None else answer)


def test_two_connections_delete_a_queue_at_once() -> None:
    """The second waits for the first, and finds nothing: that is what it wanted."""
    world = Later()
    queue = world.declare()
    registry, answers = world.nodes[A].registry, list[object]()
    for _ in range(2):
        registry.delete(queue, answers.append, if_unused=False, if_empty=False)
    world.agree()
    world.settle()
    assert answers == [0, 0]


def test_a_delete_right_after_the_last_cancel_of_an_auto_delete_queue() -> None:
    """Rows: 1.3 queue.delete"""
    world = Later()
    queue = world.declare(auto_delete=True)
    node = world.nodes[A]
    handle, answers = node.registry.open(queue), list[object]()
    handle.attach(node.spec(), Channel(), _ignore)
    handle.submit(Cancel(node.channel_id(), "t"), _ignore)
    assert len(world.waiting) == 1, "its end is proposed"
    node.registry.delete(queue, answers.append, if_unused=False, if_empty=False)
    world.agree()
    world.settle()
    assert answers == [0]


def test_a_second_delete_is_tried_once_the_first_was_refused() -> None:
    world = Later()
    queue = world.declare()
    registry, answers = world.nodes[A].registry, list[object]()
    for _ in range(2):
        registry.delete(queue, answers.append, if_unused=False, if_empty=False)
    world.agree(Refusal(ReplyCode.ACCESS_REFUSED, "no"))
    assert [type(each) for each in answers] == [Refusal]
    world.agree()
    world.settle()
    assert answers[1:] == [0]
