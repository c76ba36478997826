"""Rates, and what listings show of counters (`broker.management.statistics`)."""

from __future__ import annotations

from broker.counters import MESSAGE_KEYS, MessageCounts
from broker.management.statistics import message_stats
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.rates import Rates


def sample(rates: Rates[str], now_ms: int, **objects: tuple[int, ...]) -> None:
    for _ in rates.sample(now_ms, objects.items()):
        pass


def test_a_rate_is_the_difference_of_two_samples_by_their_time():
    rates = Rates[str]()
    sample(rates, 1_000, a=(10, 0), b=(5, 5))
    assert rates.of("a") == ()
    sample(rates, 3_000, a=(50, 0), b=(5, 5), c=(1, 1))
    assert (rates.of("a"), rates.of("b"), rates.of("c")) == ((20.0, 0.0), (), ())


def test_who_is_missing_is_forgotten_and_begins_anew():
    rates = Rates[str]()
    sample(rates, 0, a=(10,))
    sample(rates, 1_000)
    sample(rates, 2_000, a=(1_000_000,))
    assert rates.of("a") == ()


def test_a_counter_that_began_anew_grew_by_what_it_is_and_a_level_may_fall():
    rates = Rates[str](levels=1)
    sample(rates, 0, a=(100, 100))
    sample(rates, 1_000, a=(30, 30))
    assert rates.of("a") == (30.0, -70.0)


def test_rates_end_when_nothing_happens_any_more():
    rates = Rates[str]()
    for now_ms, number in ((0, 0), (1_000, 7), (2_000, 7)):
        sample(rates, now_ms, a=(number,))
    assert rates.of("a") == ()


def test_nodes_are_added_up_although_some_have_no_rates():
    found = total([Measured((1, 2), (0.5, 1.5)), Measured((10, 20)), Measured()])
    assert found == Measured((11, 22), (0.5, 1.5))
    assert total([]) == Measured()


def counted(**numbers: int) -> tuple[int, ...]:
    counts = MessageCounts()
    for key, number in numbers.items():
        setattr(counts, key, number)
    return counts.values()


def test_each_number_stands_beside_its_rate_and_deliver_get_is_a_sum():
    numbers = counted(publish=9, deliver=5, get_no_ack=2)
    found = message_stats.of_messages(Measured(numbers, counted(publish=3, deliver=1)))
    assert (found["publish"], found["publish_details"]) == (9, {"rate": 3})
    assert (found["deliver_get"], found["deliver_get_details"]) == (7, {"rate": 1})
    assert found["ack_details"] == {"rate": 0.0}
    assert {*found} == {
        key + end for key in (*MESSAGE_KEYS, "deliver_get") for end in ("", "_details")
    }


def test_nothing_is_shown_of_what_never_happened():
    assert message_stats.of_messages(Measured(counted())) == {}
    assert message_stats.of_exchange(Measured((0, 0))) == {}
    assert message_stats.of_churn(Measured())["queue_declared"] == 0


def test_a_queue_shows_how_fast_it_fills_but_no_confirms():
    measured = Measured((*counted(publish=4), 3, 1), (*counted(publish=2), 2.0, -0.5))
    assert message_stats.levels(measured) == {
        "messages_details": {"rate": 1.5},
        "messages_ready_details": {"rate": 2.0},
        "messages_unacknowledged_details": {"rate": -0.5},
    }
    assert "confirm" not in message_stats.of_queue(measured)
    assert message_stats.of_queue(measured)["publish"] == 4
