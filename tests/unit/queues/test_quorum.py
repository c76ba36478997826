from __future__ import annotations

from broker.fifo.commands import CommandBatch, EndBoot, Enqueue, Get, Settle
from broker.queues.quorum import cut_entries
from tests.unit.queues.rig import message


def batch(count: int, size: int) -> CommandBatch:
    return CommandBatch("a/1/7/0", 1, 1, [Enqueue([message(b"x" * size)] * count)])


def test_what_gathers_in_a_turn_is_one_entry() -> None:
    gathered = [
        batch(10, 100),
        EndBoot("a", "1"),
        CommandBatch("b/1/7/0", 1, 1, [Settle("h", "t", [1])]),
    ]
    assert list(cut_entries(gathered)) == [gathered]
    assert list(cut_entries([])) == []


def test_an_entry_ends_at_a_thousand_commands_or_one_mib() -> None:
    """P13: a node that sends everything again does not make one entry of it."""
    many = [batch(600, 1), batch(400, 1), batch(1, 1)]
    assert list(cut_entries(many)) == [many[:2], many[2:]]
    large = [batch(1, 600_000), batch(1, 600_000), batch(1, 5_000_000), EndBoot("a", "1")]
    assert list(cut_entries(large)) == [[each] for each in large]


def test_consumers_are_served_at_the_end_of_an_entry_before_a_get() -> None:
    publish, get = batch(1, 1), CommandBatch("b/1/7/0", 1, 5, [Get("h", False)])
    both = CommandBatch("a/1/7/0", 1, 1, [*publish.commands, *get.commands])
    assert list(cut_entries([both, publish, get, get])) == [[both, publish, get, get]]
    parts = list(cut_entries([both, publish, get, get], has_consumers=True))
    assert [
        [each.commands for each in part if isinstance(each, CommandBatch)] for part in parts
    ] == [
        [publish.commands],
        [get.commands, publish.commands],
        [get.commands, get.commands],
    ]
