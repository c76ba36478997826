from __future__ import annotations

from broker.fifo.commands import EndBoot, Enqueue, Get, Offer, Settle
from broker.queues.quorum import batches
from tests.unit.queues.rig import message


def offer(count: int, size: int) -> Offer:
    return Offer("a/1/7/0", 1, 1, [Enqueue([message(b"x" * size)] * count)])


def test_what_gathers_in_a_turn_is_one_entry() -> None:
    gathered = [offer(10, 100), EndBoot("a", "1"), Offer("b/1/7/0", 1, 1, [Settle("h", "t", [1])])]
    assert list(batches(gathered)) == [gathered]
    assert list(batches([])) == []


def test_an_entry_ends_at_a_thousand_commands_or_one_mib() -> None:
    """P13: a node that offers everything again does not make one entry of it."""
    many = [offer(600, 1), offer(400, 1), offer(1, 1)]
    assert list(batches(many)) == [many[:2], many[2:]]
    large = [offer(1, 600_000), offer(1, 600_000), offer(1, 5_000_000), EndBoot("a", "1")]
    assert list(batches(large)) == [[each] for each in large]


def test_consumers_are_served_at_the_end_of_an_entry_before_a_get() -> None:
    publish, get = offer(1, 1), Offer("b/1/7/0", 1, 5, [Get("h", False)])
    both = Offer("a/1/7/0", 1, 1, [*publish.commands, *get.commands])
    assert list(batches([both, publish, get, get])) == [[both, publish, get, get]]
    parts = list(batches([both, publish, get, get], has_consumers=True))
    assert [[each.commands for each in part if isinstance(each, Offer)] for part in parts] == [
        [publish.commands],
        [get.commands, publish.commands],
        [get.commands, get.commands],
    ]
