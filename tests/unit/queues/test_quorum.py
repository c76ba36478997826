from __future__ import annotations

from broker.fifo.commands import EndBoot, Enqueue, Offer, Settle
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
