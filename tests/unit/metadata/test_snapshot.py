"""Snapshot parts: bounded, canonical, and refused when damaged."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata.catalogue import binding_key
from broker.metadata.machine import MetadataMachine
from broker.metadata.snapshot import PART_BYTES_MAX
from tests.unit.metadata.cluster import ONE, Asker, founded


def test_parts_stay_below_their_limit_even_with_a_record_above_it():
    asker = founded()
    value = {"blob": "x" * (2 * PART_BYTES_MAX)}
    asker.ask(commands.SetParameter("", "", "big", value))
    parts = asker.machine.snapshot()
    assert len(parts) == 3
    assert max(map(len, parts)) <= PART_BYTES_MAX
    machine = MetadataMachine()
    machine.restore(asker.index, parts)
    record = machine.catalogue.parameter("", "", "big")
    assert record is not None
    assert record.value == value


def test_equal_states_have_equal_bytes_whatever_the_order():
    one, two = founded(), founded()
    for name in ("a", "b"):
        one.exchange(name)
    for name in ("b", "a"):
        two.exchange(name)
    assert one.machine.snapshot() == two.machine.snapshot()


def test_cut_unknown_and_newer_streams_are_refused():
    parts = founded().machine.snapshot()
    with pytest.raises(ValueError, match="snapshot ends"):
        MetadataMachine().restore(1, [parts[0][:-1]])
    with pytest.raises(ValueError, match="kind 99"):
        MetadataMachine().restore(1, [b"\x00\x00\x00\x03\x92\x63\xc0"])
    with pytest.raises(ValueError, match="version 7"):
        MetadataMachine().restore(1, [b"\x00\x00\x00\x07\x92\x00\x94\x07\x01\xa0\xa0"])


def test_bindings_of_all_kinds_survive():
    asker = founded()
    asker.exchange("x", "headers", arguments={"alternate-exchange": "amq.fanout"})
    asker.queue("q", arguments={"x-dead-letter-exchange": "", "bytes": b"\xff"})
    asker.bind("amq.topic", "x", "#", kind="exchange")
    asker.bind("x", "q", arguments={"x-match": "any", "a": 1.5, "b": None})
    asker.bind("amq.fanout", "q")
    machine = MetadataMachine()
    machine.restore(asker.index, asker.machine.snapshot())
    for headers in ({"a": 1.5}, {"a": 2}):
        route = machine.catalogue.route("/", "amq.topic", "k", headers)
        assert route is not None
        assert [queue.name for queue in route.queues] == ["q"]
    assert {binding_key(each): each for each in machine.catalogue.bindings()} == {
        binding_key(each): each for each in asker.machine.catalogue.bindings()
    }


def test_empty_machine_goes_through_a_snapshot():
    machine = MetadataMachine()
    machine.restore(0, MetadataMachine().snapshot())
    asker = Asker(machine)
    assert asker.ask(commands.Bootstrap("id", "n", ((ONE, "h:1"),))) is None


def test_answers_have_equal_bytes_whether_their_queue_was_restored_or_not():
    """A snapshot sorts arguments; an answer remembered after it must not show that."""
    asker = founded()
    arguments = {"x-message-ttl": 1, "x-expires": 2, "x-max-length": 3}
    asker.queue("q", arguments=arguments)
    restored = MetadataMachine()
    restored.restore(asker.index, asker.machine.snapshot())
    asker.queue("q", arguments=arguments)
    restored.apply(asker.index, asker.log[-1])
    assert restored.snapshot() == asker.machine.snapshot()
