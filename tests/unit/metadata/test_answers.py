"""Repeated requests get the first answer, in bounded memory (docs/protocol-rules.md P3)."""

from __future__ import annotations

from broker.errors import Refusal
from broker.metadata import answers, commands
from broker.metadata.answers import RememberedAnswers
from tests.unit.metadata.cluster import BOOT_ONE, founded, refusal


def repeat(asker, data: bytes) -> object:
    asker.index += 1
    return asker.machine.apply(asker.index, data)


def test_repeated_declare_returns_the_first_answer_and_makes_nothing():
    asker = founded()
    first = asker.queue("q")
    assert repeat(asker, asker.log[-1]) == first
    assert len(asker.machine.catalogue.queues()) == 1


def test_repeated_delete_does_not_hit_the_redeclared_exchange():
    asker = founded()
    asker.exchange("x")
    assert asker.ask(commands.DeleteExchange("/", "x")) is True
    delete, number = asker.log[-1], asker.number
    # The next request still waits for the delete's answer (`lowest`).
    declare = commands.DeclareExchange("/", "x", "fanout", True, False, False, {})
    asker.number += 1
    repeat(asker, commands.encode_request(BOOT_ONE, asker.number, number, declare))
    assert repeat(asker, delete) is True
    assert asker.machine.catalogue.exchange("/", "x") is not None


def test_request_below_the_lowest_is_refused_without_effect():
    asker = founded()
    asker.exchange("x")
    late = asker.log[-1]
    asker.ask(commands.DeleteExchange("/", "x"))
    assert refusal(repeat(asker, late))[0] == 541
    assert asker.machine.catalogue.exchange("/", "x") is None


def test_a_refusal_is_remembered_too():
    asker = founded()
    first = refusal(asker.bind("amq.direct", "q"))
    data = asker.log[-1]
    assert refusal(repeat(asker, data)) == first


def test_answer_is_found_by_a_node_whose_request_another_proposed():
    asker = founded()
    asker.exchange("x")
    assert asker.machine.answer(BOOT_ONE, asker.number) == (True,)
    assert asker.machine.answer(BOOT_ONE, asker.number + 1) is None
    assert asker.machine.answer("unknown", 1) is None


def test_memory_is_bounded_where_lowest_never_moves():
    kept = RememberedAnswers()
    kept.begin("b")
    for number in range(1, answers.ANSWERS_MAX + 11):
        kept.remember("b", number, 1, number)
    assert kept.find("b", answers.ANSWERS_MAX + 10) == (answers.ANSWERS_MAX + 10,)
    assert kept.find("b", 11) == (11,)
    gone = kept.find("b", 10)
    assert gone is not None
    assert isinstance(gone[0], Refusal)


def test_floor_far_above_costs_nothing():
    kept = RememberedAnswers()
    kept.begin("b")
    kept.remember("b", 1, 1, None)
    kept.remember("b", 2**60, 2**60, True)
    assert kept.find("b", 2**60) == (True,)
    assert kept.find("b", 2**60 + 1) is None


def test_ended_boot_is_forgotten():
    kept = RememberedAnswers()
    kept.begin("b")
    kept.remember("b", 1, 1, None)
    kept.end("b")
    kept.remember("b", 2, 1, None)
    assert not kept.is_known("b")
