"""P14: limits sit at the origin; nothing is thrown away because a link is slow."""

from __future__ import annotations

from broker.fifo.effects import pack_value
from broker.message import Delivery
from broker.queues.envelopes import ANSWER_BYTES_MAX, Answer, cut_answer
from tests.unit.queues.rig import A, B, Channel, World, message


def test_a_clogged_link_pauses_the_consumers_behind_it() -> None:
    """P14: else a backlog overflows the link, which breaks, and what was on it is lost."""
    world = World()
    queue = world.declare()
    channel, here = Channel(), Channel()
    world.nodes[B].registry.open(queue).consume(world.nodes[B].spec(no_ack=True), channel, _ignore)
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


def test_offers_wait_where_they_come_from_while_the_link_is_clogged() -> None:
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
    answer = Answer(7, 3, deliveries=[("a/1/1/1", "t", [Delivery(1, 0, message())])])
    assert list(cut_answer(answer)) == [answer]


def test_an_answer_is_cut_at_one_mib() -> None:
    """P13: a consumer may hold more than one payload can carry."""
    body = b"x" * (ANSWER_BYTES_MAX // 4)
    some = [Delivery(number, 0, message(body)) for number in range(1, 11)]
    answer = Answer(
        7,
        3,
        verdicts=[("a/1/7/0", 1, 2, True)],
        replies=[("a/1/7/0", 3, pack_value(None))],
        deliveries=[("a/1/1/1", "t", some), ("a/1/1/1", "u", some[:1])],
        lost_consumers=[("a/1/1/1", "v")],
        lag=5,
    )
    parts = list(cut_answer(answer))
    assert parts[0].verdicts == answer.verdicts
    assert parts[0].replies == answer.replies
    assert parts[-1].lost_consumers == answer.lost_consumers
    assert all((part.uid, part.epoch, part.lag) == (7, 3, 5) for part in parts)
    cut = [(tag, item) for part in parts for _, tag, items in part.deliveries for item in items]
    assert cut == [("t", item) for item in some] + [("u", some[0])]
    sizes = [sum(len(d[2].content) for _, _, ds in part.deliveries for d in ds) for part in parts]
    assert max(sizes) <= ANSWER_BYTES_MAX


def _ignore(result: object) -> None:
    assert result is None
