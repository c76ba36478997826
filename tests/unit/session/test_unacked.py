from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import AmqpError
from broker.session.unacked import DeliverySource, GivenBack, Unacked

A, B = DeliverySource(1, "a"), DeliverySource(2, "b")


def filled() -> Unacked:
    ledger = Unacked()
    ledger.add(1, A, [10, 11, 12], 0)
    ledger.add(4, B, [50], 0)
    ledger.add(6, A, [13, 14], 0)  # 5 was a no_ack delivery
    return ledger


def test_multiple_takes_everything_up_to_the_tag() -> None:
    ledger = filled()
    assert ledger.take_through(6) == [(A, [10, 11, 12]), (B, [50]), (A, [13])]
    assert ledger.count == 1
    assert ledger.take_through(0) == [(A, [14])]
    assert ledger.take_through(0) == []


@pytest.mark.parametrize("tag", [5, 8, 99, -1])
def test_tag_that_is_not_outstanding_is_an_error_even_with_multiple(tag: int) -> None:
    ledger = filled()
    with pytest.raises(AmqpError, match="unknown delivery tag"):
        ledger.take_through(tag)
    with pytest.raises(AmqpError, match=f"unknown delivery tag {tag}"):
        ledger.take_one(tag)
    assert ledger.count == 6


def test_zero_without_multiple_is_unknown() -> None:
    with pytest.raises(AmqpError, match="unknown delivery tag 0"):
        filled().take_one(0)


def test_a_tag_can_be_taken_once() -> None:
    ledger = filled()
    assert ledger.take_one(2) == (A, 11)
    with pytest.raises(AmqpError):
        ledger.take_one(2)
    assert ledger.take_through(3) == [(A, [10, 12])]


def test_restore_puts_entries_back_in_order() -> None:
    ledger = filled()
    entries = ledger.entries(4)
    ledger.take_through(4)
    ledger.restore(entries, 0)
    assert [tag for tag, _, _ in ledger.entries()] == [1, 2, 3, 4, 6, 7]
    assert ledger.take_one(4) == (B, 50)


def test_oldest_follows_what_is_outstanding() -> None:
    ledger = Unacked()
    assert ledger.oldest() is None
    ledger.add(1, A, [1], 5)
    ledger.add(2, A, [2], 5000)
    assert ledger.oldest() == (1, 5)
    ledger.take_one(1)
    assert ledger.oldest() == (1, 5000)


def test_one_stuck_delivery_does_not_pile_up_runs() -> None:
    ledger = Unacked()
    ledger.add(1, A, [1], 0)
    for tag in range(2, 5000):
        ledger.add(tag, B, [tag], 0)
        ledger.take_one(tag)
    assert len(ledger._runs) < 10


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("one"), st.integers(0, 40), st.just(0), st.just(0)),
        st.tuples(st.just("through"), st.integers(0, 40), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(operations)
def test_behaves_as_a_plain_dict_of_tags(script: list[tuple[str, int, int, int]]) -> None:
    ledger, model, next_tag = Unacked(), {}, 1
    for name, value, count, skips in script:
        if name == "add":
            source = (A, B)[value]
            next_tag += int(skips)
            numbers = [1000 + next_tag + n for n in range(count)]
            for n, number in enumerate(numbers):
                model[next_tag + n] = (source, number)
            ledger.add(next_tag, source, numbers, 0)
            next_tag += count
            continue
        known = value in model or (name == "through" and value == 0)
        try:
            if name == "one":
                assert ledger.take_one(value) == model.pop(value)
            else:
                taken = [(s, n) for s, numbers in ledger.take_through(value) for n in numbers]
                tags = [tag for tag in model if tag <= value or value == 0]
                assert taken == [model.pop(tag) for tag in tags]
            assert known
        except AmqpError:
            assert not known
        assert ledger.count == len(model)
        assert ledger.entries() == [(tag, *entry) for tag, entry in model.items()]


def test_what_was_given_back_can_be_settled_without_an_error_and_settles_nothing() -> None:
    ledger = filled()
    assert ledger.give_back([1, 3, 4]) == [(A, [10]), (A, [12]), (B, [50])]
    assert ledger.count == 3
    assert ledger.take_through(4) == [(A, [11])]  # the rest of what it means
    assert ledger.take_through(4) == []
    with pytest.raises(AmqpError, match="unknown delivery tag 2"):
        ledger.take_through(2)  # that one the client has settled itself
    assert ledger.take_through(7) == [(A, [13, 14])]


def test_the_held_are_those_of_one_consumer_and_queue_the_oldest_first() -> None:
    ledger = filled()
    ledger.take_one(2)
    assert ledger.held(1, "a", most=10, through=6) == [(1, 0), (3, 0), (6, 0)]
    assert ledger.held(1, "a", most=2, through=99) == [(1, 0), (3, 0)]
    assert ledger.held(2, "a", most=10, through=99) == []
    ledger.lose(A)
    assert ledger.held(1, "a", most=10, through=99) == []


@given(st.lists(st.sets(st.integers(1, 40)), max_size=8))
def test_tags_given_back_are_a_set_in_few_ranges(steps: list[set[int]]) -> None:
    found, model = GivenBack(), set[int]()
    for tags in steps:
        found.add(sorted(tags - model))
        model |= tags
        assert {tag for tag in range(42) if tag in found} == model
        assert found.ranges == sum(tag - 1 not in model for tag in model)
